"""Resizing of running elastic jobs: they shrink for a blocked head and grow when no job waits.

docs/simulator.md, "Resizing", defines the rules. A resize is a stop and a start at the same instant. Only runs that
began before this instant and have reached the quantum take part, so a job is resized at most once per decision.
"""

from __future__ import annotations

from queuewise.sim import conditions
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.lifecycle import put_back, start_placed, stop_to_move, take_off
from queuewise.sim.core.machine import give, lowest_bits, take_exactly
from queuewise.sim.core.pieces import class_as_placed, note_piece, tasks_held, unplace
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.restart import may_be_stopped

RELEASE, KEEP, TAKE = range(3)  # see _split_pieces


@inline
def shrinks(w: World) -> bool:
    return (w.policy.resizes & conditions.SHRINKS) != 0


@inline
def grows(w: World) -> bool:
    return (w.policy.resizes & conditions.GROWS) != 0


@kernel
def _resizable_jobs(w: World, s: State, q: int) -> int:
    """List in State.victim_job, by index, the running elastic jobs of queue q (-1: of all) that may be resized now.

    Returns their number.
    """
    number = 0
    for slot in range(s.count.running_jobs):
        j = s.running[slot]
        c = w.job_class[j]
        if w.class_span[c] > 0 and (q < 0 or w.class_queue[c] == q) and may_be_stopped(w, s, j):
            s.victim_job[number] = j
            number += 1
    view(s.victim_job, number).sort()
    return number


@kernel
def _tasks_before(s: State, j: int, k: int) -> int:
    """Tasks of job j in pieces that come before piece k by node and GPU."""
    tasks = 0
    for other in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        if s.piece_node[other] != s.piece_node[k]:
            before = s.piece_node[other] < s.piece_node[k]
        elif s.piece_gpus[other] != s.piece_gpus[k]:
            before = s.piece_gpus[other] < s.piece_gpus[k]
        else:
            before = other < k
        if before:
            tasks += s.piece_tasks[other]
    return tasks


@kernel
def _split_pieces(w: World, m: Machine, s: State, j: int, action: int) -> None:
    """Split the pieces of job j into those of its minimum number of tasks and the rest.

    RELEASE gives the rest back to the machine, TAKE takes it again, and KEEP writes the former to State.place_*.
    """
    c = w.job_class[j]
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n, tasks, gpus = s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k]
        kept = min(max(w.class_tasks[c] - _tasks_before(s, j, k), 0), tasks)
        kept_gpus = gpus if kept == tasks else lowest_bits(gpus, kept * w.class_gpus[c])
        if action == KEEP and kept > 0:
            note_piece(s, n, kept, kept_gpus)
        if action == RELEASE and kept < tasks:
            give(w, m, c, n, tasks - kept, gpus ^ kept_gpus)
        if action == TAKE and kept < tasks:
            take_exactly(w, m, c, n, tasks - kept, gpus ^ kept_gpus)


@kernel
def _restart(w: World, s: State, j: int) -> None:
    """Let job j continue with the placement in State.place_*."""
    stop_to_move(w, s, j)
    start_placed(w, s, j, runtime_factor(w, s, w.job_class[j]))


@noinline
def shrink_for_head(w: World, m: Machine, s: State, q: int) -> bool:
    """Shrink elastic jobs of queue q to their minimum, last job first, until the blocked head fits.

    If it never fits, change nothing.
    """
    head = s.head[q]
    number = _resizable_jobs(w, s, q)
    last = number
    fitting = False
    while last > 0 and not fitting:
        last -= 1
        _split_pieces(w, m, s, s.victim_job[last], RELEASE)
        fitting = fits(w, m, s, w.job_class[head])
    if not fitting:
        for i in range(number):
            _split_pieces(w, m, s, s.victim_job[i], TAKE)
        return False
    for i in range(number - 1, last - 1, -1):
        j = s.victim_job[i]
        if tasks_held(w, s, j) > w.class_tasks[w.job_class[j]]:
            s.count.placed = 0
            _split_pieces(w, m, s, j, KEEP)
            _restart(w, s, j)
    return True


@noinline
def grow_running(w: World, m: Machine, s: State) -> None:
    """Place elastic jobs again, first job first, if that gives them more tasks."""
    for i in range(_resizable_jobs(w, s, -1)):
        j = s.victim_job[i]
        c = w.job_class[j]
        tasks = tasks_held(w, s, j)
        if tasks == w.class_tasks[c] + w.class_span[c]:
            continue
        take_off(w, m, s, j)
        placed = place(w, m, s, c)
        if placed and w.class_tasks[class_as_placed(w, s, c)] > tasks:
            _restart(w, s, j)
            continue
        if placed:
            unplace(w, m, s, c)
        put_back(w, m, s, j)
