"""Stationary Gaussian sequences whose autocorrelation is a sum of exponentials, and fitting such a sum to data.

Job logs are correlated over many scales: the jobs of one submission script, of one series of experiments, of one project. A sum of
exponentials with decay lengths from one job to thousands describes such an autocorrelation closely with a few numbers.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.config import Config
from queuewise.workload.jobs import Floats
from queuewise.workload.sorting import stable_order

DECAYS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)  # jobs
NNLS_STEPS = 3000
MAX_WEIGHT = 0.98  # total; the rest is independent noise for every job


class Autocorrelation(Config):
    """Autocorrelation at lag k ≥ 1 is Σ weight · exp(−k / decay); the remaining weight up to 1 is white noise."""

    decays: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def sample(self, rng: np.random.Generator, length: int) -> Floats:
        """[length] standard normal values with this autocorrelation, exact up to the length (circulant embedding)."""
        circle = _fast_length(2 * length)
        shaped = np.fft.rfft(rng.standard_normal(circle))
        shaped *= np.sqrt(self._spectrum(circle))
        return np.fft.irfft(shaped, circle)[:length]

    def _spectrum(self, circle: int) -> Floats:
        """[circle / 2 + 1] Fourier transform of the autocorrelation on a circle of even length, on which lags k and −k coincide.

        With a = exp(−1 / decay) and z = exp(iθ), Σ aᵏzᵏ over lags 0 … circle/2 − 1 and Σ aᵏz⁻ᵏ over lags 1 … circle/2 are geometric
        series, and together (1 − a²) (1 ∓ a^(circle/2)) ÷ (1 − 2a cos θ + a²): − at even frequencies, + at odd ones.
        """
        twice_cosine = 2.0 * np.cos(np.arange(circle // 2 + 1) * (2.0 * np.pi / circle))
        spectrum = np.full(len(twice_cosine), 1.0 - sum(self.weights))
        for decay, weight in zip(self.decays, self.weights, strict=True):
            a = np.exp(-1.0 / decay)
            power = weight * (1.0 - a * a) / ((1.0 + a * a) - a * twice_cosine)
            around = a ** (circle // 2)
            power[::2] *= 1.0 - around
            power[1::2] *= 1.0 + around
            spectrum += power
        return spectrum


def _fast_length(least: int) -> int:
    """The smallest length from an even `least` on with a fast Fourier transform: 4, 5 or 6 times a power of two."""
    return min(factor << max(0, (-(-least // factor) - 1).bit_length()) for factor in (4, 5, 6))


def fit_autocorrelation(scores: Floats, same: NDArray[Any] | None = None) -> Autocorrelation:
    """Fit the autocorrelation of standard normal scores. With `same`, only pairs with equal values in it count (concatenated sequences)."""
    longest = min(int(DECAYS[-1]), len(scores) // 10)
    if longest < 2 or np.ptp(scores) == 0:
        return Autocorrelation()
    lags = np.unique(np.geomspace(1, longest, 40).astype(np.int64))
    measured = np.array([_autocorrelation(scores, int(lag), same) for lag in lags])
    used = np.isfinite(measured)
    lags, measured = lags[used], np.maximum(measured[used], 0.0)
    decays = np.array([decay for decay in DECAYS if decay <= longest])
    basis = np.exp(-lags[:, None] / decays[None, :])
    weights = np.full(len(decays), 0.1)
    for _ in range(NNLS_STEPS):  # multiplicative updates keep the weights non-negative (Lee & Seung 2001)
        weights *= (basis.T @ measured) / np.maximum(basis.T @ (basis @ weights), 1e-12)
    weights *= min(1.0, MAX_WEIGHT / max(weights.sum(), 1e-12))
    kept = weights > 1e-3
    return Autocorrelation(decays=tuple(decays[kept].tolist()), weights=tuple(np.round(weights[kept], 4).tolist()))


def _autocorrelation(scores: Floats, lag: int, same: NDArray[Any] | None) -> float:
    left, right = scores[:-lag], scores[lag:]
    if same is not None:
        paired = same[:-lag] == same[lag:]
        left, right = left[paired], right[paired]
    if len(left) < 100:
        return float("nan")
    return float(np.mean(left * right))


def normal_scores(values: Floats, group: NDArray[Any]) -> Floats:
    """[J] the normal quantile of each value's rank among the values of its group; equal values share their mean rank."""
    rank = grouped_rank(values, group)
    order = np.lexsort((values, group))
    differs = (np.diff(values[order]) != 0) | (np.diff(group[order]) != 0)
    tie = np.empty(len(values), np.int64)
    tie[order] = np.concatenate(([0], np.cumsum(differs)))
    mean_rank = np.bincount(tie, weights=rank) / np.bincount(tie)
    grid = np.linspace(0.0005, 0.9995, 1999)
    return np.interp(mean_rank[tie], grid, [NormalDist().inv_cdf(p) for p in grid])


def grouped_rank(values: Floats, group: NDArray[Any]) -> Floats:
    """[J] (rank + ½) ÷ size of each value within its group: uniform in (0, 1) in every group. Ties keep their order."""
    rank = np.empty(len(values))
    for members in ordered_groups(values, group):
        rank[members] = even_ranks(len(members))
    return rank


def even_ranks(size: int) -> Floats:
    """[size] ascending (rank + ½) ÷ size."""
    return (np.arange(size) + 0.5) / size


def ordered_groups(values: Floats, group: NDArray[Any]) -> list[NDArray[np.int64]]:
    """For group 0, 1, … the indices of its values, ascending by value. Ties keep their order."""
    order = stable_order(values)
    small = group.astype(np.min_scalar_type(int(group.max(initial=0))))  # small integers sort in linear time
    order = order[np.argsort(small[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(group))[:-1])
