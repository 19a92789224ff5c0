"""Lower bounds that no policy can beat. They show how much improvement is still possible.

The cluster is relaxed to one fast machine that can work on any jobs in any shares and preempt them at no cost. Work is measured in
GPU-seconds (core-seconds if no job needs a GPU), and the capacity is the sum of the speeds of all GPUs. On this machine
- shortest remaining work first gives the least total completion time (Schrage, 1968), and
- serving by weight ÷ work gives the least Σ wⱼ·Mⱼ, Mⱼ being the mean time at which the job's work is done (Goemans, 1997); a job that
  needs pⱼ seconds even alone ends no earlier than Mⱼ + pⱼ/2.
The mean JCT is bounded by the maximum of the two and of running every job alone. The second one with wⱼ = 1 / max(pⱼ, 10 s) bounds the
bounded slowdown. The bounds hold for replays that do not repeat preempted work. They are usually not attainable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import NO_GPU, Cluster
from queuewise.evaluation.measure import BOUND_S, Floats
from queuewise.workload.jobs import Workload


@dataclass(frozen=True)
class Bounds:
    """Lower bounds; None if the relaxation gives none."""

    jct: float | None
    bsld: float | None
    wait: float | None  # only if all GPUs have the same speed and there is no spread penalty: runtimes are then fixed
    makespan_s: float | None

    def for_score(self, name: str) -> float | None:
        """The bound of a score in `scores`, or None."""
        value = getattr(self, name, None)
        return value if isinstance(value, float) else None


def lower_bounds(workload: Workload, cluster: Cluster, jobs: NDArray[np.bool_] | slice = slice(None)) -> Bounds:
    """Bounds on the means over `jobs`, which should be the finished ones. Other jobs can only make a real schedule worse."""
    subset = workload.take(jobs)
    if not len(subset) or subset.is_elastic.any():  # the work of an elastic job depends on its number of tasks
        return Bounds(None, None, None, None)
    size, capacity, alone = _relaxed(subset, cluster)
    if not 0 < capacity < np.inf:
        return Bounds(None, None, None, None)
    from queuewise.evaluation.fluid import serve  # compiled: imported only when needed

    work = size * subset.runtime / capacity
    ends, _ = serve(subset.submit, work, work, True)
    ends = np.maximum(ends, subset.submit)  # a job without work on this resource
    jct = max(float((ends - subset.submit).mean()), _weighted_flow(subset, work, alone, np.ones(len(subset))), float(alone.mean()))
    bsld = _weighted_flow(subset, work, alone, 1.0 / np.maximum(alone, BOUND_S))
    fixed = cluster.node_penalty == 0 and cluster.rack_penalty == 0 and bool((_speeds(cluster) == 1.0).all())
    makespan = max(float(ends.max()), float((subset.submit + alone).max())) - float(subset.submit[0])
    return Bounds(jct, max(bsld, 1.0), max(jct - float(alone.mean()), 0.0) if fixed else None, makespan)


def _weighted_flow(workload: Workload, work: Floats, alone: Floats, weight: Floats) -> float:
    """Mean over jobs of weight × minimum of (mean busy time + half the time alone − submission)."""
    from queuewise.evaluation.fluid import serve

    _, mean_busy = serve(workload.submit, work, work / weight, False)
    mean_busy = np.where(work > 0, mean_busy, workload.submit + alone / 2)
    return float((weight * (mean_busy + alone / 2 - workload.submit)).mean())


def _relaxed(workload: Workload, cluster: Cluster) -> tuple[Floats, float, Floats]:
    """Size of each job in the relevant resource, capacity of the relaxed machine, and the shortest time each job needs alone."""
    wants_gpu = workload.gpu_milli > 0
    if not wants_gpu.any():
        return workload.cores, cluster.num_cores, workload.runtime.copy()
    capacity = float(cluster.node_gpus @ _speeds(cluster))
    names = {kind.name: speed for kind, speed in zip(cluster.kinds, cluster.speed, strict=True)}
    best = np.array([max([names[kind] for kind in kinds or names if kind in names], default=1.0) for kinds in workload.kind_sets])
    return workload.gpus, capacity, workload.runtime / np.where(wants_gpu, best[workload.kind_set], 1.0)


def _speeds(cluster: Cluster) -> Floats:
    """[N] relative speed of the node's GPUs; 1 for nodes without GPUs."""
    if not len(cluster.speed):
        return np.ones(cluster.num_nodes)
    return np.where(cluster.node_kind == NO_GPU, 1.0, cluster.speed[cluster.node_kind])
