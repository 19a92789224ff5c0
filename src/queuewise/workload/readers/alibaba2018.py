"""Alibaba 2018 batch_task: no header; task, instances, job, type, status, start, end, cores (100 = one) and memory of an instance.

A row (a task of a job) becomes a job of `instance_num` tasks submitted when it started, because the log has no waits.
Memory (a share of an unknown machine) and the order of the tasks of a job (encoded in task names) are ignored.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.alibaba2017 import FINISHED, NO_CORES, UNFINISHED
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import not_run, number, positive, unfit_state
from queuewise.workload.readers.source import FileHead

SUMMARY = "Alibaba 2018 batch_task.csv, 9 columns without header"

COLUMNS = ("task", "instances", "job", "type", "status", "start", "end", "cores", "memory")


def sniff(head: FileHead) -> bool:
    fields = head.first.split(",")
    return len(fields) == len(COLUMNS) and fields[4] in (*FINISHED, *UNFINISHED)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "alibaba2018")
    collect.tally.note("memory and the order of the tasks of a job are ignored; submissions are the recorded starts")
    for batch in batches(request.path, collect.tally, columns=COLUMNS):
        start, end, cores = positive("start"), positive("end"), number("cores")
        collect.add(
            batch, {"cpu_milli": (cores.is_null(), NO_CORES)},
            skip=pl.coalesce(unfit_state(pl.col("status"), FINISHED, UNFINISHED), not_run(start, end)),
            submit=start, runtime=end - start, num_tasks=number("instances"), cpu_milli=(cores.fill_null(100.0) * 10).ceil(),
            job_id=pl.col("job") + "/" + pl.col("task"), group=pl.col("type"),
        )  # fmt: skip
    return collect.finish(epoch=0.0)
