"""Under what an episode is played, beside its task: where it starts, conditions, limits, a bound on waiting, who orders the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions, node_changes
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError
from queuewise.policies.snapshot import Snapshot
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.core.tables import F64
from queuewise.workload.jobs import Workload

MOST_PIECES = 50_000_000  # of the log of an env, 36 bytes each


@dataclass(frozen=True)
class Ordering:
    """How the engine schedules a queue whose order a network gives."""

    backfill: str
    depth: int = NO_LIMIT
    dispatch: str = "reorder"


@dataclass(frozen=True)
class Circumstances:
    conditions: Conditions = PERFECT
    kill_at_limit: bool = False
    max_wait_s: float = np.inf
    placement: str = ""  # empty: that of the task
    ordering: Ordering | None = None  # None: the agent starts jobs itself
    seed: int = 0  # of the placement rule
    start: Snapshot | None = None  # None: an empty cluster
    usage: Mapping[str, float] | None = None  # of users, by jobs that started before; None: as much as the running jobs account for
    guessed: bool = False  # jobs that outlive their estimates are expected to go on
    one_instant: bool = False  # the episode consists of the decisions at the instant of the snapshot

    def first_own(self, workload: Workload) -> int:
        """The first of the window's own jobs. Those before it wait or run when the episode begins."""
        return 0 if self.start is None else int(np.searchsorted(workload.submit, self.start.now, side="right"))

    def bound_s(self, settings: TaskSettings) -> float:
        """The bound on waiting: this one or, if there is none, that of the task."""
        return self.max_wait_s if self.max_wait_s < np.inf else settings.max_wait_s

    def most_stops(self, settings: TaskSettings) -> int:
        """The limit on stops. Where the engine starts the jobs, nobody stops them."""
        return settings.most_stops if settings.stops and self.ordering is None else 0

    def room_for_stops(self, settings: TaskSettings, num_jobs: int) -> int:
        """The most stops that there can be. Where running jobs are shown, there is room for at least one."""
        limits = -(-num_jobs // settings.jobs_per_limit) if settings.jobs_per_limit else 1
        return max(self.most_stops(settings) * limits, int(settings.stops > 0))


AS_TRAINED = Circumstances()


def most_failures(workload: Workload, cluster: Cluster, conditions: Conditions, until: float) -> int:
    """A number of runs that failures can end at most, up to a time: for each failure, as many as can stand on the node."""
    outages = conditions.outages_on(cluster, float(workload.submit[0]), float(workload.submit[-1]))
    failing = [change.node for change in node_changes(outages) if change.kind == "fail" and change.time <= until]
    return int(np.minimum(_most_jobs(workload, cluster), len(workload))[failing].sum())


def _most_jobs(workload: Workload, cluster: Cluster) -> F64:
    """[N] a number of jobs that can stand on each node at most.

    Every job needs some resource. As many jobs fit at once as the whole amount of it holds of the least demand.
    """
    number = np.zeros(cluster.num_nodes)
    asked = (workload.gpu_milli, workload.cpu_milli, workload.mem_mib)
    held = (cluster.node_gpus * 1000, cluster.node_cpu_milli, cluster.node_mem_mib)
    for demand, amount in zip(asked, held, strict=True):
        some = demand[demand > 0]
        if len(some):
            number += np.where(amount == UNLIMITED, np.inf, amount // int(some.min()))
    return number


def check_log_size(workload: Workload, cluster: Cluster, failures: int, stops: int) -> None:
    """Refuse failures and stops whose restarts may need more memory than there is."""
    pieces = (failures + stops) * min(int(workload.num_tasks.max(initial=1)), cluster.num_nodes)
    if pieces > MOST_PIECES:
        by = "failures" if failures >= stops else "the network"
        raise InputError(
            f"{by} may stop {max(failures, stops):,} runs, which an environment has no room for (at most {MOST_PIECES:,} pieces)",
            hint="give a greater mtbf_h, fewer outages, a smaller task.most_stops, or a shorter workload",
        )
