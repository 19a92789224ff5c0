"""The figures of a replay by name. Formulas live in `measure`, `utilisation`, `energy`, `timeline` and `fairness`, one function each;
docs/metrics.md states every one with its unit and source.

A figure that is undefined (no finished job, no GPU in the cluster, no watts stated) is None, never 0 or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation import energy, fairness, fragmentation, measure, timeline, utilisation
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.sim.core.schedule import CANCELLED, FAILED, KILLED, REJECTED, Schedule

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def distribution(values: Floats) -> dict[str, float | None]:
    """Mean, quantiles (linear between order statistics) and maximum; None for an empty sample. Reorders `values`."""
    if not values.size:
        return dict.fromkeys(("mean", *QUANTILES, "max"))
    mean = float(values.mean())
    points = np.quantile(values, list(QUANTILES.values()), overwrite_input=True)
    return {"mean": mean, **dict(zip(QUANTILES, map(float, points), strict=True)), "max": float(values.max())}


def makespan(m: Measurement) -> float | None:
    """Last end minus first submission of the counted jobs."""
    if not m.rows.size:
        return None
    return float(m.schedule.end[m.rows].max() - m.schedule.workload.submit[m.jobs.start])


def completed(m: Measurement) -> int:
    """Jobs that ran to an end, their own or (killed) the limit's."""
    return int(m.rows.size)


def _with_status(m: Measurement, status: int) -> int:
    return int(np.count_nonzero(m.schedule.status[m.jobs] == status))


def killed(m: Measurement) -> int:
    """Jobs that ended at their limit; they are among the completed."""
    return _with_status(m, KILLED)


def rejected(m: Measurement) -> int:
    """Jobs that can never run on this cluster."""
    return _with_status(m, REJECTED)


def cancelled(m: Measurement) -> int:
    """Jobs whose dependencies can never be met."""
    return _with_status(m, CANCELLED)


def failed(m: Measurement) -> int:
    """Jobs that were hit by a failure and not queued again."""
    return _with_status(m, FAILED)


def unfinished(m: Measurement) -> int:
    """Censored jobs: still waiting or running when the replay stopped."""
    return m.num_jobs - completed(m) - rejected(m) - cancelled(m) - failed(m)


def completion_rate(m: Measurement) -> float | None:
    """Completed ÷ counted jobs."""
    return completed(m) / m.num_jobs if m.num_jobs else None


def throughput(m: Measurement) -> float | None:
    """Completed jobs per hour of the makespan."""
    seconds = makespan(m)
    return completed(m) / (seconds / 3600) if seconds else None


def preemptions(m: Measurement) -> int:
    """Times a job was stopped and put back."""
    return int(m.schedule.preemptions[m.jobs].sum())


def migrations(m: Measurement) -> int:
    """Times a preempted job came back on other nodes, or with other numbers of tasks on them."""
    runs = m.runs
    counted = (runs.job[1:] >= m.jobs.start) & (runs.job[1:] < m.jobs.stop)
    return int(np.count_nonzero(counted & (runs.job[1:] == runs.job[:-1]) & (runs.place[1:] != runs.place[:-1])))


def overstays(m: Measurement) -> int | None:
    """Runs that were still on nodes reserved for others when the reservation began; None without reservations."""
    return None if m.schedule.overstays is None else int(m.schedule.overstays[m.jobs].sum())


def deadline_misses(m: Measurement) -> int | None:
    """Jobs that ended after their deadline or not at all; None when no job has one."""
    deadline = m.schedule.workload.deadline[m.jobs]
    if np.isnan(deadline).all():
        return None
    return int(np.count_nonzero(m.schedule.end[m.jobs] > deadline))


@dataclass(frozen=True)
class Metric:
    of: Callable[[Measurement], float | int | None]
    unit: str
    better: Literal["lower", "higher", ""]  # "" where neither is better in itself


DISTRIBUTIONS: dict[str, tuple[Callable[[Measurement], Floats], str]] = {
    "wait_s": (measure.wait, "s"),
    "first_wait_s": (measure.first_wait, "s"),
    "jct_s": (measure.jct, "s"),
    "slowdown": (measure.slowdown, "1"),
    "bounded_slowdown": (measure.bounded_slowdown, "1"),
}

