"""Following a log: the engine carries out the runs of an existing schedule instead of asking a policy.

The engine itself knows when jobs arrive, end, are released and pass levels, and when nodes fail. It cannot know what
the policy decided: which run started where, and which runs were stopped. Both are in the log of pieces, in the order in
which they happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.sim import backfill
from queuewise.sim.core.blocks import PIECE_COLUMNS
from queuewise.sim.core.engine import with_room_in_log
from queuewise.sim.core.schedule import NEVER, QUEUED, Schedule
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.stepwise import NEXT_INSTANT, START_THERE, STOP, act
from queuewise.sim.core.tables import addresses_of, row_names

NO_NODES = np.zeros(0, np.int64)
# What the log determines. Not included: positions in heaps and lists, and caches that only make decisions faster.
COLUMNS = (
    "status", "start", "end", "expected", "first_piece", "num_pieces", *row_names(State, "run"),
    "class_pending", "unmet", "ready", "awaits_others", "never_ready", "usage", "usage_rate", "usage_time", "held", "tenant_used",
    "idle_since", "awake_at", "node_pieces", "level_key",
)  # fmt: skip
COUNTS = ("arrived", "starts", "pieces", "outages_seen", "services", "learn_at")


def logged_state(machine: Machine, state: State) -> Iterator[NDArray[Any]]:
    """The parts of a state that the log determines."""
    yield np.array([state.clock.now])
    yield np.array([getattr(state.count, name) for name in COUNTS])
    yield from machine
    for name in COLUMNS:
        yield np.ascontiguousarray(getattr(state, name))
    for name in PIECE_COLUMNS:
        yield getattr(state, name)[: state.count.pieces]
    yield np.sort(state.running[: state.count.running_jobs])
    yield np.sort(state.service[: state.count.services])
    time, code = state.event_time[: state.count.events], state.event_code[: state.count.events]
    order = np.lexsort((code, time))
    yield time[order]
    yield code[order]


class LogFollower:
    """An engine that follows a log."""

    def __init__(self, log: Schedule, world: World, machine: Machine, state: State) -> None:
        if len(log.workload) != len(world.submit):
            numbers = f"{len(log.workload):,} jobs, the simulation of {len(world.submit):,}"
            raise InputError(f"the log is of {numbers}", hint="use a log of the same workload")
        self.log, self.world, self.machine, self.state = log, world, machine, state
        self._spare = machine.clone()
        self._tables = self._addresses()
        self._runs = first_pieces(log.piece_job, log.piece_start, log.piece_end)  # and one more, the end of the log
        self._next = int(np.searchsorted(self._runs, state.count.pieces))
        moves = world.policy.preemption_key or world.policy.backfill == backfill.DEFRAG or world.policy.resizes
        self._stop_time = _stop_times(log) if moves else np.full(len(log.piece_job), np.nan)
        self._stop_times = set(self._stop_time.tolist())

    def _addresses(self) -> tuple[Any, Any, Any, Any]:
        return addresses_of(self.world), addresses_of(self.machine), addresses_of(self._spare), addresses_of(self.state)

    def run(self) -> State:
        """Advance the engine to STOP_AT."""
        self._forget()
        while act(*self._tables, NEXT_INSTANT, 0, NO_NODES, NO_NODES, NO_NODES):
            self._do_as_logged()
        self._forget()
        self._check()
        return self.state

    def _do_as_logged(self) -> None:
        """Carry out the stops and starts of this time.

        What cannot be done yet is left for the next instant, which may be at the same time.
        """
        now = self.state.clock.now
        while True:
            if now in self._stop_times:
                self._stop_due(now)
            if self._next == len(self._runs) - 1 or self.log.piece_start[self._runs[self._next]] != now or not self._start():
                return
            self._next += 1

    def _stop_due(self, now: float) -> None:
        running = self.state.running[: self.state.count.running_jobs]
        for j in np.sort(running[self._stop_time[self.state.first_piece[running]] == now]).tolist():
            act(*self._tables, STOP, j, NO_NODES, NO_NODES, NO_NODES)

    def _start(self) -> bool:
        """Start the next run of the log if possible."""
        pieces = slice(self._runs[self._next], self._runs[self._next + 1])
        j = int(self.log.piece_job[pieces.start])
        if self.state.status[j] != QUEUED:
            return False
        longer = with_room_in_log(self.world, self.state)
        if longer is not self.state:
            self.state = longer
            self._tables = self._addresses()
        places = (column[pieces].astype(np.int64) for column in (self.log.piece_node, self.log.piece_tasks, self.log.piece_gpus))
        return bool(act(*self._tables, START_THERE, j, *places))

    def _forget(self) -> None:
        """Make the policy, if it is asked again, start with a full pass."""
        state = self.state
        state.head[:] = state.newcomer[:] = state.shadow_head[:] = -1
        state.dirty[:] = 1
        state.room_key[:] = state.pin_start[:] = np.inf
        state.hold_until[:] = -np.inf
        state.clock.backfilled_at = state.clock.looped_at = -np.inf
        state.plan_state[:] = backfill.UNSETTLED

    def _check(self) -> None:
        """Check that the log belongs to this replay."""
        state, log, until = self.state, self.log, self.state.clock.stop_at
        done = int(state.count.pieces)
        expected = np.where(log.piece_end[:done] <= until, log.piece_end[:done], NEVER)
        differs = np.flatnonzero(expected != state.piece_end[:done])
        left = self._runs[self._next]
        if left < len(log.piece_job) and log.piece_start[left] <= until:
            what = f"job {log.piece_job[left]} cannot start at {log.piece_start[left]:g} s as logged"
        elif len(differs):
            what = f"the run of job {log.piece_job[differs[0]]} does not end at {log.piece_end[differs[0]]:g} s as logged"
        else:
            return
        raise InputError(f"the log is of another replay: {what}", hint="use the same workload, cluster, estimates, seed and conditions")


def first_pieces(job: NDArray[np.int32], start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where each run begins in a log of pieces, and where the log ends.

    Runs of no length that follow each other at one time count as one: failures may end several of them, if there are decisions in between.
    """
    changes = (job[1:] != job[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    begins = np.append(0, np.flatnonzero(changes) + 1) if len(job) else np.zeros(0, np.int64)
    return np.append(begins, len(job))


def _stop_times(log: Schedule) -> NDArray[np.float64]:
    """[P] when the run of a piece was stopped; NaN if it was not."""
    run = np.searchsorted(first_pieces(log.piece_job, log.piece_start, log.piece_end), np.arange(len(log.piece_job)), side="right")
    last = np.zeros(len(log.workload), np.int64)
    last[log.piece_job] = run
    runs_out = log.finished[log.piece_job] & (run == last[log.piece_job])
    return np.where(runs_out | (log.piece_end == NEVER), np.nan, log.piece_end)
