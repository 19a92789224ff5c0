"""Events: a heap of (time, code) with fan-out 4, and the total order of events at one instant.

Codes order events of equal time: completions first (in the order of their starts), then timers, then releases of jobs
that waited for others, both by job index. A job has at most one event in the heap, its next one. The timers of a run
come before its completion, which enters the heap only after they have fired. Arrivals and outages are known beforehand
and need no heap.
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
    """Whether an event comes before the one at the slot.

    Completions at the same time are in the order of their starts.
    """
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
def _insert_at(s: State, slot: int, time: float, code: int) -> None:
    """Insert an event into the heap, starting from an empty slot."""
    if slot > 0 and _before(s, time, code, (slot - 1) >> FAN_SHIFT):
        _sift_up(s, slot, time, code)
    else:
        _sift_down(s, slot, s.count.events, time, code)


@kernel
def set_event(s: State, j: int, kind: int, time: float) -> None:
    """Set the event of job j, replacing the one it has."""
    slot = s.event_slot[j]
    if slot < 0:
        slot = s.count.events
        s.count.events = slot + 1
    _insert_at(s, slot, time, (kind << KIND_SHIFT) | int(j))


@kernel
def cancel_event(s: State, j: int) -> None:
    """Remove the event of job j, if it has one."""
    slot = s.event_slot[j]
    if slot < 0:
        return
    s.event_slot[j] = -1
    last = s.count.events - 1
    s.count.events = last
    if slot < last:
        _insert_at(s, slot, s.event_time[last], s.event_code[last])


@kernel
def pop_event(s: State) -> int:
    """Remove the next event and return its job. The heap must not be empty."""
    j = first_job(s)
    cancel_event(s, j)
    return j


@inline
def first_job(s: State) -> int:
    """The job of the next event. The heap must not be empty."""
    return s.event_code[0] & INDEX_MASK


@inline
def is_next(s: State, time: float, kind: int) -> bool:
    """Whether the next event has this kind and time."""
    return s.count.events > 0 and s.event_time[0] == time and s.event_code[0] >> KIND_SHIFT == kind
