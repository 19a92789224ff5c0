"""Dependencies between jobs: how the start or end of a job affects the jobs that wait for it.

A job that has arrived and still waits for others is marked in `State.awaits_others`. Once everything it waits for has
happened and all delays have passed, a RELEASE event queues it. If that can never happen, the job is cancelled, together
with the jobs that wait for its success.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.events import RELEASE, set_event
from queuewise.sim.core.schedule import CANCELLED, NEVER
from queuewise.sim.core.state import State, World
from queuewise.workload.dependencies import AFTER, AFTEROK, Dependencies

STARTED, ENDED_WELL, ENDED_BADLY = range(3)


def world_columns(dependencies: Dependencies, num_jobs: int, ends_well: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Dependencies, grouped by the job that others wait for."""
    order = np.argsort(dependencies.on, kind="stable")
    counts = np.bincount(dependencies.on, minlength=num_jobs)
    return {
        "next_first": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "next_job": dependencies.job[order].astype(np.int64),
        "next_kind": dependencies.kind[order],
        "next_delay": dependencies.delay[order],
        "ends_well": ends_well.astype(np.int8),
    }


@inline
def _meet(w: World, s: State, k: int, time: float) -> None:
    """One of the conditions of job k is met, effective from `time`."""
    s.ready[k] = max(s.ready[k], time)
    s.unmet[k] -= 1
    if s.unmet[k] == 0 and s.awaits_others[k]:
        s.awaits_others[k] = 0
        set_event(s, k, RELEASE, s.ready[k])


@inline
def was_placed(w: World, s: State, j: int) -> bool:
    """Whether job j has been placed at least once.

    A job that was stopped while its nodes woke has no start, but counts.
    """
    return s.start[j] < NEVER or (w.policy.can_restart == 1 and s.stops[j] > 0)


@kernel
def _update_successors(w: World, s: State, j: int, what: int, cancelling: int) -> int:
    """Update the jobs that wait for job j.

    Adds those that can never run to State.cancelling and returns its new length.
    """
    for e in range(w.next_first[j], w.next_first[j + 1]):
        k = w.next_job[e]
        kind = w.next_kind[e]
        if kind == AFTEROK and what == ENDED_BADLY:
            if s.awaits_others[k]:
                s.awaits_others[k] = 0
                s.cancelling[cancelling] = k
                cancelling += 1
            s.never_ready[k] = 1
        elif kind == AFTER:
            if what == STARTED or (what == ENDED_BADLY and not was_placed(w, s, j)):
                _meet(w, s, k, s.clock.now + w.next_delay[e])
        elif what != STARTED:
            _meet(w, s, k, s.clock.now + w.next_delay[e])
    return cancelling


@kernel
def tell_successors(w: World, s: State, j: int, what: int) -> None:
    """Update all jobs that depend on job j, which has started for the first time or ended."""
    if not w.policy.has_dependencies:
        return
    cancelling = _update_successors(w, s, j, what, 0)
    while cancelling > 0:
        cancelling -= 1
        k = s.cancelling[cancelling]
        s.status[k] = CANCELLED
        cancelling = _update_successors(w, s, k, ENDED_BADLY, cancelling)


@kernel
def must_wait(w: World, s: State, j: int) -> bool:
    """Whether job j, which arrives, is not queued now: it waits for others, is released later, or is cancelled."""
    if not w.policy.has_dependencies:
        return False
    if s.never_ready[j]:
        s.status[j] = CANCELLED
        tell_successors(w, s, j, ENDED_BADLY)
        return True
    if s.unmet[j] > 0:
        s.awaits_others[j] = 1
        return True
    if s.ready[j] > s.clock.now:
        set_event(s, j, RELEASE, s.ready[j])
        return True
    return False
