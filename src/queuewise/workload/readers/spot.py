"""Alibaba spot GPU 2026: job_info_df.csv with node_info_df.csv, and the derived list arrival_time,runtime,gpus,priority.

A job is `worker_num` workers of `gpu_request` GPUs, each on one node. Times are seconds since the first submission.
High-priority jobs get priority 1, spot jobs 0. The derived list has its own priorities and one worker per job.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.jobs import WHOLE_GPU
from queuewise.workload.loaded import ClusterFacts, Loaded, ReadRequest, Tally
from queuewise.workload.readers import drl
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches, read_header
from queuewise.workload.readers.fields import kinds, number
from queuewise.workload.readers.machines import cluster_facts
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "Alibaba spot GPU 2026 jobs (and nodes with --tables)"

OFFICIAL = ("job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num", "submit_time", "duration", "job_type")
NODES = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
HEADERS = (OFFICIAL,)
MACHINE_LISTS = (NODES,)
MORE_FILES = 1


def sniff(head: FileHead) -> bool:
    """The derived list has the header of drl; only the file name shows that its GPUs belong to one worker."""
    return head.has_columns(*OFFICIAL) or (head.has_columns(*drl.REQUIRED) and "spot" in head.path.name)


def read(request: ReadRequest) -> Loaded:
    derived = "arrival_time" in read_header(read_head(request.path))
    collect = Collector(request, "spot")
    if derived:
        _read_derived(request, collect)
    else:
        _read_official(request, collect)
    return collect.finish(epoch=0.0, cluster=_cluster(request, collect.tally))


def _read_official(request: ReadRequest, collect: Collector) -> None:
    for batch in batches(request.path, collect.tally, required=OFFICIAL):
        gpus, spot = number("gpu_request"), pl.col("job_type").str.to_lowercase().str.contains("spot")
        collect.add(
            batch,
            submit=number("submit_time"), runtime=number("duration"), num_tasks=number("worker_num"), gpu_milli=_milli(gpus),
            cpu_milli=(number("cpu_request") * 1000).ceil(), kinds=pl.when(gpus > 0).then(kinds("gpu_model")),
            priority=pl.when(spot).then(0.0).otherwise(1.0), group=pl.col("organization"), qos=pl.col("job_type"),
            job_id=pl.col("job_name"),
        )  # fmt: skip


def _read_derived(request: ReadRequest, collect: Collector) -> None:
    for batch in batches(request.path, collect.tally, required=drl.REQUIRED):
        gpus = number("gpus")
        collect.add(
            batch, {"cpu_milli": (gpus == 0, drl.NO_GPU)},
            submit=number("arrival_time"), runtime=number("runtime"), num_tasks=pl.lit(1), gpu_milli=_milli(gpus),
            cpu_milli=pl.when(gpus == 0).then(1000), priority=number("priority"),
        )  # fmt: skip


def _milli(gpus: pl.Expr) -> pl.Expr:
    return (gpus * WHOLE_GPU).round()


def _cluster(request: ReadRequest, tally: Tally) -> ClusterFacts | None:
    if not request.tables:
        return None
    return cluster_facts(
        "alibaba-spot-2026", request.tables[0], required=NODES, tally=tally,
        gpus=number("gpu_capacity_num"), kind=pl.col("gpu_model"), cpus=number("cpu_num"),
    )  # fmt: skip
