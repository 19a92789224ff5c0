"""What orders may know of the jobs of a snapshot, made from its columns when they ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from queuewise.policies.known import Jobs
from queuewise.policies.pass_tables import (
    CPU_MILLI,
    DEADLINE,
    ESTIMATE,
    GPU_MILLI,
    MEM_MIB,
    NUM_TASKS,
    PREDICTED,
    PRIORITY,
    REQUESTED,
    SUBMIT,
)
from queuewise.serve.snapshot_columns import SnapshotColumns
from queuewise.sim.core.tables import I32, I64
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import ANY_PARTITION, UNKNOWN, WHOLE_GPU


class LiveJobs(Jobs):
    """In the order of `rows`, as the tables have them. It also has those columns of a Workload that facts are made of."""

    def __init__(self, columns: SnapshotColumns, rows: I64) -> None:
        self._set(_columns=columns, _order=np.argsort(rows), guessed=False, seed=0, own_estimates={})
        numbers = np.ascontiguousarray(columns.jobs[self._order].T)
        index = np.arange(len(rows), dtype=np.float64)
        self._set(_numbers=numbers, submit=numbers[SUBMIT], estimate=numbers[ESTIMATE], history={"index": index})

    def _set(self, **fields: Any) -> None:
        vars(self).update(fields)  # the class is frozen

    def __getattr__(self, name: str) -> Any:
        """A column that nobody has asked for so far."""
        if name not in _MAKERS:
            raise AttributeError(f"jobs of a snapshot have no {name}")
        made = _MAKERS[name](self)
        self._set(**{name: made})
        return made

    def estimated_as(self, names: Sequence[str]) -> LiveJobs | None:
        """Itself, with estimates of these names for orders of their own. None if they are not known of all jobs."""
        own = {name: self._numbers[PREDICTED if learns_by_waits(name) else REQUESTED] for name in names}
        if any(np.isnan(values).any() for values in own.values()):
            return None
        self._set(own_estimates=own)
        return self

    def estimated_by(self, estimates: str) -> LiveJobs:
        other = object.__new__(LiveJobs)
        others = {name: value for name, value in vars(self).items() if name != "at_least_a_second"}
        other._set(**others | {"estimate": self.own_estimates[estimates]})
        return other

    def _whole(self, column: int) -> Any:
        return self._numbers[column].astype(np.int32)

    def _named(self, of: str, unknown: int) -> tuple[tuple[str, ...], I32]:
        """Names of owners, and their numbers by job."""
        values = self._columns.named(of)
        names = [values[k] for k in self._order]
        known = tuple(sorted({name for name in names if name is not None}))
        numbers = {name: number for number, name in enumerate(known)}
        return known, np.array([unknown if name is None else numbers[name] for name in names], np.int32)


def _size(jobs: LiveJobs) -> Any:
    """As that of a Workload: GPUs, or cores if there are none, or tasks."""
    numbers = jobs._numbers
    tasks = numbers[NUM_TASKS]
    return np.where(numbers[GPU_MILLI] > 0, jobs.gpus, np.where(numbers[CPU_MILLI] > 0, jobs.cores, tasks))


_MAKERS: dict[str, Callable[[LiveJobs], Any]] = {
    "num_tasks": lambda jobs: jobs._whole(NUM_TASKS),
    "gpu_milli": lambda jobs: jobs._whole(GPU_MILLI),
    "cpu_milli": lambda jobs: jobs._whole(CPU_MILLI),
    "mem_mib": lambda jobs: jobs._whole(MEM_MIB),
    "gpus": lambda jobs: jobs._numbers[NUM_TASKS] * jobs._numbers[GPU_MILLI] / WHOLE_GPU,
    "cores": lambda jobs: jobs._numbers[NUM_TASKS] * jobs._numbers[CPU_MILLI] / 1000,
    "size": _size,
    "priority": lambda jobs: jobs._numbers[PRIORITY],
    "deadline": lambda jobs: jobs._numbers[DEADLINE],
    "users": lambda jobs: jobs._named("user", UNKNOWN)[0],
    "user": lambda jobs: jobs._named("user", UNKNOWN)[1],
    "groups": lambda jobs: jobs._named("account", UNKNOWN)[0],
    "group": lambda jobs: jobs._named("account", UNKNOWN)[1],
    "qos_names": lambda jobs: jobs._named("qos", UNKNOWN)[0],
    "qos": lambda jobs: jobs._named("qos", UNKNOWN)[1],
    "partitions": lambda jobs: jobs._named("partition", ANY_PARTITION)[0],
    "partition": lambda jobs: jobs._named("partition", ANY_PARTITION)[1],
}
