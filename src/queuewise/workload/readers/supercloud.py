"""MIT SuperCloud `slurm-log.csv`: Unix times, time limits in minutes, resources by number in tres_alloc.

1 = cores, 2 = memory in MB, 4 = nodes; GPUs are 1001 or 1002, two names of the same cards, so the larger counts.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, Request
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import node_tasks, not_run, number, positive
from queuewise.workload.readers.source import Head

SUMMARY = "MIT SuperCloud slurm-log.csv"

REQUIRED = ("id_job", "time_submit", "time_start", "time_end", "state", "timelimit", "tres_alloc")
_UNLIMITED_MINUTES = 4294967295
_NAMES = {"job_id": "id_job", "user": "id_user", "group": "id_group", "partition": "partition", "qos": "id_qos", "job_name": "job_name"}


def sniff(head: Head) -> bool:
    return head.has_columns("id_job", "time_submit", "tres_alloc")


def read(request: Request) -> Loaded:
    collect = Collector(request, "supercloud")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        submit, start, end, limit = number("time_submit"), positive("time_start"), positive("time_end"), number("timelimit")
        gpus = pl.max_horizontal(_resource(1001), _resource(1002))
        named = {field: pl.col(column) for field, column in _NAMES.items() if column in batch.columns}
        collect.add(
            batch,
            skip=not_run(start, end),
            submit=submit, runtime=end - start, recorded_wait=pl.max_horizontal(start - submit, pl.lit(0.0)),
            requested=pl.when(limit < _UNLIMITED_MINUTES).then(limit * 60),
            **node_tasks(_resource(4), _resource(1), gpus, _resource(2)), **named,
        )  # fmt: skip
    return collect.finish()


def _resource(number: int) -> pl.Expr:
    return pl.col("tres_alloc").str.extract(rf"(?:^|,){number}=(\d+)").cast(pl.Float64, strict=False)
