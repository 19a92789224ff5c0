"""Statistics over units of time or windows: intervals of means, paired differences, win rates, and a ranking with ties.

A unit is a window or, in the protocol `days`, a day: its sum of the score over jobs, and the number of its jobs. A mean is
the ratio of these sums. Two policies are compared by the ratio of their means, unit by unit, never by two separate means.

Intervals come from a block bootstrap of the logarithm of the ratio: blocks of neighbouring units are drawn with replacement.
The longer a difference between the policies lasts, the longer are the blocks. An interval is the wider of two: one is
studentised, where the distance of each resample from the estimate is measured in its own standard errors; the other is plain, for
totals that consist of a few heavy units, where standard errors say nothing. With fewer than MANY_UNITS units, quantiles of Student's t
take the place of the studentised ones; those of one degree of freedom are their limit, because resamples without the one day that
matters would have no error at all. `benchmarks/interval_coverage.py` measures how often the intervals hold the true value.

A unit may be 0, such as a day on which nobody waits: only the totals must be positive. If too many resamples have a total of 0, there is
no interval. Where a total is 0, or a unit is negative, differences take the place of ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.measure import Floats

RESAMPLES = 4_000
CONFIDENCE = 0.95
MANY_UNITS = 10
WIDENING = 2.0  # intervals of U units are wider by a factor of 1 + WIDENING / U: few units hide how heavy the tails are
FEWEST_BLOCKS = 8
LENGTHENING = 3.0  # of blocks beyond the rule for variances, 1.1447, which is too short for intervals; chosen by the benchmark
MOST_MEMORY = 0.95  # correlation of neighbouring units beyond which blocks do not grow
SAME = 0.01  # a smaller relative difference is of no practical interest


@dataclass(frozen=True)
class Interval:
    """An estimate, its standard error, and how far resamples are from it, in ascending order."""

    estimate: float
    error: float
    distances: Floats  # infinite where a resample has no estimate
    studentised: Floats  # in their standard errors
    units: int

    def half_width(self, confidence: float) -> float:
        """Infinite if too many resamples have no estimate."""
        plain = _quantile(self.distances, confidence)
        if self.units < MANY_UNITS:
            return max(plain, self.error * _student(self.units - 1, confidence))
        surprising = min(_quantile(self.studentised, confidence), _student(1, confidence))
        return max(plain, self.error * surprising) * (1 + WIDENING / self.units)

    def bounds(self, confidence: float) -> tuple[float, float]:
        half = self.half_width(confidence)
        return self.estimate - half, self.estimate + half


def _ratio(logarithm: float) -> float:
    """Infinite where it is too large for a number."""
    with np.errstate(over="ignore"):
        return float(np.exp(logarithm))


def _quantile(ascending: Floats, confidence: float) -> float:
    return float(ascending[math.ceil(confidence * (len(ascending) - 1))])


# A statistic is computed from columns of sums by unit, [… U]: its value [… ], and what each unit contributes to its deviation [… U].
Statistic = Callable[..., tuple[Floats, Floats]]


def _log_ratio(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """log(Σ a ÷ Σ b) over the last axis, and what each unit contributes to its deviation. Not finite where a sum is 0."""
    mean_a, mean_b = a.mean(axis=-1, keepdims=True), b.mean(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(mean_a / mean_b)[..., 0], a / mean_a - b / mean_b


def _mean_difference(a: Floats, b: Floats, jobs: Floats) -> tuple[Floats, Floats]:
    """(Σ a − Σ b) ÷ Σ jobs over the last axis, and what each unit contributes to its deviation."""
    mean_jobs = jobs.mean(axis=-1, keepdims=True)
    difference = (a - b).mean(axis=-1, keepdims=True) / mean_jobs
    return difference[..., 0], (a - b - difference * jobs) / mean_jobs


def _weighted(weights: Sequence[float]) -> Statistic:
    """The weighted mean of log(Σ a ÷ Σ b) of several pairs of columns: a, b, a, b, …"""

    def statistic(*columns: Floats) -> tuple[Floats, Floats]:
        pairs = [_log_ratio(a, b) for a, b in zip(columns[::2], columns[1::2], strict=True)]
        shares = np.array(weights) / sum(weights)
        values, contributions = zip(
            *((share * value, share * each) for share, (value, each) in zip(shares, pairs, strict=True)), strict=True
        )
        return sum(values[1:], values[0]), sum(contributions[1:], contributions[0])

    return statistic


def _has_ratio(a: Floats, b: Floats) -> bool:
    """Whether the ratio of the sums can be taken, in resamples as well."""
    return bool((a >= 0).all() and (b >= 0).all() and a.any() and b.any())


def _estimate_difference(a: Floats, b: Floats, jobs: Floats, *, ratio: bool, seed: int) -> Interval:
    return _estimate(_log_ratio, (a, b), seed) if ratio else _estimate(_mean_difference, (a, b, jobs), seed)


def _estimate(statistic: Statistic, columns: Sequence[Floats], seed: int) -> Interval:
    units = len(columns[0])
    value, contributions = statistic(*columns)
    block = _block_length(contributions) if units >= MANY_UNITS else 1
    whole = units // block * block
    error = float(_standard_error(contributions[:whole].reshape(-1, block).mean(axis=1)))
    firsts = np.random.default_rng(seed).integers(0, units, (RESAMPLES, -(-units // block)))
    drawn, deviations = statistic(*(_block_sums(each, block)[firsts] for each in columns))
    with np.errstate(invalid="ignore"):
        distances = np.abs(drawn - value)
        studentised = distances / np.maximum(_standard_error(deviations), 1e-12)
    for found in (distances, studentised):
        found[~np.isfinite(found)] = np.inf  # a resample in which nobody waits says nothing about the ratio, so it counts against it
        found.sort()
    return Interval(float(value), error, distances, studentised, units)


def _block_length(contributions: Floats) -> int:
    """Units per block: one, or more if neighbouring units go together, by the rule of Andrews (Econometrica 1991) for AR(1)."""
    units = len(contributions)
    centred = contributions - contributions.mean()
    variation = float((centred**2).sum())
    if variation <= 0.0:
        return 1
    memory = min(max(float((centred[1:] * centred[:-1]).sum()) / variation, 0.0), MOST_MEMORY)
    wanted = LENGTHENING * float(np.cbrt(4 * memory**2 / (1 - memory**2) ** 2 * units))
    return max(1, min(round(wanted), units // FEWEST_BLOCKS))


def _block_sums(values: Floats, block: int) -> Floats:
    """[U] the sum of the block that begins at each unit. After the last unit comes the first."""
    extended = np.concatenate((values, values[: block - 1]))
    sums: Floats = np.lib.stride_tricks.sliding_window_view(extended, block).sum(axis=1)
    return sums


def _standard_error(contributions: Floats) -> Floats:
    """Of the mean of the contributions over the last axis."""
    number = contributions.shape[-1]
    error: Floats = np.sqrt((contributions**2).sum(axis=-1) * number / max(number - 1, 1)) / number
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
        """The 95 % interval of the mean, None for fewer than two units, or if too few of them are above 0."""
        if len(self.sums) < 2:
            return None
        ratio = _has_ratio(self.sums, self.jobs)
        found = _estimate_difference(self.sums, self.jobs if ratio else np.zeros(len(self.sums)), self.jobs, ratio=ratio, seed=seed)
        low, high = found.bounds(CONFIDENCE)
        bounds = (_ratio(low), _ratio(high)) if ratio else (low, high)
        return bounds if bounds[1] < math.inf else None


@dataclass(frozen=True)
class Difference:
    """Policy minus other, over the units that both were measured on."""

    diff: float
    ci95: tuple[float, float] | None  # None for fewer than two units, or if too few of them are above 0
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
    ratio = _has_ratio(mine.sums, other.sums)
    found = _estimate_difference(mine.sums, other.sums, other.jobs, ratio=ratio, seed=seed)

    def bounds(confidence: float) -> tuple[float, float]:
        low, high = found.bounds(confidence)
        return (other.mean * (_ratio(low) - 1), other.mean * (_ratio(high) - 1)) if ratio else (low, high)

    (low, high), usual = bounds(1 - (1 - CONFIDENCE) / comparisons), bounds(CONFIDENCE)
    return Difference(diff, usual if usual[1] < math.inf else None, win_rate, relative, low > 0 or high < 0, negligible)


@dataclass(frozen=True)
class TypicalDifference:
    """Policy ÷ other − 1, of geometric means.

    Over jobs, every job weighs the same in them, so a few heavy days cannot hide a difference. Over several scores, they are an objective.
    """

    relative: float
    ci95: tuple[float, float] | None
    clear: bool  # as in Difference


def compare_geometric(mine: ScoreSeries, other: ScoreSeries, *, comparisons: int = 1, seed: int = 0) -> TypicalDifference:
    """The paired difference of two series whose sums are those of logarithms."""
    relative = float(np.expm1(mine.mean - other.mean))
    if len(mine.sums) < 2:
        return TypicalDifference(relative, None, False)
    return _typical(relative, _estimate_difference(mine.sums, other.sums, other.jobs, ratio=False, seed=seed), comparisons)


def compare_scores(
    mine: Sequence[ScoreSeries], other: Sequence[ScoreSeries], weights: Sequence[float], *, seed: int = 0
) -> TypicalDifference:
    """The paired difference of the weighted geometric mean of several scores, whose sums are all above 0."""
    columns = [sums for pair in zip(mine, other, strict=True) for sums in (pair[0].sums, pair[1].sums)]
    logs = [weight * math.log(a.mean / b.mean) for a, b, weight in zip(mine, other, weights, strict=True)]
    relative = math.expm1(sum(logs) / sum(weights))
    if len(columns[0]) < 2:
        return TypicalDifference(relative, None, False)
    return _typical(relative, _estimate(_weighted(weights), columns, seed), 1)


def _typical(relative: float, found: Interval, comparisons: int) -> TypicalDifference:
    def bounds(confidence: float) -> tuple[float, float]:
        low, high = found.bounds(confidence)
        return _ratio(low) - 1, _ratio(high) - 1

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
    behind: tuple[str, ...]  # the policies that are better, best mean first
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

    standings = []
    for place, policy in enumerate(order):
        behind = tuple(rival for rival in order[:place] if versus(rival, policy).better(higher_is_better=higher_is_better))
        against = versus(policy, best) if best is not None else None
        standings.append(Standing(policy, 1 + len(behind), behind, scores[policy].mean, scores[policy].interval(), against, best))
    return standings
