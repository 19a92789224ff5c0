"""Workloads as data frames, and back. The columns are the fields of generic files (docs/formats.md)."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.workload.dependencies import to_texts
from queuewise.workload.jobs import UNKNOWN, Workload
from queuewise.workload.loaded import ReadOptions, ReadRequest

if TYPE_CHECKING:
    import polars as pl

SHOWN_JOBS = 5


def workload_of_frame(frame: Any, name: str, columns: Mapping[str, str]) -> Workload:
    """The jobs of a data frame of Polars or pandas. `columns` maps its columns to fields."""
    from queuewise.workload.readers import generic
    from queuewise.workload.readers.collector import Collector

    table = _as_polars(frame)
    request = ReadRequest(Path(name), (), ReadOptions(columns=columns))
    collect = Collector(request, "frame", partitions=True)
    try:
        dated = generic.add(table, generic.mapping(table.columns, request), collect)
        loaded = generic.finish(collect, {"name": name}, dated)
    except InputError as error:
        hint = error.hint.replace("map the columns with --map column=field", "pass columns={'your column': 'field'}")
        if "--format" in hint:
            nothing = "asks for nothing" in error.message
            hint = "add a column gpus or cores: num_tasks only says how many tasks there are" if nothing else "correct these rows"
        raise InputError(error.message, where=name, hint=hint) from None
    if loaded.tally.skipped:
        raise InputError(
            f"{sum(loaded.tally.skipped.values()):,} of {table.height:,} rows are no jobs: {loaded.tally.describe_skipped()}",
            where=name,
            hint="leave these rows out, or correct them",
        )
    return loaded.workload


def _as_polars(frame: Any) -> pl.DataFrame:
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    try:
        return pl.DataFrame([_column(str(name), frame[name]) for name in frame.columns])
    except (AttributeError, TypeError, ValueError, pl.exceptions.PolarsError):
        raise InputError(f"a {type(frame).__name__} is no data frame", hint="pass a DataFrame of Polars or pandas") from None


def _column(name: str, values: Any) -> pl.Series:
    """A column of pandas, whose texts are objects, some of which may be missing."""
    import polars as pl

    array = np.asarray(values)
    if array.dtype != object:
        return pl.Series(name, array, strict=False, nan_to_null=True)
    missing = values.isna() if hasattr(values, "isna") else [value is None for value in array]
    return pl.Series(name, [None if gone else value for gone, value in zip(missing, array, strict=True)], strict=False)


def frame_of_workload(workload: Workload) -> pl.DataFrame:
    """One row per job with the column names of the generic formats. Unknown values are null, labels are text."""
    import polars as pl

    columns: dict[str, Any] = {
        name: getattr(workload, name) for name in ("submit", "runtime", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib")
    }
    columns |= {name: _or_none(getattr(workload, name)) for name in ("requested", "recorded_wait", "deadline")}
    columns["priority"] = np.ascontiguousarray(workload.priority)
    columns["kinds"] = _labels(workload.kind_set - 1, ["|".join(kinds) for kinds in workload.kind_sets[1:]])
    columns["partition"] = _labels(workload.partition, workload.partitions)
    columns["user"] = _labels(workload.user, workload.users)
    columns["group"] = _labels(workload.group, workload.groups)
    columns["qos"] = _labels(workload.qos, workload.qos_names)
    columns["job_name"] = pl.Series(np.ascontiguousarray(workload.job_name)).replace(UNKNOWN, None)
    columns["job_id"] = pl.Series(np.ascontiguousarray(workload.job_id))
    if workload.is_elastic.any():
        columns |= {"min_tasks": workload.min_tasks, "max_tasks": workload.max_tasks}
        columns["scaling"] = _labels(workload.scaling, workload.scalings)
    if len(workload.dependencies):
        columns["depends_on"] = pl.Series(to_texts(workload.dependencies, workload.job_id), dtype=pl.String)
    return pl.DataFrame({name: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for name, v in columns.items()})


def _or_none(values: NDArray[np.float64]) -> pl.Series:
    import polars as pl

    return pl.Series(np.ascontiguousarray(values), nan_to_null=True)


def _labels(codes: NDArray[Any], labels: Sequence[str]) -> pl.Series:
    import polars as pl

    names = pl.Series(labels, dtype=pl.String)
    return (
        names.gather(pl.Series(np.ascontiguousarray(codes)).replace(UNKNOWN, None))
        if len(names)
        else pl.Series([None] * len(codes), dtype=pl.String)
    )


def html_of_workload(workload: Workload) -> str:
    """A line about the jobs and the first of them as a table."""
    first = frame_of_workload(workload.take(slice(0, SHOWN_JOBS)))
    columns = [name for name in first.columns if first[name].null_count() < first.height]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in first.select(columns).rows())
    return f"<p>{html.escape(repr(workload))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
