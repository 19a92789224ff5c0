"""Shared by the generic formats: the fields that a file may have, by name or mapped with --map.

The fields are the columns of the workload table, `start` and `end` (times, from which waits and runtimes follow), `gpus` and `cores` (of
the whole job, which becomes one-GPU or one-core tasks without `num_tasks`), and `kinds` (`A|B`). Times are seconds or dates. With dates,
the clock starts at the first submission.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import WHOLE_GPU
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers import collector
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.fields import timestamp
from queuewise.workload.readers.source import shown

METADATA = "queuewise"
FIELDS = (*collector.FIELDS, "start", "end", "gpus", "cores")
_DATE = r"^\s*\d{4}-\d{2}-\d{2}"
_TIMES = ("submit", "start", "end", "deadline")
_TEXTS = ("kinds", "partition", "user", "group", "qos", "job_name", "job_id", "depends_on", "scaling")


def enough(names: Collection[str]) -> bool:
    """Whether these columns define jobs: submission, runtime and size."""
    known = set(names)
    return "submit" in known and bool(known & {"runtime", "end"}) and bool(known & {"num_tasks", "gpus", "cores"})


def mapping(names: Sequence[str], request: ReadRequest) -> dict[str, str]:
    """field -> column in the file. Mapped columns take precedence over columns named like a field."""
    where = f"{request.path}:1"
    fields = {name: name for name in names if name in FIELDS}
    for column, field in request.options.columns.items():
        if field not in FIELDS:
            raise unknown_name("field in --map", field, FIELDS)
        if column not in names:
            raise InputError(f"no column {column!r}; found: {shown(', '.join(names))}", where=where, hint="use --map column=field")
        fields[field] = column
    if not enough(fields):
        raise InputError(
            f"columns submit, runtime (or end) and num_tasks, gpus or cores are needed; found: {shown(', '.join(names))}", where=where,
            hint="map the columns with --map column=field",
        )  # fmt: skip
    return fields


def add(batch: pl.DataFrame, fields: dict[str, str], collect: Collector) -> bool:
    """Add a batch. Columns are converted to text first, so that CSV and Parquet behave the same. Returns whether times are dates."""
    text = {field: _text(batch, column) for field, column in fields.items()}
    value: dict[str, pl.Expr] = {}
    for field, column in text.items():
        value[field] = column if field in _TEXTS else timestamp(column) if field in _TIMES else column.cast(pl.Float64, strict=False)
    start = value.pop("start", None)
    end = value.pop("end", None)
    if start is not None:
        value.setdefault("recorded_wait", start - value["submit"])
    if end is not None:
        value.setdefault("runtime", end - (value["submit"] if start is None else start))
    plain = {field: expr for field, expr in value.items() if field not in {"gpus", "cores"}}
    collect.add(batch, **(plain | _shape(value)))
    return bool(batch.select(text["submit"].str.contains(_DATE).any()).item())


def _text(batch: pl.DataFrame, column: str) -> pl.Expr:
    if batch.schema[column] == pl.Datetime:
        return pl.col(column).dt.replace_time_zone(None).dt.strftime("%Y-%m-%d %H:%M:%S%.f")
    return pl.col(column).cast(pl.String)


def _shape(value: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
    """Tasks from the `gpus` and `cores` of the whole job: `num_tasks` tasks if given, otherwise one-GPU or one-core tasks."""
    gpus, cores = value.get("gpus"), value.get("cores")
    if gpus is None and cores is None:
        return {}
    zero = pl.lit(0.0)
    gpus, cores = (zero if gpus is None else gpus.fill_null(0.0)), (zero if cores is None else cores.fill_null(0.0))
    whole = pl.when(gpus >= 1).then(gpus).when(gpus > 0).then(1.0).otherwise(pl.max_horizontal(cores.ceil(), pl.lit(1.0)))
    tasks = value.get("num_tasks", whole)
    return {"num_tasks": tasks, "gpu_milli": (gpus * WHOLE_GPU / tasks).round(), "cpu_milli": (cores * 1000 / tasks).ceil()}


def stored(text: str) -> dict[str, Any]:
    """Name and epoch as stored by our writers: `# queuewise {...}` in CSV, the same JSON in the metadata of Parquet."""
    try:
        values = json.loads(text.removeprefix("#").strip().removeprefix(METADATA))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def finish(collect: Collector, kept: dict[str, Any], dated: bool) -> Loaded:
    epoch, name = kept.get("epoch"), kept.get("name")
    clock = float(epoch) if isinstance(epoch, int | float) else None if dated else 0.0
    return collect.finish(epoch=clock, name=name if isinstance(name, str) else None)
