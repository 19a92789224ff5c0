"""The table of jobs: every log and every model becomes one of these.

A `Workload` is immutable, sorted by submission time (ties keep the order of the log), and validated on construction, so the invariants in
`_check` always hold. Columns are NumPy arrays of length J. A constant column may be a broadcast view (`constant`), which uses no memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.memory import check_memory
from queuewise.workload.dependencies import NO_DEPENDENCIES, Dependencies
from queuewise.workload.speedup import LINEAR, parse_curve

if TYPE_CHECKING:
    import polars as pl

ANY_PARTITION = -1  # in `partition`: the job may run in any partition
SEPARATOR = ","  # in a name of `partitions`: the job may run in any of the partitions around it
ANY_KIND = 0  # in `kind_set`: entry 0 of `kind_sets` is the empty tuple, which allows every kind
UNKNOWN = -1  # in `user`, `group`, `name`, `qos`: the log does not say
WHOLE_GPU = 1000  # milli
MAX_SECONDS = 1e12  # 30,000 years: larger values are errors, and sums of times are exact below it
SIZE_BYTES = 500  # memory of a replay per number of tasks that elastic jobs may have
FILLED_IN: Any = None  # columns omitted in the constructor get their defaults in __post_init__

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def constant(value: float, num_jobs: int, dtype: type[np.generic]) -> NDArray[Any]:
    """A column with the same value for every job, which uses no memory."""
    return np.broadcast_to(np.asarray(value, dtype=dtype), (num_jobs,))


def named_partitions(label: str) -> tuple[str, ...]:
    """The partitions that a name in `Workload.partitions` stands for."""
    return tuple(name.strip() for name in label.split(SEPARATOR))


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs in order of submission. Only the first three columns are required."""

    submit: Floats  # [J] seconds on the log's clock, ascending
    runtime: Floats  # [J] seconds on the reference GPU kind, >= 0; hidden from policies
    num_tasks: Ints  # [J] equal tasks that start together, >= 1
    gpu_milli: Ints = FILLED_IN  # [J] per task: 0, a share < 1000, or k * 1000
    cpu_milli: Ints = FILLED_IN  # [J] per task, >= 0
    mem_mib: Ints = FILLED_IN  # [J] per task, >= 0
    requested: Floats = FILLED_IN  # [J] seconds the user requested, NaN unknown
    kind_set: Ints = FILLED_IN  # [J] index into kind_sets
    partition: Ints = FILLED_IN  # [J] index into partitions or ANY_PARTITION
    user: Ints = FILLED_IN  # [J] index into users or UNKNOWN
    group: Ints = FILLED_IN  # [J] account or virtual cluster: index into groups or UNKNOWN
    job_name: Ints = FILLED_IN  # [J] code of the job's name or UNKNOWN
    qos: Ints = FILLED_IN  # [J] index into qos_names or UNKNOWN
    priority: Floats = FILLED_IN  # [J] higher is more urgent, 0 by default
    deadline: Floats = FILLED_IN  # [J] seconds on the log's clock, NaN none
    recorded_wait: Floats = FILLED_IN  # [J] seconds the job really waited, NaN unknown
    min_tasks: Ints = FILLED_IN  # [J] an elastic job may start with fewer or more tasks than num_tasks: from this number
    max_tasks: Ints = FILLED_IN  # [J] to this one; both are num_tasks by default
    scaling: Ints = FILLED_IN  # [J] its speed with that number of tasks: index into scalings
    job_id: NDArray[Any] = FILLED_IN  # [J] the log's own ids, integers or strings
    kind_sets: tuple[tuple[str, ...], ...] = ((),)  # allowed GPU kinds; entry 0 is () = any
    partitions: tuple[str, ...] = ()  # "a,b" for jobs that may run in a and in b
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    qos_names: tuple[str, ...] = ()
    scalings: tuple[str, ...] = (LINEAR,)  # curves, see workload.speedup
    name: str = "workload"
    dependencies: Dependencies = NO_DEPENDENCIES  # used only with the condition `dependencies`
    epoch: float = 0.0  # Unix time of second 0 of the log's clock, 0 if unknown; defines the hour of day
    generated: bool = False  # by a workload model, not read from a log

    def __post_init__(self) -> None:
        num = len(self.submit)
        defaults: dict[str, tuple[float, type[np.generic]]] = {
            "gpu_milli": (0, np.int32), "cpu_milli": (0, np.int32), "mem_mib": (0, np.int32),
            "requested": (np.nan, np.float64), "kind_set": (ANY_KIND, np.int32), "partition": (ANY_PARTITION, np.int32),
            "user": (UNKNOWN, np.int32), "group": (UNKNOWN, np.int32), "job_name": (UNKNOWN, np.int32), "qos": (UNKNOWN, np.int32),
            "priority": (0.0, np.float64), "deadline": (np.nan, np.float64), "recorded_wait": (np.nan, np.float64),
            "scaling": (0, np.int32),
        }  # fmt: skip
        for column, (value, dtype) in defaults.items():
            if getattr(self, column) is None:
                object.__setattr__(self, column, constant(value, num, dtype))
        for column in ("min_tasks", "max_tasks"):
            if getattr(self, column) is None:
                object.__setattr__(self, column, self.num_tasks)
        ids: NDArray[Any] | None = self.job_id
        if ids is None:
            object.__setattr__(self, "job_id", np.arange(num))
        self._check()

    def __len__(self) -> int:
        return len(self.submit)

    def _check(self) -> None:
        num = len(self)
        for column in COLUMNS:
            if len(getattr(self, column)) != num:
                raise InputError(f"column {column} has {len(getattr(self, column))} rows, but submit has {num}")
        rules = (
            ("submit", ~np.isfinite(self.submit), "is not a finite time"),
            ("runtime", ~(np.isfinite(self.runtime) & (self.runtime >= 0)), "is negative or not finite"),
            ("num_tasks", self.num_tasks < 1, "is below 1"),
            ("gpu_milli", (self.gpu_milli < 0) | ((self.gpu_milli > WHOLE_GPU) & (self.gpu_milli % WHOLE_GPU != 0)),
             "is neither a share of one GPU (< 1000) nor a multiple of 1000"),
            ("cpu_milli", self.cpu_milli < 0, "is negative"),
            ("mem_mib", self.mem_mib < 0, "is negative"),
            ("demand", (self.gpu_milli == 0) & (self.cpu_milli == 0) & (self.mem_mib == 0), "asks for no GPU, CPU or memory"),
            ("requested", self.requested < 0, "is negative"),
            ("kind_set", (self.kind_set < 0) | (self.kind_set >= len(self.kind_sets)), "is outside kind_sets"),
            ("min_tasks", (self.min_tasks < 1) | (self.min_tasks > self.num_tasks), "is below 1 or above num_tasks"),
            ("max_tasks", self.max_tasks < self.num_tasks, "is below num_tasks"),
            ("scaling", (self.scaling < 0) | (self.scaling >= len(self.scalings)), "is outside scalings"),
            ("partition", (self.partition < -1) | (self.partition >= len(self.partitions)), "is outside partitions"),
        )  # fmt: skip
        for column, bad, problem in rules:
            if bad.any():
                first = int(np.argmax(bad))
                raise InputError(
                    f"job {self.job_id[first]} (row {first}): {column} {problem}; {int(bad.sum())} such jobs",
                    hint="remove or repair these rows",
                )
        self._check_sizes()
        for curve in self.scalings:
            parse_curve(curve)
        if num > 1 and (np.diff(self.submit) < 0).any():
            first = int(np.argmax(np.diff(self.submit) < 0)) + 1
            raise InputError(f"job {self.job_id[first]} (row {first}) is submitted before the previous job", hint="use Workload.sorted")

    def _check_sizes(self) -> None:
        """A replay has a row for every size of elastic jobs, once for jobs with equal ranges."""
        elastic = np.flatnonzero(self.is_elastic)
        if not len(elastic):
            return
        ranges = np.unique(np.stack([self.min_tasks[elastic], self.max_tasks[elastic]]).astype(np.int64), axis=1)
        sizes = int((ranges[1] - ranges[0] + 1).sum())
        hint = "narrow the range of --elastic, or min_tasks and max_tasks of the log"
        check_memory(f"a replay of elastic jobs of {sizes:,} sizes", sizes * SIZE_BYTES, hint=hint)

    @classmethod
    def sorted(cls, **columns: Any) -> Self:
        """A workload from columns in any order. Ties keep their order."""
        order = np.argsort(columns["submit"], kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            columns = {k: (v[order] if k in COLUMNS and v is not None else v) for k, v in columns.items()}
            if "dependencies" in columns:
                columns["dependencies"] = columns["dependencies"].renumbered(np.argsort(order))
        return cls(**columns)

    @staticmethod
    def from_frame(frame: Any, *, name: str = "frame", columns: Mapping[str, str] | None = None) -> Workload:
        """The jobs of a data frame of Polars or pandas, with the fields of generic files (docs/formats.md).

        `columns` maps other columns to fields, for example {"walltime": "runtime"}. A row that is no job is an error.
        """
        from queuewise.workload.frames import workload_of_frame

        return workload_of_frame(frame, name, columns or {})

    def to_frame(self) -> pl.DataFrame:
        """One row per job, with the fields of generic files (docs/formats.md). `from_frame` reads it."""
        from queuewise.workload.frames import frame_of_workload

        return frame_of_workload(self)

    def __repr__(self) -> str:
        if not len(self):
            return f"Workload({self.name}: no jobs)"
        days = (float(self.submit[-1]) - float(self.submit[0])) / 86_400
        unit = "GPUs" if self.gpu_milli.any() else "cores"
        return f"Workload({self.name}: {len(self):,} jobs in {days:,.1f} days, up to {self.size.max():,.0f} {unit})"

    def _repr_html_(self) -> str:
        from queuewise.workload.frames import html_of_workload

        return html_of_workload(self)

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """The jobs at `rows` (ascending indices, a mask or a slice). Times are unchanged. Dependencies on other jobs are dropped."""
        columns = {column: getattr(self, column)[rows] for column in COLUMNS}
        if not len(self.dependencies):
            return dataclasses.replace(self, **columns)
        number = np.full(len(self), -1)
        number[rows] = np.arange(len(columns["submit"]))
        return dataclasses.replace(self, **columns, dependencies=self.dependencies.renumbered(number))

    def replace(self, **changes: Any) -> Self:
        """A copy with other columns. A new num_tasks makes jobs rigid, unless min_tasks and max_tasks are given."""
        if "num_tasks" in changes:
            changes = {"min_tasks": FILLED_IN, "max_tasks": FILLED_IN} | changes
        return dataclasses.replace(self, **changes)

    @property
    def is_elastic(self) -> NDArray[np.bool_]:
        """[J] whether the job may start with a number of tasks different from num_tasks."""
        return (self.min_tasks < self.num_tasks) | (self.max_tasks > self.num_tasks)

    @property
    def gpus(self) -> Floats:
        """[J] GPUs of the whole job (may be fractional)."""
        return self.num_tasks.astype(np.float64) * self.gpu_milli / WHOLE_GPU

    @property
    def cores(self) -> Floats:
        """[J] CPU cores of the whole job."""
        return self.num_tasks.astype(np.float64) * self.cpu_milli / 1000

    @property
    def size(self) -> Floats:
        """[J] the size n in the literature: GPUs, or cores if the job uses no GPU, or tasks if it uses neither."""
        return np.where(self.gpu_milli > 0, self.gpus, np.where(self.cpu_milli > 0, self.cores, self.num_tasks))


COLUMNS = (
    "submit", "runtime", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib", "requested", "kind_set", "partition", "user", "group",
    "job_name", "qos", "priority", "deadline", "recorded_wait", "min_tasks", "max_tasks", "scaling", "job_id",
)  # fmt: skip
