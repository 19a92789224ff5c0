"""Builds a validated `Workload` from the rows of a log. This is the only place where rows are skipped, sorted and encoded.

A reader converts each batch to the columns of `FIELDS` (names as text) and adds it. Rows that violate an invariant of the workload are
counted with a reason and skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.workload.dependencies import NO_DEPENDENCIES, Dependencies, resolve
from queuewise.workload.jobs import MAX_SECONDS, UNKNOWN, WHOLE_GPU, Workload
from queuewise.workload.loaded import ClusterFacts, Loaded, ReadRequest, Recorded, Tally
from queuewise.workload.speedup import LINEAR, parse_curve

FIELDS: dict[str, pl.DataType] = {
    "submit": pl.Float64(), "runtime": pl.Float64(), "num_tasks": pl.Float64(), "gpu_milli": pl.Float64(), "cpu_milli": pl.Float64(),
    "mem_mib": pl.Float64(), "requested": pl.Float64(), "priority": pl.Float64(), "deadline": pl.Float64(), "recorded_wait": pl.Float64(),
    "kinds": pl.String(), "partition": pl.String(), "user": pl.String(), "group": pl.String(), "qos": pl.String(), "job_name": pl.String(),
    "job_id": pl.String(), "depends_on": pl.String(), "min_tasks": pl.Float64(), "max_tasks": pl.Float64(), "scaling": pl.String(),
}  # fmt: skip
RECORDED: dict[str, pl.DataType] = {  # kept if options.recorded
    "node_list": pl.String(), "recorded_kind": pl.String(), "eligible": pl.Float64()
}  # fmt: skip
KIND_SEPARATOR = "|"  # in `kinds`: "P100|T4" may run on either

_COUNTS = ("num_tasks", "gpu_milli", "cpu_milli", "mem_mib")
_RECORDED_LABELS = ("node_list", "recorded_partition", "recorded_kind")
_LABELS = ("kinds", "partition", "user", "group", "qos", "scaling")
_RANGE = ("min_tasks", "max_tasks")
_SUFFIXES = {".gz", ".zst", ".bz2", ".xz", ".tar", ".swf", ".csv", ".log", ".json", ".parquet", ".txt"}
_MAX_INT = 2**31 - 1


def _skip_conditions() -> list[tuple[str, pl.Expr]]:
    """(reason, condition) pairs. The first condition that is true gives the reason to skip a row."""
    counts = [pl.col(name) for name in _COUNTS]
    gpu = pl.col("gpu_milli")
    return [
        ("no submission time", pl.col("submit").is_null() | ~pl.col("submit").is_finite()),
        ("negative submission time", pl.col("submit") < 0),
        ("no runtime", pl.col("runtime").is_null() | ~pl.col("runtime").is_finite()),
        ("negative runtime", pl.col("runtime") < 0),
        ("time out of range", pl.max_horizontal("submit", "runtime") > MAX_SECONDS),
        ("no size", pl.col("num_tasks").is_null()),
        ("size below 1", ~(pl.col("num_tasks") >= 1)),
        ("size is not a whole number", pl.any_horizontal(c.is_nan() | (c.is_finite() & (c != c.floor())) for c in counts)),
        ("oversized demand", pl.any_horizontal(c > _MAX_INT for c in counts)),
        ("negative demand", pl.any_horizontal(c < 0 for c in counts)),
        ("GPU demand above 1 that is not a whole number", (gpu > WHOLE_GPU) & (gpu % WHOLE_GPU != 0)),
        ("num_tasks is not between min_tasks and max_tasks", ~_is_range()),
        ("asks for nothing", pl.all_horizontal(c == 0 for c in counts[1:])),
    ]


def _is_range() -> pl.Expr:
    """Whether min_tasks to max_tasks is a range of positive integers that includes num_tasks. Missing bounds are num_tasks."""
    least, tasks, most = pl.col("min_tasks"), pl.col("num_tasks"), pl.col("max_tasks")
    rules = (least == least.floor(), most == most.floor(), least >= 1, least <= tasks, most >= tasks, most <= _MAX_INT)
    return pl.all_horizontal(rule.fill_null(True) for rule in rules)


class Collector:
    """Collects batches of rows and builds the workload."""

    def __init__(self, request: ReadRequest, format_name: str, *, partitions: bool = False) -> None:
        """`partitions` restricts jobs to their partitions even without --partitions, for formats in which the column means that."""
        self.request = request
        self.format = format_name
        self.partitions = partitions or request.options.partitions
        self.tally = Tally()
        self._kept: list[pl.DataFrame] = []

    def add(self, batch: pl.DataFrame, filled: Mapping[str, tuple[pl.Expr, str]] = MappingProxyType({}), /, **fields: pl.Expr) -> None:
        """Add the rows of a batch. `fields` are expressions for columns of FIELDS and RECORDED, and `skip` is the reader's own reason to
        skip a row.

        `filled` maps a field to the condition under which it was filled in or repaired, and a note. Only kept rows are counted.
        """
        own_skip = fields.pop("skip", pl.lit(None, dtype=pl.String))
        unknown = set(fields) - set(FIELDS | RECORDED)
        assert not unknown, unknown
        wanted_fields = FIELDS | (RECORDED if self.request.options.recorded else {})
        columns = [fields.get(name, pl.lit(None)).cast(kind, strict=False).alias(name) for name, kind in wanted_fields.items()]
        marks = [where.fill_null(False).alias(f"filled {name}") for name, (where, _) in filled.items()]
        already = pl.col("skip") if "skip" in batch.columns else pl.lit(None, dtype=pl.String)
        line = pl.col("line") if "line" in batch.columns else pl.lit(None, dtype=pl.UInt32)
        wanted = batch.lazy().select(line.alias("line"), pl.coalesce(already, own_skip).alias("skip"), *columns, *marks)
        frame = wanted.collect()  # lazy: shared expressions are computed once
        frame = frame.with_columns(pl.col("gpu_milli", "cpu_milli", "mem_mib").fill_null(0))
        reasons = [pl.when(condition).then(pl.lit(reason)) for reason, condition in _skip_conditions()]
        frame = frame.with_columns(pl.coalesce(pl.col("skip"), *reasons).alias("skip"))
        self.tally.rows_read += frame.height
        for reason, rows, first in frame.filter(pl.col("skip").is_not_null()).group_by("skip").agg(pl.len(), pl.col("line").min()).rows():
            self.tally.skip(reason, rows, first)
        kept = frame.filter(pl.col("skip").is_null()).drop("line", "skip")
        for name, (_, how) in filled.items():
            self.tally.fill(name, int(kept[f"filled {name}"].sum()), how)
        self._keep(kept.select(*wanted_fields))

    def _keep(self, frame: pl.DataFrame) -> None:
        if self.request.options.recorded:
            own = pl.col("partition").alias("recorded_partition")
            frame = frame.with_columns(own).with_columns(pl.col(*_RECORDED_LABELS).cast(pl.Categorical))
        backwards = int((frame["recorded_wait"] < 0).sum())
        self.tally.fill("recorded_wait", backwards, "starts before the submission are treated as unknown waits")
        if not self.partitions and frame["partition"].null_count() < frame.height:
            self.tally.note("partitions or queues of the log are ignored (use --partitions to apply them)")
            frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("partition"))
        self._kept.append(
            frame.with_columns(
                pl.col(*_COUNTS).cast(pl.Int32),
                *(pl.coalesce(bound, "num_tasks").cast(pl.Int32).alias(bound) for bound in _RANGE),
                _unless_negative("requested"),
                _unless_negative("recorded_wait"),
                pl.when(pl.col("priority").is_finite()).then("priority").otherwise(0.0).alias("priority"),
                pl.when(pl.col("deadline").is_finite()).then("deadline").alias("deadline"),
                pl.col(*_LABELS).cast(pl.Categorical),
                pl.when(pl.col("job_name").is_not_null()).then(pl.col("job_name").hash()).alias("job_name"),
            )
        )

    def finish(self, *, epoch: float | None = None, cluster: ClusterFacts | None = None, name: str | None = None) -> Loaded:
        """The workload. Without an epoch, times are Unix times, and the clock starts at the first submission."""
        where = str(self.request.path)
        if not self._kept or not sum(frame.height for frame in self._kept):
            if self.tally.rows_read == 0:
                raise InputError("the log has no rows", where=where, hint="is this the right file?")
            raise InputError(
                f"no usable job in {self.tally.rows_read} rows: {self.tally.describe_skipped()}", where=where,
                hint=f"it was read as {self.format}; is this the right --format?",
            )  # fmt: skip
        table = pl.concat(self._kept)
        self._kept.clear()
        if not table["submit"].is_sorted():
            self.tally.note("rows were not sorted by submission time and have been sorted")
            table = table.sort("submit", maintain_order=True)
        self.tally.kept = table.height
        submit = table["submit"].to_numpy().copy()
        if epoch is None:
            epoch = float(np.floor(submit[0]))
            submit -= epoch
        workload = self._workload(table, submit, epoch, name or _stem(self.request.path))
        recorded = _recorded(table, float(table["submit"][0]) - submit[0]) if self.request.options.recorded else None
        return Loaded(workload, cluster, self.tally, self.format, recorded)

    def _workload(self, table: pl.DataFrame, submit: NDArray[np.float64], epoch: float, name: str) -> Workload:
        codes, labels = zip(*(_code(table[name]) for name in _LABELS), strict=True)
        label = dict(zip(_LABELS, labels, strict=True))
        for curve in label["scaling"]:
            self._check_curve(curve)
        code = dict(zip(_LABELS, codes, strict=True))
        columns: dict[str, Any] = {name: table[name].to_numpy() for name in (*_COUNTS, *_RANGE)}
        columns |= {name: _numbers(table[name]) for name in ("runtime", "requested", "priority", "deadline", "recorded_wait")}
        columns |= {name: code[name] for name in ("user", "group", "qos", "partition")}  # UNKNOWN is ANY_PARTITION there
        return Workload(
            submit=submit, **columns,
            dependencies=self._dependencies(table),
            kind_set=code["kinds"] + 1, job_name=_code(table["job_name"])[0], job_id=self._ids(table["job_id"]),
            kind_sets=((), *(tuple(kinds.split(KIND_SEPARATOR)) for kinds in label["kinds"])),
            partitions=label["partition"], users=label["user"], groups=label["group"], qos_names=label["qos"],
            scaling=code["scaling"] + 1, scalings=(LINEAR, *label["scaling"]), name=name, epoch=epoch,
        )  # fmt: skip

    def _check_curve(self, curve: str) -> None:
        try:
            parse_curve(curve)
        except InputError as error:
            raise InputError(error.message, where=str(self.request.path), hint=error.hint) from None

    def _dependencies(self, table: pl.DataFrame) -> Dependencies:
        texts, ids = table["depends_on"], table["job_id"]
        if texts.null_count() == len(texts):
            return NO_DEPENDENCIES
        found, unknown, unreadable = resolve(texts.to_list(), ids.fill_null("").to_list())
        if unknown:
            self.tally.note(f"{unknown} dependencies on unknown or skipped jobs were omitted")
        if unreadable:
            self.tally.note(f"{unreadable} invalid dependencies were omitted")
        if len(found):
            self.tally.note(f"{len(found)} dependencies between jobs are ignored (use the condition dependencies to apply them)")
        return found

    def _ids(self, ids: pl.Series) -> NDArray[Any]:
        """Integers if all ids are, otherwise strings; row numbers if the log has no ids."""
        if ids.null_count() == len(ids):
            return np.arange(len(ids))
        repeated = len(ids) - ids.n_unique()
        if repeated:
            self.tally.note(f"{repeated} rows repeat the id of another row; all are kept as separate jobs")
        whole = ids.cast(pl.Int64, strict=False)
        if whole.null_count() == 0 and (whole.cast(pl.String) == ids).all():
            return whole.to_numpy()
        return ids.fill_null("").to_numpy()


def _recorded(table: pl.DataFrame, clock_start: float) -> Recorded:
    (node_list, node_lists), (partition, partitions), (kind, kinds) = (_code(table[name]) for name in _RECORDED_LABELS)
    return Recorded(node_list, partition, kind, _numbers(table["eligible"]) - clock_start, node_lists, partitions, kinds)


def _unless_negative(name: str) -> pl.Expr:
    column = pl.col(name)
    return pl.when(column.is_finite() & (column >= 0)).then(column).alias(name)


def _numbers(column: pl.Series) -> NDArray[np.float64]:
    return column.fill_null(float("nan")).to_numpy()


def _code(column: pl.Series) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Codes by first appearance, with UNKNOWN for null, and their labels (empty for hashed names)."""
    if column.null_count() == len(column):
        return np.full(len(column), UNKNOWN, dtype=np.int32), ()
    known = column.is_not_null().to_numpy()
    physical = column.to_physical().drop_nulls().to_numpy()
    _, first, inverse = np.unique(physical, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    codes = np.full(len(column), UNKNOWN, dtype=np.int32)
    codes[known] = rank[inverse]
    if column.dtype != pl.Categorical:
        return codes, ()
    return codes, tuple(column.drop_nulls().gather(np.sort(first)).cast(pl.String).to_list())


def _stem(path: Path) -> str:
    """The name of the file without suffixes for compression and format."""
    name = path.name
    while Path(name).suffix.lower() in _SUFFIXES:
        name = Path(name).stem
    return name
