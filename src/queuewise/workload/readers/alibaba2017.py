"""Alibaba 2017 batch_task: no header; create and modify times, job, task, instances, status, cores and memory of an instance.

A row (a task of a job) becomes a job of `instance_num` tasks that runs from its creation to its last change. Memory is a share of an
unknown machine and is ignored.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import number, unfit_state
from queuewise.workload.readers.source import FileHead

SUMMARY = "Alibaba 2017 batch_task.csv, 8 columns without header"

COLUMNS = ("create_time", "modify_time", "job", "task", "instances", "status", "cores", "memory")
FINISHED, UNFINISHED = ("Terminated", "Failed", "Interrupted", "Cancelled"), ("Running", "Waiting", "Ready")
NO_CORES = "one core if the plan states none"


def sniff(head: FileHead) -> bool:
    fields = head.first.split(",")
    return len(fields) == len(COLUMNS) and fields[5] in (*FINISHED, *UNFINISHED) and fields[0].isdigit() and fields[1].isdigit()


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "alibaba2017")
    collect.tally.note("memory is a share of an unknown machine and is ignored")
    for batch in batches(request.path, collect.tally, columns=COLUMNS):
        created, modified, cores = number("create_time"), number("modify_time"), number("cores")
        collect.add(
            batch, {"cpu_milli": (cores.is_null(), NO_CORES)},
            skip=unfit_state(pl.col("status"), FINISHED, UNFINISHED),
            submit=created, runtime=modified - created, num_tasks=number("instances"),
            cpu_milli=(cores.fill_null(1.0) * 1000).ceil(), job_id=pl.col("job") + "/" + pl.col("task"),
        )  # fmt: skip
    return collect.finish(epoch=0.0)
