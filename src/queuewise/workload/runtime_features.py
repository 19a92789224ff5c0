"""Numbers from which runtimes are predicted: all that is known of a job and its user when the job is submitted.

A run that has ended is known by its length, one that goes on by how long it has lasted so far. Both go by the log's clock: a job starts
at `submit + recorded wait` and its runtime is known from `submit + recorded wait + runtime` on (predictor.py).
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from queuewise.workload.jobs import UNKNOWN, Floats, Workload

LAST_RUNS = 10  # that means go by
MOST_ACTIVE = 30  # jobs of a user that wait or run and are looked at, the latest ones
STATIC = (
    "log_size", "log_request", "log_area", "tasks", "gpus", "cores", "memory", "user", "account", "name", "partition", "priority",
    "hour", "weekday",
)  # fmt: skip
OF_USER = (
    "user_last", "user_second_last", "user_third_last", "user_mean", "user_spread", "user_last_share", "user_mean_share", "user_runs",
    "since_end", "since_submission",
)  # fmt: skip
OF_TWINS = ("twin_last", "twin_second_last", "twin_mean", "twin_runs", "name_last", "name_mean", "name_runs")
OF_ACTIVE = ("active", "running", "longest_running", "active_twins", "longest_twin")
OF_PREVIOUS = ("previous", "previous_state", "previous_twin", "previous_twin_state")
FEATURES = ("log_recent", *STATIC, *OF_USER, *OF_TWINS, *OF_ACTIVE, *OF_PREVIOUS)
NOTHING = math.nan
UNKNOWN_VALUE = -100.0  # below all known ones
ENDED, RUNNING, WAITING = range(3)


class KnownRun(NamedTuple):
    """A job as its successors see it."""

    key: Hashable  # jobs of one user with the same request and size are twins
    submit: float
    start: float
    known: float  # when its runtime is known
    log_runtime: float
    log_share: float  # of runtime ÷ request


@dataclass
class Past:
    """The jobs of one kind that have ended: their number, and the last of them."""

    number: int = 0
    last: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_RUNS))

    def add(self, value: float) -> None:
        self.number += 1
        self.last.append(value)

    def back(self, steps: int) -> float:
        return self.last[-steps] if len(self.last) >= steps else NOTHING

    @property
    def mean(self) -> float:
        return sum(self.last) / len(self.last) if self.last else NOTHING

    @property
    def spread(self) -> float:
        mean = self.mean
        return math.sqrt(sum((value - mean) ** 2 for value in self.last) / len(self.last)) if len(self.last) > 1 else NOTHING


@dataclass
class User:
    """What is known of a user."""

    runs: Past = field(default_factory=Past)
    shares: Past = field(default_factory=Past)
    twins: defaultdict[Hashable, Past] = field(default_factory=lambda: defaultdict(Past))
    names: defaultdict[int, Past] = field(default_factory=lambda: defaultdict(Past))
    active: dict[int, KnownRun] = field(default_factory=dict)  # jobs that wait or run, by row
    last_end: float = NOTHING
    previous: KnownRun | None = None
    previous_twin: dict[Hashable, KnownRun] = field(default_factory=dict)

    def learn(self, row: int, run: KnownRun, name: int) -> None:
        """A run has ended."""
        self.runs.add(run.log_runtime)
        self.twins[run.key].add(run.log_runtime)
        self.names[name].add(run.log_runtime)
        if run.log_share == run.log_share:
            self.shares.add(run.log_share)
        self.last_end = run.known
        del self.active[row]

    def submit(self, row: int, run: KnownRun) -> None:
        self.active[row] = run
        self.previous = self.previous_twin[run.key] = run

    def describe(self, run: KnownRun, name: int) -> Iterator[float]:
        """The features of a job that is now submitted, before `submit`."""
        now, runs, twins = run.submit, self.runs, self.twins[run.key]
        yield from (runs.back(1), runs.back(2), runs.back(3), runs.mean, runs.spread, self.shares.back(1), self.shares.mean, runs.number)
        yield math.log1p(now - self.last_end)
        yield math.log1p(now - self.previous.submit) if self.previous is not None else NOTHING
        yield from (twins.back(1), twins.back(2), twins.mean, twins.number)
        same_name = self.names[name] if name != UNKNOWN else Past()
        yield from (same_name.back(1), same_name.mean, same_name.number)
        yield from self._describe_active(run)
        yield from _describe_previous(self.previous, now)
        yield from _describe_previous(self.previous_twin.get(run.key), now)

    def _describe_active(self, run: KnownRun) -> tuple[float, ...]:
        running, twins, longest, longest_twin = 0, 0, 0.0, 0.0
        for other in islice(reversed(self.active.values()), MOST_ACTIVE):
            lasted = run.submit - other.start
            running += lasted > 0
            longest = max(longest, lasted)
            if other.key == run.key:
                twins += 1
                longest_twin = max(longest_twin, lasted)
        return len(self.active), running, math.log1p(longest), twins, math.log1p(longest_twin)


def _describe_previous(run: KnownRun | None, now: float) -> tuple[float, float]:
    """How long a job ran or has run so far, and its state."""
    if run is None:
        return NOTHING, NOTHING
    if run.known < now:
        return run.log_runtime, ENDED
    return math.log(max(now - run.start, 1.0)), RUNNING if run.start < now else WAITING


def runtime_features(workload: Workload, recent: Floats) -> Floats:
    """[J, features] of jobs whose log records all waits. `recent` is a first prediction of their runtimes, in seconds."""
    columns = np.concatenate([np.log(recent)[:, None], _static(workload), _by_history(workload)], axis=1)
    filled: Floats = np.nan_to_num(columns, nan=UNKNOWN_VALUE)
    return filled


def _static(workload: Workload) -> Floats:
    size, request = np.maximum(workload.size, 1e-3), np.maximum(workload.requested, 1.0)
    day = (workload.submit + workload.epoch) / 86_400.0
    columns = [
        np.log(size), np.log(request), np.log(size) + np.log(request), workload.num_tasks, workload.gpu_milli, workload.cpu_milli,
        workload.mem_mib, workload.user, workload.group, workload.job_name, workload.partition, workload.priority,
        day * 24 // 1 % 24, day // 1 % 7,
    ]  # fmt: skip
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def _by_history(workload: Workload) -> Floats:
    """The features that are made from earlier jobs."""
    runs = list(_runs(workload))
    by_known = np.argsort([run.known for run in runs], kind="stable").tolist()
    user, name = workload.user.tolist(), workload.job_name.tolist()
    users: defaultdict[int, User] = defaultdict(User)
    rows = np.empty((len(runs), len(FEATURES) - 1 - len(STATIC)))
    learned = 0
    for j, run in enumerate(runs):
        while learned < len(runs) and runs[by_known[learned]].known < run.submit:
            ended = by_known[learned]
            users[user[ended]].learn(ended, runs[ended], name[ended])
            learned += 1
        one = users[user[j]]
        rows[j] = tuple(one.describe(run, name[j]))
        one.submit(j, run)
    return rows


def _runs(workload: Workload) -> Iterator[KnownRun]:
    start = workload.submit + workload.recorded_wait
    log_runtime = np.log(np.maximum(workload.runtime, 1.0))
    columns = (
        np.nan_to_num(workload.requested, nan=-1.0), workload.size, workload.submit, start, start + workload.runtime, log_runtime,
        log_runtime - np.log(np.maximum(workload.requested, 1.0)),
    )  # fmt: skip
    for request, size, *rest in zip(*(column.tolist() for column in columns), strict=True):
        yield KnownRun((request, size), *rest)
