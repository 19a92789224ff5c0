"""Pieces of the placement being built (State.place_*), and of running jobs."""

from __future__ import annotations

from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import give, take
from queuewise.sim.core.state import Machine, State, World


@inline
def takes_share(w: World, c: int) -> bool:
    return w.class_gpus[c] == 0 and w.class_milli[c] > 0


@inline
def note_piece(s: State, n: int, tasks: int, gpus: int) -> None:
    k = s.count.placed
    s.place_node[k] = n
    s.place_tasks[k] = tasks
    s.place_gpus[k] = gpus
    s.count.placed = k + 1


@kernel
def put_tasks(w: World, m: Machine, s: State, c: int, n: int, tasks: int, widest: bool) -> None:
    """Put tasks on a node and add a piece to the placement, or one piece per task if GPUs are shared."""
    if w.sizes.shares_gpus and takes_share(w, c):
        for _ in range(tasks):
            note_piece(s, n, 1, take(w, m, c, n, 1, widest))
    else:
        note_piece(s, n, tasks, take(w, m, c, n, tasks, widest))


@kernel
def class_as_placed(w: World, s: State, c: int) -> int:
    """The class with the number of tasks in State.place_*. It differs from c only for elastic jobs."""
    if w.class_span[c] == 0:
        return c
    tasks = 0
    for k in range(s.count.placed):
        tasks += s.place_tasks[k]
    return c + tasks - w.class_tasks[c]


@kernel
def unplace(w: World, m: Machine, s: State, c: int) -> None:
    """Take the gang that was just placed off the machine. State.place_* keeps the pieces."""
    for k in range(s.count.placed - 1, -1, -1):
        give(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])


@kernel
def nodes_used(s: State) -> int:
    """Number of nodes of the placement. Pieces of one node must be adjacent."""
    number = 0
    for k in range(s.count.placed):
        if k == 0 or s.place_node[k] != s.place_node[k - 1]:
            number += 1
    return number


@kernel
def group_by_node(w: World, s: State, c: int) -> None:
    """Make pieces of a node adjacent after tasks were placed one by one, and merge them unless they are shares."""
    number = s.count.placed
    kept = 0
    for k in range(number):
        n, tasks, gpus = s.place_node[k], s.place_tasks[k], s.place_gpus[k]
        at = kept - 1
        while at >= 0 and s.place_node[at] != n:
            at -= 1
        if at >= 0 and not takes_share(w, c):
            s.place_tasks[at] += tasks
            s.place_gpus[at] |= gpus
            continue
        at = kept if at < 0 else at + 1
        for move in range(kept, at, -1):
            s.place_node[move] = s.place_node[move - 1]
            s.place_tasks[move] = s.place_tasks[move - 1]
            s.place_gpus[move] = s.place_gpus[move - 1]
        s.place_node[at] = n
        s.place_tasks[at] = tasks
        s.place_gpus[at] = gpus
        kept += 1
    s.count.placed = kept


@kernel
def tasks_held(w: World, s: State, j: int) -> int:
    """Tasks of a job that runs, or ran until now."""
    if w.class_span[w.job_class[j]] == 0:
        return w.class_tasks[w.job_class[j]]
    tasks = 0
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        tasks += s.piece_tasks[k]
    return tasks
