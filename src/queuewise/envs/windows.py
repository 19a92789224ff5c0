"""Windows: the jobs of an episode.

A source draws a window with one random number, so equal seeds give equal windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError
from queuewise.evaluation.protocol import BLOCK_SEEDS, WARM_POLICY, block_jobs
from queuewise.policies.estimating import declare_part, estimate_on
from queuewise.policies.replaying import simulate
from queuewise.policies.schedule_snapshots import ScheduleSnapshots
from queuewise.policies.snapshot import Snapshot
from queuewise.reading import args_on_cluster
from queuewise.workload.estimates import Estimates, default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate, is_model
from queuewise.workload.transform import distinct_ids

POOL = 256  # windows


def known_runtimes(workload: Workload, cluster: Cluster, estimates: str | None, seed: int = 0) -> Estimates:
    """What is known of the runtimes of a window's jobs."""
    return estimate_on(workload, cluster, estimates or default_estimates(workload), seed) if len(workload) else Estimates(np.zeros(0))


class WindowJobs(NamedTuple):
    """What an episode consists of: the window's own jobs and, before them, those that wait or run when it begins."""

    workload: Workload
    known: Estimates  # of the runtimes
    start: Snapshot | None = None  # None: the cluster is empty, and all jobs are the window's own


class WindowSource:
    """A source of windows. `size` is their number, and `draw` picks one of them.

    Laying a window out takes far longer than playing it. So envs draw from a pool of POOL windows, unless the user chose
    its size, and the pool slides: with every episode of an env, one window leaves it and another comes in.
    """

    size: int
    slides = False
    warm = False  # whether windows begin with the jobs that wait and run then

    def draw(self, rng: np.random.Generator) -> int:
        """One of all windows."""
        return int(rng.integers(self.size))

    def draw_for(self, episode: int, rng: np.random.Generator) -> int:
        """A window of the pool, for an env that has begun `episode` episodes."""
        return self._in_pool(episode + int(rng.integers(POOL))) if self.slides else self.draw(rng)

    def newest(self, episode: int) -> int:
        """The window that comes into the pool with this episode."""
        return self._in_pool(episode + POOL - 1)

    def _in_pool(self, place: int) -> int:
        return place * self._spread % self.size

    @cached_property
    def _spread(self) -> int:
        """Windows that follow each other in the pool are far apart in a log, and all are played in the end."""
        spread = max(int(self.size * 0.618), 1)
        while gcd(spread, self.size) > 1:
            spread += 1
        return spread

    def window(self, number: int, cluster: Cluster | None = None) -> WindowJobs:
        """The jobs of a window, on the source's cluster or on another one."""
        raise NotImplementedError


class ModelSource(WindowSource):
    """A workload model generates every window with its own seed, taken from the block's range of seeds."""

    def __init__(
        self, name: str, cluster: Cluster, jobs: int | None, block: str, estimates: str | None, pool: int | None, args: dict[str, Any]
    ):
        self._name, self._cluster, self._jobs, self._estimates, self._seeds = name, cluster, jobs, estimates, BLOCK_SEEDS[block]
        self._args = args
        self.size = min(pool or len(self._seeds), len(self._seeds))
        self.slides = pool is None and self.size > POOL

    def window(self, number: int, cluster: Cluster | None = None) -> WindowJobs:
        args = args_on_cluster(self._name, cluster or self._cluster) | self._args
        workload = generate(self._name, self._jobs, self._seeds[number], **args)
        return WindowJobs(workload, known_runtimes(workload, self._cluster, self._estimates, self._seeds[number]))


