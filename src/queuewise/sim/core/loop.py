"""The engine's loop: events, starts and ends, and the scheduling pass.

`replay` runs until no event is left. At each instant: completions, arrivals, then one pass over the queues. A pass starts jobs from the
head of each queue while they fit; a blocked head hands over to the backfill rule, which only has to say, class by class, how long a job
may be to start now (`State.stretch`).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill, queue
from queuewise.sim.backfill.conservative import plan_queue
from queuewise.sim.backfill.easy import head_keeps_place, note_outliving, reserve_to_backfill
from queuewise.sim.backfill.outlived import expect_later_ends
from queuewise.sim.backfill.pins import place_first
from queuewise.sim.backfill.slurm import (
    backfill_is_due,
    begin_main_loop,
    go_on_behind_head,
    is_queued,
    note_next_loop,
    plan_first_jobs,
)
from queuewise.sim.conditions.outages import handle_outages
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.conditions.resize import grow_running, grows, shrink_for_head, shrinks
from queuewise.sim.core.compilation import entry, inline, kernel, noinline
from queuewise.sim.core.events import COMPLETION, RELEASE, first_job, is_next, pop_event
from queuewise.sim.core.lifecycle import arrive, finish, release, start_placed
from queuewise.sim.core.pieces import unplace
from queuewise.sim.core.prefetch import fetch_next_event
from queuewise.sim.core.state import (
    NO_LIMIT,
    Machine,
    State,
    World,
    as_machine,
    as_plain_world,
    as_preemptive_world,
    as_state,
    as_world,
)
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.preemption.migration import make_room_by_migration
from queuewise.sim.preemption.preemptive_pass import preempt_in_queue, ring_timer
from queuewise.sim.preemption.services import learn_level_keys
from queuewise.sim.queue.holds import first_held, hold_back, note_next_hold
from queuewise.sim.queue.overdue import has_bound, is_overdue, next_overdue_time, note_overdue, oldest_overdue
from queuewise.sim.queue.scoring import score_pending
from queuewise.sim.queue.selection import ANY_LENGTH, FORBIDDEN, PRIMARY, SECONDARY, dequeue, enqueue, first_in_order, note_depth


@kernel
def _find_head(w: World, s: State, q: int) -> int:
    """The job of queue q that comes first: the committed one, the oldest overdue one, or the first in order; -1 if there is none."""
    head = s.head[q]
    if head >= 0 and standing(w, s, w.job_class[head]) == OVER:
        head = -1
    if has_bound(w) and not (head >= 0 and w.policy.dispatch == queue.COMMIT):
        overdue = oldest_overdue(w, s, q)
        if overdue >= 0:
            return overdue
    return head if head >= 0 else first_in_order(w, s, q, PRIMARY, False)


@inline
def _backfill_beside(w: World, s: State, head: int) -> int:
    """The rule by which others may start beside this blocked head: an overdue one has a reservation even if the policy makes none."""
    reserves = w.policy.backfill in (backfill.EASY, backfill.EASY_STRICT, backfill.CONSERVATIVE)
    return w.policy.backfill if reserves or not is_overdue(w, s, head) else backfill.EASY


@kernel
def _start_heads(w: World, m: Machine, s: State, q: int, most: int) -> int:
    """Start jobs from the front while they fit, at most so many; leaves the blocked head in State.head, -1 if there is none.

    Returns how many it has started.
    """
    if w.policy.dispatch == queue.REORDER and (w.policy.scans_queue or w.policy.has_quotas):
        s.head[q] = -1  # the order may have changed: look again
    started = 0
    while True:
        head = _find_head(w, s, q) if started != most else -1
        s.head[q] = head
        if head < 0:
            return started
        c = w.job_class[head]
        if not place_first(w, m, s, head):
            return started
        start_placed(w, s, head, runtime_factor(w, s, c))
        started += 1
        s.head[q] = -1
        s.shadow_head[q] = -1  # it may have taken the place that was reserved for a head it overtook


@kernel
def _stretch(w: World, m: Machine, z: Machine, s: State, q: int, c: int) -> float:
    """What State.stretch is to hold for class c beside the blocked head."""
    if standing(w, s, c) == OVER:
        return FORBIDDEN
    if s.shadow_time[q] == np.inf:  # always under greedy: where it would stand does not matter
        return ANY_LENGTH if fits(w, m, s, c) else FORBIDDEN
    if not place(w, m, s, c):
        return FORBIDDEN
    unplace(w, m, s, c)
    easy = _backfill_beside(w, s, s.head[q]) == backfill.EASY
    if easy and head_keeps_place(w, z, s, q, w.job_class[s.head[q]], c):
        return ANY_LENGTH
    return runtime_factor(w, s, c)


@kernel
def _stretch_all(w: World, m: Machine, z: Machine, s: State, q: int, only_those_that_fit: bool) -> None:
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        if only_those_that_fit and s.stretch[c] == FORBIDDEN:
            continue
        s.stretch[c] = _stretch(w, m, z, s, q, c)


@kernel
def _start_candidate(w: World, m: Machine, z: Machine, s: State, q: int, j: int) -> None:
    c = w.job_class[j]
    place(w, m, s, c)
    factor = runtime_factor(w, s, c)
    easy = _backfill_beside(w, s, s.head[q]) == backfill.EASY
    if easy and s.clock.now + estimate_left(w, s, j) * factor > s.shadow_time[q]:
        note_outliving(w, z, s, q, w.job_class[s.head[q]], c)
    start_placed(w, s, j, factor)


@kernel
def backfill_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Start, again and again, the first candidate that may start; only one if jobs are held, since others may be held after it."""
    # What does not fit will not fit after another start, so the head and its class are out, unless the rule says that it may.
    may_return = w.policy.fit_may_return == 1
    if may_return or w.policy.depth != NO_LIMIT:
        dequeue(w, s, s.head[q])
    if w.policy.depth != NO_LIMIT:
        note_depth(w, s, q)
    _stretch_all(w, m, z, s, q, False)
    while True:
        j = first_in_order(w, s, q, SECONDARY, True)
        if j < 0:
            break
        _start_candidate(w, m, z, s, q, j)
        if w.policy.holds:
            break
        _stretch_all(w, m, z, s, q, not may_return)
    if may_return or w.policy.depth != NO_LIMIT:
        enqueue(w, s, s.head[q])


