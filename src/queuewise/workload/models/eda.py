"""An LSF farm for chip design: a stream of short jobs of a few cores with memory, arriving in steps (after lsf_autohost's generator).

In every step, between one and `max_arrivals` jobs arrive. The length of a step follows from `load` and `cores`. `step_s=1` is the original
generator, whose load is several times the capacity of its farm.
"""

from __future__ import annotations

import numpy as np

from queuewise.workload.jobs import Workload
from queuewise.workload.models.distributions import choose, rate_for_load


def sample(
    rng: np.random.Generator,
    num_jobs: int = 10_000,
    *,
    cores: int = 1200,  # cores of the farm the load is meant for
    load: float = 0.8,
    max_arrivals: int = 10,  # per step, uniform from 1
    step_s: float = 0.0,  # seconds between steps; 0: from load
    max_cores: int = 4,  # uniform from 1, all on one host
    memory_mib: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384),
    memory_weights: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    runtime_range: tuple[float, ...] = (20.0, 120.0),  # uniform
) -> Workload:
    width = rng.integers(1, max_cores + 1, num_jobs, dtype=np.int32)
    runtime = rng.uniform(runtime_range[0], runtime_range[1], num_jobs)
    if step_s <= 0:
        step_s = (1 + max_arrivals) / 2 / rate_for_load(width, runtime, cores, load)
    arrivals = rng.integers(1, max_arrivals + 1, num_jobs)  # at least one job per step: num_jobs steps are enough
    step = np.repeat(np.arange(num_jobs), arrivals)[:num_jobs]
    return Workload(
        submit=step.astype(np.float64) * step_s,
        runtime=runtime,
        num_tasks=np.ones(num_jobs, np.int32),
        cpu_milli=width * np.int32(1000),
        mem_mib=choose(rng, num_jobs, memory_mib, memory_weights),
        name="eda",
    )
