"""Estimates on a cluster: those of `workload.estimates`, with the clock by which predictions learn where the log records no waits.

A runtime becomes known at `submit + wait + runtime`. The wait is the recorded one; for jobs without one it is that of one fixed replay,
REFERENCE with exact runtimes on the faultless cluster, which is kept in memory for as long as the workload and the cluster are.
"""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakKeyDictionary

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.policies.known import Jobs
from queuewise.policies.names import parse_policy
from queuewise.sim.core import engine
from queuewise.workload.estimates import Estimates, estimate, learns_by_waits
from queuewise.workload.history import NO_HISTORY, History, history_of
from queuewise.workload.jobs import Floats, Workload

REFERENCE = "fcfs+easy"

_waits: WeakKeyDictionary[Workload, WeakKeyDictionary[Cluster, Floats]] = WeakKeyDictionary()


def estimate_on(workload: Workload, cluster: Cluster, how: str, seed: int = 0) -> Estimates:
    """Estimates for every job of a workload that is replayed on this cluster. `how` is as in workload.estimates."""
    return estimate(with_waits(workload, cluster) if learns_by_waits(how) else workload, how, seed)


def history_on(workload: Workload, cluster: Cluster, columns: Collection[str], seed: int = 0) -> History:
    """These columns of the history of a workload that is replayed on this cluster."""
    return history_of(with_waits(workload, cluster), columns, seed) if columns else NO_HISTORY


def with_waits(workload: Workload, cluster: Cluster) -> Workload:
    """The workload with the waits that its log does not record taken from the reference replay; inf for jobs that cannot run."""
    unknown = np.isnan(workload.recorded_wait)
    if not unknown.any():
        return workload
    return workload.replace(recorded_wait=np.where(unknown, _reference_waits(workload, cluster), workload.recorded_wait))


def _reference_waits(workload: Workload, cluster: Cluster) -> Floats:
    by_cluster = _waits.setdefault(workload, WeakKeyDictionary())
    if cluster not in by_cluster:
        rules = parse_policy(REFERENCE).rules(Jobs.of(workload, workload.runtime), "reorder")
        by_cluster[cluster] = engine.simulate(workload, cluster, rules, estimate=workload.runtime).start - workload.submit
    return by_cluster[cluster]
