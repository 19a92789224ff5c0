"""The calendar: a binary heap of (time, code), and the total order of events at one instant.

Codes sort events of equal time: completions (code = job, in the order of their starts) first, then timers, then releases of jobs that
waited for others, each by job. The first two know their place in the heap, so those of a job that is stopped can be taken out. (Arrivals
and outages are known beforehand and need no heap.)
"""

from __future__ import annotations

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.state import EVENTS, State

KIND_SHIFT = 40  # code = kind << KIND_SHIFT | index
INDEX_MASK = (1 << KIND_SHIFT) - 1
COMPLETION, TIMER, RELEASE = range(3)


@inline
def _before(s: State, time: float, code: int, slot: int) -> bool:
    """Whether an event comes before the one at the slot. Completions of one time come in the order of the starts."""
    if time != s.event_time[slot]:
        return time < s.event_time[slot]
    other = s.event_code[slot]
    if code >> KIND_SHIFT == COMPLETION and other >> KIND_SHIFT == COMPLETION:
        return s.first_piece[code] < s.first_piece[other]
    return code < other


@inline
def _put(s: State, slot: int, time: float, code: int) -> None:
    s.event_time[slot] = time
    s.event_code[slot] = code
    if code >> KIND_SHIFT == COMPLETION:
        s.event_slot[code] = slot
    elif code >> KIND_SHIFT == TIMER:
        s.timer_slot[code & INDEX_MASK] = slot


@inline
def _sift_up(s: State, slot: int, time: float, code: int) -> None:
    while slot > 0:
        parent = (slot - 1) >> 1
        if not _before(s, time, code, parent):
            break
        _put(s, slot, s.event_time[parent], s.event_code[parent])
        slot = parent
    _put(s, slot, time, code)


@inline
def _sift_down(s: State, slot: int, size: int, time: float, code: int) -> None:
    while True:
        child = 2 * slot + 1
        if child >= size:
            break
        if child + 1 < size and _before(s, s.event_time[child + 1], s.event_code[child + 1], child):
            child += 1
        if _before(s, time, code, child):
            break
        _put(s, slot, s.event_time[child], s.event_code[child])
        slot = child
    _put(s, slot, time, code)


@kernel
def push_event(s: State, time: float, code: int) -> None:
    size = s.count[EVENTS]
    s.count[EVENTS] = size + 1
    _sift_up(s, size, time, code)


@kernel
def pop_event(s: State) -> int:
    """Remove the first event and return its job; there must be one."""
    code = s.event_code[0]
    _remove_at(s, 0)
    if code >> KIND_SHIFT == COMPLETION:
        s.event_slot[code] = -1
    elif code >> KIND_SHIFT == TIMER:
        s.timer_slot[code & INDEX_MASK] = -1
    return code & INDEX_MASK


@kernel
def cancel_completion(s: State, j: int) -> None:
    """Take a running job's completion out of the calendar."""
    _remove_at(s, s.event_slot[j])
    s.event_slot[j] = -1


@inline
def completion_is_next(s: State, time: float) -> bool:
    return s.count[EVENTS] > 0 and s.event_time[0] == time and s.event_code[0] >> KIND_SHIFT == COMPLETION


@inline
def release_is_next(s: State) -> bool:
    """There is an event."""
    return s.event_code[0] >> KIND_SHIFT == RELEASE


@kernel
def push_job_event(s: State, time: float, kind: int, j: int) -> None:
    push_event(s, time, (kind << KIND_SHIFT) | int(j))


@inline
def set_timer(s: State, j: int, time: float) -> None:
    """The job has no timer yet."""
    push_job_event(s, time, TIMER, j)


@kernel
def cancel_timer(s: State, j: int) -> None:
    if s.timer_slot[j] >= 0:
        _remove_at(s, s.timer_slot[j])
        s.timer_slot[j] = -1


@inline
def _remove_at(s: State, slot: int) -> None:
    size = s.count[EVENTS] - 1
    s.count[EVENTS] = size
    if slot == size:
        return
    time = s.event_time[size]
    code = s.event_code[size]
    parent = (slot - 1) >> 1
    if slot > 0 and _before(s, time, code, parent):
        _sift_up(s, slot, time, code)
    else:
        _sift_down(s, slot, size, time, code)
