"""Poisson arrivals, normal runtimes, uniform GPU counts, four priority classes: the mix of DRL_Scheduler (facts in its source).

The published rate of 2.5 jobs per second is 600 times the capacity of its 56 GPUs. Here the rate follows from `load`; `arrival_rate=2.5` is
the published one.
"""

from __future__ import annotations

import numpy as np

from queuewise.workload.jobs import WHOLE_GPU, Workload, constant
from queuewise.workload.models.distributions import choose, poisson_arrivals, rate_for_load


def sample(
    rng: np.random.Generator,
    num_jobs: int = 2000,
    *,
    gpus: int = 56,  # GPUs of the cluster the load is meant for
    load: float = 0.8,
    arrival_rate: float = 0.0,  # jobs per second; 0: from load
    mean_runtime: float = 3000.0,
    runtime_deviation: float = 2500.0,  # σ of the normal; runtimes below 1 s become 1 s
    max_gpus: int = 8,  # uniform from 1
    priorities: tuple[float, ...] = (0.5, 1.0, 2.5, 5.0),
    priority_weights: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0),
) -> Workload:
    runtime = np.maximum(1.0, rng.normal(mean_runtime, runtime_deviation, num_jobs))
    size = rng.integers(1, max_gpus + 1, num_jobs, dtype=np.int32)
    rate = arrival_rate if arrival_rate > 0 else rate_for_load(size, runtime, gpus, load)
    priority_class = choose(rng, num_jobs, range(len(priorities)), priority_weights)
    return Workload(
        submit=poisson_arrivals(rng, num_jobs, rate),
        runtime=runtime,
        num_tasks=size,
        gpu_milli=constant(WHOLE_GPU, num_jobs, np.int32),
        priority=np.asarray(priorities)[priority_class],
        name="hetero",
    )
