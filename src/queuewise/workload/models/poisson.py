"""Poisson arrivals, exponential runtimes, GPU sizes from a list: a textbook queue with a given load."""

from __future__ import annotations

import numpy as np

from queuewise.workload.jobs import WHOLE_GPU, Workload, constant
from queuewise.workload.models.distributions import choose, poisson_arrivals, rate_for_load, requested_limits


def sample(
    rng: np.random.Generator,
    num_jobs: int = 1000,
    *,
    gpus: int = 64,  # GPUs of the cluster the load is meant for
    load: float = 0.8,  # offered GPU-seconds per second and GPU
    mean_runtime: float = 3600.0,
    sizes: tuple[int, ...] = (1, 2, 4, 8),  # GPUs, as gangs of one-GPU tasks
    size_weights: tuple[float, ...] = (0.6, 0.2, 0.1, 0.1),
    overestimate: float = 2.0,  # median of requested ÷ actual runtime
) -> Workload:
    size = choose(rng, num_jobs, sizes, size_weights)
    runtime = rng.exponential(mean_runtime, num_jobs)
    submit = poisson_arrivals(rng, num_jobs, rate_for_load(size, runtime, gpus, load))
    return Workload(
        submit=submit,
        runtime=runtime,
        num_tasks=size,
        gpu_milli=constant(WHOLE_GPU, num_jobs, np.int32),
        requested=requested_limits(rng, runtime, overestimate),
        name="poisson",
    )