METRICS: dict[str, Metric] = {
    "completed": Metric(completed, "jobs", "higher"),
    "killed": Metric(killed, "jobs", "lower"),
    "rejected": Metric(rejected, "jobs", "lower"),
    "cancelled": Metric(cancelled, "jobs", "lower"),
    "failed": Metric(failed, "jobs", "lower"),
    "unfinished": Metric(unfinished, "jobs", "lower"),
    "completion_rate": Metric(completion_rate, "1", "higher"),
    "makespan_s": Metric(makespan, "s", "lower"),
    "throughput_per_h": Metric(throughput, "jobs/h", "higher"),
    "gpu_utilisation": Metric(utilisation.gpu_utilisation, "1", "higher"),
    "flops_utilisation": Metric(utilisation.flops_utilisation, "1", "higher"),
    "cpu_utilisation": Metric(utilisation.cpu_utilisation, "1", "higher"),
    "memory_utilisation": Metric(utilisation.memory_utilisation, "1", "higher"),
    "load_imbalance": Metric(utilisation.load_imbalance, "1", "lower"),
    "stranded_gpus": Metric(timeline.stranded_gpus, "GPUs", "lower"),
    "fragmentation": Metric(fragmentation.fragmentation, "1", "lower"),
    "queue_length_mean": Metric(timeline.queue_length_mean, "jobs", "lower"),
    "queue_length_max": Metric(timeline.queue_length_max, "jobs", "lower"),
    "jain_index": Metric(fairness.jain_index, "1", "higher"),
    "gini": Metric(fairness.gini, "1", "lower"),
    "max_over_mean_user_slowdown": Metric(fairness.max_over_mean_user_slowdown, "1", "lower"),
    "unfair_starts": Metric(fairness.unfair_starts, "jobs", "lower"),
    "energy_kwh": Metric(energy.energy_kwh, "kWh", "lower"),
    "energy_cost": Metric(energy.energy_cost, "currency", "lower"),
    "energy_per_job_kwh": Metric(energy.energy_per_job_kwh, "kWh", "lower"),
    "peak_watts": Metric(timeline.peak_watts, "W", "lower"),
    "asleep_share": Metric(energy.asleep_share, "1", ""),
    "wakes": Metric(energy.wakes, "times", ""),
    "preemptions": Metric(preemptions, "times", ""),
    "migrations": Metric(migrations, "times", ""),
    "overstays": Metric(overstays, "runs", "lower"),
    "deadline_misses": Metric(deadline_misses, "jobs", "lower"),
}


def all_metrics(m: Measurement) -> dict[str, Any]:
    """Every figure there is: distributions as dictionaries, the others as numbers or None."""
    figures: dict[str, Any] = {"jobs": m.num_jobs}
    figures |= {name: distribution(values(m)) for name, (values, _) in DISTRIBUTIONS.items()}
    return figures | {name: metric.of(m) for name, metric in METRICS.items()}


def figure_names() -> tuple[str, ...]:
    """Every figure of `all_metrics`, those of distributions as `wait_s.p95`."""
    parts = [f"{name}.{part}" for name in DISTRIBUTIONS for part in ("mean", *QUANTILES, "max")]
    return (*METRICS, *parts)


def some_figures(m: Measurement, names: Sequence[str]) -> dict[str, float | None]:
    """Figures by the names of `figure_names`."""
    found: dict[str, float | None] = {}
    for name in names:
        whole, _, part = name.partition(".")
        found[name] = distribution(DISTRIBUTIONS[whole][0](m))[part] if part else METRICS[name].of(m)
    return found


def thinking(schedule: Schedule) -> dict[str, Any]:
    """Decisions and the time of one. Those of a policy that solves or plans are timed one by one, with what else is known of them."""
    if schedule.thinking is not None:
        return schedule.thinking
    each = schedule.engine_s / schedule.decisions * 1e6 if schedule.decisions else None
    return {"decisions": schedule.decisions, "decision_us": {"mean": each, "p99": None}}


def summarise(schedule: Schedule, *, warmup: float = 0.0, cooldown: float = 0.0) -> dict[str, Any]:
    """The short summary that `queuewise simulate --json` prints for one policy."""
    if not isinstance(schedule, Schedule):
        raise InputError(f"schedule is {type(schedule).__name__}", hint="pass one Schedule; Schedules.to_frame() has a row per policy")
    m = measure.measure(schedule, warmup=warmup, cooldown=cooldown)
    return {
        "policy": schedule.policy,
        "jobs": m.num_jobs,
        "completed": completed(m),
        "killed": killed(m),
        "rejected": rejected(m),
        "cancelled": cancelled(m),
        "failed": failed(m),
        "unfinished": unfinished(m),
        "preemptions": preemptions(m),
        "makespan_s": makespan(m),
        **{name: distribution(values(m)) for name, (values, _) in DISTRIBUTIONS.items()},
        "gpu_utilisation": utilisation.gpu_utilisation(m),
        "cpu_utilisation": utilisation.cpu_utilisation(m),
        "flops_utilisation": utilisation.flops_utilisation(m),
        "load_imbalance": utilisation.load_imbalance(m),
        "completion_rate": completion_rate(m),
        "jain_index": fairness.jain_index(m),
        "energy_kwh": energy.energy_kwh(m),
        "energy_cost": energy.energy_cost(m),
        **thinking(schedule),
        "engine_s": schedule.engine_s,
        "jobs_per_s": len(schedule.workload) / schedule.engine_s if schedule.engine_s > 0 else None,
    }
