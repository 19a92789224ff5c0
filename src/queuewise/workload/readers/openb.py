"""Alibaba openb 2023: a list of pods and a list of nodes, both with headers.

A pod is one task: a share of one GPU, or whole GPUs of one node. Pods that were never scheduled (Pending) are kept, as by
the authors of the trace, with the time from creation to deletion as their runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from queuewise.workload.loaded import ClusterFacts, Loaded, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import kinds, number
from queuewise.workload.readers.machines import cluster_facts
from queuewise.workload.readers.source import FileHead

SUMMARY = "Alibaba openb 2023 pods (and nodes with --tables)"

PODS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time", "deletion_time", "scheduled_time")
NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
HEADERS = (PODS,)
MACHINE_LISTS = (NODES,)
MORE_FILES = 1


def sniff(head: FileHead) -> bool:
    return head.has_columns(*PODS)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "openb")
    for batch in batches(request.path, collect.tally, required=PODS):
        created, scheduled, gpus = number("creation_time"), number("scheduled_time"), number("num_gpu")
        collect.add(
            batch,
            {"runtime": (scheduled.is_null(), "creation to deletion for pods that were never scheduled")},
            submit=created, runtime=number("deletion_time") - pl.coalesce(scheduled, created), recorded_wait=scheduled - created,
            num_tasks=pl.lit(1), gpu_milli=gpus * number("gpu_milli"), cpu_milli=number("cpu_milli"), mem_mib=number("memory_mib"),
            kinds=pl.when(gpus > 0).then(kinds("gpu_spec")), qos=pl.col("qos"), job_id=pl.col("name"),
        )  # fmt: skip
    return collect.finish(epoch=0.0, cluster=_cluster(request.tables, collect.tally))


def _cluster(tables: Sequence[Path], tally: Tally) -> ClusterFacts | None:
    if not tables:
        return None
    return cluster_facts(
        "openb", tables[0], required=NODES, tally=tally,
        gpus=number("gpu"), kind=pl.col("model"), cpus=number("cpu_milli") / 1000, mem_gib=number("memory_mib") / 1024,
    )  # fmt: skip
