"""`milp:K` as an order: when the next K jobs start, by an integer program on a grid of times that is solved again at every event.

It is a yardstick for small clusters. The program knows how much is free in all, now and when running jobs are expected to end; jobs
that are to start now start where the placement rule puts them, if they fit. docs/planning.md writes it out.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from queuewise.policies.interface import ReplayRequest
from queuewise.policies.milp.integer_program import IntegerProgram, Rows
from queuewise.policies.planning.planned_replay import NOBODY, PlannedReplay
from queuewise.workload.jobs import Floats

SLOTS = 24  # of the grid
MOST_PLANNED = 8  # jobs


class Timetable(PlannedReplay):
    def __init__(self, request: ReplayRequest, names: tuple[str, ...], jobs: int) -> None:
        super().__init__(request, names)
        self._program = IntegerProgram(request.budgets.milp_work)
        self._jobs = jobs
        self._width = request.workload.size
        cluster = request.cluster
        self._total = float(cluster.num_gpus) if cluster.num_gpus else float(cluster.num_cores)

    def advance(self) -> None:
        while self.next_instant():
            waiting = self.queued[: self._jobs]
            if not len(waiting):
                continue
            began = time.perf_counter()
            starts = self._starts_now(waiting) if len(waiting) > 1 else waiting
            self.statistics.note((time.perf_counter() - began) * 1e6)
            for j in starts.tolist():
                self.start(j)
            if not self.state.count.running_jobs:
                self.decide()  # something must run

    def _starts_now(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """The jobs that start now in the best timetable; those that fit, in order, if none is found within the limit."""
        ends, free = self._profile()
        length = np.maximum(self.request.estimate[waiting], 1.0)
        step = max((float(ends.max(initial=self.now)) - self.now + float(length.sum())) / SLOTS, 1.0)
        slots = np.minimum(np.ceil(length / step).astype(np.int64), SLOTS)
        at = self.now + step * np.arange(SLOTS)
        room = free[np.searchsorted(ends, at, side="right")]
        width = self._width[waiting]
        num = len(waiting)
        columns = np.arange(num * SLOTS).reshape(num, SLOTS)
        row, column, value = [], [], []
        for k in range(num):
            row.append(np.full(SLOTS, k))
            column.append(columns[k])
            value.append(np.ones(SLOTS))
            for slot in range(SLOTS):
                covers = np.arange(slot, min(slot + int(slots[k]), SLOTS))
                row.append(num + covers)
                column.append(np.full(len(covers), columns[k, slot]))
                value.append(np.full(len(covers), float(width[k])))
        rows = Rows(
            np.concatenate(row), np.concatenate(column), np.concatenate(value),
            np.concatenate([np.ones(num), np.full(SLOTS, -np.inf)]), np.concatenate([np.ones(num), room]),
        )  # fmt: skip
        self._program.load(np.ones(num * SLOTS), rows)
        solved = self._program.minimise(np.tile(np.arange(SLOTS, dtype=np.float64), num), whole_costs=True)
        if solved.values is None:
            self.statistics.fallbacks += 1
            return waiting if num else NOBODY
        found = solved.values.reshape(num, SLOTS)
        value_now = float(np.tile(np.arange(SLOTS), num) @ solved.values)
        self.statistics.gaps.append(max(value_now - solved.bound, 0.0) / max(value_now, 1.0))
        return waiting[found[:, 0] > 0.5]

    def _profile(self) -> tuple[Floats, Floats]:
        """Expected ends of running jobs, ascending, and what is free before the first, after the first, …"""
        running = self.state.running[: self.state.count.running_jobs].astype(np.int64)
        expected = np.maximum(self.state.expected[running], self.now + 1e-3)
        order = np.argsort(expected, kind="stable")
        width = self._width[running][order]
        return expected[order], self._total - float(width.sum()) + np.concatenate([[0.0], np.cumsum(width)])
