"""The life of a job: arrive, start, be stopped, finish."""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill, queue
from queuewise.sim.backfill.easy import book_gpus, unbook_gpus
from queuewise.sim.conditions.job_dependencies import ENDED_BADLY, ENDED_WELL, STARTED, must_wait, tell_successors, was_placed
from queuewise.sim.conditions.quotas import use_quota
from queuewise.sim.conditions.sleeping import leave_nodes
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import give, take_exactly
from queuewise.sim.core.schedule import DONE, NEVER, QUEUED, REJECTED, RUNNING
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.preemption.keys import rank_running, running_key, unrank_running
from queuewise.sim.preemption.restart import await_promotion, begin_run, set_next_event, settle_run
from queuewise.sim.preemption.room import room_released, room_taken
from queuewise.sim.preemption.services import note_service
from queuewise.sim.preemption.victim_lists import job_left, seat_job
from queuewise.sim.queue.fair_orders import charge
from queuewise.sim.queue.overdue import has_bound, note_waiting
from queuewise.sim.queue.selection import dequeue, enqueue
from queuewise.sim.queue.user_work import charge_user


@inline
def arrive(w: World, s: State, j: int) -> None:
    if w.job_class[j] < 0:
        s.status[j] = REJECTED
        tell_successors(w, s, j, ENDED_BADLY)
    elif not must_wait(w, s, j):
        release(w, s, j)


@inline
def release(w: World, s: State, j: int) -> None:
    """Job j, which waits for no other job, joins its queue."""
    s.status[j] = QUEUED
    if w.policy.has_dependencies:
        s.released[s.count.released] = j
        s.count.released += 1
    enqueue(w, s, j)
    note_arrival(w, s, j)


@inline
def note_arrival(w: World, s: State, j: int) -> None:
    """Say what the next pass over the queue has to look at."""
    q = w.class_queue[w.job_class[j]]
    head = s.head[q]
    note_waiting(w, s, j)
    if head < 0 or w.policy.scans_queue or w.policy.preemption_key:
        s.dirty[q] = 1
    elif w.policy.dispatch == queue.REORDER and w.rank[j] < w.rank[head]:
        s.head[q] = -1
        s.dirty[q] = 1
    elif w.policy.backfill != backfill.NO_BACKFILL:
        s.dirty[q] |= s.newcomer[q] >= 0  # two at once need a full pass
        s.newcomer[q] = j
    elif has_bound(w):
        s.dirty[q] = 1  # it may start beside an overdue head


@kernel
def start_placed(w: World, s: State, j: int, factor: float) -> None:
    """Start job j, whose gang was just placed (State.place_*)."""
    c = w.job_class[j]
    now = s.clock.now
    first_run = not was_placed(w, s, j)
    dequeue(w, s, j)
    s.status[j] = RUNNING
    if w.policy.can_restart:
        begin_run(w, s, j, factor)
    else:
        s.start[j] = now
        s.end[j] = now + w.runtime[j] * factor
        s.expected[j] = now + w.estimate[j] * factor
    if w.policy.guesses:
        s.clock.outlived_at = min(s.clock.outlived_at, s.expected[j])
    first = s.count.pieces
    number = s.count.placed
    for k in range(number):
        s.piece_job[first + k] = j
        s.piece_node[first + k] = s.place_node[k]
        s.piece_tasks[first + k] = s.place_tasks[k]
        s.piece_gpus[first + k] = s.place_gpus[k]
        s.piece_start[first + k] = now
        s.piece_end[first + k] = np.inf
        if w.policy.tracks_free_times:
            book_gpus(w, s, s.place_node[k], s.place_tasks[k] * w.class_gpus[c], s.expected[j])
    s.first_piece[j] = first
    s.num_pieces[j] = number
    s.count.pieces = first + number
    s.running_slot[j] = s.count.running_jobs
    s.running[s.count.running_jobs] = j
    s.count.running_jobs += 1
    s.count.starts += 1
    set_next_event(w, s, j)
    if w.policy.remembers_plans:
        s.pin_start[j] = np.inf
    if w.policy.preemption_key:
        rank_running(w, s, j)
        room_taken(w, s, j, running_key(w, s, j))
        seat_job(w, s, j)
    if first_run:
        tell_successors(w, s, j, STARTED)
    charge(w, s, j, +1)
    if w.policy.reads_users:
        charge_user(w, s, j, +1)
    use_quota(w, s, c, +1)


@kernel
def finish(w: World, m: Machine, s: State, j: int) -> None:
    """Job j has ended: give back what it held."""
    c = w.job_class[j]
    now = s.clock.now
    s.status[j] = DONE
    if w.policy.has_dependencies:
        tell_successors(w, s, j, ENDED_WELL if w.ends_well[j] else ENDED_BADLY)
    if w.policy.preemption_key:
        note_service(w, s, j)
        room_released(w, s, j)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        give(w, m, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
        s.piece_end[k] = now
        if w.policy.tracks_free_times:
            unbook_gpus(w, s, s.piece_node[k], s.piece_tasks[k] * w.class_gpus[c], s.expected[j])
    if s.expected[j] > now:
        s.count.early_ends += 1
        s.plan_state[w.class_queue[c]] = backfill.UNSETTLED
    elif w.policy.remembers_plans and s.expected[j] < now:
        s.plan_state[w.class_queue[c]] = min(s.plan_state[w.class_queue[c]], backfill.SETTLED)
    s.dirty[w.class_queue[c]] = 1
    _leave_running(w, s, j)


@inline
def _leave_running(w: World, s: State, j: int) -> None:
    charge(w, s, j, -1)
    if w.policy.reads_users:
        charge_user(w, s, j, -1)
    use_quota(w, s, w.job_class[j], -1)
    if w.policy.nodes_sleep:
        leave_nodes(w, s, j)
    s.count.running_jobs -= 1
    tail = s.count.running_jobs
    slot = s.running_slot[j]
    last = s.running[tail]
    s.running[slot] = last
    s.running_slot[last] = slot
    if w.policy.preemption_key:
        unrank_running(w, s, j)
        job_left(w, s, j)


@kernel
def take_off(w: World, m: Machine, s: State, j: int) -> None:
    """Free what running job j holds, so that something can be tried in its place."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        give(w, m, w.job_class[j], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])


@kernel
def put_back(w: World, m: Machine, s: State, j: int) -> None:
    """Undo take_off."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        take_exactly(w, m, w.job_class[j], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])


@kernel
def end_run(w: World, s: State, j: int, saves: bool) -> None:
    """Job j, already taken off the machine, stops unfinished. Its event is still in the calendar: the caller moves or cancels it."""
    settle_run(w, s, j, saves)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        s.piece_end[k] = s.clock.now
    s.end[j] = NEVER
    if s.start[j] > s.clock.now:  # its nodes are still waking
        s.start[j] = NEVER
    s.count.early_ends += 1
    s.plan_state[w.class_queue[w.job_class[j]]] = backfill.UNSETTLED
    s.dirty[w.class_queue[w.job_class[j]]] = 1
    _leave_running(w, s, j)


@kernel
def queue_again(w: World, s: State, j: int) -> None:
    """A job whose run has ended unfinished waits for another."""
    s.status[j] = QUEUED
    enqueue(w, s, j)
    note_arrival(w, s, j)
    await_promotion(w, s, j)


@kernel
def stop_to_move(w: World, s: State, j: int) -> None:
    """Job j, already taken off the machine, is stopped as by `suspend`; the caller starts it elsewhere at once. No pass is needed."""
    end_run(w, s, j, True)
    s.status[j] = QUEUED
    enqueue(w, s, j)
