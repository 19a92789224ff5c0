"""Job lists that DRL_Scheduler's first version made of Google's log: submit_time,finish_time,scheduling_class, in microseconds.

They state no sizes: without a column `gpus`, every job has one GPU. The class is the priority.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import number, one_gpu_tasks
from queuewise.workload.readers.source import FileHead

SUMMARY = "submit_time,finish_time,scheduling_class in microseconds (DRL_Scheduler's list of Google's jobs)"

REQUIRED = ("submit_time", "finish_time", "scheduling_class")
HEADERS = (REQUIRED,)
NO_SIZE = "one GPU per job, because the file states no sizes"
MICROSECONDS = 1e6


def sniff(head: FileHead) -> bool:
    return head.has_columns(*REQUIRED)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "drl_google")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        submit, finish = number("submit_time") / MICROSECONDS, number("finish_time") / MICROSECONDS
        known = "gpus" in batch.columns
        gpus = number("gpus") if known else pl.lit(1.0)
        collect.add(
            batch, {"gpu_milli": (pl.lit(not known), NO_SIZE)},
            skip=pl.when(finish < submit).then(pl.lit("it finishes before it is submitted")),
            submit=submit, runtime=finish - submit, priority=number("scheduling_class"), **one_gpu_tasks(gpus),
        )  # fmt: skip
    return collect.finish(epoch=0.0)
