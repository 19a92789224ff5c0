"""Windows: the jobs of an episode.

A source draws a window with one random number, so equal seeds give equal windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError
from queuewise.evaluation.protocol import BLOCK_SEEDS, block_jobs
from queuewise.policies.estimating import estimate_on
from queuewise.sim.core.tables import F64
from queuewise.workload.estimates import default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate, is_model, model_parameters


def known_runtimes(workload: Workload, cluster: Cluster, estimates: str | None, seed: int = 0) -> F64:
    """[J] what is known of the runtimes of a window's jobs."""
    return estimate_on(workload, cluster, estimates or default_estimates(workload), seed).values if len(workload) else np.zeros(0)


class WindowSource:
    """A source of windows. `size` is their number, and `draw` picks one of them."""

    size: int

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.size))

    def window(self, number: int) -> tuple[Workload, F64]:
        """The jobs of a window and the estimates of their runtimes."""
        raise NotImplementedError


class ModelSource(WindowSource):
    """A workload model generates every window with its own seed, taken from the block's range of seeds."""

    def __init__(
        self, name: str, cluster: Cluster, jobs: int | None, block: str, estimates: str | None, pool: int | None, args: dict[str, Any]
    ):
        self._name, self._cluster, self._jobs, self._estimates, self._seeds = name, cluster, jobs, estimates, BLOCK_SEEDS[block]
        sizes = {"gpus": cluster.num_gpus, "cores": cluster.num_cores}
        known = model_parameters(name)
        fitting = {key: int(value) for key, value in sizes.items() if key in known and 0 < value < np.inf}
        self._args = fitting | args
        self.size = min(pool or len(self._seeds), len(self._seeds))

    def window(self, number: int) -> tuple[Workload, F64]:
        workload = generate(self._name, self._jobs, self._seeds[number], **self._args)
        return workload, known_runtimes(workload, self._cluster, self._estimates, self._seeds[number])


class LogSource(WindowSource):
    """Windows of consecutive jobs of one block of a log.

    `jobs=None` means the whole block, `block=None` the whole log.
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, jobs: int | None, block: str | None, estimates: str | None, pool: int | None
    ) -> None:
        self._workload = workload
        self._estimate = known_runtimes(workload, cluster, estimates)
        self._rows = range(len(workload)) if block is None else block_jobs(workload)[block]
        self._jobs = len(self._rows) if jobs is None else jobs
        if self._jobs > len(self._rows):
            raise InputError(
                f"an episode has {self._jobs} jobs, but there are only {len(self._rows)}", hint="give a smaller number of jobs, or None"
            )
        windows = len(self._rows) - self._jobs + 1
        self.size = min(pool or windows, windows)
        self._step = max(windows // self.size, 1)

    def window(self, number: int) -> tuple[Workload, F64]:
        first = self._rows.start + number * self._step
        rows = slice(first, first + self._jobs)
        return self._workload.take(rows), self._estimate[rows]


class ListSource(WindowSource):
    """A given list of windows."""

    def __init__(self, workloads: Sequence[Workload], cluster: Cluster, estimates: str | None) -> None:
        self._workloads, self._cluster, self._estimates = workloads, cluster, estimates
        self.size = len(workloads)

    def window(self, number: int) -> tuple[Workload, F64]:
        workload = self._workloads[number]
        return workload, known_runtimes(workload, self._cluster, self._estimates)


def make_source(
    workload: str | Workload | Sequence[Workload],
    cluster: Cluster,
    settings: TaskSettings,
    *,
    jobs: int | None,
    block: str | None,
    pool: int | None,
    model_args: dict[str, Any] | None,
) -> WindowSource:
    """A source for the name of a model, the path of a log, a workload, or a list of windows.

    `pool` limits the number of different windows.
    """
    if isinstance(workload, str):
        if is_model(workload):
            return ModelSource(workload, cluster, jobs, block or "train", settings.estimates, pool, model_args or {})
        from queuewise.workload import load_workload

        return LogSource(load_workload(workload).workload, cluster, jobs, block, settings.estimates, pool)
    if isinstance(workload, Workload):
        return LogSource(workload, cluster, jobs, block, settings.estimates, pool)
    if not len(workload):
        raise InputError("the list of windows is empty", hint="give at least one workload")
    return ListSource(workload, cluster, settings.estimates)
