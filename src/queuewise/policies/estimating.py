"""Estimates on a cluster: those of `workload.estimates`, with the clock by which predictions learn where the log records no waits.

A runtime becomes known at `submit + wait + runtime`. The wait is the recorded one; for jobs without one it is that of one fixed replay,
REFERENCE with exact runtimes on the faultless cluster, which is kept in memory for as long as the workload and the cluster are.

Jobs of a part of a log are known as in the whole log, if `declare_part` was told so: what predictions have learned by then does not
depend on where a replay begins. Where their times were multiplied by factors, so are the estimates.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.policies.known import Jobs
from queuewise.policies.names import parse_policy
from queuewise.sim.core import engine
from queuewise.workload.estimates import Estimates, estimate, learns_by_waits
from queuewise.workload.history import NO_HISTORY, History, history_of
from queuewise.workload.jobs import Floats, Workload

REFERENCE = "fcfs+easy"

_waits: WeakKeyDictionary[Workload, WeakKeyDictionary[Cluster, Floats]] = WeakKeyDictionary()
_parts: WeakKeyDictionary[Workload, tuple[Workload, NDArray[np.int64], Floats | None]] = WeakKeyDictionary()
_learned: WeakKeyDictionary[Workload, WeakKeyDictionary[Cluster, dict[tuple[str, int], Estimates]]] = WeakKeyDictionary()
_learning = threading.RLock()  # several threads may replay parts of the same log


def declare_part(part: Workload, whole: Workload, rows: NDArray[np.int64], factors: Floats | None = None) -> Workload:
    """Note that job i of `part` is job rows[i] of `whole`, with its times multiplied by factors[i], and return the part."""
    _parts[part] = whole, rows, factors
    return part


def declare_predictions(workload: Workload, cluster: Cluster, how: str, values: Floats, seed: int = 0) -> None:
    """Note what is predicted for jobs of which nothing else is known, as on a live cluster."""
    _learned.setdefault(workload, WeakKeyDictionary()).setdefault(cluster, {})[how, seed] = Estimates(values, guessed=True)


def estimate_on(workload: Workload, cluster: Cluster, how: str, seed: int = 0) -> Estimates:
    """Estimates for every job of a workload that is replayed on this cluster. `how` is as in workload.estimates."""
    if workload in _parts:
        whole, rows, factors = _parts[workload]
        found = estimate_on(whole, cluster, how, seed).take(rows)
        return found if factors is None else replace(found, values=found.values * factors)
    if not learns_by_waits(how):
        return estimate(workload, how, seed)
    with _learning:
        kept = _learned.setdefault(workload, WeakKeyDictionary()).setdefault(cluster, {})
        if (how, seed) not in kept:
            kept[how, seed] = estimate(with_waits(workload, cluster), how, seed)
        return kept[how, seed]


def history_on(workload: Workload, cluster: Cluster, columns: Collection[str], seed: int = 0) -> History:
    """These columns of the history of a workload that is replayed on this cluster."""
    if not columns:
        return NO_HISTORY
    if workload in _parts:
        whole, rows, _ = _parts[workload]
        return {name: column[rows] for name, column in history_on(whole, cluster, columns, seed).items()}
    return history_of(with_waits(workload, cluster), columns, seed)


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
