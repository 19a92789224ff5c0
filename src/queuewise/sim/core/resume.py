"""Put a simulation that has not begun into a given state: jobs that run, wait and will be released, nodes that are closed.

The caller writes the columns that a state consists of (`policies/resuming.py`); the entry here derives the rest from
them: what is free, the queues, the calendar, and everything that only makes decisions faster.
"""

from __future__ import annotations

from queuewise.sim import backfill
from queuewise.sim.backfill.easy import book_gpus
from queuewise.sim.backfill.outlived import expect_later_ends
from queuewise.sim.backfill.slurm import note_next_loop
from queuewise.sim.conditions.quotas import use_quota
from queuewise.sim.core.compilation import entry, kernel
from queuewise.sim.core.events import RELEASE, TIMER, set_event
from queuewise.sim.core.machine import close_node, take_exactly
from queuewise.sim.core.pieces import note_piece
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.placement.placement_rules import runtime_factor
from queuewise.sim.preemption.keys import rank_running
from queuewise.sim.preemption.restart import set_next_event
from queuewise.sim.preemption.victim_lists import seat_job
from queuewise.sim.queue.fair_orders import charge
from queuewise.sim.queue.holds import note_next_hold
from queuewise.sim.queue.overdue import note_overdue
from queuewise.sim.queue.selection import enqueue
from queuewise.sim.queue.user_work import charge_user


@kernel
def _factor(w: World, s: State, j: int) -> float:
    """The runtime factor of the job's current run."""
    s.count.placed = 0
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        note_piece(s, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
    return runtime_factor(w, s, w.job_class[j])


@kernel
def _set_end(w: World, s: State, j: int, begin: float) -> None:
    factor = _factor(w, s, j)
    left = w.runtime[j]
    if w.policy.can_restart:
        left = s.remaining[j]
        s.begin[j] = begin
        s.factor[j] = factor
    s.end[j] = max(begin + left * factor, s.clock.now)


@kernel
def _resume_run(w: World, m: Machine, s: State, j: int, begin: float) -> None:
    c = w.job_class[j]
    _set_end(w, s, j, begin)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        take_exactly(w, m, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
        if w.policy.tracks_free_times:
            book_gpus(w, s, s.piece_node[k], s.piece_tasks[k] * w.class_gpus[c], s.expected[j])
        if w.policy.nodes_sleep:
            s.node_pieces[s.piece_node[k]] += 1
    s.running_slot[j] = s.count.running_jobs
    s.running[s.count.running_jobs] = j
    s.count.running_jobs += 1
    set_next_event(w, s, j)
    if w.policy.preemption_key:
        rank_running(w, s, j)
        seat_job(w, s, j)
    charge(w, s, j, +1)
    if w.policy.reads_users:
        charge_user(w, s, j, +1)
    use_quota(w, s, c, +1)


@entry
def resume(world, machine, state, running, begins, queued, promoted, promoted_at, released, released_at) -> None:  # type: ignore[no-untyped-def]
    """Let the jobs run and wait as the columns of the state say.

    `running` is in the order of starts; the run of job running[i] began to work at begins[i]. Job promoted[i] waits in
    its queue and is promoted at promoted_at[i]; job released[i] joins its queue at released_at[i]. Nodes with
    Machine.closed are closed.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    if w.policy.has_reservations:
        m.time[0] = s.clock.now
    for i in range(len(queued)):
        enqueue(w, s, queued[i])
    for i in range(len(running)):
        _resume_run(w, m, s, running[i], begins[i])
    for i in range(len(promoted)):
        set_event(s, promoted[i], TIMER, promoted_at[i])
    for i in range(len(released)):
        set_event(s, released[i], RELEASE, released_at[i])
    for n in range(w.sizes.num_nodes):
        if m.closed[n]:
            close_node(w, m, n)
    for q in range(w.sizes.num_queues):
        s.dirty[q] = 1
    expect_later_ends(w, s)
    note_overdue(w, s)
    if w.policy.holds:
        note_next_hold(s)
    if w.policy.backfill == backfill.SLURM:
        note_next_loop(w, s)
