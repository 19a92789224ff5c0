"""Shared by both Google traces: converts events of jobs and tasks to jobs.

A job is submitted at its first SUBMIT, starts at its first SCHEDULE and ends with its last end event. All its tasks get the largest request
among them. Requests are fractions of the largest machine, which is assumed to have 100 cores and 100 GiB, so a core is 1 % of it. Jobs that
were submitted before the log begins or have no end are skipped.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.fields import NEVER_STARTED, NOT_FINISHED

SUBMIT, SCHEDULE, END, OTHER = 0, 1, 2, 3

LARGEST_CPU_MILLI = 100_000
LARGEST_MEM_MIB = 102_400
_MAX_MICROSECONDS = 2.0**62  # the traces write 2^63 - 1 for "after the end"

EVENTS = {
    "time": pl.Float64, "job": pl.String, "task": pl.String, "phase": pl.Int8, "cpu": pl.Float64, "mem": pl.Float64, "user": pl.String,
    "name": pl.String, "priority": pl.Float64,
}  # fmt: skip  # time in seconds; task null in events of whole jobs


def seconds(microseconds: pl.Expr) -> pl.Expr:
    return pl.when(microseconds < _MAX_MICROSECONDS).then(microseconds / 1e6)


def lean(events: pl.DataFrame) -> pl.DataFrame:
    """A batch of events in compact types."""
    return events.select(pl.col(name).cast(kind) for name, kind in EVENTS.items()).with_columns(
        pl.col("job", "user", "name").cast(pl.Categorical), pl.col("task").cast(pl.Int32, strict=False)
    )


def add_jobs(events: pl.DataFrame, collect: Collector) -> None:
    """Combine events into jobs and add them."""
    readable = events.filter(pl.col("time").is_not_null() & pl.col("job").is_not_null() & pl.col("phase").is_not_null())
    collect.tally.note_count("events without a valid time, job or type were skipped", events.height - readable.height)
    jobs = _of_tasks(readable) if readable["task"].is_not_null().any() else _of_jobs(readable)
    labels = readable.group_by("job").agg(
        pl.col("user").drop_nulls().first(), pl.col("name").drop_nulls().first(), pl.col("priority").max(),
        pl.col("time").filter((pl.col("phase") == SUBMIT) & pl.col("task").is_null()).min().alias("job_submit"),
    )  # fmt: skip
    jobs = (
        jobs.join(labels, on="job", how="left")
        .with_columns(pl.coalesce("job_submit", "submit").alias("submit"))
        .sort("submit", pl.col("job").cast(pl.String))
    )
    sized = pl.col("cpu").is_not_null() | pl.col("mem").is_not_null()
    cpu, mem = (pl.col("cpu") * LARGEST_CPU_MILLI).ceil(), (pl.col("mem") * LARGEST_MEM_MIB).ceil()
    nothing = ~((cpu > 0) | (mem > 0)).fill_null(False)
    unequal = jobs.filter(pl.col("unequal")).height
    collect.tally.note_count("jobs have tasks of different sizes; all get the largest size", unequal)
    collect.add(
        jobs.with_columns(pl.col("job", "user", "name").cast(pl.String)),
        {"cpu_milli": (nothing | ~sized, "one core (1 % of the largest machine) if no request is known")},
        skip=pl.when(pl.col("submit").is_null()).then(pl.lit("no submission in the log"))
        .when(pl.col("submit") == 0).then(pl.lit("submitted before the log begins"))
        .when(pl.col("start").is_null()).then(pl.lit(NEVER_STARTED))
        .when(pl.col("open") | pl.col("end").is_null()).then(pl.lit(NOT_FINISHED)),
        submit=pl.col("submit"), runtime=pl.col("end") - pl.col("start"), recorded_wait=pl.col("start") - pl.col("submit"),
        num_tasks=pl.col("tasks"), cpu_milli=pl.when(nothing).then(1000.0).otherwise(cpu), mem_mib=mem,
        priority=pl.col("priority"), user=pl.col("user"), job_name=pl.col("name"), job_id=pl.col("job"),
    )  # fmt: skip
    collect.tally.note(f"{events.height} events describe {jobs.height} jobs; rows_read counts jobs")


def _of_jobs(events: pl.DataFrame) -> pl.DataFrame:
    return events.group_by("job").agg(
        *_span(), tasks=pl.lit(1), cpu=pl.lit(None, dtype=pl.Float64), mem=pl.lit(None, dtype=pl.Float64), unequal=pl.lit(False),
        open=pl.lit(False),
    )  # fmt: skip


def _of_tasks(events: pl.DataFrame) -> pl.DataFrame:
    """Combine events into tasks, and tasks into jobs. A job is open if one of its tasks has not ended."""
    acts = events.filter(pl.col("task").is_not_null() & (pl.col("phase") != OTHER)).sort("time", maintain_order=True)
    tasks = acts.group_by("job", "task").agg(*_span(), pl.col("cpu").max(), pl.col("mem").max(), last=pl.col("phase").last())
    return tasks.group_by("job").agg(
        pl.col("submit").min(), pl.col("start").min(), pl.col("end").max(), pl.col("cpu").max(), pl.col("mem").max(), tasks=pl.len(),
        unequal=(pl.col("cpu").n_unique() > 1) | (pl.col("mem").n_unique() > 1), open=(pl.col("last") != END).any(),
    )  # fmt: skip


def _span() -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    time, phase = pl.col("time"), pl.col("phase")
    return (
        time.filter(phase == SUBMIT).min().alias("submit"),
        time.filter(phase == SCHEDULE).min().alias("start"),
        time.filter(phase == END).max().alias("end"),
    )
