"""SimPy's clock, and the order of events at one time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import simpy

# Events of one time, in this order.
BEFORE_COMPLETIONS, COMPLETION, REPAIR, FAILURE, LIFT, TIMER, RELEASE, ARRIVAL, OVERDUE, WAKE, DECISION = range(11)


class Clock(simpy.Environment):
    """SimPy's environment, with events at exact times: `now + (time - now)` would round."""

    def call_at(self, time: float, kind: int, rank: int, action: Callable[[], None]) -> None:
        """At one time: by kind, then by rank."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        assert event.callbacks is not None
        event.callbacks.append(lambda _: action())
        heapq.heappush(self._queue, (time, (kind, rank), next(self._eid), event))  # type: ignore[misc]
