"""The calendar against a plain dictionary: events come out by time, then kind, then (completions) start or job."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.cluster.spec import NodeGroup, build
from queuewise.sim.core.events import COMPLETION, RELEASE, TIMER, cancel_event, first_job, is_next, pop_event, set_event
from queuewise.workload.jobs import Workload
from uncompiled.simulation import Simulation, laid_out

JOBS = 40
KINDS = (COMPLETION, TIMER, RELEASE)
TIMES = (0.0, 1.0, 1.0, 2.5, 7.0, np.inf)


def empty_calendar() -> Simulation:
    one = np.ones(JOBS, np.int32)
    workload = Workload(np.zeros(JOBS), np.ones(JOBS), one, one * 1000)
    return laid_out(workload, build("one", [NodeGroup(1, gpus=1, kind="T4")]), "fcfs", workload.runtime)


class Calendar:
    """The kernels and the model side by side."""

    def __init__(self) -> None:
        self.state = empty_calendar().state
        self.events: dict[int, tuple[float, int, int]] = {}  # job -> time, kind, rank among equals
        self.starts = 0

    def set(self, j: int, kind: int, time: float) -> None:
        if kind == COMPLETION and self.events.get(j, (0, TIMER, 0))[1] != COMPLETION:
            self.starts += 1
            self.state.first_piece[j] = self.starts
        set_event(self.state, j, kind, time)
        self.events[j] = (time, kind, int(self.state.first_piece[j]) if kind == COMPLETION else j)

    def cancel(self, j: int) -> None:
        cancel_event(self.state, j)
        self.events.pop(j, None)

    def check_first(self) -> None:
        first = min(self.events, key=lambda j: self.events[j])
        assert first_job(self.state) == first
        time, kind, _ = self.events[first]
        for other in KINDS:
            assert is_next(self.state, time, other) == (other == kind)
        assert not is_next(self.state, time - 1.0 if time < np.inf else 0.0, kind)

    def pop(self) -> None:
        first = min(self.events, key=lambda j: self.events[j])
        assert pop_event(self.state) == first
        del self.events[first]


jobs = st.integers(0, JOBS - 1)
changes = st.one_of(
    st.tuples(st.just("set"), jobs, st.sampled_from(KINDS), st.sampled_from(TIMES)),
    st.tuples(st.just("set"), jobs, st.sampled_from(KINDS), st.floats(0, 100)),
    st.tuples(st.just("cancel"), jobs),
    st.tuples(st.just("pop")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(changes, max_size=120))
def test_events_come_in_the_order_of_the_model(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    calendar = Calendar()
    for name, *arguments in steps:
        if name != "pop" or calendar.events:
            getattr(calendar, name)(*arguments)
        if calendar.events:
            calendar.check_first()
    while calendar.events:
        calendar.pop()
    assert not any(is_next(calendar.state, time, kind) for time in TIMES for kind in KINDS)


def test_the_order_at_one_instant_by_hand() -> None:
    """Job 5 started before job 3, so it completes first; then timers by job; then releases by job."""
    calendar = Calendar()
    calendar.set(5, COMPLETION, 4.0)
    calendar.set(3, COMPLETION, 4.0)
    for j, kind in ((9, RELEASE), (8, TIMER), (2, RELEASE), (7, TIMER)):
        calendar.set(j, kind, 4.0)
    calendar.set(1, RELEASE, 3.9)
    assert [int(pop_event(calendar.state)) for _ in range(7)] == [1, 5, 3, 7, 8, 2, 9]
