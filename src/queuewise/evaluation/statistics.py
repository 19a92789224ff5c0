"""Statistics over units of time or windows: intervals of means, paired differences, win rates, and a ranking with ties.

A unit is a window or, in the protocol `days`, a day: its sum of the score over jobs, and the number of its jobs. A mean is
the ratio of these sums. Two policies are compared by the ratio of their means, unit by unit, never by two separate means.

Intervals are studentised block bootstraps of the logarithm of the ratio: blocks of neighbouring units are drawn with
replacement, and the deviation of each resample is measured in its own standard errors, so a few heavy days widen the
interval as they should. `benchmarks/interval_coverage.py` measures how often they hold the true value. With fewer than MANY_UNITS
units, quantiles of Student's t take the place of the bootstrap; those of one degree of freedom are its limit, because
resamples without the one day that matters would have no error at all. Where a score is not positive everywhere, differences take
the place of ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.measure import Floats

RESAMPLES = 4_000
CONFIDENCE = 0.95
MANY_UNITS = 10
WIDENING = 3.0  # intervals of U units are wider by a factor of 1 + WIDENING / U: few units hide how heavy the tails are
SAME = 0.01  # a smaller relative difference is of no practical interest


@dataclass(frozen=True)
class Interval:
    """An estimate, its standard error, and how many standard errors a deviation must have to be surprising."""

    estimate: float
    error: float
    deviations: Floats  # of resamples, in their standard errors, in ascending order; empty: Student's t
    units: int

    def half_width(self, confidence: float) -> float:
        if self.error == 0.0:
            return 0.0
        if not self.deviations.size:
            return self.error * _student(self.units - 1, confidence)
        surprising = min(float(np.quantile(self.deviations, confidence)), _student(1, confidence))
        return self.error * surprising * (1 + WIDENING / self.units)


def _log_ratio(a: Floats, b: Floats, _: Floats) -> tuple[Floats, Floats]:
    """log(Σ a ÷ Σ b) over the last axis, and what each unit contributes to its deviation."""
    mean_a, mean_b = a.mean(axis=-1, keepdims=True), b.mean(axis=-1, keepdims=True)
    return np.log(mean_a / mean_b)[..., 0], a / mean_a - b / mean_b


def _mean_difference(a: Floats, b: Floats, jobs: Floats) -> tuple[Floats, Floats]:
    """(Σ a − Σ b) ÷ Σ jobs over the last axis, and what each unit contributes to its deviation."""
    mean_jobs = jobs.mean(axis=-1, keepdims=True)
    difference = (a - b).mean(axis=-1, keepdims=True) / mean_jobs
    return difference[..., 0], (a - b - difference * jobs) / mean_jobs


def _estimate(a: Floats, b: Floats, jobs: Floats, *, ratio: bool, seed: int) -> Interval:
    statistic = _log_ratio if ratio else _mean_difference
    units = len(a)
    block = max(1, round(units ** (1 / 3)))
    value, contributions = statistic(a, b, jobs)
    error = float(_standard_error(contributions, block if units >= MANY_UNITS else 1))
    if units < MANY_UNITS or error <= 1e-12:
        return Interval(float(value), 0.0 if error <= 1e-12 else error, np.zeros(0), units)
    blocks = -(-units // block)
    firsts = np.random.default_rng(seed).integers(0, units, (RESAMPLES, blocks))
    rows = ((firsts[:, :, None] + np.arange(block)) % units).reshape(RESAMPLES, -1)[:, :units]
    drawn, deviations = statistic(a[rows], b[rows], jobs[rows])
    errors = _standard_error(deviations, block)
    distances = np.abs(drawn - value) / np.maximum(errors, 1e-12)
    return Interval(float(value), error, np.sort(distances), units)


def _standard_error(contributions: Floats, block: int) -> Floats:
    """Of the mean of the contributions, from the sums of whole blocks of neighbouring units."""
    blocks = contributions.shape[-1] // block
    sums = contributions[..., : blocks * block].reshape(*contributions.shape[:-1], blocks, block).sum(axis=-1)
    error: Floats = np.sqrt((sums**2).sum(axis=-1) * blocks / max(blocks - 1, 1)) / (blocks * block)
    return error


@lru_cache
def _student(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's t, from many draws."""
    return float(np.quantile(np.abs(np.random.default_rng(0).standard_t(freedom, 400_000)), confidence))


@dataclass(frozen=True, eq=False)
class ScoreSeries:
    """A score by units: its sums over jobs, and the numbers of jobs. Of windows, the means, each counted once."""

    sums: Floats  # [U]
    jobs: Floats  # [U]

    @classmethod
    def of_means(cls, values: Sequence[float] | Floats) -> ScoreSeries:
        return cls(np.asarray(values, np.float64), np.ones(len(values)))

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / self.jobs.sum())

    def interval(self, seed: int = 0) -> tuple[float, float] | None:
        """The 95 % interval of the mean, None for fewer than two units."""
        if len(self.sums) < 2:
            return None
        ratio = bool((self.sums > 0).all())
        found = _estimate(self.sums, self.jobs if ratio else np.zeros(len(self.sums)), self.jobs, ratio=ratio, seed=seed)
        half = found.half_width(CONFIDENCE)
        if not ratio:
            return found.estimate - half, found.estimate + half
        return float(np.exp(found.estimate - half)), float(np.exp(found.estimate + half))


