"""Energy of a replay, as defined in docs/simulator.md: the power of idle, sleeping and waking nodes, plus what jobs add."""

from __future__ import annotations

import numpy as np

from queuewise.cluster.conditions import HOURS_OF_DAY, Power
from queuewise.cluster.spec import Cluster
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.evaluation.utilisation import node_seconds, per_node

J_PER_KWH = 3.6e6


def idle_watts(cluster: Cluster) -> float:
    """Power of the cluster with all nodes awake and idle."""
    return float(cluster.idle_draw.sum())


def gpu_extra_watts(cluster: Cluster) -> Floats:
    """[N] additional power of one fully used GPU of the node."""
    return per_node(cluster, [kind.peak_watts - kind.idle_watts for kind in cluster.kinds])


def has_power_figures(cluster: Cluster) -> bool:
    return bool(idle_watts(cluster) > 0 or gpu_extra_watts(cluster).any() or cluster.node_core_watts.any())


def energy_kwh(m: Measurement) -> float | None:
    """Energy of idle, sleeping and waking nodes over the span, plus that of used GPUs and cores. None if the cluster states no watts."""
    cluster, workload, ready = m.schedule.cluster, m.schedule.workload, m.sleeps.piece_ready
    if not has_power_figures(cluster) or not m.span >= 0:
        return None
    joules = idle_watts(cluster) * m.span
    for begin, end, instead in sleep_and_wake_periods(m):
        joules += float(np.maximum(np.minimum(end, m.end) - np.maximum(begin, m.begin), 0.0) @ (instead - _idle_watts(m)))
    joules += float(node_seconds(m, workload.gpu_milli, ready) @ gpu_extra_watts(cluster)) / 1000
    joules += float(node_seconds(m, workload.cpu_milli, ready) @ cluster.node_core_watts) / 1000
    return joules / J_PER_KWH


def sleep_and_wake_periods(m: Measurement) -> list[tuple[Floats, Floats, Floats]]:
    """Starts, ends and watts of all periods in which a node slept, and of those in which it woke up, in the order of `m.sleeps`."""
    power, sleeps, idle = m.schedule.power, m.sleeps, _idle_watts(m)
    waking = idle if power.wake_watts is None else np.full(len(idle), power.wake_watts)
    return [(sleeps.start, sleeps.end, np.full(len(idle), power.sleep_watts)), (sleeps.end, sleeps.end + power.wake_s, waking)]


def _idle_watts(m: Measurement) -> Floats:
    """[S] idle power of the node of each sleep period."""
    return m.schedule.cluster.idle_draw[m.sleeps.node]


def asleep_share(m: Measurement) -> float | None:
    """Node-seconds asleep ÷ (nodes × span). None if nodes never sleep."""
    if not m.schedule.power.nodes_sleep or not m.span > 0:
        return None
    asleep = np.minimum(m.sleeps.end, m.end) - np.maximum(m.sleeps.start, m.begin)
    return float(np.maximum(asleep, 0.0).sum()) / (m.schedule.cluster.num_nodes * m.span)


def wakes(m: Measurement) -> int | None:
    """Number of times a node was woken in the span. None if nodes never sleep."""
    if not m.schedule.power.nodes_sleep:
        return None
    return int(((m.sleeps.end >= m.begin) & (m.sleeps.end <= m.end)).sum())


def energy_per_job_kwh(m: Measurement) -> float | None:
    """Energy of the whole cluster over the span ÷ finished jobs."""
    total = energy_kwh(m)
    return total / m.rows.size if total is not None and m.rows.size else None


def prices_per_kwh(power: Power) -> Floats | None:
    """[24] prices by hour of day, or None if no price is stated."""
    if power.price_by_hour:
        return np.array(power.price_by_hour)
    return None if power.price_per_kwh is None else np.full(HOURS_OF_DAY, power.price_per_kwh)


def energy_cost(m: Measurement) -> float | None:
    """Cost of the energy, with prices by hour of the log's clock (which `Workload.epoch` sets). None without a price or watts."""
    from queuewise.evaluation.timeline import mean_watts

    prices = prices_per_kwh(m.schedule.power)
    if prices is None or energy_kwh(m) is None or m.span == 0:
        return None
    epoch = m.schedule.workload.epoch
    first_hour = np.floor((m.begin + epoch) / 3600)
    on_the_hour = (first_hour + np.arange(np.ceil(m.span / 3600) + 2)) * 3600 - epoch
    edges = np.unique(np.clip(on_the_hour, m.begin, m.end))
    hour = ((edges[:-1] + epoch) // 3600 % HOURS_OF_DAY).astype(np.int64)
    return float((mean_watts(m, edges) * np.diff(edges)) @ prices[hour]) / J_PER_KWH
