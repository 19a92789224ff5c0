"""Statistics of a workload: counts, span, load, quantiles of size and runtime, arrivals by hour and weekday."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ClusterFacts, Loaded

SECONDS_PER_DAY = 86_400
_THURSDAY = 3  # the weekday of Unix time 0, where Monday is 0


def describe(loaded: Loaded, capacity: tuple[float, float] | None = None) -> dict[str, Any]:
    """The statistics as plain data. `capacity` is (GPUs, cores); default: those of the cluster described in the log, if any."""
    workload = loaded.workload
    known = capacity if capacity is not None else facts_capacity(loaded.cluster)
    return {
        "format": loaded.format,
        "jobs": len(workload),
        "rows_read": loaded.tally.rows_read,
        "skipped": loaded.tally.skipped,
        "filled": loaded.tally.filled,
        "notes": loaded.tally.notes,
        "span_s": span_s(workload),
        "offered_load": None if known is None else offered_load(workload, *known),
        "gpus": _quantiles(workload.gpus, p50=50, p90=90, max=100),
        "cores": _quantiles(workload.cores, p50=50, p90=90, max=100),
        "runtime_s": _quantiles(workload.runtime, p50=50, p90=90, p99=99),
        "recorded_wait_s": _quantiles(workload.recorded_wait[~np.isnan(workload.recorded_wait)], p50=50, p90=90, p99=99),
        "users": len(workload.users),
        "arrivals_by_hour": rhythm(workload)[0],
        "arrivals_by_weekday": rhythm(workload)[1],
    }


def span_s(workload: Workload) -> float:
    """From the first submission to the last."""
    return float(workload.submit[-1] - workload.submit[0])


def facts_capacity(cluster: ClusterFacts | None) -> tuple[float, float] | None:
    if cluster is None:
        return None
    return float(sum(node.count * node.gpus for node in cluster.nodes)), float(sum(node.count * node.cpus for node in cluster.nodes))


def offered_load(workload: Workload, gpus: float, cores: float) -> float | None:
    """Submitted work ÷ capacity between the first and the last submission, in GPU time if both have GPUs, otherwise in core time."""
    demand, capacity = (workload.gpus, gpus) if gpus and workload.gpu_milli.any() else (workload.cores, cores)
    span = span_s(workload)
    if span <= 0 or not 0 < capacity < float("inf"):
        return None
    return float(np.dot(demand, workload.runtime) / (capacity * span))


def rhythm(workload: Workload) -> tuple[list[int], list[int]]:
    """Submissions by hour of day and by weekday (Monday first), on the log's clock."""
    moment = np.floor(workload.epoch + workload.submit).astype(np.int64)
    hours = np.bincount(moment % SECONDS_PER_DAY // 3600, minlength=24)
    weekdays = np.bincount((moment // SECONDS_PER_DAY + _THURSDAY) % 7, minlength=7)
    return hours.tolist(), weekdays.tolist()


def _quantiles(values: NDArray[np.float64], **percentiles: float) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(percentiles)
    return dict(zip(percentiles, np.percentile(values, list(percentiles.values())).tolist(), strict=True))
