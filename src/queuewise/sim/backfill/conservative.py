"""Conservative backfill: every waiting job gets the earliest place that delays nobody planned before it.

The plan is a profile (profile.py). A reservation looks at the least that is free over its whole length and takes it out of every moment
it covers. A job keeps the reservation that it remembers from the pass before (pins.py) unless there is an earlier one.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill
from queuewise.sim.backfill.pins import NO_PIN, is_pinned, pin_is_free, recall, remember_place, tasks_pinned, tasks_placed
from queuewise.sim.backfill.profile import (
    UNRESERVED,
    copy_moment,
    hold,
    keep_least,
    load,
    moments,
    note_moment,
    profile_of_running,
    room_at,
)
from queuewise.sim.conditions.reserved_nodes import first_reservation_end_after
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.lifecycle import start_placed
from queuewise.sim.core.machine import copy_machine, take_exactly
from queuewise.sim.core.pieces import class_as_placed
from queuewise.sim.core.state import NO_LIMIT, Machine, State, World
from queuewise.sim.placement.placement_rules import might_have_room, place_one_of, runtime_factor
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.queue.overdue import has_bound
from queuewise.sim.queue.selection import SECONDARY, dequeue, enqueue, first_in_order, shortest_queued


@inline
def _band(length: float) -> int:
    """Lengths of one band differ by less than a factor of two."""
    return 0 if length < 1.0 else min(1 + int(np.log2(length)), backfill.PLAN_BANDS - 1)


@kernel
def _earliest(w: World, s: State, c: int, length: float) -> float:
    """A time before which no job of the class and length can start: where a shorter one of the class was planned, in a freer profile."""
    earliest = -np.inf
    if not w.policy.fit_may_return:
        for band in range(_band(length)):
            earliest = max(earliest, s.planned[c * backfill.PLAN_BANDS + band])
    return earliest


@inline
def _could_start(w: World, s: State, c: int, estimate: float, latest: float) -> bool:
    """Whether a job of this class and estimate, started now, ends before its class meets what stood in its way before."""
    if w.class_span[c] > 0:
        return True  # what stands in the way of one size need not be in that of another
    return s.clock.now + estimate * w.class_worst[c] <= latest


@kernel
def _somebody_could_start(w: World, m: Machine, s: State, q: int, latest) -> bool:  # type: ignore[no-untyped-def]
    """Whether any job that is not planned yet has room on the machine as it is now, and is short enough for it."""
    if w.policy.scans_queue:
        for i in range(s.count.pending_jobs):
            j = s.pending[i]
            c = w.job_class[j]
            if w.class_queue[c] == q and _could_start(w, s, c, estimate_left(w, s, j), latest[c]) and might_have_room(w, m, c):
                return True
        return False
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        if _could_start(w, s, c, shortest_queued(w, s, c), latest[c]) and might_have_room(w, m, c):
            return True
    return False


@inline
def _note_obstacle(w: World, c: int, start: int, time: float, latest) -> None:  # type: ignore[no-untyped-def]
    """Class c cannot start now and run beyond `time` (-inf: at all). That stays so while the profile fills up.

    Not if a class that does not fit may fit later.
    """
    if start == 0 and not w.policy.fit_may_return:
        latest[c] = min(latest[c], time)


@kernel
def _find_start(  # type: ignore[no-untyped-def]
    w: World, z: Machine, s: State, c: int, estimate: float, times, where, number: int, present: int, row, least, latest
) -> int:
    """The first moment from which class c has a place for as long as it takes; the place is left in State.place_*. -1 if there is none.

    Of an elastic job all sizes are tried at one moment, the greatest first, before the next moment.
    It is one function because arrays are costly to hand over.
    """
    span = w.class_span[c]
    size = c + span
    start = 0 if _could_start(w, s, c, estimate, latest[c]) else 1
    earliest = _earliest(w, s, c, estimate * w.class_worst[c]) if span == 0 else -np.inf
    while start < number and times[where[start]] < earliest:
        start += 1
    while start < number:
        time = times[where[start]]
        until = time + estimate * w.class_worst[size]
        need = w.class_tasks[size]
        following = start + 1
        obstacle = -np.inf
        fitting = room_at(w, size, row, where[start], time) >= need
        if fitting:
            copy_moment(least, 0, row, where[start])
        at = start + 1
        while fitting and at < number and (times[where[at]] < until or at < present):
            obstacle = times[where[at]] if at >= present else -np.inf
            if room_at(w, size, row, where[at], UNRESERVED) < need:
                following = at + 1  # every start up to there meets the same obstacle
                fitting = False
                break
            keep_least(w, least, row, where[at])
            fitting = room_at(w, size, least, 0, time) >= need
            at += 1
        if fitting:
            load(w, z, least, 0)
            z.time[0] = time
            if place_one_of(w, z, s, size, size):
                return start
        _note_obstacle(w, size, start, obstacle, latest)
        if size > c:
            size -= 1
        else:
            size = c + span
            start = following if span == 0 else start + 1
    return -1


@kernel
def _is_free_from(w: World, s: State, j: int, first: int, time: float, until: float, times, where, number: int, present: int, row) -> bool:  # type: ignore[no-untyped-def]
    """Whether the place that job j remembers is free from `time`, which moment `first` is of, until `until`."""
    c = w.job_class[j]
    size = c + tasks_pinned(w, s, j) - w.class_tasks[c]
    if not pin_is_free(w, s, j, size, row, where[first], time):
        return False
    at = first + 1
    while at < number and (times[where[at]] < until or at < present):
        if not pin_is_free(w, s, j, size, row, where[at], UNRESERVED):
            return False
        at += 1
    return True


@noinline
def _pinned_start(w: World, s: State, j: int, estimate: float, found: int, times, where, number: int, present: int, row):  # type: ignore[no-untyped-def]
    """The moment from which job j has the place it remembers; -1 if that is not free, or moment `found` is better.

    Also the number of moments.
    """
    c = w.job_class[j]
    time = max(s.pin_start[j], s.clock.now)
    until = time + estimate * w.class_worst[c + tasks_pinned(w, s, j) - w.class_tasks[c]]
    last = number - 1 if found < 0 else found
    at = 0
    while at <= last and times[where[at]] < time:
        at += 1
    if at > last and found >= 0:
        return -1, number
    if at > last or times[where[at]] > time:
        if not _is_free_from(w, s, j, at - 1, time, until, times, where, number, present, row):
            return -1, number
        return at, note_moment(time, at, times, where, number, row)
    while at <= last and times[where[at]] == time:
        if _is_free_from(w, s, j, at, time, until, times, where, number, present, row):
            larger = at == found and tasks_placed(s) > tasks_pinned(w, s, j)
            return -1 if larger else at, number
        at += 1
    return -1, number


@inline
def _can_rely_on_last_plan(w: World, s: State, q: int) -> bool:
    """Whether what was planned ahead of each job in the last pass is still to come, or less is free: then nobody finds an earlier start.

    Not if orders change, something ended early, or runs may be shorter than their reservations.
    """
    if (
        not w.policy.remembers_plans
        or has_bound(w)
        or w.policy.scans_queue
        or w.policy.has_quotas
        or w.policy.second_order
        or w.policy.fit_may_return
    ):
        return False
    return w.sizes.uniform_speed != 0 and s.plan_stamp[q] == s.count.early_ends


@inline
def _choose_start(w: World, z: Machine, s: State, j: int, settled: bool, times, where, number: int, present: int, row, least, latest):  # type: ignore[no-untyped-def]
    """The moment from which job j has a place, left in State.place_*, -1 if there is none; whether jobs behind it may be settled;
    and the number of moments.

    A job that is settled finds nothing earlier than what it remembers, so it is searched for only if that is gone, or if its time has
    several moments.
    """
    c = w.job_class[j]
    estimate = estimate_left(w, s, j)
    remembers = is_pinned(w, s, j)
    if settled and remembers:
        kept, number = _pinned_start(w, s, j, estimate, -1, times, where, number, present, row)
        if kept == 0 or (kept > 0 and times[where[kept - 1]] < times[where[kept]]):
            recall(w, s, j)
            return kept, True, number
    start = _find_start(w, z, s, c, estimate, times, where, number, present, row, least, latest)
    if start > 0:
        slot = c * backfill.PLAN_BANDS + _band(estimate * w.class_worst[class_as_placed(w, s, c)])
        s.planned[slot] = max(s.planned[slot], times[where[start]])
    if remembers:
        kept, number = _pinned_start(w, s, j, estimate, start, times, where, number, present, row)
        if kept >= 0:
            recall(w, s, j)
            return kept, False, number
    return start, settled and not remembers, number


@kernel
def plan_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Plan the blocked head and then all candidates of queue q; start those whose turn is now.

    Where nobody remembers, plans are made for the sake of who starts now, so planning ends when nobody is left who could.
    """
    remember = w.policy.remembers_plans != 0
    latest = np.full(w.sizes.num_classes, np.inf)  # by class: jobs that would run beyond it cannot start now
    if not remember and not _somebody_could_start(w, m, s, q, latest):
        return
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        for band in range(backfill.PLAN_BANDS):
            s.planned[s.active[slot] * backfill.PLAN_BANDS + band] = -np.inf
    copy_machine(w, m, z)
    waiting = s.count.pending_jobs
    most = s.count.running_jobs + 2 * waiting + 3 + w.sizes.num_reservation_ends
    times = np.empty(most)
    where = np.arange(most)
    row, least = moments(w, most), moments(w, 1)
    number = profile_of_running(w, m, s, times, row)
    present = 2 if number > 1 and times[1] == times[0] else 1
    for i in range(first_reservation_end_after(w, s.clock.now), w.sizes.num_reservation_ends):
        number = note_moment(w.reservation_end[i], present, times, where, number, row)
    left = waiting if w.policy.depth == NO_LIMIT else w.policy.depth
    deferred = np.empty(waiting, np.int64)
    deferrals = 0
    settled = _can_rely_on_last_plan(w, s, q)
    j = s.head[q]
    while j >= 0:
        start, settled, number = _choose_start(w, z, s, j, settled, times, where, number, present, row, least, latest)
        c = w.job_class[j]
        if start >= 0:
            until = times[where[start]] + estimate_left(w, s, j) * w.class_worst[class_as_placed(w, s, c)]
            number = hold(w, s, c, start, until, times, where, number, present, row)
        if start == 0:
            for k in range(s.count.placed):
                take_exactly(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
            start_placed(w, s, j, runtime_factor(w, s, c))
        else:
            if remember:
                remember_place(w, s, j, times[where[start]] if start > 0 else NO_PIN)
            dequeue(w, s, j)
            deferred[deferrals] = j
            deferrals += 1
        j = first_in_order(w, s, q, SECONDARY, False) if left > 0 and (remember or _somebody_could_start(w, m, s, q, latest)) else -1
        left -= 1
    for i in range(deferrals):
        enqueue(w, s, deferred[i])
    s.plan_stamp[q] = s.count.early_ends
