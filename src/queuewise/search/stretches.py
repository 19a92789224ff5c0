"""Stretches of a log on which candidates are compared: consecutive jobs, from the state in which a reference policy would have left the
machine.

The jobs that wait at the beginning of a stretch count as well. Otherwise a candidate could leave them behind for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.measure import BOUND_S
from queuewise.policies import simulate
from queuewise.policies.estimating import declare_part
from queuewise.policies.found_rules import FoundRule
from queuewise.policies.schedule_snapshots import ScheduleSnapshots
from queuewise.policies.window_replays import Candidate, ReplayOptions, WindowRows, replay_windows
from queuewise.sim.core.schedule import REJECTED, Schedule
from queuewise.workload.jobs import Floats, Workload

FIGURES = ("bsld", "wait", "max_wait")


@dataclass(frozen=True, eq=False)
class Figures:
    """[K, W] of K candidates on W stretches."""

    bsld: Floats  # mean
    wait: Floats  # mean, seconds
    max_wait: Floats  # seconds


class Stretches:
    """Stretches of the jobs of a range. `reference` says in which state they begin."""

    def __init__(self, workload: Workload, cluster: Cluster, jobs: range, *, reference: str, options: ReplayOptions) -> None:
        self._workload, self._cluster, self._jobs, self._options = workload, cluster, jobs, options
        self._threads = len(os.sched_getaffinity(0))
        rows = np.arange(jobs.stop)
        past = declare_part(workload.take(rows), workload, rows)
        schedule = simulate(past, cluster, reference, **options.of_window(WindowRows(rows, slice(0, jobs.stop))))
        self._snapshots = ScheduleSnapshots(schedule)

    def draw(self, rng: np.random.Generator, number: int, num_jobs: int) -> list[int]:
        """The first jobs of random stretches of so many jobs, one in each of as many equal parts of the range."""
        room = max(len(self._jobs) - num_jobs, 0)
        return [self._jobs.start + int(room * (part + rng.random()) / number) for part in range(number)]

    def replay(self, rules: Sequence[FoundRule | str], firsts: Sequence[int], num_jobs: int) -> Figures:
        """Replay stretches under rules, or under policies given by name."""
        windows, counted = [], []
        for first in firsts:
            before, start = self._snapshots.before(first)
            rows = np.concatenate([before, np.arange(first, min(first + num_jobs, self._jobs.stop))])
            running = {record.job.job_id for record in start.running}
            counted.append(np.array([self._workload.job_id[row] not in running for row in rows]))
            windows.append(WindowRows(rows, slice(0, len(rows)), start))
        found = {name: np.full((len(rules), len(windows)), np.nan) for name in FIGURES}

        def note(one: Candidate, column: int, schedule: Schedule) -> None:
            for name, value in _figures(schedule, counted[column]).items():
                found[name][one.number, column] = value

        candidates = [
            Candidate(number, rule, None) if isinstance(rule, str) else Candidate(number, rule.policy, rule.numbers)
            for number, rule in enumerate(rules)
        ]
        replay_windows(self._workload, self._cluster, candidates, windows, self._options, self._threads, note, known_as_in_the_log=True)
        return Figures(**found)


def _figures(schedule: Schedule, counted: NDArray[np.bool_]) -> dict[str, float]:
    counted = counted & (schedule.status != REJECTED)
    waits = schedule.start[counted] - schedule.workload.submit[counted]
    runtime = schedule.workload.runtime[counted]
    slowdown = np.maximum((waits + runtime) / np.maximum(runtime, BOUND_S), 1.0)
    return {"bsld": float(slowdown.mean()), "wait": float(waits.mean()), "max_wait": float(waits.max())}
