"""The figures of a replay by name. Formulas live in `measure`, `usage`, `energy`, `timeline` and `fairness`, one function each;
docs/metrics.md states every one with its unit and source.

A figure that is undefined (no finished job, no GPU in the cluster, no watts stated) is None, never 0 or NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from queuewise.evaluation import energy, measure, usage
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.sim.schedule import REJECTED, Schedule

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def distribution(values: Floats, quantiles: tuple[str, ...] = tuple(QUANTILES)) -> dict[str, float | None]:
    """Mean, quantiles (linear between order statistics) and maximum; None for an empty sample. Reorders `values`."""
    if not values.size:
        return dict.fromkeys(("mean", *quantiles, "max"))
    mean = float(values.mean())
    points = np.quantile(values, [QUANTILES[q] for q in quantiles], overwrite_input=True)
    return {"mean": mean, **dict(zip(quantiles, map(float, points), strict=True)), "max": float(values.max())}


def makespan(m: Measurement) -> float | None:
    """Last end minus first submission of the counted jobs."""
    if not m.rows.size:
        return None
    return float(m.schedule.end[m.rows].max() - m.schedule.workload.submit[m.jobs.start])


def rejected(m: Measurement) -> int:
    """Jobs that can never run on this cluster."""
    return int(np.count_nonzero(m.schedule.status[m.jobs] == REJECTED))


def preemptions(m: Measurement) -> int:
    """Times a job was stopped and put back."""
    return int(m.schedule.preemptions[m.jobs].sum())


def summarise(schedule: Schedule, *, warmup: float = 0.0, cooldown: float = 0.0) -> dict[str, Any]:
    """The short summary that `queuewise simulate --json` prints for one policy."""
    m = measure.measure(schedule, warmup=warmup, cooldown=cooldown)
    shown = ("p50", "p90", "p99")
    return {
        "policy": schedule.policy,
        "jobs": m.num_jobs,
        "completed": int(m.rows.size),
        "rejected": rejected(m),
        "preemptions": preemptions(m),
        "makespan_s": makespan(m),
        "wait_s": distribution(measure.wait(m), shown),
        "jct_s": distribution(measure.jct(m), shown),
        "slowdown": distribution(measure.slowdown(m), shown),
        "bounded_slowdown": distribution(measure.bounded_slowdown(m), shown),
        "gpu_utilisation": usage.gpu_utilisation(m),
        "cpu_utilisation": usage.cpu_utilisation(m),
        "energy_kwh": energy.energy_kwh(m),
        "engine_s": schedule.engine_s,
        "jobs_per_s": len(schedule.workload) / schedule.engine_s if schedule.engine_s > 0 else None,
    }
