"""SenseTime Helios: the official 12-column cluster_log.csv, and the reduced list of GPU jobs (id, submit, GPUs, duration).

Times are local without a time zone. A job of n GPUs becomes n one-GPU tasks. The virtual cluster becomes the group (and the partition with
--partitions). The list of nodes per virtual cluster (--tables vc_config.csv) describes the cluster, with 8 V100 per node.
"""

from __future__ import annotations

import polars as pl

from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches, read_header
from queuewise.workload.readers.fields import not_run, number, one_gpu_tasks, timestamp, unfit_slurm_state
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "SenseTime Helios: cluster_log.csv (12 columns) or the reduced list of GPU jobs"

OFFICIAL = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time")
REDUCED = ("job_id", "submit_time", "gpu_num", "duration")
GPUS_PER_NODE, GPU_KIND = 8, "V100-16"  # the memory of Venus' V100 is not published
_MAX_NODES = 1_000_000
_CLAMPED = "duration_clamped_48h"
HEADERS = (OFFICIAL, REDUCED)
MORE_FILES = 1


def sniff(head: FileHead) -> bool:
    return head.has_columns(*OFFICIAL) or head.has_columns(*REDUCED)


def read(request: ReadRequest) -> Loaded:
    columns = read_header(read_head(request.path))
    return _official(request) if "start_time" in columns else _reduced(request, _CLAMPED in columns)


def _official(request: ReadRequest) -> Loaded:
    collect = Collector(request, "helios")
    for batch in batches(request.path, collect.tally, required=OFFICIAL):
        submit, start, end = timestamp("submit_time"), timestamp("start_time"), timestamp("end_time")
        collect.add(
            batch,
            skip=pl.coalesce(unfit_slurm_state("state"), not_run(start, end)),
            submit=submit, runtime=end - start, recorded_wait=start - submit, **one_gpu_tasks(number("gpu_num"), number("cpu_num")),
            user=pl.col("user"), group=pl.col("vc"), partition=pl.col("vc"), job_id=pl.col("job_id"),
        )  # fmt: skip
    return collect.finish(cluster=_cluster(request, collect.tally))


def _reduced(request: ReadRequest, flagged: bool) -> Loaded:
    collect = Collector(request, "helios")
    cut = (pl.col(_CLAMPED) == "True") if flagged else pl.lit(False)
    for batch in batches(request.path, collect.tally, required=REDUCED):
        collect.add(
            batch, {"runtime": (cut, "flagged durations were limited to 48 h when the list was reduced")},
            submit=timestamp("submit_time"), runtime=number("duration"), **one_gpu_tasks(number("gpu_num")), job_id=pl.col("job_id"),
        )  # fmt: skip
    return collect.finish(cluster=_cluster(request, collect.tally))


def _cluster(request: ReadRequest, tally: Tally) -> ClusterFacts | None:
    """One group of nodes and one partition per virtual cluster."""
    if not request.tables:
        return None
    path = request.tables[0]
    names = read_header(read_head(path), required=("num",))
    rows = [row for batch in batches(path, tally, required=("num",)) for row in batch.select(pl.col(names[0]), number("num")).rows()]
    usable = [(name, int(nodes)) for name, nodes in rows if name and nodes is not None and 1 <= nodes < _MAX_NODES]
    if len(usable) < len(rows):
        tally.note(f"{len(rows) - len(usable)} of {len(rows)} virtual clusters in {path.name} are invalid and were skipped")
    groups = tuple(NodeFacts(nodes, GPUS_PER_NODE, GPU_KIND, partition=name, name=name) for name, nodes in usable)
    return ClusterFacts("helios", groups, f"from {path.name}") if groups else None
