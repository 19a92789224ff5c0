"""Lower bounds, for context: what no policy can beat, so that a reader sees how much is left to gain.

The cluster is relaxed to one fast machine that works on any jobs in any shares, interrupting for free: work is GPU-seconds
(core-seconds where no job wants a GPU), capacity the sum over GPUs of their speeds. On it
- shortest remaining work first gives the least total completion time (Schrage, 1968), and
- serving by weight ÷ work gives the least Σ wⱼ·Mⱼ, Mⱼ being the mean time at which the job's work is done (Goemans, 1997); a job that
  needs pⱼ seconds even alone ends no earlier than Mⱼ + pⱼ/2.
The greater of the two, and of running every job alone, bounds the mean JCT; the second with wⱼ = 1 / max(pⱼ, 10 s) bounds the bounded
slowdown. Bounds hold for replays in which preempted work is not repeated; they are usually not attainable.
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
    """None where the relaxation says nothing."""

    jct: float | None
    bsld: float | None
    wait: float | None  # only where every GPU runs at the same speed and nothing slows a gang down: runtimes are then fixed
    makespan_s: float | None

    def for_score(self, name: str) -> float | None:
        """The bound of a score of `scores`, None where there is none."""
        value = getattr(self, name, None)
        return value if isinstance(value, float) else None


def lower_bounds(workload: Workload, cluster: Cluster, jobs: NDArray[np.bool_] | slice = slice(None)) -> Bounds:
    """Bounds on the means over `jobs` (those that finish; others only make the true schedules worse)."""
    subset = workload.take(jobs)
    if not len(subset) or subset.is_elastic.any():  # an elastic job's work depends on the size it is started in
        return Bounds(None, None, None, None)
    size, capacity, alone = _relaxed(subset, cluster)
    if not 0 < capacity < np.inf:
        return Bounds(None, None, None, None)
    from queuewise.evaluation.fluid import serve  # compiled: imported when needed

    work = size * subset.runtime / capacity
    ends, _ = serve(subset.submit, work, work, True)
    ends = np.maximum(ends, subset.submit)  # a job without work on this resource
    jct = max(float((ends - subset.submit).mean()), _weighted_flow(subset, work, alone, np.ones(len(subset))), float(alone.mean()))
    bsld = _weighted_flow(subset, work, alone, 1.0 / np.maximum(alone, BOUND_S))
    fixed = cluster.node_penalty == 0 and cluster.rack_penalty == 0 and bool((_speeds(cluster) == 1.0).all())
    makespan = max(float(ends.max()), float((subset.submit + alone).max())) - float(subset.submit[0])
    return Bounds(jct, max(bsld, 1.0), max(jct - float(alone.mean()), 0.0) if fixed else None, makespan)


def _weighted_flow(workload: Workload, work: Floats, alone: Floats, weight: Floats) -> float:
    """Mean over jobs of weight × least (mean busy time + half the time alone − submission)."""
    from queuewise.evaluation.fluid import serve

    _, mean_busy = serve(workload.submit, work, work / weight, False)
    mean_busy = np.where(work > 0, mean_busy, workload.submit + alone / 2)
    return float((weight * (mean_busy + alone / 2 - workload.submit)).mean())


def _relaxed(workload: Workload, cluster: Cluster) -> tuple[Floats, float, Floats]:
    """Size of each job in the resource that counts, capacity of the relaxed machine, and seconds each job needs alone at best."""
    wants_gpu = workload.gpu_milli > 0
    if not wants_gpu.any():
        return workload.cores, cluster.num_cores, workload.runtime.copy()
    capacity = float(cluster.node_gpus @ _speeds(cluster))
    names = {kind.name: speed for kind, speed in zip(cluster.kinds, cluster.speed, strict=True)}
    best = np.array([max([names[kind] for kind in kinds or names if kind in names], default=1.0) for kinds in workload.kind_sets])
    return workload.gpus, capacity, workload.runtime / np.where(wants_gpu, best[workload.kind_set], 1.0)


def _speeds(cluster: Cluster) -> Floats:
    """[N] relative speed of the node's GPUs, 1 without GPUs."""
    if not len(cluster.speed):
        return np.ones(cluster.num_nodes)
    return np.where(cluster.node_kind == NO_GPU, 1.0, cluster.speed[cluster.node_kind])
