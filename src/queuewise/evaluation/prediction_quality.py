"""How good predictions of runtimes are on later days of a log, where they fail, and what exact ones would be worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.measure import Floats, bounded_slowdown, measure_from, wait
from queuewise.evaluation.protocol import DEFAULT_SPLIT, UNITS_S, make_plan
from queuewise.evaluation.units import unit_numbers
from queuewise.policies import simulate
from queuewise.policies.estimating import estimate_on, with_waits
from queuewise.workload.history import prediction_quantiles
from queuewise.workload.jobs import UNKNOWN, Workload

BEST = "predicted"
LEVELS = tuple(np.round(np.arange(0.05, 0.96, 0.05), 2).tolist())
LOW, HIGH = 0.1, 0.9  # of the interval that four jobs in five are in
CLASSES = {  # edges of the classes of jobs by which errors are listed, and the names of the classes
    "runs of the user": ((1, 10, 100), ("none", "1 to 9", "10 to 99", "100 or more")),
    "runtime": ((60, 600, 3600, 36_000), ("below 1 min", "1 to 10 min", "10 to 60 min", "1 to 10 h", "10 h or more")),
    "size": ((2, 8, 32, 128), ("1", "2 to 7", "8 to 31", "32 to 127", "128 or more")),
}
SAME_RULE = {  # the same rule, and by what it orders, reserves and backfills
    "requests": ("aged:requested+easy:sjf:requested~3d", "requested"),
    "predictions": ("wise", "requested"),
    "exact runtimes": ("aged:oracle+easy:sjf:oracle~3d", "oracle"),
}


@dataclass(frozen=True)
class Quality:
    """How far estimates are from runtimes, over some jobs."""

    jobs: int
    r2_log: float | None  # share of the variance of log runtime that they explain; None if all runtimes are equal
    within_2x: float  # share of jobs with an estimate of half to twice the runtime
    median_ratio: float  # of estimate ÷ runtime


@dataclass(frozen=True)
class Worth:
    """A replay of the counted days: what the estimates bring about."""

    by: str
    bounded_slowdown: float
    wait_s: float


@dataclass(frozen=True)
class PredictionQuality:
    """The predictions of a log, judged by the days that count."""

    log: str
    days: int
    estimates: Mapping[str, Quality]
    coverage_80: float  # share of jobs between the quantiles of 10 % and 90 %
    calibration: Sequence[tuple[float, float]]  # (level of a quantile, share of jobs below it)
    by: Mapping[str, Mapping[str, Quality]]  # what jobs are classed by -> class -> quality of the best predictions
    worth: Sequence[Worth]

    def as_json(self) -> dict[str, Any]:
        best = self.estimates[BEST]
        return {"r2_log": best.r2_log, "within_2x": best.within_2x, "coverage_80": self.coverage_80, **asdict(self)}


def judge_predictions(
    workload: Workload, cluster: Cluster, *, split: tuple[float, float, float] = DEFAULT_SPLIT, seed: int = 0
) -> PredictionQuality:
    """Predict every job of the log when it is submitted, and judge the predictions of the report days."""
    plan = make_plan("days", workload, split=split, shakes=1)
    counted = np.arange(plan.windows[0].start + plan.windows[0].counted, plan.windows[0].stop)
    if len(counted) < 2:
        raise InputError("hardly any job was submitted on the days that count", hint="use a longer log")
    asked = not np.isnan(workload.requested).all()
    names = (*(("requested",) if asked else ()), "predicted:recent", BEST)
    values = {name: estimate_on(workload, cluster, name, seed).values for name in names}
    known = with_waits(workload, cluster)
    quantiles = prediction_quantiles(known, values[BEST], (LOW, HIGH, *LEVELS))[counted]
    runtime = np.maximum(workload.runtime[counted], 1.0)
    inside = (runtime >= quantiles[:, 0]) & (runtime <= quantiles[:, 1])
    below = [(level, float((runtime <= quantiles[:, 2 + i]).mean())) for i, level in enumerate(LEVELS)]
    return PredictionQuality(
        log=workload.name,
        days=len(np.unique(unit_numbers(workload.submit[counted], UNITS_S[0]))),
        estimates={name: _quality(workload.runtime[counted], column[counted]) for name, column in values.items()},
        coverage_80=float(inside.mean()),
        calibration=below,
        by=_by_class(workload, values[BEST], counted),
        worth=[_worth(workload, cluster, by, counted, seed) for by in SAME_RULE if asked or by != "requests"],
    )


def _quality(runtime: Floats, estimate: Floats) -> Quality:
    ratio = np.maximum(estimate, 1.0) / np.maximum(runtime, 1.0)
    true = np.log(np.maximum(runtime, 1.0))
    spread = float(((true - true.mean()) ** 2).sum())
    return Quality(
        jobs=len(runtime),
        r2_log=1.0 - float((np.log(ratio) ** 2).sum()) / spread if spread > 1e-9 * len(runtime) else None,
        within_2x=float(((ratio >= 0.5) & (ratio <= 2.0)).mean()),
        median_ratio=float(np.median(ratio)),
    )


def _by_class(workload: Workload, estimate: Floats, counted: NDArray[np.int64]) -> dict[str, dict[str, Quality]]:
    columns = {"runs of the user": _earlier_jobs(workload), "runtime": workload.runtime, "size": workload.size}
    if (workload.user == UNKNOWN).all():
        del columns["runs of the user"]
    found: dict[str, dict[str, Quality]] = {}
    for what, column in columns.items():
        edges, names = CLASSES[what]
        number = np.searchsorted(edges, column[counted], side="right")
        rows = {name: counted[number == i] for i, name in enumerate(names)}
        found[what] = {name: _quality(workload.runtime[mine], estimate[mine]) for name, mine in rows.items() if len(mine)}
    return found


def _earlier_jobs(workload: Workload) -> Floats:
    """[J] how many jobs the user had submitted before."""
    order = np.argsort(workload.user, kind="stable")
    users, first = np.unique(workload.user[order], return_index=True)
    earlier = np.empty(len(workload))
    earlier[order] = np.arange(len(workload)) - first[np.searchsorted(users, workload.user[order])]
    return earlier


def _worth(workload: Workload, cluster: Cluster, by: str, counted: NDArray[np.int64], seed: int) -> Worth:
    policy, estimates = SAME_RULE[by]
    if estimates == "requested" and np.isnan(workload.requested).all():
        estimates = "predicted"
    schedule = simulate(workload, cluster, policy, estimates=estimates, seed=seed)
    counts = measure_from(schedule, int(counted[0]))
    if not len(counts.rows):
        raise InputError(f"no job of the days that count can run on {cluster.name}", hint="give another --cluster")
    return Worth(by, float(bounded_slowdown(counts).mean()), float(wait(counts).mean()))
