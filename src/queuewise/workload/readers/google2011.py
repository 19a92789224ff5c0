"""Google ClusterData2011-2: job_events and task_events, parts without a header; more parts and the other table with --tables.

task_events contain sizes; with job_events alone, every job is one task of one core. Times are microseconds, 0 = before the log.
"""

from __future__ import annotations

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import number
from queuewise.workload.readers.google_events import END, OTHER, SCHEDULE, SUBMIT, add_jobs, lean, seconds
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "Google 2011 job_events or task_events parts (more parts with --tables)"

JOB_EVENTS = ("time", "missing", "job", "event", "user", "scheduling_class", "name", "logical_name")
TASK_EVENTS = (
    "time", "missing", "job", "task", "machine", "event", "user", "scheduling_class", "priority", "cpu", "ram", "disk",
    "different_machines",
)  # fmt: skip
_PHASES = {"0": SUBMIT, "1": SCHEDULE, "2": END, "3": END, "4": END, "5": END, "6": END, "7": OTHER, "8": OTHER}
MORE_FILES = 1_000


def sniff(head: FileHead) -> bool:
    return _columns(head) is not None


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "google2011")
    frames = []
    for path in (request.path, *request.tables):
        columns = _columns(read_head(path))
        if columns is None:
            raise InputError(
                "neither job_events nor task_events of Google 2011", where=f"{path}:1", hint="expected 8 or 13 columns without a header"
            )
        tasks = columns is TASK_EVENTS
        for batch in batches(path, collect.tally, columns=columns):
            frames.append(
                lean(
                    batch.filter(pl.col("skip").is_null()).select(
                        seconds(number("time")).alias("time"), "job", (pl.col("task") if tasks else pl.lit(None)).alias("task"),
                        pl.col("event").replace_strict(_PHASES, default=None, return_dtype=pl.Int8).alias("phase"),
                        (number("cpu") if tasks else pl.lit(None)).alias("cpu"), (number("ram") if tasks else pl.lit(None)).alias("mem"),
                        "user", (pl.lit(None) if tasks else pl.col("logical_name")).alias("name"),
                        (number("priority") if tasks else pl.lit(None)).alias("priority"),
                    )
                )
            )  # fmt: skip
    add_jobs(pl.concat(frames), collect)
    return collect.finish(epoch=0.0)


def _columns(head: FileHead) -> tuple[str, ...] | None:
    fields = head.first.split(",")
    for columns in (JOB_EVENTS, TASK_EVENTS):
        if len(fields) == len(columns):
            event = fields[columns.index("event")]
            return columns if fields[0].isdigit() and fields[2].isdigit() and event in _PHASES else None
    return None
