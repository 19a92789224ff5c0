"""Energy of a replay, by the model of docs/simulator.md: idle draw of everything that is switched on, plus what use adds."""

from __future__ import annotations

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


def prices_per_kwh(cluster: Cluster) -> list[float] | None:
    """24 prices by hour of day: `price_per_kwh` of the cluster's extras, overridden by `price_per_kwh_00` … `price_per_kwh_23`."""
    base = cluster.extras.get("price_per_kwh")
    prices = [cluster.extras.get(f"price_per_kwh_{hour:02d}", base) for hour in range(24)]
    return None if any(price is None for price in prices) else [float(price) for price in prices if price is not None]


def energy_cost(m: Measurement) -> float | None:
    """Price of the energy, by hour of day of the log's clock (`Workload.epoch` sets its zero). None where no price or watts are stated."""
    from queuewise.evaluation.timeline import mean_watts

    prices = prices_per_kwh(m.schedule.cluster)
    if prices is None or energy_kwh(m) is None or m.span == 0:
        return None
    epoch = m.schedule.workload.epoch
    first_hour = np.floor((m.begin + epoch) / 3600)
    on_the_hour = (first_hour + np.arange(np.ceil(m.span / 3600) + 2)) * 3600 - epoch
    edges = np.unique(np.clip(on_the_hour, m.begin, m.end))
    hour = ((edges[:-1] + epoch) // 3600 % 24).astype(np.int64)
    return float((mean_watts(m, edges) * np.diff(edges)) @ np.asarray(prices)[hour]) / J_PER_KWH
