"""Conservative backfill: every waiting job gets the earliest place that delays nobody planned before it.

The plan is a profile (profile.py). A reservation looks at the least that is free over its whole length and takes it out of every moment
it covers. A job keeps the reservation that it remembers from the pass before (pins.py) unless there is an earlier one.

A pass leaves out what would come out the same (State.plan_state). A plan is STANDING while runs begin and end as planned: then those
whose time has come start, and only newcomers behind all others are planned. It is SETTLED while nothing has become free that was taken
when it was made: then nobody finds an earlier start than the remembered one. Otherwise the remembered start is the last that is tried,
and the first is where a job of the same demand that is no longer was planned in this pass.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import queue
from queuewise.sim.backfill import SETTLED, STANDING, UNSETTLED
from queuewise.sim.backfill.pins import NO_PIN, is_pinned, pin_is_free, recall, remember_place, tasks_pinned, tasks_placed
from queuewise.sim.backfill.profile import (
    NUMBER,
    PRESENT,
    Profile,
    begin_profile,
    hold,
    moment_from,
    note_moment,
    profile_in,
    profile_memory,
)
from queuewise.sim.backfill.start_search import could_start, forget_planned, last_that_could_start, search_start
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.lifecycle import start_placed
from queuewise.sim.core.machine import copy_machine, take_exactly
from queuewise.sim.core.pieces import class_as_placed
from queuewise.sim.core.state import NO_LIMIT, Machine, State, World
from queuewise.sim.placement.placement_rules import might_have_room, runtime_factor
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.queue.line import line_up
from queuewise.sim.queue.overdue import has_bound
from queuewise.sim.queue.selection import SECONDARY, dequeue, enqueue, first_in_order, shortest_queued

ON_TIME = 8  # one early end in so many, or more: plans seldom last


@kernel
def _somebody_could_start(w: World, m: Machine, s: State, q: int, latest) -> bool:  # type: ignore[no-untyped-def]
    """Whether any job that is not planned yet has room on the machine as it is now, and is short enough for it."""
    if w.policy.scans_queue:
        for i in range(s.count.pending_jobs):
            j = s.pending[i]
            c = w.job_class[j]
            if w.class_queue[c] == q and could_start(w, s, c, estimate_left(w, s, j), latest[c]) and might_have_room(w, m, c):
                return True
        return False
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        if could_start(w, s, c, shortest_queued(w, s, c), latest[c]) and might_have_room(w, m, c):
            return True
    return False


@noinline
def _pinned_start(w: World, s: State, j: int, estimate: float, p: Profile, found: int) -> int:
    """The moment from which job j has the place it remembers; -1 if that is not free, or moment `found` (-1: none) is better."""
    c = w.job_class[j]
    time = max(s.pin_start[j], s.clock.now)
    size = c + tasks_pinned(w, s, j) - w.class_tasks[c]
    until = time + estimate * w.class_worst[size]
    last = p.size[NUMBER] - 1 if found < 0 else found
    at = moment_from(p, time, 0)
    if at > last and found >= 0:
        return -1
    if at > last or p.times[at] > time:
        return note_moment(p, time, at) if pin_is_free(w, s, j, size, p, at - 1, time, until) else -1
    while at <= last and p.times[at] == time:
        if pin_is_free(w, s, j, size, p, at, time, until):
            larger = at == found and tasks_placed(s) > tasks_pinned(w, s, j)
            return -1 if larger else at
        at += 1
    return -1


@inline
def _choose_start(w: World, z: Machine, s: State, q: int, j: int, p: Profile, state: int, latest):  # type: ignore[no-untyped-def]
    """The moment from which job j has a place, left in State.place_*, -1 if there is none; and what is known of the plans behind it."""
    c = w.job_class[j]
    estimate = estimate_left(w, s, j)
    remembers = is_pinned(w, s, j) and (w.policy.plans_all or state != UNSETTLED)
    if remembers and state == STANDING:
        recall(w, s, j)
        return note_moment(p, max(s.pin_start[j], s.clock.now), 0), state
    earliest = s.pin_start[j] if remembers and state == SETTLED else -np.inf
    kept = -1
    if remembers and w.class_span[c] == 0 and not w.policy.fit_may_return:
        kept = _pinned_start(w, s, j, estimate, p, -1)
        start = search_start(w, z, s, q, j, p, kept, earliest, latest)
        if start >= 0:
            kept = -1
    else:
        start = search_start(w, z, s, q, j, p, -1, -np.inf, latest)
        if remembers:
            kept = _pinned_start(w, s, j, estimate, p, start)
    if kept >= 0:
        recall(w, s, j)
        return kept, state if _is_first_instant(w, s, c, estimate, p, kept) else UNSETTLED
    return start, UNSETTLED if remembers else min(state, SETTLED)


@inline
def _is_first_instant(w: World, s: State, c: int, estimate: float, p: Profile, at: int) -> bool:
    """Whether moment `at` is the first instant of its time, so that a reservation kept from there on leaves nothing free that it had.

    The second moment of now counts as first for a job that has a length.
    """
    if at == 0 or p.times[at - 1] < p.times[at]:
        return True
    return at < p.size[PRESENT] and p.times[at] + estimate * w.class_worst[c] > p.times[at]


# --- passes


@inline
def _plans_last(w: World) -> bool:
    """Whether a plan may be of use to the next pass: orders do not change, and runs are as long as their reservations."""
    if not w.policy.lines_up or has_bound(w) or w.policy.second_order or w.policy.fit_may_return:
        return False
    return w.sizes.uniform_speed != 0


@kernel
def _state_of_plan(w: World, s: State, q: int, line, number: int) -> int:  # type: ignore[no-untyped-def]
    """What is known of the last plan of the queue, which the head leads. It is STANDING only if newcomers are behind all others."""
    if not _plans_last(w):
        return UNSETTLED
    state = s.plan_state[q]
    if state != STANDING:
        return state
    for i in range(s.count.running_jobs):
        j = s.running[i]
        if s.expected[j] <= s.clock.now and w.class_queue[w.job_class[j]] == q:
            return SETTLED
    new = s.pin_start[s.head[q]] == NO_PIN
    for i in range(number):
        if new and s.pin_start[line[i]] < NO_PIN:
            return SETTLED
        new = s.pin_start[line[i]] == NO_PIN
    return STANDING


@kernel
def _start_those_due(w: World, m: Machine, s: State, q: int, line, number: int) -> None:  # type: ignore[no-untyped-def]
    """The last plan stands: start the jobs whose time has come."""
    for i in range(-1, number):
        j = s.head[q] if i < 0 else line[i]
        if s.pin_start[j] <= s.clock.now:
            recall(w, s, j)
            start_there(w, m, s, j)


@inline
def start_there(w: World, m: Machine, s: State, j: int) -> None:
    """Start job j where State.place_* says."""
    c = w.job_class[j]
    for k in range(s.count.placed):
        take_exactly(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
    start_placed(w, s, j, runtime_factor(w, s, c))


@inline
def picks_one_by_one(w: World) -> bool:
    """Whether a start may change the order of those behind, or only the first few are planned."""
    return w.policy.has_quotas != 0 or w.policy.depth != NO_LIMIT or queue.DRF in (w.scored_by[0], w.scored_by[1])


@inline
def _ends_are_mostly_on_time(s: State) -> bool:
    return ON_TIME * s.count.early_ends < s.count.starts


@kernel
def plan_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Plan the blocked head and then all candidates of queue q; start those whose turn is now.

    Where a place is a number of tasks, plans are made for the sake of who starts now, or to last. If they will not last, planning ends when
    nobody is left who could start.
    """
    line = np.empty(s.count.pending_jobs, np.int64)
    number = -1 if picks_one_by_one(w) else line_up(w, s, q, s.head[q], line)
    state = _state_of_plan(w, s, q, line, number)
    if state == STANDING and s.pin_start[line[number - 1] if number > 0 else s.head[q]] < NO_PIN:
        _start_those_due(w, m, s, q, line, number)
        return
    latest = np.full(w.sizes.num_classes, np.inf)  # by class: jobs that would run beyond it cannot start now
    all_of_them = w.policy.plans_all != 0 or state != UNSETTLED or (_plans_last(w) and _ends_are_mostly_on_time(s))
    if not all_of_them and not _somebody_could_start(w, m, s, q, latest):
        s.plan_state[q] = UNSETTLED
        return
    memory = profile_memory(w, s.count.running_jobs + 2 * s.count.pending_jobs + 3 + w.sizes.num_reservation_ends)
    p = profile_in(memory)
    copy_machine(w, m, z)
    begin_profile(w, m, s, q, p)
    s.plan_state[q] = _plan(w, m, z, s, q, p, state, all_of_them, line, number, latest)
    memory[0][NUMBER] = 0  # not before here is the memory released


