"""Nodes that go down, are drained and come back; reservations that end."""

from __future__ import annotations

from queuewise.sim import backfill, conditions
from queuewise.sim.conditions.job_dependencies import ENDED_BADLY, tell_successors
from queuewise.sim.conditions.power_cap import draw
from queuewise.sim.core.compilation import kernel
from queuewise.sim.core.events import cancel_event
from queuewise.sim.core.lifecycle import end_run, queue_again, take_off
from queuewise.sim.core.machine import close_node, open_node, take_exactly
from queuewise.sim.core.schedule import FAILED
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.preemption.room import forget_rooms
from queuewise.sim.preemption.victim_lists import node_changed


@kernel
def _holds_node(s: State, j: int, n: int) -> bool:
    found = False
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        found = found or s.piece_node[k] == n
    return found


@kernel
def jobs_on_node(s: State, n: int) -> int:
    """Note the running jobs with a piece on the node in State.victim_job, by index; returns their number."""
    number = 0
    for slot in range(s.count.running_jobs):
        if _holds_node(s, s.running[slot], n):
            s.victim_job[number] = s.running[slot]
            number += 1
    view(s.victim_job, number).sort()
    return number


@kernel
def _stop_jobs(w: World, m: Machine, s: State, n: int) -> None:
    for i in range(jobs_on_node(s, n)):
        j = s.victim_job[i]
        take_off(w, m, s, j)
        end_run(w, s, j, False)
        if w.policy.requeues_failed:
            queue_again(w, s, j)
        else:
            cancel_event(s, j)
            s.status[j] = FAILED
            tell_successors(w, s, j, ENDED_BADLY)


@kernel
def _repair(w: World, m: Machine, s: State, n: int) -> None:
    open_node(w, m, n)
    for i in range(jobs_on_node(s, n)):  # of a drained node
        j = s.victim_job[i]
        for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            if s.piece_node[k] == n:
                draw(w, m, w.job_class[j], n, -s.piece_tasks[k])  # it has drawn all the time
                take_exactly(w, m, w.job_class[j], n, s.piece_tasks[k], s.piece_gpus[k])


@kernel
def handle_outages(w: World, m: Machine, s: State, time: float, most: int) -> None:
    """Outages, repairs and ends of reservations of this instant, at most so many."""
    seen = s.count.outages_seen
    if seen == w.sizes.num_outages or w.outage_time[seen] > time:
        return
    last = min(seen + most, w.sizes.num_outages)
    while seen < last and w.outage_time[seen] == time:
        n = w.outage_node[seen]
        if w.outage_kind[seen] == conditions.REPAIRED:
            _repair(w, m, s, n)
        elif w.outage_kind[seen] != conditions.RESERVATION_ENDED:
            if w.outage_kind[seen] == conditions.FAILED_NODE:
                _stop_jobs(w, m, s, n)
            close_node(w, m, n)
        node_changed(w, s, n)
        seen += 1
    s.count.outages_seen = seen
    s.count.early_ends += 1
    for q in range(w.sizes.num_queues):
        s.dirty[q] = 1
        s.shadow_head[q] = -1
        s.plan_state[q] = backfill.UNSETTLED
    forget_rooms(w, s)
