"""The search for the start of a job in a profile, and the bounds that shorten it.

A job cannot start before one that was planned in the same pass, is no longer and needs no more, because that one was planned in a freer
profile. And a class that met an obstacle now cannot start now and run beyond it.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill
from queuewise.sim.backfill.profile import (
    LEAST,
    NUMBER,
    PRESENT,
    UNRESERVED,
    Profile,
    copy_row,
    has_room,
    is_full,
    is_scalar,
    keep_least,
    load_least,
    moment_from,
    room_at,
    skip_full,
)
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.pieces import note_piece
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.placement.placement_rules import might_have_room, place_one_of
from queuewise.sim.preemption.keys import estimate_left


@inline
def _band(length: float) -> int:
    """Lengths of one band differ by less than a factor of √2."""
    return 0 if length < 1.0 else min(1 + int(2.0 * np.log2(length)), backfill.PLAN_BANDS - 1)


@inline
def _takes_less(w: World, c: int, other: int) -> bool:
    """Whether a gang of class c asks for no more cores and memory than one of another class."""
    return (
        w.class_tasks[c] * w.class_cpu[c] <= w.class_tasks[other] * w.class_cpu[other]
        and w.class_tasks[c] * w.class_mem[c] <= w.class_tasks[other] * w.class_mem[other]
    )


@inline
def _bound_by(s: State, c: int, band: int, length: float) -> float:
    """A time before which no job of class c, or of one that needs more, and of this length and band can start."""
    at = c * backfill.PLAN_BANDS + band
    bound = s.planned[at - 1] if band > 0 else -np.inf
    return max(bound, s.planned_last[at]) if s.planned_length[at] <= length else bound


@kernel
def earliest_start(w: World, s: State, q: int, c: int, length: float) -> float:
    """A time before which no job of the class and length can start: where one that is no longer and needs no more was planned in this pass.

    It was planned in a freer profile.
    """
    if w.policy.fit_may_return or w.class_span[c] > 0:
        return -np.inf
    band = _band(length)
    if not is_scalar(w) or w.policy.has_reservations:
        return _bound_by(s, c, band, length)
    earliest = -np.inf
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        other = s.active[slot]
        bound = _bound_by(s, other, band, length)
        if bound > earliest and _takes_less(w, other, c):
            earliest = bound
    return earliest


@inline
def note_planned(s: State, c: int, length: float, time: float) -> None:
    """A job of this class and length cannot start before `time`."""
    band = _band(length)
    at = c * backfill.PLAN_BANDS + band
    if s.planned_last[at] <= time:
        s.planned_last[at] = time
        s.planned_length[at] = length
    while band < backfill.PLAN_BANDS and s.planned[c * backfill.PLAN_BANDS + band] < time:
        s.planned[c * backfill.PLAN_BANDS + band] = time
        band += 1


@inline
def forget_planned(s: State, q: int) -> None:
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        first = s.active[slot] * backfill.PLAN_BANDS
        for at in range(first, first + backfill.PLAN_BANDS):
            s.planned[at] = -np.inf
            s.planned_last[at] = -np.inf
            s.planned_length[at] = np.inf


@inline
def could_start(w: World, s: State, c: int, estimate: float, latest: float) -> bool:
    """Whether a job of this class and estimate, started now, ends before its class meets what stood in its way before."""
    if w.class_span[c] > 0:
        return True  # what stands in the way of one size need not be in that of another
    return s.clock.now + estimate * w.class_worst[c] <= latest


@inline
def _note_obstacle(w: World, c: int, p: Profile, start: int, at: int, latest) -> None:  # type: ignore[no-untyped-def]
    """Class c cannot start now and run beyond the time of moment `at` (a moment of now: at all). That stays so while the profile fills up.

    Not if a class that does not fit may fit later.
    """
    if start == 0 and not w.policy.fit_may_return:
        latest[c] = min(latest[c], p.times[at] if at >= p.size[PRESENT] else -np.inf)


@kernel
def _obstacle(w: World, s: State, c: int, p: Profile, start: int, until: float) -> int:
    """The first moment that stands in the way of class c from moment `start` to `until`; the number of moments if none does.

    Leaves the least of what is free on the way in row LEAST, unless a place is a number of tasks.
    """
    number, present = p.size[NUMBER], p.size[PRESENT]
    time = p.times[start]
    if not has_room(w, c, p, start, time):
        return start
    at = start + 1
    if is_scalar(w):
        while at < number and (p.times[at] < until or at < present):
            if not has_room(w, c, p, at, UNRESERVED):
                return at
            at += 1
        return number
    copy_row(p, LEAST, p.row[start])
    while at < number and (p.times[at] < until or at < present):
        if is_full(w, c, p, at):
            return at
        keep_least(w, p, p.row[at])
        if room_at(w, c, p, LEAST, time) < w.class_tasks[c]:
            return at
        at += 1
    return number


@kernel
def _start_after(w: World, c: int, p: Profile, start: int, at: int) -> int:
    """The first start after moment `start` that the obstacle at moment `at` may leave room for."""
    if at == start or is_scalar(w) or not has_room(w, c, p, at, UNRESERVED):
        return at + 1  # every start up to there meets it
    if w.policy.has_reservations:
        return start + 1
    copy_row(p, LEAST, p.row[at])
    for i in range(at - 1, start, -1):
        keep_least(w, p, p.row[i])
        if room_at(w, c, p, LEAST, UNRESERVED) < w.class_tasks[c]:
            return i + 1
    return start + 1


@inline
def _place_at(w: World, z: Machine, s: State, c: int, p: Profile, start: int) -> bool:
    """Place class c by the rule on what row LEAST says is free."""
    if is_scalar(w):
        s.count.placed = 0
        note_piece(s, 0, w.class_tasks[c], 0)
        return True
    load_least(w, z, p)
    z.time[0] = p.times[start]
    return place_one_of(w, z, s, c, c)


@kernel
def find_start(  # type: ignore[no-untyped-def]
    w: World, z: Machine, s: State, c: int, estimate: float, p: Profile, first: int, last: int, latest
) -> int:
    """The first moment, from `first` until before `last`, from which class c has a place for as long as it takes; -1 if there is none.

    The place is left in State.place_*. Of an elastic job all sizes are tried at one moment, the greatest first, before the next moment.
    """
    span = w.class_span[c]
    size = c + span
    start = first
    while True:
        if size == c + span and start > 0:
            start = skip_full(w, c, p, start, last)
        if start >= last:
            return -1
        until = p.times[start] + estimate * w.class_worst[size]
        at = _obstacle(w, s, size, p, start, until)
        if at == p.size[NUMBER]:
            if _place_at(w, z, s, size, p, start):
                return start
            following = start + 1
            at = max(moment_from(p, until, following) - 1, start)
        else:
            following = _start_after(w, size, p, start, at) if span == 0 else start + 1
        _note_obstacle(w, size, p, start, at, latest)
        if size > c:
            size -= 1
        else:
            size = c + span
            start = following


@inline
def search_start(w: World, z: Machine, s: State, q: int, j: int, p: Profile, kept: int, earliest: float, latest) -> int:  # type: ignore[no-untyped-def]
    """The first moment from which job j has a place, not before `earliest`; -1 if there is none, or none before moment `kept` (-1: any)."""
    c = w.job_class[j]
    estimate = estimate_left(w, s, j)
    length = estimate * w.class_worst[c]
    first = 0 if could_start(w, s, c, estimate, latest[c]) else 1
    last = p.size[NUMBER] if kept < 0 else kept
    first = moment_from(p, max(earliest, earliest_start(w, s, q, c, length)), first) if first < last else first
    start = find_start(w, z, s, c, estimate, p, first, last, latest)
    at = kept if start < 0 else start
    if at > 0 and w.class_span[c] == 0:
        note_planned(s, c, length, p.times[at])
    return start


@kernel
def last_that_could_start(w: World, m: Machine, s: State, line, first: int, last: int, latest) -> int:  # type: ignore[no-untyped-def]
    """The last place in line, from `first` to `last`, of a job that has room now and is short enough for it; first - 1 if nobody has."""
    while last >= first:
        j = line[last]
        c = w.job_class[j]
        if could_start(w, s, c, estimate_left(w, s, j), latest[c]) and might_have_room(w, m, c):
            break
        last -= 1
    return last
