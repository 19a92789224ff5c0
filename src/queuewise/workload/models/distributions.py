"""Distributions that several models share: arrival processes, runtimes and requested time limits.

All functions are vectorised, and their first argument is the `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.workload.jobs import Floats, Ints

# Users request round times (Tsafrir, Etsion & Feitelson, "Modeling User Runtime Estimates", JSSPP 2005): minutes, then hours, then days.
ROUND_LIMITS_S = 60.0 * np.array(
    [
        5,
        10,
        15,
        20,
        30,
        45,
        60,
        90,
        120,
        180,
        240,
        360,
        480,
        600,
        720,
        960,
        1080,
        1440,
        2160,
        2880,
        4320,
        5760,
        7200,
        10080,
        14400,
        20160,
        43200,
    ]
)


def poisson_arrivals(rng: np.random.Generator, num_jobs: int, rate_per_s: float) -> Floats:
    """[J] arrival times of a Poisson process. The first job arrives after one interval."""
    return np.cumsum(rng.exponential(1.0 / rate_per_s, num_jobs))


def burst_arrivals(rng: np.random.Generator, num_jobs: int, span_s: float, bursts: int, burst_share: float, burst_width: float) -> Floats:
    """[J] ascending times in [0, span]: `burst_share` of the jobs in Gaussian bursts with σ = `burst_width`·span, the rest uniform.

    The centres of the bursts are uniform over the span, and each job belongs to a random burst.
    """
    in_burst = rng.random(num_jobs) < burst_share
    times = rng.random(num_jobs) * span_s
    if bursts > 0:
        centres = rng.random(bursts) * span_s
        around = centres[rng.integers(0, bursts, num_jobs)] + rng.normal(0.0, burst_width * span_s, num_jobs)
        times = np.where(in_burst, np.clip(around, 0.0, span_s), times)
    return np.sort(times)


def rate_for_load(size: NDArray[Any], runtime: Floats, capacity: float, load: float) -> float:
    """Jobs per second at which these jobs offer `load` × `capacity` GPUs (or cores) of work on average."""
    if not (load > 0 and capacity > 0):
        raise InputError(f"load {load} on {capacity} GPUs or cores has no arrival rate", hint="use values above 0 for both")
    return load * capacity / float(np.mean(size * runtime))


def choose(rng: np.random.Generator, num_jobs: int, values: Sequence[int], weights: Sequence[float]) -> Ints:
    """[J] values drawn with the given weights, which need not sum to one."""
    if len(values) != len(weights) or not values or min(weights) < 0 or sum(weights) <= 0:
        raise InputError(
            f"{len(values)} values and weights {tuple(weights)} do not match", hint="use one non-negative weight per value, not all zero"
        )
    cumulative = np.cumsum(np.asarray(weights, np.float64))
    return np.asarray(values, np.int32)[np.searchsorted(cumulative / cumulative[-1], rng.random(num_jobs), side="right")]


def lognormal(rng: np.random.Generator, num_jobs: int, mean: float, sigma: float) -> Floats:
    """[J] lognormal values with the given mean; `sigma` is that of the logarithm."""
    return rng.lognormal(np.log(mean) - sigma * sigma / 2, sigma, num_jobs)


def requested_limits(rng: np.random.Generator, runtime: Floats, overestimate: float) -> Floats:
    """[J] requested times: the median is `overestimate` times the runtime, with a spread of a factor of e, rounded up to a round time.

    They are never below the runtime, so killing at the limit changes nothing.
    """
    wish = np.maximum(runtime, runtime * overestimate * rng.lognormal(0.0, 0.5, len(runtime)))
    rung = np.searchsorted(ROUND_LIMITS_S, wish)
    return np.where(rung < len(ROUND_LIMITS_S), ROUND_LIMITS_S[np.minimum(rung, len(ROUND_LIMITS_S) - 1)], wish)
