"""Rigid jobs of a parallel machine, after Lublin & Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs", J. Parallel Distrib. Comput. 63(11), 2003; the parameters are the published ones for the whole workload
(batch and interactive jobs together).

Sizes: serial, power of two or any, from a two-stage uniform in log2. Runtimes: e to the power of a hyper-gamma whose mixing
probability falls with the size. Inter-arrival times: e to the power of a gamma, distributed over half-hour slots with weights that follow
the daily cycle. A job of n processors is n one-core tasks.
"""

from __future__ import annotations

import math

import numpy as np

from queuewise.workload.jobs import Floats, Ints, Workload, constant

SLOTS = 48  # half hours of a day
SLOT_S = 1800.0
CYCLE_START = 11  # the gamma of the daily cycle starts at this slot
LONGEST_LOG_RUNTIME = 12.0  # about two days; larger values are drawn again
LONGEST_LOG_GAP = 13.0  # about five days


def sample(
    rng: np.random.Generator,
    num_jobs: int = 10_000,
    *,
    processors: int = 256,
    serial_share: float = 0.244,
    power_of_two_share: float = 0.576,
    log2_low: float = 0.8,
    log2_medium: float = -2.5,  # the knee; zero or below: relative to log2(processors)
    low_share: float = 0.86,  # of the first stage
    runtime_gammas: tuple[float, ...] = (4.2, 0.94, 312.0, 0.03),  # shape, scale, shape, scale
    mix_slope: float = -0.0054,  # probability of the first gamma = slope · size + offset
    mix_offset: float = 0.78,
    gap_gamma: tuple[float, ...] = (10.2303, 0.4871),
    rush_ratio: float = 1.0225,  # stretches the shape from rush hours to the whole day
    cycle_gamma: tuple[float, ...] = (8.1737, 3.9631),
) -> Workload:
    high = math.log2(processors)
    medium = log2_medium if log2_medium > 0 else max(log2_low, high + log2_medium)
    size = _sizes(rng, num_jobs, serial_share, power_of_two_share, (log2_low, medium, high), low_share)
    first = rng.random(num_jobs) <= np.clip(mix_slope * size + mix_offset, 0.0, 1.0)
    a1, b1, a2, b2 = runtime_gammas
    log_runtime = _truncated_gamma(rng, np.where(first, a1, a2), np.where(first, b1, b2), LONGEST_LOG_RUNTIME)
    shape = constant(gap_gamma[0] * rush_ratio, num_jobs, np.float64)
    log_gap = _truncated_gamma(rng, shape, constant(gap_gamma[1], num_jobs, np.float64), LONGEST_LOG_GAP)
    return Workload(
        submit=np.floor(_along_the_day(np.cumsum(np.exp(log_gap) / SLOT_S), cycle_gamma)),
        runtime=np.floor(np.exp(log_runtime)),
        num_tasks=size,
        cpu_milli=constant(1000, num_jobs, np.int32),
        name="lublin",
    )


def _sizes(
    rng: np.random.Generator, num_jobs: int, serial: float, power_of_two: float, bounds: tuple[float, float, float], low_share: float
) -> Ints:
    low, medium, high = bounds
    first_stage = rng.random(num_jobs) <= low_share
    log2_size = np.where(first_stage, rng.uniform(low, medium, num_jobs), rng.uniform(medium, high, num_jobs))
    kind = rng.random(num_jobs)
    log2_size = np.where(kind <= serial + power_of_two, np.floor(log2_size + 0.5), log2_size)
    size = np.minimum(np.floor(2.0**log2_size + 0.5), np.floor(2.0**high + 0.5))
    return np.where(kind <= serial, 1, size).astype(np.int32)


def _truncated_gamma(rng: np.random.Generator, shape: Floats, scale: Floats, largest: float) -> Floats:
    values = rng.gamma(shape, scale)
    while (above := values > largest).any():
        values[above] = rng.gamma(shape[above], scale[above])
    return values


def _along_the_day(points: Floats, cycle_gamma: tuple[float, ...]) -> Floats:
    """Seconds at which the cumulative weight of the slots since midnight reaches `points`. The mean weight of a slot is 1."""
    weights = _slot_weights(*cycle_gamma)
    edges = np.concatenate(([0.0], np.cumsum(weights)))
    days, rest = np.divmod(points, edges[-1])
    return np.asarray((days * SLOTS + np.interp(rest, edges, np.arange(SLOTS + 1.0))) * SLOT_S)


def _slot_weights(shape: float, scale: float) -> Floats:
    """[SLOTS] share of a day's jobs in each half hour, mean 1: the gamma's mass around slots 11…58, wrapped around the day."""
    fine = 200  # steps per slot of the midpoint rule
    x = CYCLE_START - 0.5 + (np.arange(SLOTS * fine) + 0.5) / fine
    density = np.exp((shape - 1) * np.log(x) - x / scale - math.lgamma(shape) - shape * math.log(scale))
    mass = density.reshape(SLOTS, fine).sum(axis=1)
    return np.roll(mass / mass.mean(), CYCLE_START - 1)
