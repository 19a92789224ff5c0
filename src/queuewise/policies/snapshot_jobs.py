"""The jobs of a snapshot as a workload, for deciders that see nothing but the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import Cluster
from queuewise.policies.snapshot import JobId, JobRecord, Snapshot
from queuewise.workload.jobs import ANY_PARTITION, UNKNOWN, Floats, Workload

Index = Callable[[JobId], int]


def jobs_of(snapshot: Snapshot, cluster: Cluster, conditions: Conditions, index: Index) -> tuple[Workload, Floats]:
    """The jobs that wait or run, and their estimates. Runtimes are not known: estimates stand for them.

    `index` gives the position of a job in the log. Users and accounts that the conditions or the cluster name are known to the workload,
    even if they have no jobs now.
    """
    unfinished = [one.job for one in snapshot.queue] + [one.job for one in snapshot.running]
    jobs = sorted(unfinished, key=lambda job: (job.submit, index(job.job_id)))
    estimate = np.array([job.estimate for job in jobs])
    kind_sets = ((), *dict.fromkeys(job.kinds for job in jobs if job.kinds))
    partitions, partition = _coded([job.partition for job in jobs], ANY_PARTITION)
    reservations = conditions.reservations
    users, user = _coded([job.user for job in jobs], UNKNOWN, *(one.users for one in reservations))
    tenants = tuple(tenant.name for tenant in cluster.virtual_clusters)
    groups, group = _coded([job.account for job in jobs], UNKNOWN, tenants, *(one.accounts for one in reservations))
    qos_names, qos = _coded([job.qos for job in jobs], UNKNOWN)
    workload = Workload(
        submit=np.array([job.submit for job in jobs]),
        runtime=estimate,
        **{name: _ints(jobs, name) for name in ("num_tasks", "min_tasks", "max_tasks", "gpu_milli", "cpu_milli", "mem_mib")},
        requested=_floats(jobs, "requested"),
        deadline=_floats(jobs, "deadline"),
        priority=_floats(jobs, "priority"),
        kind_set=np.array([kind_sets.index(job.kinds) for job in jobs], np.int32),
        kind_sets=kind_sets,
        partition=partition, partitions=partitions, user=user, users=users, group=group, groups=groups, qos=qos, qos_names=qos_names,
        job_id=np.array([job.job_id for job in jobs]),
        name="snapshot",
        epoch=snapshot.epoch,
    )  # fmt: skip
    return workload, estimate


def _ints(jobs: Sequence[JobRecord], name: str) -> Any:
    return np.array([getattr(job, name) for job in jobs], np.int32)


def _floats(jobs: Sequence[JobRecord], name: str) -> Floats:
    return np.array([np.nan if (value := getattr(job, name)) is None else value for job in jobs], np.float64)


def _coded(names: Sequence[str | None], unknown: int, *others: Sequence[str]) -> tuple[tuple[str, ...], Any]:
    known = tuple(sorted({name for name in names if name is not None}.union(*others)))
    return known, np.array([unknown if name is None else known.index(name) for name in names], np.int32)
