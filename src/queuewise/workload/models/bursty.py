"""Bursts of mostly short jobs: the training workload of gpu-optimizer (facts in its source; see docs/workloads.md).

Runtimes are a share d of `max_duration`: most uniform and short, the rest log-uniform up to the maximum. Longer jobs tend to
use more GPUs and to have lower priority. With the default span, the work far exceeds the capacity of 8 GPUs: a backlog is processed, and
no steady state is reached. `arrival_span` sets the load.
"""

from __future__ import annotations

import numpy as np

from queuewise.workload.jobs import WHOLE_GPU, Workload, constant
from queuewise.workload.models.distributions import burst_arrivals


def sample(
    rng: np.random.Generator,
    num_jobs: int = 400,
    *,
    max_duration: float = 1e4,
    arrival_span: float = 1e4,
    all_at_zero: bool = False,  # submit every job at time 0
    bursts: int = 6,
    burst_share: float = 0.8,
    burst_width: float = 0.03,  # σ of a burst ÷ span
    short_share: float = 0.85,
    short_range: tuple[float, ...] = (0.01, 0.08),  # uniform, ÷ max_duration
    long_range: tuple[float, ...] = (0.08, 1.0),  # log-uniform, ÷ max_duration
    max_gpus: int = 8,
    gpu_correlation: float = 0.7,  # 0: GPUs independent of the runtime, 1: determined by it
    gpu_exponent: float = 0.6,
    max_priority: int = 10,
    priority_correlation: float = 0.6,
    priority_exponent: float = 0.8,
) -> Workload:
    short = rng.uniform(short_range[0], short_range[1], num_jobs)
    long = np.exp(rng.uniform(np.log(long_range[0]), np.log(long_range[1]), num_jobs))
    d = np.where(rng.random(num_jobs) < short_share, short, long)
    typical_gpus = 1 + np.floor(d**gpu_exponent * (max_gpus - 1))
    gpus = np.rint((1 - gpu_correlation) * rng.integers(1, max_gpus + 1, num_jobs) + gpu_correlation * typical_gpus)
    typical_priority = 1 + np.floor((1 - d) ** priority_exponent * (max_priority - 1))
    luck = rng.integers(1, max_priority + 1, num_jobs)
    priority = np.rint((1 - priority_correlation) * luck + priority_correlation * typical_priority)
    if all_at_zero:
        submit = np.zeros(num_jobs)
    else:
        submit = burst_arrivals(rng, num_jobs, arrival_span, bursts, burst_share, burst_width)
    return Workload(
        submit=submit,
        runtime=d * max_duration,
        num_tasks=gpus.astype(np.int32),
        gpu_milli=constant(WHOLE_GPU, num_jobs, np.int32),
        priority=np.clip(priority, 1, max_priority),
        name="bursty",
    )
