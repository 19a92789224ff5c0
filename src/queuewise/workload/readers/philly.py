"""Microsoft Philly: the official cluster_job_log (a JSON array of jobs with attempts) and the reduced CSV.

Wait = first attempt's start - submission, run = last attempt's end - first start, GPUs = those of the first attempt; n GPUs
become n one-GPU tasks; the virtual cluster becomes the group. The machine list (--tables) describes the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.loaded import ClusterFacts, Loaded, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import NEVER_STARTED, UNKNOWN_STATE, number, one_gpu_tasks, timestamp
from queuewise.workload.readers.machines import cluster_facts
from queuewise.workload.readers.source import FileHead, one_line, read_all, read_head

SUMMARY = "Microsoft Philly: cluster_job_log (JSON; machine list with --tables) or the reduced CSV"

MACHINES = ("machineId", "number of GPUs", "single GPU mem")
REDUCED = ("timestamp", "duration", "num_gpus", "cluster")
_STATUSES = ("Pass", "Killed", "Failed")
_SCHEMA = {
    "jobid": pl.String,
    "vc": pl.String,
    "user": pl.String,
    "submitted": pl.String,
    "start": pl.String,
    "end": pl.String,
    "status": pl.String,
    "gpus": pl.Float64,
}
HEADERS = (REDUCED,)
MACHINE_LISTS = (MACHINES,)
MORE_FILES = 1


def sniff(head: FileHead) -> bool:
    start = head.start[:4096]
    return head.has_columns(*REDUCED) or (start.lstrip().startswith(b"[") and (b'"attempts"' in start or b'"submitted_time"' in start))


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "philly")
    if read_head(request.path).start.lstrip().startswith(b"["):
        _read_official(request, collect)
    else:
        _read_reduced(request, collect)
    return collect.finish(cluster=_cluster(request, collect.tally))


def _read_reduced(request: ReadRequest, collect: Collector) -> None:
    for batch in batches(request.path, collect.tally, required=REDUCED):
        collect.add(
            batch, submit=timestamp("timestamp"), runtime=number("duration"), group=pl.col("cluster"), **one_gpu_tasks(number("num_gpus"))
        )


def _read_official(request: ReadRequest, collect: Collector) -> None:
    table = pl.DataFrame(list(_jobs(request)), schema=_SCHEMA, orient="row")
    submit, start, end = timestamp("submitted"), timestamp("start"), timestamp("end")
    collect.add(
        table,
        skip=pl.when(pl.col("gpus").is_null()).then(pl.lit("no attempts"))
        .when(start.is_null()).then(pl.lit(NEVER_STARTED)).when(end.is_null()).then(pl.lit("still running at the end of the log"))
        .when(pl.col("gpus") == 0).then(pl.lit("no GPUs in the first attempt"))
        .when(~pl.col("status").is_in(_STATUSES)).then(pl.lit(UNKNOWN_STATE)),
        submit=submit, runtime=end - start, recorded_wait=start - submit, **one_gpu_tasks(pl.col("gpus")),
        user=pl.col("user"), group=pl.col("vc"), job_id=pl.col("jobid"),
    )  # fmt: skip


def _jobs(request: ReadRequest) -> Iterator[tuple[Any, ...]]:
    """(jobid, vc, user, submitted, first start, last end, status, GPUs of the first attempt or None) of every entry."""
    try:
        entries = json.loads(read_all(request.path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(
            f"not valid JSON: {one_line(error)}", where=f"{request.path}:{line}", hint="Philly's cluster_job_log is one JSON array"
        ) from None
    if not isinstance(entries, list):
        raise InputError("not a JSON array of jobs", where=f"{request.path}:1", hint="Philly's cluster_job_log is one JSON array")
    for entry in entries:
        job = entry if isinstance(entry, dict) else {}
        attempts = [attempt for attempt in _list(job.get("attempts")) if isinstance(attempt, dict)]
        first, last = (attempts[0], attempts[-1]) if attempts else ({}, {})
        hosts = [host for host in _list(first.get("detail")) if isinstance(host, dict)]
        gpus = float(sum(len(_list(host.get("gpus"))) for host in hosts)) if attempts else None
        named = [job.get(name) for name in ("jobid", "vc", "user", "submitted_time")]
        texts = (*named, first.get("start_time"), last.get("end_time"), job.get("status"))
        yield (*(text if isinstance(text, str) else None for text in texts), gpus)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _cluster(request: ReadRequest, tally: Tally) -> ClusterFacts | None:
    """Philly states only the memory of its GPUs, so the kinds are named PHILLY-12 and PHILLY-24."""
    if not request.tables:
        return None
    path = request.tables[0]
    memory = pl.col(MACHINES[2]).str.extract(r"(\d+)")
    return cluster_facts("philly", path, gpus=number(MACHINES[1]), kind=pl.lit("PHILLY-") + memory, required=MACHINES, tally=tally)
