"""Fit a model to a log, so that the model can be shared without the log, and measure how good the fit is.

`fit` estimates the parameters of `models.fitted`. `compare_fit` compares a log with a workload generated from a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.workload.jobs import UNKNOWN, Floats, Workload
from queuewise.workload.models import fitted
from queuewise.workload.models.latent import fit_autocorrelation, normal_scores

FEWEST_JOBS = 100
TIERS = 6  # of hours, from quiet to busy, for logs of at least two weeks
BATCH_TIME_SHARE = 0.1  # gaps within batches: the shortest ones that together cover this share of the time
FEWEST_IN_TABLE = 50  # minimum number of jobs for a runtime table
MOST_KINDS = 500
WORK_TOLERANCE = 0.05  # how far the work per second of a model may be from the log's
PACE_SAMPLES = 5
MOST_PACE = 0.25  # what is farther off is the work of a few jobs, and other gaps would be wrong
MOST_USERS = 50
REQUEST_VALUES = 41
DAY_HOURS = 24

Codes = NDArray[np.int64]
RuntimeTables = tuple[fitted.QuantileTable, ...]  # by band


def fit(workload: Workload, name: str | None = None, source: str = "") -> fitted.FittedModel:
    """Fit a model to a log of at least 100 jobs."""
    if len(workload) < FEWEST_JOBS:
        raise InputError(f"{len(workload)} jobs are too few to fit a model", hint=f"use a log with at least {FEWEST_JOBS} jobs")
    arrivals, batched, near = _fit_arrivals(workload)
    kinds, kind = _fit_kinds(workload, batched, near)
    band = np.asarray(kinds.band)[kind]
    group = band * 2 + batched
    stream = np.argsort(kind * 2 + batched, kind="stable")
    score = normal_scores(workload.runtime, group)
    lone, in_batches = _fit_runtimes(workload.runtime, band, batched)
    model = fitted.FittedModel(
        name=name or workload.name,
        source=source or f"{workload.name}, {len(workload)} jobs",
        jobs=len(workload),
        epoch=float(workload.epoch + workload.submit[0]) if workload.epoch else 0.0,
        whole_seconds=bool((workload.submit % 1 == 0).all() and (workload.runtime % 1 == 0).all()),
        arrivals=arrivals,
        kinds=kinds,
        lone_runtimes=lone,
        batched_runtimes=in_batches,
        runtime_memory=fit_autocorrelation(score[stream], (kind * 2 + batched)[stream]),
        users=_fit_users(workload, kind, band, stream),
        requests=_fit_requests(workload),
    )
    return model.model_copy(update={"pace": _pace(model, workload)})


def _pace(model: fitted.FittedModel, log: Workload) -> float:
    """The factor of gaps, as near to 1 as can be, that gives samples half the tolerated difference of work per second from the log.

    It is 1 if the difference is tolerated anyway, not the same in all samples, or more than a pace can mend.
    """
    if not log.runtime.any():
        return 1.0
    samples = (model.sample(np.random.default_rng(seed)) for seed in range(PACE_SAMPLES))
    off = np.array([_work_rate(sample) / _work_rate(log) for sample in samples]) - 1.0
    middle = float(np.median(off))
    surely = np.abs(off).min() > WORK_TOLERANCE / 2 and (np.sign(off) == np.sign(middle)).all()
    if not surely or not WORK_TOLERANCE < abs(middle) <= MOST_PACE:
        return 1.0
    return round(float((1.0 + middle) / (1.0 + np.sign(middle) * WORK_TOLERANCE / 2)), 4)


def quantile_table(values: Floats) -> fitted.QuantileTable:
    """A table with a resolution that fits the number of values: up to percents, and finer in the upper tail, which has most of the work."""
    steps = int(np.clip(len(values) // 5, 4, 100))
    fine = np.linspace(0.95, 1, 26) if steps == 100 else np.empty(0)
    tail = [1 - 1 / n for n in (1000, 2000, 5000, 10_000) if n * 5 <= len(values)]
    second_largest = 1 - 1.5 / len(values)  # so that one outlier stays one job in len(values)
    probabilities = np.unique(np.round([*np.linspace(0, 1, steps + 1), *fine, *tail, second_largest], 6))
    seconds = np.maximum.accumulate(np.quantile(values, probabilities, method="hazen"))
    return fitted.QuantileTable(probabilities=tuple(probabilities.tolist()), seconds=tuple(float(f"{value:.7g}") for value in seconds))


def _fit_arrivals(workload: Workload) -> tuple[fitted.Arrivals, NDArray[np.bool_], NDArray[np.bool_]]:
    """The arrival process, which jobs are in a batch, and which follow their predecessor in a batch."""
    gaps = np.diff(workload.submit)
    tier_of_hour = _tiers(workload)
    origin = workload.epoch if workload.epoch else -float(workload.submit[0])
    hour = ((workload.submit + origin)[:-1] // fitted.HOUR_S).astype(np.int64) % fitted.WEEK_HOURS
    tier = tier_of_hour[hour]
    threshold = _batch_gap(gaps)
    near = np.append(False, gaps <= threshold)
    arrivals = fitted.Arrivals(
        tier_of_hour=tuple(tier_of_hour.tolist()),
        tiers=tuple(quantile_table(gaps[tier == t]) for t in range(int(tier_of_hour.max()) + 1)),
        all_hours=quantile_table(gaps),
        memory=fit_autocorrelation(normal_scores(gaps, tier)),
        batch_gap_s=threshold,
    )
    return arrivals, near | np.append(near[1:], False), near


def _batch_gap(gaps: Floats) -> float:
    ascending = np.sort(gaps)
    within = np.cumsum(ascending) <= BATCH_TIME_SHARE * ascending.sum()
    return float(ascending[max(0, int(within.sum()) - 1)])


def _tiers(workload: Workload) -> Codes:
    """[168] tier of each hour of the week. Logs below two weeks use hours of the day, and logs below two days a single tier."""
    origin = workload.epoch if workload.epoch else -float(workload.submit[0])
    hour = ((workload.submit + origin) // fitted.HOUR_S).astype(np.int64)
    span = int(hour[-1] - hour[0]) + 1
    if span < 2 * DAY_HOURS:
        return np.zeros(fitted.WEEK_HOURS, np.int64)
    period, tiers = (fitted.WEEK_HOURS, TIERS) if span >= 2 * fitted.WEEK_HOURS else (DAY_HOURS, TIERS // 2)
    counts = np.bincount(hour - hour[0], minlength=span)
    phase = (np.arange(span) + hour[0]) % period
    # The mean of logarithms: one burst of thousands of jobs must not make its hour of the week count as busy.
    busy = np.bincount(phase, weights=np.log1p(counts), minlength=period) / np.bincount(phase, minlength=period)
    rank = np.argsort(np.argsort(busy, kind="stable"), kind="stable")
    tier = _without_sparse_tiers(rank * tiers // period, phase, counts)
    return np.tile(tier, fitted.WEEK_HOURS // period)


def _without_sparse_tiers(tier: Codes, phase: Codes, counts: Codes) -> Codes:
    """Merge tiers with too few gaps for a table into the next busier one."""
    for t in range(int(tier.max())):
        if counts[tier[phase] == t].sum() < FEWEST_IN_TABLE:
            tier = np.where(tier == t, t + 1, tier)
    return np.unique(tier, return_inverse=True)[1].reshape(-1)


def _fit_kinds(workload: Workload, batched: NDArray[np.bool_], near: NDArray[np.bool_]) -> tuple[fitted.JobKinds, Codes]:
    traits = np.stack(
        [
            workload.num_tasks,
            workload.gpu_milli,
            workload.cpu_milli,
            workload.mem_mib,
            workload.kind_set,
            workload.partition,
            workload.group,
        ]
    )
    distinct, kind, count = np.unique(traits, axis=1, return_inverse=True, return_counts=True)
    distinct, kind = _commonest(distinct, kind.reshape(-1), count)
    number = distinct.shape[1]
    size = distinct[0] * np.where(distinct[1] > 0, distinct[1] / 1000, np.where(distinct[2] > 0, distinct[2] / 1000, 1.0))
    follows_near, follows_far = batched & near, batched & ~near
    members = np.flatnonzero(batched)
    before = np.full(len(kind), -1)
    before[members[1:]] = kind[members[:-1]]
    alone = kind[~batched]
    kinds = fitted.JobKinds(
        lone_jobs=round(float((~batched).mean()), 9),
        lone_share=_shares(alone, number),
        batched_share=_shares(kind[batched], number),
        band=tuple(_bands(size, np.bincount(kind, minlength=number)).tolist()),
        num_tasks=tuple(distinct[0].tolist()),
        gpu_milli=tuple(distinct[1].tolist()),
        cpu_milli=tuple(distinct[2].tolist()),
        mem_mib=tuple(distinct[3].tolist()),
        gpu_kinds=tuple(workload.kind_sets[k] for k in distinct[4]),
        partition=tuple(workload.partitions[p] if p >= 0 else "" for p in distinct[5]),
        group=tuple(workload.groups[g] if g >= 0 else "" for g in distinct[6]),
        stay_in_batch=_repeat_probability(before[follows_near], kind[follows_near], kind[batched]),
        stay_across_batches=_repeat_probability(before[follows_far], kind[follows_far], kind[batched]),
        stay_alone=_repeat_probability(alone[:-1], alone[1:], alone),
    )
    return kinds, kind


def _commonest(distinct: NDArray[Any], kind: Codes, count: Codes) -> tuple[NDArray[Any], Codes]:
    """At most MOST_KINDS kinds. A rarer one is replaced by the kept one with the most similar tasks and demands (in logarithms)."""
    if distinct.shape[1] <= MOST_KINDS:
        return distinct, kind
    kept = np.sort(np.argsort(-count, kind="stable")[:MOST_KINDS])
    place = np.log1p(distinct[:4].astype(np.float64))
    elsewhere = 10.0 * (distinct[4:, :, None] != distinct[4:, None, kept]).sum(axis=0)  # a different partition counts more than any size
    distance = np.abs(place[:, :, None] - place[:, None, kept]).sum(axis=0) + elsewhere
    return distinct[:, kept], distance.argmin(axis=1)[kind]


def _shares(kind: Codes, number: int) -> tuple[float, ...]:
    if not len(kind):
        return (1.0,) * number
    return tuple(np.round(np.bincount(kind, minlength=number) / len(kind), 9).tolist())


def _repeat_probability(before: Codes, after: Codes, population: Codes) -> float:
    """How often a job has the same kind as the previous one, beyond chance: (observed − chance) ÷ (1 − chance)."""
    if not len(after) or not len(population):
        return 0.0
    chance = float(((np.bincount(population) / len(population)) ** 2).sum())
    if chance >= 1:
        return 0.0
    return round(float(np.clip(((before == after).mean() - chance) / (1 - chance), 0.0, 0.999)), 4)


def _bands(size: Floats, count: Codes) -> Codes:
    """Group adjacent sizes into bands with enough jobs for runtime tables."""
    band_of_size: dict[float, int] = {}
    band, jobs = 0, 0
    for value in np.unique(size):
        here = int(count[size == value].sum())
        if jobs >= FEWEST_IN_TABLE:
            band, jobs = band + 1, 0
        band_of_size[float(value)] = band
        jobs += here
    if jobs < FEWEST_IN_TABLE and band:  # too few jobs in the last band: merge it into the one below
        band_of_size = {value: min(b, band - 1) for value, b in band_of_size.items()}
    return np.array([band_of_size[float(value)] for value in size], np.int64)


def _fit_runtimes(runtime: Floats, band: Codes, batched: NDArray[np.bool_]) -> tuple[RuntimeTables, RuntimeTables]:
    """Tables by band for single and for batched jobs. If one of the two is rare, they share a table."""
    lone, in_batches = [], []
    for b in range(int(band.max()) + 1):
        parts = [runtime[(band == b) & ~batched], runtime[(band == b) & batched]]
        if min(map(len, parts)) < FEWEST_IN_TABLE:
            parts = [runtime[band == b]] * 2
        lone.append(quantile_table(parts[0]))
        in_batches.append(quantile_table(parts[1]))
    return tuple(lone), tuple(in_batches)


def _fit_users(workload: Workload, kind: Codes, band: Codes, stream: Codes) -> fitted.UserShares | None:
    known = workload.user != UNKNOWN
    if known.mean() < 0.5:
        return None
    order = np.argsort(-np.bincount(workload.user[known]), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    user = np.minimum(np.where(known, rank[workload.user], MOST_USERS), MOST_USERS)  # the last one represents all others
    shares = [_shares(user[band == b], int(user.max()) + 1) for b in range(int(band.max()) + 1)]
    same_kind = kind[stream][1:] == kind[stream][:-1]
    ordered_user, ordered_name = workload.user[stream], workload.job_name[stream]
    same_user = same_kind & (ordered_user[1:] == ordered_user[:-1])
    named = bool((workload.job_name != UNKNOWN).mean() > 0.5)
    pairs = np.unique(np.stack([workload.user[known], workload.job_name[known]]), axis=1).shape[1] if named else 0
    return fitted.UserShares(
        band_shares=tuple(shares),
        stay=round(float(same_user.sum() / max(1, same_kind.sum())), 4),
        names_per_user=round(pairs / len(np.unique(workload.user[known]))) if named else 0,
        name_stay=round(float((same_user & (ordered_name[1:] == ordered_name[:-1])).sum() / max(1, same_user.sum())), 4) if named else 0.0,
    )


def _fit_requests(workload: Workload) -> fitted.RequestedTimes | None:
    known = ~np.isnan(workload.requested)
    if known.sum() < FEWEST_IN_TABLE:
        return None
    runtime, requested = workload.runtime[known], workload.requested[known]
    bounds = [p for p in (*np.arange(1, 10) / 10, 0.95, 0.98, 0.99) if (1 - p) * len(runtime) >= FEWEST_IN_TABLE]
    edges = np.unique(np.quantile(runtime, bounds, method="inverted_cdf"))
    band = np.searchsorted(edges, runtime, side="right")
    middle = (np.arange(REQUEST_VALUES) + 0.5) / REQUEST_VALUES
    tables = [
        np.quantile(requested[band == b] if (band == b).any() else requested, middle, method="inverted_cdf") for b in range(len(edges) + 1)
    ]
    return fitted.RequestedTimes(
        runtime_edges=tuple(edges.tolist()),
        tables=tuple(tuple(table.tolist()) for table in tables),
        known_share=float(known.mean()),
        overrun_share=float((requested < runtime).mean()),
    )


@dataclass(frozen=True)
class QuantileRow:
    """One quantile of the log and of the model's workload."""

    quantity: str  # size, runtime_s, gap_s
    probability: float
    log: float
    model: float

    @property
    def error(self) -> float:
        """Relative to the log's value; 0 if both are equal."""
        return 0.0 if self.log == self.model else abs(self.model - self.log) / max(abs(self.log), 1e-12)


