"""The cluster that a snapshot shows, and what of it cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from queuewise.cluster.gpus import gpu_kind
from queuewise.cluster.spec import UNLIMITED, Cluster, NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies.snapshot import JobId, JobRecord, NodeRecord, NodeShape, Place, RunningJob, Snapshot
from queuewise.policies.snapshot_checks import LARGEST
from queuewise.workload.jobs import WHOLE_GPU

FOREVER_S = 1e9  # a broken GPU is expected to stay so
GIB = 1024
NODE_SET = "nodes-"  # how names of partitions begin that are only sets of nodes which some job may use
BROKEN = "\x01broken-"  # how the ids of what stands for broken parts begin, where ids are texts

_latest: list[tuple[tuple[NodeShape | None, ...], Cluster]] = []  # the last shapes and their cluster


def cluster_of(snapshot: Snapshot) -> Cluster:
    """The cluster, by the shapes of its nodes. An InputError if a node has none."""
    shapes = tuple([node.shape for node in snapshot.nodes])
    for known, cluster in _latest:
        if known == shapes:  # at once for the same objects; a hash is not
            return cluster
    without = next((node.index for node, shape in zip(snapshot.nodes, shapes, strict=True) if shape is None), None)
    if without is not None:
        raise InputError(
            f"node {without} has no shape, so what it has is not known",
            where="snapshot",
            hint="give load_policy the cluster, or nodes a shape",
        )
    cluster = cluster_of_shapes(tuple(shape for shape in shapes if shape is not None))
    _latest[:] = [(shapes, cluster)]
    return cluster


@lru_cache(maxsize=16)
def cluster_of_shapes(shapes: tuple[NodeShape, ...]) -> Cluster:
    if not shapes:
        raise InputError("has no nodes", where="snapshot", hint="a snapshot lists all nodes of its cluster")
    speeds = {gpu_kind(shape.kind).name: shape.speed for shape in shapes if shape.gpus}
    cluster = build("snapshot", [_group(shape) for shape in shapes], speeds=speeds)
    racks = np.unique([shape.rack for shape in shapes], return_inverse=True)[1].astype(np.int64)
    return replace(cluster, node_names=tuple(shape.name for shape in shapes), node_rack=racks)


def _group(shape: NodeShape) -> NodeGroup:
    return NodeGroup(
        1,
        gpus=shape.gpus,
        kind=shape.kind,
        cpus=float("inf") if shape.cpu_milli is None else shape.cpu_milli / WHOLE_GPU,
        mem_gib=float("inf") if shape.mem_mib is None else shape.mem_mib / GIB,
        partitions=shape.partitions,
        name=shape.name,
    )


def with_broken_parts(snapshot: Snapshot, cluster: Cluster) -> Snapshot:
    """The snapshot with jobs that hold what is neither free nor held by a job: broken GPUs, cores or memory kept for others."""
    if len(snapshot.nodes) != cluster.num_nodes:
        return snapshot  # the engine says what is wrong with it
    held = [[0, 0] for _ in snapshot.nodes]  # cores (milli) and memory in use
    known: list[set[int]] = [{*node.free_gpus, *node.shared_gpus} for node in snapshot.nodes]
    for one in snapshot.running:
        for place in one.places:
            if 0 <= place.node < len(held):
                held[place.node][0] += place.tasks * one.job.cpu_milli
                held[place.node][1] += place.tasks * one.job.mem_mib
                known[place.node].update(place.gpus)
    broken = [
        job
        for node, gpus, (cpu, mem) in zip(snapshot.nodes, known, held, strict=True)
        if node.state == "up" and (job := _broken_on(node, gpus, cpu, mem, cluster, snapshot)) is not None
    ]
    return replace(snapshot, running=(*broken, *snapshot.running)) if broken else snapshot


def _broken_on(node: NodeRecord, gpus: set[int], cpu: int, mem: int, cluster: Cluster, snapshot: Snapshot) -> RunningJob | None:
    n = node.index
    missing = tuple(gpu for gpu in range(int(cluster.node_gpus[n])) if gpu not in gpus)
    lost_cpu = _lost(n, "cores (milli)", int(cluster.node_cpu_milli[n]), cpu, node.free_cpu_milli)
    lost_mem = _lost(n, "memory (MiB)", int(cluster.node_mem_mib[n]), mem, node.free_mem_mib)
    if not (missing or lost_cpu or lost_mem):
        return None
    job_id = _id_of_broken(n, [one.job.job_id for one in snapshot.jobs])
    job = JobRecord(
        job_id, snapshot.now, FOREVER_S, 1, 1, 1, WHOLE_GPU * len(missing), lost_cpu, lost_mem, 0.0, FOREVER_S, predicted=FOREVER_S
    )
    now = snapshot.now
    return RunningJob(job, now, now, now + FOREVER_S, (Place(n, 1, missing),), first_start=now)


def _lost(n: int, what: str, whole: int, held: int, free: int | None) -> int:
    """How much of a resource of node n is neither free nor held by a job."""
    if whole == UNLIMITED or free is None:
        return 0  # if only one of them has a limit, the engine refuses the snapshot
    lost = max(whole - held - free, 0)
    if lost > LARGEST:
        raise InputError(f"node {n} has lost {lost} {what}, more than a job can hold", where="snapshot", hint="check what its shape says")
    return lost


def _id_of_broken(node: int, others: Sequence[JobId]) -> JobId:
    return f"{BROKEN}{node}" if any(isinstance(job_id, str) for job_id in others) else -1 - node


def is_broken_part(job_id: JobId) -> bool:
    """Whether the id is that of something that `with_broken_parts` has added."""
    return job_id.startswith(BROKEN) if isinstance(job_id, str) else job_id < 0