@noinline
def _start_in_order(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Without backfill, beside an overdue head that has a reservation: start jobs from the front until one may not start."""
    head = s.head[q]
    dequeue(w, s, head)
    while True:
        j = first_in_order(w, s, q, PRIMARY, False)
        if j < 0:
            break
        stretch = _stretch(w, m, z, s, q, w.job_class[j])
        if stretch == FORBIDDEN or s.clock.now + estimate_left(w, s, j) * stretch > s.clock.bound:
            break
        _start_candidate(w, m, z, s, q, j)
        if w.policy.holds:
            break
    enqueue(w, s, head)


@kernel
def reserve_bound(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Set the bound that candidates have to keep."""
    if _backfill_beside(w, s, s.head[q]) in (backfill.EASY, backfill.EASY_STRICT):
        reserve_to_backfill(w, m, z, s, q, s.head[q])
    else:
        s.shadow_time[q] = np.inf
    shadow = s.shadow_time[q]
    s.clock.bound = np.nextafter(shadow, -np.inf) if w.policy.backfill == backfill.EASY_STRICT else shadow


@inline
def _time_changes_things(w: World, s: State, q: int) -> bool:
    """Whether a pass may end otherwise than the last one only because the clock has moved."""
    if w.policy.time_sensitive:
        return True
    reserves = w.policy.backfill in (backfill.EASY, backfill.EASY_STRICT) or has_bound(w)
    return reserves and s.clock.now >= s.shadow_time[q]  # running jobs are overdue


@kernel
def _start_newcomer(w: World, m: Machine, z: Machine, s: State, q: int) -> bool:
    """One job has arrived behind the blocked head and nothing else has changed since the last pass: only it can start. Does it?"""
    j = s.newcomer[q]
    c = w.job_class[j]
    if not fits(w, m, s, c):
        return False
    reserve_bound(w, m, z, s, q)
    stretch = _stretch(w, m, z, s, q, c)
    if stretch == FORBIDDEN or s.clock.now + estimate_left(w, s, j) * stretch > s.clock.bound:
        return False
    _start_candidate(w, m, z, s, q, j)
    return True


@noinline
def _run_slurm_loops(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Slurm's main loop, and its backfill loop if that is due."""
    most = begin_main_loop(w, s)
    started = _start_heads(w, m, s, q, most)
    blocked = s.head[q]
    if blocked >= 0:
        go_on_behind_head(w, m, z, s, q, most - started - 1)
    else:
        s.head[q] = _find_head(w, s, q)
    if s.head[q] >= 0 and backfill_is_due(w, s):
        plan_first_jobs(w, m, z, s, q)
    s.head[q] = blocked if is_queued(s, blocked) else -1


@kernel
def schedule_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """One pass over queue q."""
    if w.policy.backfill == backfill.SLURM:
        _run_slurm_loops(w, m, z, s, q)
        return
    if not s.dirty[q] and not _time_changes_things(w, s, q):
        if s.newcomer[q] < 0:
            return
        started = _start_newcomer(w, m, z, s, q)
        s.newcomer[q] = -1
        if not started:
            return
    s.dirty[q] = 0
    s.newcomer[q] = -1
    most = 1 if w.policy.holds else NO_LIMIT
    _start_heads(w, m, s, q, most)
    if w.policy.backfill == backfill.DEFRAG:
        while s.head[q] >= 0 and make_room_by_migration(w, m, s, s.head[q]):
            _start_heads(w, m, s, q, most)
        if s.count.log_full:
            s.dirty[q] = 1
            return
    if s.head[q] < 0 or (s.count.pending_jobs == 1 and not w.policy.plans_all):
        return
    rule = _backfill_beside(w, s, s.head[q])
    if rule == backfill.NO_BACKFILL:
        return
    if w.policy.backfill == backfill.CONSERVATIVE:
        plan_queue(w, m, z, s, q)
        return
    reserve_bound(w, m, z, s, q)
    if w.policy.backfill == backfill.NO_BACKFILL:
        _start_in_order(w, m, z, s, q)
    else:
        backfill_queue(w, m, z, s, q)


@noinline
def _start_held(w: World, m: Machine, z: Machine, s: State) -> None:
    """Hold fewer jobs while nothing runs, the first in order first; then note when the others may start."""
    for q in range(w.sizes.num_queues):
        while s.count.running_jobs == 0:
            j = first_held(w, s, q)
            if j < 0:
                break
            s.hold_until[j] = -np.inf
            s.dirty[q] = 1
            schedule_queue(w, m, z, s, q)
    note_next_hold(s)


@inline
def _preempt(w: World, m: Machine, s: State) -> None:
    """The pass of a preemptive policy."""
    for q in range(w.sizes.num_queues if s.count.pending_jobs > 0 else 0):
        if s.queue_active[q] > 0:
            preempt_in_queue(w, m, s, q)


@kernel
def decide(w: World, m: Machine, z: Machine, s: State, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    """The scheduling pass."""
    s.count.decisions += 1
    if w.policy.preemption_key:
        _preempt(w, m, s)
        return
    if w.policy.scans_queue and s.count.pending_jobs > 0:
        score_pending(w, m, s, scorer, second_scorer)
        if w.policy.holds:
            hold_back(w, s, holder)
    for q in range(w.sizes.num_queues if s.count.pending_jobs > 0 else 0):
        going = s.queue_active[q] > 0
        while going:
            waiting = s.count.pending_jobs
            schedule_queue(w, m, z, s, q)
            ask_again = w.policy.holds and s.count.pending_jobs < waiting and w.policy.backfill != backfill.SLURM
            going = ask_again or (w.policy.resizes and shrinks(w) and s.head[q] >= 0 and shrink_for_head(w, m, s, q))
            if going and w.policy.scans_queue:  # scores are lost with the places of jobs that a pass has moved
                score_pending(w, m, s, scorer, second_scorer)
            if w.policy.holds and ask_again:
                hold_back(w, s, holder)
    if w.policy.holds:
        _start_held(w, m, z, s)
    if w.policy.backfill == backfill.SLURM:
        note_next_loop(w, s)
    if w.policy.resizes and grows(w) and s.count.pending_jobs == 0:
        grow_running(w, m, s)


@kernel
def next_instant(w: World, m: Machine, s: State) -> bool:
    """Move the clock to the next event time and handle completions and arrivals there; False if there is none."""
    completion = s.event_time[0] if s.count.events > 0 else np.inf
    arrived = s.count.arrived
    arrival = w.submit[arrived] if arrived < w.sizes.num_jobs else np.inf
    time = min(completion, arrival)
    seen = s.count.outages_seen
    if w.sizes.num_outages and seen < w.sizes.num_outages and (time < np.inf or s.count.pending_jobs > 0):
        time = min(time, w.outage_time[seen])
    time = min(time, next_overdue_time(w, s), s.clock.wake_at)
    if time == np.inf or time > s.clock.stop_at:
        return False
    s.clock.now = time
    if w.policy.has_reservations:
        m.time[0] = time
    if w.policy.backfill == backfill.EASY_STRICT:  # as its paper has it: one event at a time, arrivals first
        if arrival == time:
            arrive(w, s, arrived)
            s.count.arrived = arrived + 1
        elif is_next(s, time, COMPLETION):
            finish(w, m, s, pop_event(s))
        elif w.sizes.num_outages and seen < w.sizes.num_outages and w.outage_time[seen] == time:
            handle_outages(w, m, s, time, 1)
        elif is_next(s, time, RELEASE):
            release(w, s, pop_event(s))
        note_overdue(w, s)
        expect_later_ends(w, s)
        return True
    while is_next(s, time, COMPLETION):
        finish(w, m, s, pop_event(s))
    if w.policy.preemption_key and s.count.services >= s.count.learn_at:
        learn_level_keys(w, s)
    if w.sizes.num_outages:
        handle_outages(w, m, s, time, w.sizes.num_outages)
    while (w.policy.can_restart or w.policy.has_dependencies) and s.count.events > 0 and s.event_time[0] == time:
        if is_next(s, time, RELEASE):
            release(w, s, pop_event(s))
        else:
            ring_timer(w, s, first_job(s))
    while arrived < w.sizes.num_jobs and w.submit[arrived] == time:
        arrive(w, s, arrived)
        arrived += 1
    s.count.arrived = arrived
    while w.policy.has_dependencies and is_next(s, time, RELEASE):  # of jobs that waited for one that was rejected just now
        release(w, s, pop_event(s))
    note_overdue(w, s)
    expect_later_ends(w, s)
    return True


@inline
def _log_might_fill(w: World, s: State) -> bool:
    """Whether the next pass, if it starts all that waits, may write more than there is room for. A preemptive pass looks for itself."""
    if not w.policy.can_restart or w.policy.preemption_key:
        return False
    starts = s.count.pending_jobs + (s.count.running_jobs if w.policy.resizes else 0)
    return s.count.pieces + starts * w.sizes.most_pieces > w.sizes.log_size


@inline
def _replay(w: World, m: Machine, z: Machine, s: State, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    """Run until nothing is left to happen, or until the log of pieces must grow (LOG_FULL); then call again."""
    if s.count.log_full:
        s.count.log_full = 0
        s.count.decisions -= 1
        decide(w, m, z, s, scorer, second_scorer, holder)
    while not s.count.log_full and next_instant(w, m, s):
        fetch_next_event(w, s)
        if _log_might_fill(w, s):
            s.count.log_full = 1
            s.count.decisions += 1
        else:
            decide(w, m, z, s, scorer, second_scorer, holder)


@entry
def replay(world, machine, spare, state, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    _replay(as_world(world), as_machine(machine), as_machine(spare), as_state(state), scorer, second_scorer, holder)


@entry
def replay_plain(world, machine, spare, state, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    """The same for simulations with the known values `state.PLAIN`."""
    _replay(as_plain_world(world), as_machine(machine), as_machine(spare), as_state(state), scorer, second_scorer, holder)


@entry
def replay_preemptive(world, machine, spare, state, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    """The same for simulations with the known values `state.PREEMPTIVE`."""
    _replay(as_preemptive_world(world), as_machine(machine), as_machine(spare), as_state(state), scorer, second_scorer, holder)
