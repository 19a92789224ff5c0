"""The calendar: a heap of (time, code) with four below one, and the total order of events at one instant.

Codes sort events of equal time: completions (in the order of their starts) first, then timers, then releases of jobs that waited for
others, each by job. A job has one event at most, the next that can happen to it: the timers of a run come before its completion, which is
not in the calendar before they have rung. (Arrivals and outages are known beforehand and need no heap.)
"""

from __future__ import annotations

from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State

KIND_SHIFT = 40  # code = kind << KIND_SHIFT | index
INDEX_MASK = (1 << KIND_SHIFT) - 1
COMPLETION, TIMER, RELEASE = range(3)
FAN_OUT = 4
FAN_SHIFT = 2


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
    s.event_slot[code & INDEX_MASK] = slot


@inline
def _sift_up(s: State, slot: int, time: float, code: int) -> None:
    while slot > 0:
        parent = (slot - 1) >> FAN_SHIFT
        if not _before(s, time, code, parent):
            break
        _put(s, slot, s.event_time[parent], s.event_code[parent])
        slot = parent
    _put(s, slot, time, code)


@inline
def _sift_down(s: State, slot: int, size: int, time: float, code: int) -> None:
    while (slot << FAN_SHIFT) + 1 < size:
        child = (slot << FAN_SHIFT) + 1
        for other in range(child + 1, min(child + FAN_OUT, size)):
            if _before(s, s.event_time[other], s.event_code[other], child):
                child = other
        if _before(s, time, code, child):
            break
        _put(s, slot, s.event_time[child], s.event_code[child])
        slot = child
    _put(s, slot, time, code)


@kernel
def _settle(s: State, slot: int, time: float, code: int) -> None:
    """Put an event into the heap, of which a slot is empty."""
    if slot > 0 and _before(s, time, code, (slot - 1) >> FAN_SHIFT):
        _sift_up(s, slot, time, code)
    else:
        _sift_down(s, slot, s.count.events, time, code)


@kernel
def set_event(s: State, j: int, kind: int, time: float) -> None:
    """Let this be the next that happens to job j."""
    slot = s.event_slot[j]
    if slot < 0:
        slot = s.count.events
        s.count.events = slot + 1
    _settle(s, slot, time, (kind << KIND_SHIFT) | int(j))


@kernel
def cancel_event(s: State, j: int) -> None:
    """Let nothing happen to job j; there may have been nothing."""
    slot = s.event_slot[j]
    if slot < 0:
        return
    s.event_slot[j] = -1
    last = s.count.events - 1
    s.count.events = last
    if slot < last:
        _settle(s, slot, s.event_time[last], s.event_code[last])


@kernel
def pop_event(s: State) -> int:
    """Remove the next event and return its job; there must be one."""
    j = first_job(s)
    cancel_event(s, j)
    return j


@inline
def first_job(s: State) -> int:
    """To whom the next event happens; there is one."""
    return s.event_code[0] & INDEX_MASK


@inline
def is_next(s: State, time: float, kind: int) -> bool:
    """Whether the next event is of this kind and time."""
    return s.count.events > 0 and s.event_time[0] == time and s.event_code[0] >> KIND_SHIFT == kind
