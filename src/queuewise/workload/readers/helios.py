"""SenseTime Helios: the official 12-column cluster_log.csv, and the reduced list of GPU jobs (id, submit, GPUs, duration).

Times are local without a zone. A job of n GPUs becomes n one-GPU tasks; the virtual cluster becomes the group.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import Loaded, Request
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches, read_header
from queuewise.workload.readers.fields import not_run, number, one_gpu_tasks, timestamp
from queuewise.workload.readers.source import Head, read_head

SUMMARY = "SenseTime Helios: cluster_log.csv (12 columns) or the reduced list of GPU jobs"

OFFICIAL = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time")
REDUCED = ("job_id", "submit_time", "gpu_num", "duration")
_CLAMPED = "duration_clamped_48h"


def sniff(head: Head) -> bool:
    return head.has_columns(*OFFICIAL) or head.has_columns(*REDUCED)


def read(request: Request) -> Loaded:
    columns = read_header(read_head(request.path))
    return _official(request) if "start_time" in columns else _reduced(request, _CLAMPED in columns)


def _official(request: Request) -> Loaded:
    collect = Collector(request, "helios")
    for batch in batches(request.path, collect.tally, required=OFFICIAL):
        submit, start, end = timestamp("submit_time"), timestamp("start_time"), timestamp("end_time")
        collect.add(
            batch,
            skip=not_run(start, end),
            submit=submit, runtime=end - start, recorded_wait=start - submit, **one_gpu_tasks(number("gpu_num"), number("cpu_num")),
            user=pl.col("user"), group=pl.col("vc"), job_id=pl.col("job_id"),
        )  # fmt: skip
    return collect.finish()


def _reduced(request: Request, flagged: bool) -> Loaded:
    collect = Collector(request, "helios")
    cut = (pl.col(_CLAMPED) == "True") if flagged else pl.lit(False)
    for batch in batches(request.path, collect.tally, required=REDUCED):
        collect.add(
            batch, {"runtime": (cut, "flagged durations were cut at 48 h by whoever reduced the list")},
            submit=timestamp("submit_time"), runtime=number("duration"), **one_gpu_tasks(number("gpu_num")), job_id=pl.col("job_id"),
        )  # fmt: skip
    return collect.finish()
