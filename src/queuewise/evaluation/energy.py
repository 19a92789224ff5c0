"""Energy of a replay, by the model of docs/simulator.md: idle draw of everything that is switched on, plus what use adds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.evaluation.usage import node_seconds, per_node

J_PER_KWH = 3.6e6


def idle_watts(cluster: Cluster) -> float:
    """What the cluster draws with no job on it."""
    return float(cluster.node_idle_watts.sum() + cluster.node_gpus @ per_node(cluster, [kind.idle_watts for kind in cluster.kinds]))


def gpu_extra_watts(cluster: Cluster) -> Floats:
    """[N] what one GPU of the node draws in full use beyond its idle draw."""
    return per_node(cluster, [kind.peak_watts - kind.idle_watts for kind in cluster.kinds])


def has_power_figures(cluster: Cluster) -> bool:
    return bool(idle_watts(cluster) > 0 or gpu_extra_watts(cluster).any() or cluster.node_core_watts.any())


def energy_kwh(m: Measurement) -> float | None:
    """Idle draw over the span plus the extra draw of used GPUs and cores. None where the cluster states no watts."""
    cluster, workload = m.schedule.cluster, m.schedule.workload
    if not has_power_figures(cluster) or not m.span >= 0:
        return None
    joules = idle_watts(cluster) * m.span
    joules += float(node_seconds(m, workload.gpu_milli) @ gpu_extra_watts(cluster)) / 1000
    joules += float(node_seconds(m, workload.cpu_milli) @ cluster.node_core_watts) / 1000
    return joules / J_PER_KWH


def energy_per_job_kwh(m: Measurement) -> float | None:
    """Energy of the whole cluster over the span ÷ finished jobs."""
    total = energy_kwh(m)
    return total / m.rows.size if total is not None and m.rows.size else None


def energy_cost(m: Measurement, price_per_kwh: Sequence[float]) -> float | None:
    """Price of the energy; 24 prices by hour of day of the log's clock (`Workload.epoch` sets its zero), or one for all hours."""
    total = energy_kwh(m)
    if total is None or len(price_per_kwh) == 1:
        return None if total is None else total * price_per_kwh[0]
    from queuewise.evaluation.timeline import mean_watts

    first_hour = np.floor((m.begin + m.schedule.workload.epoch) / 3600)
    edges = (first_hour + np.arange(np.ceil(m.span / 3600) + 2)) * 3600 - m.schedule.workload.epoch
    edges = np.unique(np.clip(edges, m.begin, m.end))
    hours = ((edges[:-1] + m.schedule.workload.epoch) // 3600 % 24).astype(np.int64)
    return float(mean_watts(m, edges) * np.diff(edges) @ np.asarray(price_per_kwh)[hours]) / J_PER_KWH
