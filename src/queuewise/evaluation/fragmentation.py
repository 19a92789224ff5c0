"""The fragmentation metric of Weng et al. (FGD, USENIX ATC 2023): how much of the free GPU capacity a typical task cannot use.

For a task type m and a node n, the fragment F(n, m) is the free GPU milli of the whole node if no task of type m fits on it (or if m needs
no GPU). Otherwise it is the free milli on GPUs that are too full for m. The types are the demands in the workload, weighted by their number
of tasks. docs/simulator.md defines the placement rule `fgd` with the same metric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import MAX_GPUS_PER_NODE, Cluster
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import WHOLE_GPU, Workload

INSTANTS = 24  # times in the span at which the fragmentation of a replay is measured
MAX_TYPES = 64  # most frequent types used for a replay; the packing protocol uses all


@dataclass(frozen=True, eq=False)
class TaskTypes:
    gpu_milli: NDArray[np.int64]  # [M]
    cpu_milli: NDArray[np.int64]  # [M]
    mem_mib: NDArray[np.int64]  # [M]
    kinds: NDArray[np.bool_]  # [M, K] GPU kinds a task of this type may use
    weight: Floats  # [M] share of the workload's tasks


def task_types(workload: Workload, cluster: Cluster, *, most: int | None = None) -> TaskTypes:
    """The distinct demands in the workload, or only the `most` frequent ones."""
    code = np.zeros(len(workload), dtype=np.int64)
    for column in (workload.gpu_milli, workload.cpu_milli, workload.mem_mib, workload.kind_set):
        values, rank = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + rank.ravel(), return_inverse=True)[1].ravel()  # ranks again, which avoids an overflow
    tasks = np.bincount(code, weights=workload.num_tasks)
    example = np.unique(code, return_index=True)[1]
    keep = np.sort(np.argsort(-tasks, kind="stable")[:most])
    names = [kind.name for kind in cluster.kinds]
    allowed = np.array([[not kinds or name in kinds for name in names] for kinds in workload.kind_sets], dtype=bool)
    job, tasks = example[keep], tasks[keep]
    gpu, cpu, mem = (column[job].astype(np.int64) for column in (workload.gpu_milli, workload.cpu_milli, workload.mem_mib))
    return TaskTypes(gpu, cpu, mem, allowed.reshape(-1, len(names))[workload.kind_set[job]], tasks / tasks.sum())


@dataclass(eq=False)
class FreeState:
    """Free resources of every node. `take` changes it in place."""

    gpu_milli: NDArray[np.int64]  # [N, G] G = largest number of GPUs per node; 0 for GPUs that a node does not have
    cpu_milli: NDArray[np.int64]  # [N]
    mem_mib: NDArray[np.int64]  # [N]

    @classmethod
    def of_empty(cls, cluster: Cluster) -> FreeState:
        has = np.arange(max(int(cluster.node_gpus.max()), 1)) < cluster.node_gpus[:, None]
        return cls(np.where(has, WHOLE_GPU, 0).astype(np.int64), cluster.node_cpu_milli.copy(), cluster.node_mem_mib.copy())

    def take(self, schedule: Schedule, pieces: NDArray[np.int64]) -> None:
        """Subtract the resources of these pieces."""
        job, node, tasks = schedule.piece_job[pieces], schedule.piece_node[pieces], schedule.piece_tasks[pieces].astype(np.int64)
        workload, width = schedule.workload, self.gpu_milli.shape[1]
        np.subtract.at(self.cpu_milli, node, tasks * workload.cpu_milli[job])
        np.subtract.at(self.mem_mib, node, tasks * workload.mem_mib[job])
        bits = (schedule.piece_gpus[pieces, None] >> np.arange(min(width, MAX_GPUS_PER_NODE))) & 1
        per_gpu = tasks * workload.gpu_milli[job] // np.maximum(bits.sum(axis=1), 1)
        np.subtract.at(self.gpu_milli, node, bits * per_gpu[:, None])


def state_at(schedule: Schedule, time: float) -> FreeState:
    """Free resources just after `time`."""
    state = FreeState.of_empty(schedule.cluster)
    state.take(schedule, np.flatnonzero((schedule.piece_start <= time) & (schedule.piece_end > time)))
    return state


def fragments(free: FreeState, kind: NDArray[np.int64], types: TaskTypes) -> Floats:
    """[n] Σ over types of weight × F(n, type), in GPU milli, for nodes with these free resources and GPU kinds."""
    gpu_free, cpu, mem = free.gpu_milli, free.cpu_milli, free.mem_mib
    per_gpu = np.minimum(types.gpu_milli, WHOLE_GPU)
    usable = gpu_free[:, None, :] >= per_gpu[None, :, None]  # [n, M, G]
    whole_gpus = np.maximum(types.gpu_milli // WHOLE_GPU, 1)
    fits = usable.sum(axis=2) >= whole_gpus
    fits &= (types.gpu_milli > 0) & (cpu[:, None] >= types.cpu_milli) & (mem[:, None] >= types.mem_mib)
    fits &= types.kinds.T[kind]
    too_full = np.where(usable, 0, gpu_free[:, None, :]).sum(axis=2)
    return np.asarray(np.where(fits, too_full, gpu_free.sum(axis=1)[:, None]) @ types.weight, dtype=np.float64)


def fragmented_share(cluster: Cluster, state: FreeState, types: TaskTypes) -> float | None:
    """Expected share of the free GPU milli that a random task of the workload cannot use. None if nothing is free."""
    rows = np.flatnonzero(state.gpu_milli.sum(axis=1) > 0)
    if not rows.size:
        return None
    gpus = np.sort(state.gpu_milli[rows], axis=1)
    key = np.column_stack((gpus, state.cpu_milli[rows], state.mem_mib[rows], cluster.node_kind[rows]))
    distinct, count = np.unique(key, axis=0, return_counts=True)  # large clusters have many nodes in the same state
    lost = fragments(FreeState(distinct[:, :-3], distinct[:, -3], distinct[:, -2]), distinct[:, -1], types)
    return float(lost @ count / gpus.sum())


def fragmentation(m: Measurement) -> float | None:
    """Share of the free GPU capacity that a typical task cannot use: the mean over evenly spaced times in the span."""
    workload, cluster = m.schedule.workload, m.schedule.cluster
    if cluster.num_gpus == 0 or not m.span > 0 or not (workload.gpu_milli > 0).any():
        return None
    types = task_types(workload, cluster, most=MAX_TYPES)
    times = m.begin + m.span * (np.arange(INSTANTS) + 0.5) / INSTANTS
    shares = [share for time in times if (share := fragmented_share(cluster, state_at(m.schedule, time), types)) is not None]
    return float(np.mean(shares)) if shares else None
