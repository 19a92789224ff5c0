"""Orders: which queued job comes first ("Orders" of the normative page).

Scores are float64 arrays over the queued jobs; only + − × ÷ √ are done on arrays (these are exact to the last bit
everywhere), logarithms are taken one by one with the C library's functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from queuewise.workload.jobs import Workload
from reference.state import Job

Floats = NDArray[np.float64]
MASK = (1 << 64) - 1
DAY = 86400.0
DEFAULT_REQUEST = 86400.0  # of jobs without a request that no job with one precedes


def mix(x: int) -> int:
    """The page's 64-bit hash."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def each(function: Callable[[float], float], values: Floats) -> Floats:
    return np.array([function(float(v)) for v in values], dtype=np.float64)


class Facts:
    """Columns of all jobs of the workload that some order looks at."""

    def __init__(self, workload: Workload, jobs: list[Job], predicted: Floats | None, seed: int, estimate: Floats | None = None) -> None:
        self.r = np.array([job.estimate for job in jobs], dtype=np.float64) if estimate is None else estimate
        self.n = np.asarray(workload.size, dtype=np.float64)
        self.s = np.asarray(workload.submit, dtype=np.float64)
        self.log10_r1 = each(math.log10, np.maximum(self.r, 1.0))
        self.log10_s1 = each(math.log10, np.maximum(self.s, 1.0))
        self.log2_n = each(math.log2, self.n)
        self.priority = np.asarray(workload.priority, dtype=np.float64)
        self.deadline = np.where(np.isnan(workload.deadline), np.inf, workload.deadline)
        self.predicted = self.r if predicted is None else predicted
        self.watts = np.array([cheapest_watts(job) for job in jobs], dtype=np.float64)
        self.random = np.array([float(mix((seed + j) & MASK) >> 11) for j in range(len(workload))], dtype=np.float64)


class Queue:
    """What an order may look at: the columns of the queued jobs, and their waits, at one moment."""

    def __init__(self, facts: Facts, rows: list[int], now: float) -> None:
        self.r = facts.r[rows]  # estimate
        self.n = facts.n[rows]  # size
        self.s = facts.s[rows]  # submission
        self.now = now
        self.w = now - self.s  # wait
        self.r1 = np.maximum(self.r, 1.0)
        self.log10_r1 = facts.log10_r1[rows]
        self.log10_s1 = facts.log10_s1[rows]
        self.log2_n = facts.log2_n[rows]
        self.priority = facts.priority[rows]
        self.deadline = facts.deadline[rows]
        self.predicted = facts.predicted[rows]
        self.watts = facts.watts[rows]
        self.random = facts.random[rows]


def cheapest_watts(job: Job) -> float:
    """Least active watts per GPU among the allowed nodes of the job, 1.0 for CPU-only jobs."""
    if job.demand.gpu == 0:
        return 1.0
    watts = [job.machine.active_gpu_watts(n) for n, cap in enumerate(job.caps) if cap]
    return min(watts, default=1.0)  # without allowed nodes the job is rejected and its score never used


def wfp3(q: Queue) -> Floats:
    ratio = q.w / q.r1
    return -(ratio * ratio * ratio * q.n)


def unicep(q: Queue) -> Floats:
    return np.where(q.w == 0, 0.0, -q.w / (np.maximum(q.log2_n, math.log2(1 + 1e-15)) * q.r1))


def power(q: Queue) -> Floats:
    return np.where(q.w >= DAY, q.s - 1e18, q.r * q.n * q.watts)


SCORES: dict[str, Callable[[Queue], Floats]] = {
    "fcfs": lambda q: q.s,
    "lcfs": lambda q: -q.s,
    "sjf": lambda q: q.r,
    "ljf": lambda q: -q.r,
    "smallest": lambda q: q.n,
    "largest": lambda q: -q.n,
    "saf": lambda q: q.r * q.n,
    "laf": lambda q: -(q.r * q.n),
    "sexp": lambda q: (q.w + q.r) / q.n,
    "lexp": lambda q: -((q.w + q.r) / q.n),
    "srf": lambda q: q.r / q.n,
    "lrf": lambda q: -(q.r / q.n),
    "hrrn": lambda q: -((q.w + q.r1) / q.r1),
    "wfp3": wfp3,
    "rltune-multifactor": lambda q: -1000.0 * (q.w / 43200.0 + (1.0 - q.n / 160.0)),
    "unicep": unicep,
    "f1": lambda q: q.log10_r1 * q.n + 870.0 * q.log10_s1,
    "f2": lambda q: np.sqrt(q.r) * q.n + 25600.0 * q.log10_s1,
    "f3": lambda q: q.r * q.n + 6.86e6 * q.log10_s1,
    "f4": lambda q: q.r * np.sqrt(q.n) + 5.3e5 * q.log10_s1,
    "priority": lambda q: -q.priority,
    "edf": lambda q: q.deadline,
    "qssf": lambda q: q.predicted * q.n,
    "power": power,
    "aged": lambda q: q.r1 * q.n / (1.0 + q.w / 3600.0),
    "random": lambda q: q.random,
}


def in_order(order: str, facts: Facts, queued: set[int], now: float) -> list[int]:
    """The queued jobs by ascending score, ties by job index."""
    rows = sorted(queued)
    scores = SCORES[order](Queue(facts, rows, now))
    return [rows[i] for i in np.argsort(scores, kind="stable")]


def known_estimates(workload: Workload) -> dict[str, Floats]:
    """Estimates that an order may name and that need nobody to learn."""
    requested, seen = [], -math.inf
    for value in workload.requested.tolist():
        seen = seen if math.isnan(value) else max(seen, value)
        largest = seen if seen > -math.inf else DEFAULT_REQUEST
        requested.append(largest if math.isnan(value) else value)
    return {"oracle": workload.runtime, "requested": np.array(requested, dtype=np.float64)}
