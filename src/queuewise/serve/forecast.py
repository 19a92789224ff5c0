"""Rolling a snapshot forward: when its waiting jobs would start, if no other job came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.policies import simulate
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.names import parse_policy, plays_apart
from queuewise.policies.simulation import Simulation
from queuewise.policies.snapshot import JobId, Snapshot
from queuewise.policies.snapshot_jobs import jobs_of
from queuewise.serve.job_positions import positions_of
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import Floats, Workload

Draw = Callable[[Workload], Floats]  # runtimes for the jobs of a snapshot


@dataclass(frozen=True)
class Forecast:
    """Starts by job, on the snapshot's clock; None for jobs that would never start."""

    starts: dict[JobId, float | None]
    order: tuple[JobId, ...]  # the waiting jobs, the first to start first


def roll_forward(
    snapshot: Snapshot,
    cluster: Cluster,
    policy: str,
    *,
    conditions: Conditions = PERFECT,
    max_wait: str | None = None,
    runtimes: Draw | None = None,
) -> Forecast:
    """Replay the jobs of the snapshot to their end. By default they run as long as is predicted, or estimated where nothing is."""
    if not snapshot.queue:
        return Forecast({}, ())
    known, estimate = jobs_of(snapshot, cluster, conditions, positions_of(snapshot).__getitem__)
    predicted = predictions_of(snapshot, known)
    workload = known.replace(runtime=predicted if runtimes is None else runtimes(known))
    schedule = _replay(workload, cluster, policy, predicted, estimates=estimate, conditions=conditions, max_wait=max_wait, start=snapshot)
    start = dict(zip(workload.job_id.tolist(), schedule.start.tolist(), strict=True))
    waiting = [one.job.job_id for one in snapshot.queue]
    starts = {job_id: float(start[job_id]) if np.isfinite(start[job_id]) else None for job_id in waiting}
    first = _first_pieces(schedule.piece_job, workload)
    late = len(first)
    return Forecast(starts, tuple(sorted(waiting, key=lambda job_id: (_or_inf(starts[job_id]), first.get(job_id, late)))))


def _replay(workload: Workload, cluster: Cluster, policy: str, predicted: Floats, **options: Any) -> Schedule:
    """A replay that begins with a decision: somebody asks because something has happened."""
    if plays_apart(policy):
        return simulate(workload, cluster, policy, **options)
    for name in parse_policy(policy).own_estimates:
        if learns_by_waits(name):
            declare_predictions(workload, cluster, name, predicted)
    simulation = Simulation(workload, cluster, policy, **options)
    simulation.decide()
    simulation.run()
    return simulation.schedule()


def predictions_of(snapshot: Snapshot, workload: Workload) -> Floats:
    """[J] what is predicted for the jobs of the snapshot; the estimate where nothing is."""
    known = {one.job.job_id: one.job.estimate if one.job.predicted is None else one.job.predicted for one in snapshot.jobs}
    return np.array([known[job_id] for job_id in workload.job_id.tolist()], np.float64)


def _first_pieces(piece_job: NDArray[np.int32], workload: Workload) -> dict[JobId, int]:
    """The place of each job in the log of starts: the order among jobs that start at the same time."""
    rows, first = np.unique(piece_job, return_index=True)
    return dict(zip(workload.job_id[rows].tolist(), first.tolist(), strict=True))


def _or_inf(value: float | None) -> float:
    return np.inf if value is None else value
