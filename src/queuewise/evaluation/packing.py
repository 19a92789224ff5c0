"""The packing protocol of Weng et al. (USENIX ATC 2023): jobs arrive one after the other and never leave, until the cluster is full.

`arrive_and_stay` turns a list of jobs into such a workload, which the engine replays as usual: job i arrives at second i and runs beyond
the last arrival. A job that does not start on arrival counts as a placement failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.fragmentation import FreeState, fragments, task_types
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.sim.core.schedule import REJECTED, Schedule
from queuewise.workload.jobs import COLUMNS, WHOLE_GPU, Workload

OVERFILL = 1.3  # total requested GPUs ÷ GPUs of the cluster: arrivals continue beyond a full cluster
CURVE_POINTS = 200


def arrive_and_stay(workload: Workload, cluster: Cluster, seed: int) -> Workload:
    """The jobs in order of submission (seed 0) or shuffled, followed by random repeats until they request 1.3 × the cluster's GPUs."""
    if cluster.num_gpus == 0 or not (workload.gpu_milli > 0).any():
        raise InputError("the packing protocol needs a cluster with GPUs and jobs that use them", hint="use --protocol windows")
    rng = np.random.default_rng(seed)
    order = np.arange(len(workload)) if seed == 0 else rng.permutation(len(workload))
    missing = OVERFILL * cluster.num_gpus - float(workload.gpus.sum())
    if missing > 0:
        draws = int(np.ceil(1.2 * missing / float(workload.gpus.mean()))) + 64
        extra = rng.integers(0, len(workload), draws)
        extra = extra[: int(np.searchsorted(np.cumsum(workload.gpus[extra]), missing)) + 1]
        order = np.concatenate((order, extra))
    num = len(order)
    columns = {column: getattr(workload, column)[order] for column in COLUMNS}
    columns["submit"] = np.arange(num, dtype=np.float64)
    columns["runtime"] = columns["requested"] = np.full(num, 4.0 * num)
    columns["deadline"] = columns["recorded_wait"] = np.full(num, np.nan)  # recorded times no longer apply
    return workload.replace(**columns, epoch=0.0)


def _placed(schedule: Schedule) -> tuple[NDArray[np.bool_], int]:
    """[J] whether the job started on arrival; and the first job that did not although the empty cluster could run it (J if none)."""
    placed = schedule.start == schedule.workload.submit
    failed = np.flatnonzero(~placed & (schedule.status != REJECTED))
    return placed, int(failed[0]) if failed.size else len(placed)


def allocated_at_first_failure(m: Measurement) -> float | None:
    """Share of the cluster's GPUs in use when the first job had to wait. None if no job had to, or without GPUs."""
    schedule = m.schedule
    _, first = _placed(schedule)
    if schedule.cluster.num_gpus == 0 or first == len(schedule.workload):
        return None
    at = schedule.workload.submit[first]
    held = (schedule.piece_start <= at) & (schedule.piece_end > at)
    tasks, job = schedule.piece_tasks[held], schedule.piece_job[held]
    return float((tasks * schedule.workload.gpu_milli[job] / WHOLE_GPU).sum() / schedule.cluster.num_gpus)


@dataclass(frozen=True, eq=False)
class PackingCurve:
    """State after arrivals 1, 2, ..., J; shares of the cluster's GPUs."""

    arrived: Floats  # GPUs requested so far
    allocated: Floats  # in use
    fragmented: Floats  # free, but not usable by a random task of the workload
    first_failure: int  # first arrival that could not be placed, J if none
    failures: int

    def as_dict(self, points: int = CURVE_POINTS) -> dict[str, Any]:
        """For JSON: the curve at `points` arrivals, which include the first failure and the last arrival."""
        last = len(self.arrived) - 1
        rows = np.unique(np.concatenate((np.linspace(0, last, points).astype(np.int64), [min(self.first_failure, last), last])))
        return {
            "first_failure": self.first_failure,
            "failures": self.failures,
            "arrived": self.arrived[rows].tolist(),
            "allocated": self.allocated[rows].tolist(),
            "fragmented": self.fragmented[rows].tolist(),
        }


def packing_curve(schedule: Schedule) -> PackingCurve:
    """Follow the placements arrival by arrival. Only the nodes of the new job change, so each step is fast."""
    workload, cluster = schedule.workload, schedule.cluster
    placed, first_failure = _placed(schedule)
    types = task_types(workload, cluster)
    state = FreeState.of_empty(cluster)
    lost = fragments(state, cluster.node_kind, types)
    order = np.argsort(schedule.piece_job, kind="stable")
    begins = np.searchsorted(schedule.piece_job[order], np.arange(len(workload) + 1))
    total_lost, fragmented = float(lost.sum()), np.empty(len(workload))
    for j in range(len(workload)):
        if placed[j]:
            pieces = order[begins[j] : begins[j + 1]]
            state.take(schedule, pieces)
            nodes = np.unique(schedule.piece_node[pieces])
            before = float(lost[nodes].sum())
            some = FreeState(state.gpu_milli[nodes], state.cpu_milli[nodes], state.mem_mib[nodes])
            lost[nodes] = fragments(some, cluster.node_kind[nodes], types)
            total_lost += float(lost[nodes].sum()) - before
        fragmented[j] = total_lost
    capacity = cluster.num_gpus
    return PackingCurve(
        arrived=np.cumsum(workload.gpus) / capacity,
        allocated=np.cumsum(np.where(placed, workload.gpus, 0.0)) / capacity,
        fragmented=fragmented / (capacity * WHOLE_GPU),
        first_failure=first_failure,
        failures=int(np.count_nonzero(~placed & (schedule.status != REJECTED))),
    )
