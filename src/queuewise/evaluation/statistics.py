"""Statistics over windows: bootstrap intervals, paired differences, win rates, and a ranking with ties.

Policies are compared by their differences window by window, never by two separate means. A policy is called better only if the 95 %
interval of the mean difference excludes zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.measure import Floats

RESAMPLES = 10_000
CONFIDENCE = 0.95
_BLOCK = 2_000_000  # resampled values held at a time


def bootstrap_interval(values: Sequence[float] | Floats, seed: int = 0) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean (Efron, 1979). None for fewer than two values."""
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:
        return None
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    step = max(1, _BLOCK // len(sample))
    for low in range(0, RESAMPLES, step):
        rows = means[low : low + step]
        rows[:] = sample[rng.integers(0, len(sample), (len(rows), len(sample)))].mean(axis=1)
    lower, upper = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(lower), float(upper)


@dataclass(frozen=True)
class Difference:
    """Policy minus other, over the windows that both were measured on."""

    diff: float
    ci95: tuple[float, float] | None
    win_rate: float  # share of windows in which the policy was better; a tie counts half

    def better(self, *, higher_is_better: bool = False) -> bool:
        """Whether the whole interval is on the better side of zero."""
        if self.ci95 is None:
            return False
        return self.ci95[0] > 0 if higher_is_better else self.ci95[1] < 0


def paired_difference(policy: Sequence[float] | Floats, other: Sequence[float] | Floats, *, higher_is_better: bool = False) -> Difference:
    mine, theirs = np.asarray(policy, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if mine.shape != theirs.shape:
        raise InputError(f"{len(mine)} and {len(theirs)} windows cannot be paired", hint="measure both policies on the same windows")
    difference = mine - theirs
    wins = (difference > 0) if higher_is_better else (difference < 0)
    return Difference(float(difference.mean()), bootstrap_interval(difference), float((wins + 0.5 * (difference == 0)).mean()))


@dataclass(frozen=True)
class Standing:
    policy: str
    rank: int  # 1 + number of policies that are better; equal ranks are ties
    mean: float
    ci95: tuple[float, float] | None
    vs_best_baseline: Difference | None
    best_baseline: str | None


def ranking(
    scores: Mapping[str, Sequence[float] | Floats], *, higher_is_better: bool = False, baselines: Sequence[str] = ()
) -> list[Standing]:
    """All policies, best mean first; ties keep the given order. `baselines` are the policies to beat (default: all)."""
    means = {policy: float(np.mean(values)) for policy, values in scores.items()}
    sign = -1.0 if higher_is_better else 1.0
    order = sorted(scores, key=lambda policy: sign * means[policy])
    best = next((policy for policy in order if policy in (baselines or order)), None)

    def beaten_by(policy: str) -> int:
        rivals = order[: order.index(policy)]
        return sum(
            paired_difference(scores[rival], scores[policy], higher_is_better=higher_is_better).better(higher_is_better=higher_is_better)
            for rival in rivals
        )

    return [
        Standing(
            policy,
            1 + beaten_by(policy),
            means[policy],
            bootstrap_interval(scores[policy]),
            paired_difference(scores[policy], scores[best], higher_is_better=higher_is_better) if best is not None else None,
            best,
        )
        for policy in order
    ]