@dataclass(frozen=True)
class FitReport:
    quantiles: tuple[QuantileRow, ...]
    autocorrelation: dict[int, tuple[float, float]]  # lag in hours -> autocorrelation of hourly arrivals (log, model)
    kolmogorov_smirnov: dict[str, float]  # quantity -> maximum distance of the distribution functions
    work_ratio: float  # work offered per second, model ÷ log; 1 for a log without work

    @property
    def worst_error(self) -> float:
        return max(row.error for row in self.quantiles)


def compare_fit(log: Workload, model: Workload, probabilities: tuple[float, ...] = (0.1, 0.5, 0.9, 0.99)) -> FitReport:
    """Compare a model's workload with a log: quantiles, autocorrelation of hourly arrivals, Kolmogorov–Smirnov distances."""
    pairs = {
        "size": (log.size, model.size),
        "runtime_s": (log.runtime, model.runtime),
        "gap_s": (np.diff(log.submit), np.diff(model.submit)),
    }
    rows = [
        QuantileRow(quantity, p, *(float(np.quantile(values, p, method="inverted_cdf")) for values in both))
        for quantity, both in pairs.items()
        for p in probabilities
    ]
    lags = [lag for lag in (1, 6, 24, 168) if 4 * lag * fitted.HOUR_S < min(np.ptp(log.submit), np.ptp(model.submit))]
    return FitReport(
        quantiles=tuple(rows),
        autocorrelation={lag: (_count_autocorrelation(log, lag), _count_autocorrelation(model, lag)) for lag in lags},
        kolmogorov_smirnov={quantity: _distance(*both) for quantity, both in pairs.items()},
        work_ratio=_work_rate(model) / _work_rate(log) if log.runtime.any() else 1.0,
    )


def _count_autocorrelation(workload: Workload, lag_hours: int) -> float:
    counts = np.bincount(((workload.submit - workload.submit[0]) // fitted.HOUR_S).astype(np.int64)).astype(np.float64)
    left, right = counts[:-lag_hours], counts[lag_hours:]
    return float(np.corrcoef(left, right)[0, 1]) if left.std() > 0 and right.std() > 0 else 0.0


def _distance(a: Floats, b: Floats) -> float:
    a, b = np.sort(a), np.sort(b)
    points = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, points, side="right") / len(a) - np.searchsorted(b, points, side="right") / len(b)).max())


def _work_rate(workload: Workload) -> float:
    return float(workload.size @ workload.runtime) / max(1.0, float(np.ptp(workload.submit)))
