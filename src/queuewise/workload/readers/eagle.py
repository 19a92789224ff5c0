"""NREL Eagle: a Slurm log with one row per job, a header, and local times without a time zone.

Jobs become one task per node. `mem_req` is in MB for the whole job; `mem_req` and `gpus_req` are 0 if nothing was requested.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import node_tasks, not_run, number, timestamp, unfit_slurm_state
from queuewise.workload.readers.source import FileHead

SUMMARY = "NREL Eagle jobs (wallclock_req, nodes_req, processors_req, gpus_req, ...)"

REQUIRED = ("job_id", "wallclock_req", "nodes_req", "processors_req", "gpus_req", "mem_req", "submit_time", "start_time", "end_time")
HEADERS = (REQUIRED,)


def sniff(head: FileHead) -> bool:
    return head.has_columns("wallclock_req", "processors_req", "submit_time")


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "eagle")
    for batch in batches(request.path, collect.tally, required=REQUIRED):
        submit, start, end = timestamp("submit_time"), timestamp("start_time"), timestamp("end_time")
        named = {field: pl.col(column) for field, column in _NAMES.items() if column in batch.columns}
        collect.add(
            batch,
            skip=pl.coalesce(unfit_slurm_state("state"), not_run(start, end)) if "state" in batch.columns else not_run(start, end),
            submit=submit, runtime=end - start, recorded_wait=start - submit, requested=number("wallclock_req"),
            **node_tasks(number("nodes_req"), number("processors_req"), number("gpus_req"), number("mem_req")), **named,
        )  # fmt: skip
    return collect.finish()


_NAMES = {"job_id": "job_id", "user": "user", "group": "account", "partition": "partition", "qos": "qos", "job_name": "name"}
