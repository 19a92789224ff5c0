"""MIT SuperCloud `slurm-log.csv`: Unix times, time limits in minutes, resources by number in tres_alloc.

1 = cores, 2 = memory in MB, 4 = nodes. GPUs are 1001 or 1002, which refer to the same cards, so the larger number counts.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import node_tasks, not_run, number, positive, unfit_state
from queuewise.workload.readers.source import FileHead

SUMMARY = "MIT SuperCloud slurm-log.csv"

REQUIRED = ("id_job", "time_submit", "time_start", "time_end", "state", "timelimit", "tres_alloc")
_UNLIMITED_MINUTES = 4294967295
_UNFINISHED = ("0", "1", "2")  # pending, running, suspended
_FINISHED = tuple(
    map(str, range(3, 12))
)  # complete, cancelled, failed, timeout, node failure, preempted, boot failure, deadline, no memory
_NAMES = {"job_id": "id_job", "user": "id_user", "group": "id_group", "partition": "partition", "qos": "id_qos", "job_name": "job_name"}
HEADERS = (REQUIRED,)


def sniff(head: FileHead) -> bool:
    return head.has_columns("id_job", "time_submit", "tres_alloc")


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "supercloud")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        submit, start, end, limit = number("time_submit"), positive("time_start"), positive("time_end"), number("timelimit")
        gpus = pl.max_horizontal(_resource(1001), _resource(1002))
        named = {field: pl.col(column) for field, column in _NAMES.items() if column in batch.columns}
        collect.add(
            batch,
            skip=pl.coalesce(unfit_state(_base_state(), _FINISHED, _UNFINISHED), not_run(start, end)),
            submit=submit, runtime=end - start, recorded_wait=pl.max_horizontal(start - submit, pl.lit(0.0)),
            requested=pl.when(limit < _UNLIMITED_MINUTES).then(limit * 60),
            **node_tasks(_resource(4), _resource(1), gpus, _resource(2)), **named,
        )  # fmt: skip
    return collect.finish()


def _base_state() -> pl.Expr:
    """Slurm's state number without the flags in the higher bits."""
    return (number("state").cast(pl.Int64, strict=False) % 256).cast(pl.String)


def _resource(number: int) -> pl.Expr:
    return pl.col("tres_alloc").str.extract(rf"(?:^|,){number}=(\d+)").cast(pl.Float64, strict=False)