@kernel
def _plan(  # type: ignore[no-untyped-def]
    w: World, m: Machine, z: Machine, s: State, q: int, p: Profile, state: int, all_of_them: bool, line, number: int, latest
) -> int:
    """Plan the head and the jobs in line, or as many as are needed; without a line (number -1), pick one after the other.

    Returns what is known of the plan.
    """
    forget_planned(s, q)
    picks = number < 0
    deferrals = 0
    left = s.count.pending_jobs if w.policy.depth == NO_LIMIT else w.policy.depth
    lasting = STANDING if p.size[PRESENT] == 1 and not w.policy.can_restart and not w.policy.has_reservations else SETTLED
    j = s.head[q]
    at, last = 0, number - 1
    while j >= 0:
        start, state = _choose_start(w, z, s, q, j, p, state, latest)
        c = w.job_class[j]
        until = np.inf
        if start >= 0:
            time = p.times[start]
            until = time + estimate_left(w, s, j) * w.class_worst[class_as_placed(w, s, c)]
            hold(w, s, c, p, start, until)
            if until == time:
                lasting = SETTLED
        if start == 0:
            start_there(w, m, s, j)
        else:
            remember_place(w, s, j, p.times[start] if start > 0 else NO_PIN)
            if start < 0:
                lasting = SETTLED
            if picks:
                dequeue(w, s, j)
                line[deferrals] = j
                deferrals += 1
        if picks:
            j = first_in_order(w, s, q, SECONDARY, False) if left > 0 and (all_of_them or _somebody_could_start(w, m, s, q, latest)) else -1
            left -= 1
        else:
            if not all_of_them:
                last = last_that_could_start(w, m, s, line, at, last, latest)
            j = line[at] if at <= last else -1
            at += 1
    for i in range(deferrals):
        enqueue(w, s, line[i])
    return lasting if all_of_them else UNSETTLED
