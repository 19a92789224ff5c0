"""Jobs that wait for other jobs: who is told when something starts or ends, and who is released or cancelled by it.

A job that has arrived and still waits stands by (`State.standby`). It is released by an event of its own when the last thing it waits for
has happened and all delays are over; if that can never be, it is cancelled, and those that wait for its good end with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.events import RELEASE, set_event
from queuewise.sim.schedule import CANCELLED, NEVER
from queuewise.sim.state import DEPENDENCIES, NOW, RESTARTS, State, World
from queuewise.workload.dependencies import AFTER, AFTEROK, Dependencies

STARTED, ENDED_WELL, ENDED_BADLY = range(3)


def world_columns(dependencies: Dependencies, num_jobs: int, ends_well: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Edges by the job that is waited for."""
    order = np.argsort(dependencies.on, kind="stable")
    counts = np.bincount(dependencies.on, minlength=num_jobs)
    return {
        "next_first": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "next_job": dependencies.job[order].astype(np.int64),
        "next_kind": dependencies.kind[order],
        "next_delay": dependencies.delay[order],
        "ends_well": ends_well.astype(np.int8),
    }


def state_columns(dependencies: Dependencies, num_jobs: int) -> dict[str, NDArray[Any]]:
    return {
        "unmet": np.bincount(dependencies.job, minlength=num_jobs).astype(np.int32),
        "ready": np.full(num_jobs, -np.inf),
        "standby": np.zeros(num_jobs, np.int8),
        "doomed": np.zeros(num_jobs, np.int8),
        "fallen": np.zeros(num_jobs, np.int64),
    }


@inline
def _meet(w: World, s: State, k: int, time: float) -> None:
    """One of the things job k waits for has happened; it counts from `time` on."""
    s.ready[k] = max(s.ready[k], time)
    s.unmet[k] -= 1
    if s.unmet[k] == 0 and s.standby[k]:
        s.standby[k] = 0
        set_event(s, k, RELEASE, s.ready[k])


@inline
def was_placed(w: World, s: State, j: int) -> bool:
    """Whether job j has had a run. One that was stopped while its nodes woke has not started."""
    return s.start[j] < NEVER or (w.policy[RESTARTS] == 1 and s.stops[j] > 0)


@kernel
def _tell(w: World, s: State, j: int, what: int, fallen: int) -> int:
    """Tell those that wait for job j; whoever stands by and now waits in vain is noted in State.fallen, of which the number is returned."""
    for e in range(w.next_first[j], w.next_first[j + 1]):
        k = w.next_job[e]
        kind = w.next_kind[e]
        if kind == AFTEROK and what == ENDED_BADLY:
            if s.standby[k]:
                s.standby[k] = 0
                s.fallen[fallen] = k
                fallen += 1
            s.doomed[k] = 1
        elif kind == AFTER:
            if what == STARTED or (what == ENDED_BADLY and not was_placed(w, s, j)):
                _meet(w, s, k, s.clock[NOW] + w.next_delay[e])
        elif what != STARTED:
            _meet(w, s, k, s.clock[NOW] + w.next_delay[e])
    return fallen


@kernel
def tell_successors(w: World, s: State, j: int, what: int) -> None:
    """Job j has started (for the first time) or come to an end."""
    if not w.policy[DEPENDENCIES]:
        return
    fallen = _tell(w, s, j, what, 0)
    while fallen > 0:
        fallen -= 1
        k = s.fallen[fallen]
        s.status[k] = CANCELLED
        fallen = _tell(w, s, k, ENDED_BADLY, fallen)


@kernel
def must_wait(w: World, s: State, j: int) -> bool:
    """Job j arrives. Whether it is not to be queued now: it stands by, is released later, or is cancelled at once."""
    if not w.policy[DEPENDENCIES]:
        return False
    if s.doomed[j]:
        s.status[j] = CANCELLED
        tell_successors(w, s, j, ENDED_BADLY)
        return True
    if s.unmet[j] > 0:
        s.standby[j] = 1
        return True
    if s.ready[j] > s.clock[NOW]:
        set_event(s, j, RELEASE, s.ready[j])
        return True
    return False