@dataclass(frozen=True)
class Difference:
    """Policy minus other, over the units that both were measured on."""

    diff: float
    ci95: tuple[float, float] | None
    win_rate: float  # share of units in which the policy was better; a tie counts half
    relative: float | None  # diff ÷ the other's mean, None if that is 0
    clear: bool  # an interval at the level of all comparisons that were made excludes 0
    same: bool  # the relative difference is of no practical interest

    def better(self, *, higher_is_better: bool = False) -> bool:
        """Whether the policy is better: clearly, and by more than nothing."""
        return self.clear and not self.same and (self.diff > 0 if higher_is_better else self.diff < 0)


def compare(
    mine: ScoreSeries, other: ScoreSeries, *, higher_is_better: bool = False, comparisons: int = 1, same: float = SAME, seed: int = 0
) -> Difference:
    """The paired difference. `comparisons` is how many are made together: a difference is clear only at that level (Bonferroni)."""
    if len(mine.sums) != len(other.sums):
        raise InputError(
            f"{len(mine.sums)} and {len(other.sums)} windows cannot be paired", hint="measure both policies on the same windows"
        )
    diff = mine.mean - other.mean
    per_unit = mine.sums - other.sums
    wins = (per_unit > 0) if higher_is_better else (per_unit < 0)
    win_rate = float((wins + 0.5 * (per_unit == 0)).mean())
    relative = diff / other.mean if other.mean else None
    negligible = diff == 0.0 or (relative is not None and abs(relative) < same)
    if len(mine.sums) < 2:
        return Difference(diff, None, win_rate, relative, False, negligible)
    ratio = bool((mine.sums > 0).all() and (other.sums > 0).all())
    found = _estimate(mine.sums, other.sums, other.jobs, ratio=ratio, seed=seed)

    def bounds(confidence: float) -> tuple[float, float]:
        low, high = (found.estimate + sign * found.half_width(confidence) for sign in (-1, 1))
        return (other.mean * float(np.expm1(low)), other.mean * float(np.expm1(high))) if ratio else (low, high)

    low, high = bounds(1 - (1 - CONFIDENCE) / comparisons)
    return Difference(diff, bounds(CONFIDENCE), win_rate, relative, low > 0 or high < 0, negligible)


@dataclass(frozen=True)
class TypicalDifference:
    """Policy ÷ other − 1, of geometric means over jobs. Every job weighs the same in them, so a few heavy days cannot hide a difference."""

    relative: float
    ci95: tuple[float, float] | None
    clear: bool  # as in Difference


def compare_geometric(mine: ScoreSeries, other: ScoreSeries, *, comparisons: int = 1, seed: int = 0) -> TypicalDifference:
    """The paired difference of two series whose sums are those of logarithms."""
    relative = float(np.expm1(mine.mean - other.mean))
    if len(mine.sums) < 2:
        return TypicalDifference(relative, None, False)
    found = _estimate(mine.sums, other.sums, other.jobs, ratio=False, seed=seed)

    def bounds(confidence: float) -> tuple[float, float]:
        half = found.half_width(confidence)
        return float(np.expm1(found.estimate - half)), float(np.expm1(found.estimate + half))

    low, high = bounds(1 - (1 - CONFIDENCE) / comparisons)
    return TypicalDifference(relative, bounds(CONFIDENCE), low > 0 or high < 0)


def paired_difference(
    policy: Sequence[float] | Floats, other: Sequence[float] | Floats, *, higher_is_better: bool = False, same: float = 0.0
) -> Difference:
    """The same for the means of windows."""
    return compare(ScoreSeries.of_means(policy), ScoreSeries.of_means(other), higher_is_better=higher_is_better, same=same)


@dataclass(frozen=True)
class Standing:
    policy: str
    rank: int  # 1 + number of policies that are better; equal ranks are ties
    mean: float
    ci95: tuple[float, float] | None
    vs_best_baseline: Difference | None
    best_baseline: str | None


def ranking(
    scores: Mapping[str, ScoreSeries], *, higher_is_better: bool = False, baselines: Sequence[str] = (), same: float = SAME
) -> list[Standing]:
    """All policies, best mean first; ties keep the given order. `baselines` are the policies to beat (default: all).

    Each policy is compared with all others, so a difference must be clear at the level of that many comparisons.
    """
    sign = -1.0 if higher_is_better else 1.0
    order = sorted(scores, key=lambda policy: sign * scores[policy].mean)
    best = next((policy for policy in order if policy in (baselines or order)), None)

    def versus(policy: str, other: str) -> Difference:
        comparisons = max(len(scores) - 1, 1)
        return compare(scores[policy], scores[other], higher_is_better=higher_is_better, comparisons=comparisons, same=same)

    return [
        Standing(
            policy,
            1 + sum(versus(rival, policy).better(higher_is_better=higher_is_better) for rival in order[: order.index(policy)]),
            scores[policy].mean,
            scores[policy].interval(),
            versus(policy, best) if best is not None else None,
            best,
        )
        for policy in order
    ]
