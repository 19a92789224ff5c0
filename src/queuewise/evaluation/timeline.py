"""Quantities over time: GPUs and cores in use, waiting jobs and power, as means per bin, overall means and maxima.

Bins contain exact means of step functions, without sampling. The time is linear in jobs plus bins, so a year of a large cluster is plotted
quickly. Times are on the log's clock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.evaluation.energy import gpu_extra_watts, has_power_figures, idle_watts, sleep_and_wake_periods
from queuewise.evaluation.measure import Floats, Measurement, times_between_runs
from queuewise.evaluation.utilisation import BLOCK
from queuewise.sim.core.schedule import CANCELLED, REJECTED


def bin_edges(m: Measurement, bins: int) -> Floats:
    """`bins` equal bins over the span."""
    return np.linspace(m.begin, m.end, bins + 1)


def binned_mean(begin: Floats, end: Floats, weight: Floats | float, edges: Floats) -> Floats:
    """[bins] mean of Σ weight over the intervals [begin, end) that contain a time, within each bin.

    Up to an edge e, an interval has lasted (e − begin)⁺ − (e − end)⁺. The sum over intervals is e·W − S, where W and S are the weight and
    weight × time of everything that began (ended) before e. Two histograms give both.
    """
    lasted = np.zeros(len(edges))
    for low in range(0, len(begin), BLOCK):
        block = slice(low, low + BLOCK)
        some = weight[block] if isinstance(weight, np.ndarray) else np.full(len(begin[block]), weight)
        for sign, times in ((1.0, begin[block]), (-1.0, end[block])):
            since = np.clip(times, edges[0], edges[-1]) - edges[0]
            where = np.searchsorted(edges - edges[0], since, side="right")
            total = np.bincount(where, weights=some, minlength=len(edges) + 1)[: len(edges)].cumsum()
            moment = np.bincount(where, weights=some * since, minlength=len(edges) + 1)[: len(edges)].cumsum()
            lasted += sign * ((edges - edges[0]) * total - moment)
    return np.maximum(np.diff(lasted) / np.diff(edges), 0.0)


def _per_piece(m: Measurement, per_task: NDArray[np.int32], per_node: Floats | None = None) -> Floats:
    schedule = m.schedule
    used = schedule.piece_tasks * per_task[schedule.piece_job] / 1000.0
    return used if per_node is None else used * per_node[schedule.piece_node]


def mean_busy_gpus(m: Measurement, edges: Floats) -> Floats:
    """[bins] GPUs in use."""
    return binned_mean(m.schedule.piece_start, m.schedule.piece_end, _per_piece(m, m.schedule.workload.gpu_milli), edges)


def mean_busy_cores(m: Measurement, edges: Floats) -> Floats:
    """[bins] CPU cores in use."""
    return binned_mean(m.schedule.piece_start, m.schedule.piece_end, _per_piece(m, m.schedule.workload.cpu_milli), edges)


def mean_watts(m: Measurement, edges: Floats) -> Floats:
    """[bins] power of the whole cluster in watts."""
    watts: Floats = np.full(len(edges) - 1, idle_watts(m.schedule.cluster))
    for begin, end, more, less in _draws(m):
        watts += binned_mean(begin, end, more, edges) - binned_mean(begin, end, less, edges)
    return np.maximum(watts, 0.0, out=watts)


def _draws(m: Measurement) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """Starts and ends of all periods in which the power differs from idle, and the watts added and removed."""
    cluster, workload = m.schedule.cluster, m.schedule.workload
    extra = _per_piece(m, workload.gpu_milli, gpu_extra_watts(cluster)) + _per_piece(m, workload.cpu_milli, cluster.node_core_watts)
    use = (m.sleeps.piece_ready, m.schedule.piece_end, extra, np.zeros(len(extra)))
    return [use, *((begin, end, instead, cluster.idle_draw[m.sleeps.node]) for begin, end, instead in sleep_and_wake_periods(m))]


def peak_watts(m: Measurement) -> float | None:
    """The highest power of the whole cluster at any time in the span. None if the cluster states no watts."""
    if not has_power_figures(m.schedule.cluster) or not m.span >= 0:
        return None
    times, changes = [np.array([m.begin])], [np.zeros(1)]
    for begin, end, more, less in _draws(m):
        times += [np.maximum(begin, m.begin), np.maximum(end, m.begin)]
        changes += [more - less, less - more]
    at, which = np.unique(np.concatenate(times), return_inverse=True)
    drawn = idle_watts(m.schedule.cluster) + np.bincount(which, weights=np.concatenate(changes)).cumsum()
    return float(drawn[at < max(m.end, np.nextafter(m.begin, np.inf))].max())


def waiting_intervals(m: Measurement, jobs: NDArray[np.bool_] | None = None) -> tuple[Floats, Floats]:
    """Starts and ends of all periods in which a job (of `jobs` [J]) was queued: before its first start, and while preempted."""
    schedule = m.schedule
    waits = (schedule.status != REJECTED) & (schedule.status != CANCELLED) & (schedule.start > schedule.workload.submit)
    if jobs is not None:
        waits &= jobs
    begin, end = schedule.workload.submit[waits], schedule.start[waits]
    job, stopped, resumed = times_between_runs(m)
    if jobs is not None:
        stopped, resumed = stopped[jobs[job]], resumed[jobs[job]]
    return np.concatenate((begin, stopped)), np.concatenate((end, resumed))


def mean_queue(m: Measurement, edges: Floats) -> Floats:
    """[bins] jobs waiting."""
    return binned_mean(*waiting_intervals(m), 1.0, edges)


def queue_length_mean(m: Measurement) -> float | None:
    """Time average of the number of waiting jobs over the span."""
    return float(mean_queue(m, bin_edges(m, 1))[0]) if m.span > 0 else None


def queue_length_max(m: Measurement) -> int | None:
    """The largest number of jobs waiting at the same time in the span. Jobs that start immediately never wait."""
    if not m.span >= 0:
        return None
    begin, end = waiting_intervals(m)
    begin, end = np.sort(begin), np.sort(end)
    at = np.concatenate(([m.begin], begin[(begin >= m.begin) & (begin <= m.end)]))
    return int((np.searchsorted(begin, at, side="right") - np.searchsorted(end, at, side="right")).max())


def stranded_gpus(m: Measurement) -> float | None:
    """Time average of the GPUs that were free while a job that needs GPUs was waiting."""
    cluster, workload = m.schedule.cluster, m.schedule.workload
    if cluster.num_gpus == 0 or not m.span > 0:
        return None
    knots, queued = _time_covered(*waiting_intervals(m, workload.gpu_milli > 0), m.begin, m.end)
    used = 0.0
    for low in range(0, len(m.schedule.piece_job), BLOCK):
        block = slice(low, low + BLOCK)
        during = np.interp(m.schedule.piece_end[block], knots, queued) - np.interp(m.schedule.piece_start[block], knots, queued)
        gpus = m.schedule.piece_tasks[block] * workload.gpu_milli[m.schedule.piece_job[block]] / 1000.0
        used += float(during @ gpus)
    return (cluster.num_gpus * float(queued[-1]) - used) / m.span


def _time_covered(begin: Floats, end: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Knots of a piecewise linear function of t: the seconds of [low, t] covered by at least one interval."""
    begin, end = np.clip(begin, low, high), np.clip(end, low, high)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    if not begin.size:
        return np.array([low, high]), np.zeros(2)
    opens = np.concatenate(([True], begin[1:] > end[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    knots = np.column_stack((begin[opens], end[closes])).ravel()
    covered = np.concatenate(([0.0], np.cumsum(np.diff(knots) * (np.arange(len(knots) - 1) % 2 == 0))))
    return knots, covered
