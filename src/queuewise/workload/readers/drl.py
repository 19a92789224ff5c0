"""Plain GPU job lists with the header arrival_time,runtime,gpus,priority, in seconds, as used by DRL schedulers.

n GPUs become n one-GPU tasks.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import number, one_gpu_tasks
from queuewise.workload.readers.source import FileHead

SUMMARY = "arrival_time,runtime,gpus,priority in seconds"

REQUIRED = ("arrival_time", "runtime", "gpus", "priority")
NO_GPU = "one core for jobs without GPUs, because the file states no cores"
HEADERS = (REQUIRED,)


def sniff(head: FileHead) -> bool:
    return head.has_columns(*REQUIRED)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "drl")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        gpus = number("gpus")
        collect.add(
            batch, {"cpu_milli": (gpus == 0, NO_GPU)},
            submit=number("arrival_time"), runtime=number("runtime"), priority=number("priority"),
            **one_gpu_tasks(gpus, pl.when(gpus == 0).then(1.0)),
        )  # fmt: skip
    return collect.finish(epoch=0.0)
