"""The benchmark of the engine: a million GPU jobs for 250 nodes with 8 GPUs, with bursts that make the queue thousands of jobs long.

A job of up to 8 GPUs is one task on one node; larger jobs are gangs of 8-GPU tasks. Half of the jobs arrive in bursts of `jobs_per_burst`.
The number of bursts grows with the number of jobs, so the length of the queue does not depend on it.
"""

from __future__ import annotations

import numpy as np

from queuewise.workload.jobs import WHOLE_GPU, Workload
from queuewise.workload.models.distributions import burst_arrivals, choose, lognormal, rate_for_load, requested_limits


def sample(
    rng: np.random.Generator,
    num_jobs: int = 1_000_000,
    *,
    gpus: int = 2000,  # GPUs of the cluster the load is meant for
    load: float = 0.9,
    node_gpus: int = 8,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    size_weights: tuple[float, ...] = (0.50, 0.15, 0.15, 0.14, 0.04, 0.02),
    mean_runtime: float = 3600.0,
    runtime_sigma: float = 1.5,  # of the logarithm
    burst_share: float = 0.5,
    jobs_per_burst: int = 12_500,
    burst_s: float = 3600.0,  # σ of a burst
    overestimate: float = 2.0,
) -> Workload:
    size = choose(rng, num_jobs, sizes, size_weights)
    runtime = lognormal(rng, num_jobs, mean_runtime, runtime_sigma)
    span = num_jobs / rate_for_load(size, runtime, gpus, load)
    bursts = max(1, round(num_jobs * burst_share / jobs_per_burst))
    per_task = np.minimum(size, node_gpus)
    return Workload(
        submit=burst_arrivals(rng, num_jobs, span, bursts, burst_share, burst_s / span),
        runtime=runtime,
        num_tasks=-(-size // per_task),
        gpu_milli=per_task * np.int32(WHOLE_GPU),
        requested=requested_limits(rng, runtime, overestimate),
        name="bench",
    )
