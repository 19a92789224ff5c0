"""The engine, one action at a time, for policies that decide in Python and for replaying a log.

Callers advance to the next instant, ask what fits, and start, stop or move jobs.
"""

from __future__ import annotations

from queuewise.sim import backfill
from queuewise.sim.backfill.easy import head_keeps_place, note_outliving, reserve_head
from queuewise.sim.conditions.power_cap import is_over_cap
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.lifecycle import end_run, put_back, queue_again, start_placed, stop_to_move, take_off
from queuewise.sim.core.loop import next_instant
from queuewise.sim.core.machine import piece_is_free, slots_on, take_exactly
from queuewise.sim.core.pieces import note_piece, put_tasks, unplace
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.preemption.restart import may_be_stopped, policy_saves
from queuewise.sim.queue.overdue import has_bound, oldest_overdue

NEXT_INSTANT, START_OVERDUE, ASK_FIT, ASK_SLOTS, START, START_ON, START_THERE, STOP, MOVE, MOVE_TO, MOVE_THERE = range(11)


@kernel
def _place_on(w: World, m: Machine, s: State, c: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    """Put tasks[i] tasks on nodes[i]; the nodes must be distinct.

    If they do not fit, change nothing and return False.
    """
    s.count.placed = 0
    for i in range(len(nodes)):
        if slots_on(w, m, c, nodes[i]) < tasks[i]:
            unplace(w, m, s, c)
            return False
        put_tasks(w, m, s, c, nodes[i], tasks[i], False)
    if is_over_cap(w, m):
        unplace(w, m, s, c)
        return False
    return True


@kernel
def _place_there(w: World, m: Machine, s: State, c: int, nodes, tasks, gpus) -> bool:  # type: ignore[no-untyped-def]
    """Put tasks[i] tasks on the GPUs gpus[i] (a mask) of nodes[i]; pieces of one node must be adjacent.

    If one of them is not free, change nothing and return False.
    """
    s.count.placed = 0
    for i in range(len(nodes)):
        if slots_on(w, m, c, nodes[i]) < tasks[i] or not piece_is_free(w, m, c, nodes[i], tasks[i], gpus[i]):
            unplace(w, m, s, c)
            return False
        take_exactly(w, m, c, nodes[i], tasks[i], gpus[i])
        note_piece(s, nodes[i], tasks[i], gpus[i])
    if is_over_cap(w, m):
        unplace(w, m, s, c)
        return False
    return True


@kernel
def _place_for_action(w: World, m: Machine, s: State, c: int, action: int, nodes, tasks, gpus) -> bool:  # type: ignore[no-untyped-def]
    if action in (START_THERE, MOVE_THERE):
        return _place_there(w, m, s, c, nodes, tasks, gpus)
    if action in (START_ON, MOVE_TO):
        return _place_on(w, m, s, c, nodes, tasks)
    return place(w, m, s, c)


@kernel
def start_overdue(w: World, m: Machine, z: Machine, s: State) -> None:
    """Start overdue jobs, the oldest of each queue first; the first that does not fit becomes the head and gets a reservation."""
    for q in range(w.sizes.num_queues):
        while True:
            j = oldest_overdue(w, s, q)
            s.head[q] = j
            s.shadow_head[q] = -1
            if j < 0 or not place(w, m, s, w.job_class[j]):
                break
            start_placed(w, s, j, runtime_factor(w, s, w.job_class[j]))
        if s.head[q] >= 0:
            reserve_head(w, m, z, s, q, s.head[q])


@inline
def _look_at_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Have the spare machine show the reservation of the overdue head of queue q; with several queues, it may show that of another."""
    if w.sizes.num_queues > 1 and has_bound(w) and s.head[q] >= 0:
        reserve_head(w, m, z, s, q, s.head[q])


@kernel
def _delays_overdue(w: World, z: Machine, s: State, j: int, c: int) -> bool:
    """Whether job j, placed as in State.place_*, would keep an overdue job from its reservation."""
    if not has_bound(w):
        return False
    q = w.class_queue[c]
    head = s.head[q]
    if head < 0 or head == j:
        return False
    until = s.clock.now + estimate_left(w, s, j) * runtime_factor(w, s, c)
    return until > s.shadow_time[q] and not head_keeps_place(w, z, s, q, w.job_class[head], c)


@kernel
def may_start(w: World, m: Machine, z: Machine, s: State, j: int, c: int) -> bool:
    """Whether the placement rule finds a place for job j that delays no overdue job."""
    if not has_bound(w):
        return fits(w, m, s, c)
    _look_at_queue(w, m, z, s, w.class_queue[c])
    if not place(w, m, s, c):
        return False
    delays = _delays_overdue(w, z, s, j, c)
    unplace(w, m, s, c)
    return not delays


@kernel
def start_beside_overdue(w: World, z: Machine, s: State, j: int, c: int) -> None:
    """Start job j as placed in State.place_*."""
    factor = runtime_factor(w, s, c)
    q = w.class_queue[c]
    if has_bound(w) and s.head[q] >= 0 and s.head[q] != j and s.clock.now + estimate_left(w, s, j) * factor > s.shadow_time[q]:
        note_outliving(w, z, s, q, w.job_class[s.head[q]], c)
    start_placed(w, s, j, factor)


@kernel
def _stop(w: World, m: Machine, s: State, j: int) -> None:
    take_off(w, m, s, j)
    end_run(w, s, j, policy_saves(w) or w.policy.backfill == backfill.DEFRAG or w.policy.resizes != 0)  # both stop only to move
    queue_again(w, s, j)


@entry
def act(world, machine, spare, state, action: int, j: int, nodes, tasks, gpus) -> bool:  # type: ignore[no-untyped-def]
    """Execute one action. Returns False if that is not possible.

    - NEXT_INSTANT advances to the next instant and its decision.
    - START_OVERDUE starts overdue jobs. One that does not fit gets a reservation, which no other job may delay.
    - ASK_FIT returns whether job j may start.
    - ASK_SLOTS writes tasks[n], the number of tasks of job j that node n can take.
    - START starts job j where the placement rule puts it, START_ON with tasks[i] tasks on nodes[i], START_THERE on the
      GPUs gpus[i] there as well.
    - STOP stops running job j and queues it again, unless its run is younger than the quantum.
    - MOVE, MOVE_TO and MOVE_THERE let it continue elsewhere at once, stopped as by `suspend`. What it holds counts as free.
    """
    w = as_world(world)
    m = as_machine(machine)
    z = as_machine(spare)
    s = as_state(state)
    if action == NEXT_INSTANT:
        going = next_instant(w, m, s)
        s.count.decisions += going
        return going
    if action == START_OVERDUE:
        start_overdue(w, m, z, s)
        return True
    c = w.job_class[j]
    if action == ASK_FIT:
        return may_start(w, m, z, s, j, c)
    if action == ASK_SLOTS:
        for n in range(w.sizes.num_nodes):
            tasks[n] = slots_on(w, m, c, n)
        return True
    moves = action in (MOVE, MOVE_TO, MOVE_THERE)
    if (moves or action == STOP) and not may_be_stopped(w, s, j):
        return False
    if action == STOP:
        _stop(w, m, s, j)
        return True
    _look_at_queue(w, m, z, s, w.class_queue[c])
    if moves:
        take_off(w, m, s, j)
    placed = _place_for_action(w, m, s, c, action, nodes, tasks, gpus)
    if placed and not moves and _delays_overdue(w, z, s, j, c):
        unplace(w, m, s, c)
        placed = False
    if moves and not placed:
        put_back(w, m, s, j)
    elif moves:
        stop_to_move(w, s, j)
    if placed:
        start_beside_overdue(w, z, s, j, c)
    return placed