class LogSource(WindowSource):
    """Windows of consecutive jobs of one block of a log.

    Without `jobs`, a window is the whole block, `block=None` the whole log. If they start warm, the jobs that a window begins with
    come from one replay of the log, which is made when the first window is asked for.
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, jobs: int | None, rows: range, estimates: str | None, pool: int | None, *, warm: bool
    ) -> None:
        self._workload, self._cluster, self._rows, self.warm = workload, cluster, rows, warm
        self._known = known_runtimes(workload, cluster, estimates)
        self._jobs = len(rows) if jobs is None else jobs
        if self._jobs > len(rows):
            raise InputError(
                f"an episode has {self._jobs} jobs, but there are only {len(rows)}", hint="give a smaller episode_jobs, or None"
            )
        windows = len(rows) - self._jobs + 1
        self.size = min(pool or windows, windows)
        self.slides = pool is None and self.size > POOL
        self._step = max(windows // self.size, 1)

    @cached_property
    def _snapshots(self) -> ScheduleSnapshots:
        until = slice(0, self._rows.stop)
        return ScheduleSnapshots(simulate(self._workload.take(until), self._cluster, WARM_POLICY, estimates=self._known.take(until)))

    def window(self, number: int, cluster: Cluster | None = None) -> WindowJobs:
        first = self._rows.start + number * self._step
        own = slice(first, first + self._jobs)
        if self.warm and self._jobs:
            before, start = self._snapshots.before(first)
            if len(before):
                return self._jobs_of(np.concatenate([before, np.arange(own.start, own.stop)]), start)
        return self._jobs_of(np.arange(own.start, own.stop), None)

    def _jobs_of(self, rows: NDArray[np.int64], start: Snapshot | None) -> WindowJobs:
        """Predictions know of these jobs what they know in the whole log."""
        return WindowJobs(declare_part(self._workload.take(rows), self._workload, rows), self._known.take(rows), start)


class ListSource(WindowSource):
    """A given list of windows, and what each of them begins with."""

    def __init__(
        self, workloads: Sequence[Workload], cluster: Cluster, estimates: str | None, starts: Sequence[Snapshot | None] | None
    ) -> None:
        self._workloads, self._cluster, self._estimates, self._starts = workloads, cluster, estimates, starts
        self.size = len(workloads)

    def window(self, number: int, cluster: Cluster | None = None) -> WindowJobs:
        workload = self._workloads[number]
        start = None if self._starts is None else self._starts[number]
        return WindowJobs(workload, known_runtimes(workload, self._cluster, self._estimates), start)


def make_source(
    workload: str | Workload | Sequence[Workload],
    cluster: Cluster,
    settings: TaskSettings,
    conditions: Conditions,
    *,
    episode_jobs: int | None,
    block: str | None,
    split: tuple[float, float, float],
    pool: int | None,
    model_args: dict[str, Any] | None,
    starts: Sequence[Snapshot | None] | None,
) -> WindowSource:
    """A source for the name of a model, the path of a log, a workload, or a list of windows, which `starts` belong to.

    `pool` limits the number of different windows.
    """
    if isinstance(workload, str) and is_model(workload):
        _refuse_warm(settings, "windows of a workload model have no jobs before them")
        return ModelSource(workload, cluster, episode_jobs, block or "train", settings.estimates, pool, model_args or {})
    if isinstance(workload, str | Workload):
        log = _log(workload)
        rows = range(len(log)) if block is None else block_jobs(log, split)[block]
        return LogSource(log, cluster, episode_jobs, rows, settings.estimates, pool, warm=_starts_warm(settings, conditions))
    if not len(workload):
        raise InputError("the list of windows is empty", hint="give at least one workload")
    _refuse_warm(settings, "the windows of a list have no log around them")
    return ListSource(workload, cluster, settings.estimates, starts)


def _log(workload: str | Workload) -> Workload:
    if isinstance(workload, str):
        from queuewise.workload import load_workload

        workload = load_workload(workload).workload
    return distinct_ids(workload)


def _starts_warm(settings: TaskSettings, conditions: Conditions) -> bool:
    """Whether windows of a log start warm: not under conditions that would also have shaped what happened before."""
    unshaped = conditions.model_copy(update={"preemption": PERFECT.preemption, "fairness": PERFECT.fairness}) == PERFECT
    if not unshaped:
        _refuse_warm(settings, "under conditions other than costs of preemption, windows start on an empty cluster")
    return settings.start != "empty" and unshaped


def _refuse_warm(settings: TaskSettings, why: str) -> None:
    if settings.start == "warm":
        raise InputError(f"start='warm': {why}", hint="use start='empty', or leave it out")
