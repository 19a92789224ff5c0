"""Shanghai AI Laboratory's Acme (Seren, Kalos): one row per job, with a header.

The duration and queue columns are unreliable, so both are recomputed from the times. n GPUs become n one-GPU tasks.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import not_run, number, one_gpu_tasks, timestamp, unfit_slurm_state
from queuewise.workload.readers.source import FileHead

SUMMARY = "Acme (Shanghai AI Laboratory): trace_seren.csv, trace_kalos.csv"

REQUIRED = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time")
HEADERS = (REQUIRED,)


def sniff(head: FileHead) -> bool:
    return head.has_columns(*REQUIRED)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "acme")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        submit, start, end = timestamp("submit_time"), timestamp("start_time"), timestamp("end_time")
        collect.add(
            batch,
            skip=pl.coalesce(unfit_slurm_state("state"), not_run(start, end)),
            submit=submit, runtime=end - start, recorded_wait=start - submit, **one_gpu_tasks(number("gpu_num"), number("cpu_num")),
            user=pl.col("user"), group=pl.col("type"), job_id=pl.col("job_id"),
        )  # fmt: skip
    return collect.finish()
