"""Utilisation of the cluster: shares of GPUs, FLOPS, cores and memory in use, and the load imbalance.

All are exact integrals over the pieces of a schedule within the measured span. Pieces are processed in blocks, so ten million jobs need
no second copy of the table. The share of a resource that the cluster does not have or does not limit is None.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import NO_GPU, Cluster
from queuewise.evaluation.measure import Floats, Measurement

BLOCK = 1 << 20  # pieces handled at a time


def piece_blocks(m: Measurement, since: Floats) -> Iterator[tuple[slice, Floats]]:
    """Blocks of pieces, with the seconds that each piece is inside the span and after `since` [P]."""
    schedule = m.schedule
    for low in range(0, len(schedule.piece_job), BLOCK):
        block = slice(low, low + BLOCK)
        seconds = np.minimum(schedule.piece_end[block], m.end)
        seconds -= np.maximum(since[block], m.begin)
        yield block, np.maximum(seconds, 0.0, out=seconds)


def node_seconds(m: Measurement, per_task: NDArray[np.int32], since: Floats | None = None) -> Floats:
    """[N] `per_task` [J] × tasks × seconds on each node within the span, counted from the placement or from `since` [P]."""
    schedule = m.schedule
    total = np.zeros(schedule.cluster.num_nodes)
    for block, seconds in piece_blocks(m, schedule.piece_start if since is None else since):
        seconds *= schedule.piece_tasks[block]
        seconds *= per_task[schedule.piece_job[block]]
        total += np.bincount(schedule.piece_node[block], weights=seconds, minlength=len(total))
    return total


def _share(used: float, capacity: float) -> float | None:
    return used / capacity if 0 < capacity < np.inf else None


def gpu_utilisation(m: Measurement) -> float | None:
    """GPU-seconds used ÷ (GPUs × span)."""
    return _share(float(node_seconds(m, m.schedule.workload.gpu_milli).sum()) / 1000, m.schedule.cluster.num_gpus * m.span)


def flops_utilisation(m: Measurement) -> float | None:
    """Like `gpu_utilisation`, with each GPU weighted by its kind's fp32 TFLOPS: an idle H100 counts more than an idle T4."""
    weight = node_tflops(m.schedule.cluster)
    used = float(node_seconds(m, m.schedule.workload.gpu_milli) @ weight) / 1000
    return _share(used, float(m.schedule.cluster.node_gpus @ weight) * m.span)


def cpu_utilisation(m: Measurement) -> float | None:
    """Core-seconds used ÷ (cores × span)."""
    return _share(float(node_seconds(m, m.schedule.workload.cpu_milli).sum()) / 1000, m.schedule.cluster.num_cores * m.span)


def memory_utilisation(m: Measurement) -> float | None:
    """MiB-seconds used ÷ (MiB × span)."""
    return _share(float(node_seconds(m, m.schedule.workload.mem_mib).sum()), m.schedule.cluster.mem_gib * 1024 * m.span)


def node_load(m: Measurement) -> Floats | None:
    """Share of the GPUs in use on each node that has any, or of the cores on a cluster without GPUs. None if unlimited."""
    cluster, workload = m.schedule.cluster, m.schedule.workload
    if cluster.num_gpus:
        used, held = node_seconds(m, workload.gpu_milli), cluster.node_gpus * 1000.0
    elif cluster.num_cores < np.inf:
        used, held = node_seconds(m, workload.cpu_milli), cluster.node_cpu_milli.astype(np.float64)
    else:
        return None
    has = held > 0
    return used[has] / (held[has] * m.span) if m.span > 0 else None


def load_imbalance(m: Measurement) -> float | None:
    """Standard deviation ÷ mean of `node_load`; 0 is perfectly even. None for an idle or unlimited cluster."""
    load = node_load(m)
    return float(load.std() / load.mean()) if load is not None and load.mean() > 0 else None


def node_tflops(cluster: Cluster) -> Floats:
    """[N] fp32 TFLOPS of one GPU of the node; 0 for nodes without GPUs."""
    return per_node(cluster, [kind.fp32_tflops for kind in cluster.kinds])


def per_node(cluster: Cluster, per_kind: list[float]) -> Floats:
    """[N] the value for the node's GPU kind; 0 for nodes without GPUs."""
    if not per_kind:
        return np.zeros(cluster.num_nodes)
    return np.where(cluster.node_kind == NO_GPU, 0.0, np.asarray(per_kind)[cluster.node_kind])
