"""The guard: what keeps a live policy from making things worse than the baseline.

It limits how often anything is done, keeps a part of the machine from any single user while others wait, and compares, over a window of
jobs that have ended, the policy with the baseline in the engine and the real waits with those that were predicted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.errors import QueuewiseError
from queuewise.policies import simulate
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.names import parse_policy, plays_apart
from queuewise.policies.snapshot import JobRecord, Snapshot
from queuewise.serve.live_policy import RankedStart
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import Workload

SLOWDOWN_FLOOR_S = 10.0


@dataclass(frozen=True)
class GuardLimits:
    actions_per_minute: int = 600
    fairness_floor: float = 0.1  # part of the machine that no single user gets while others wait
    window: int = 200  # ended jobs that are compared
    margin: float = 0.05  # by how much the policy may be worse than the baseline
    strikes: int = 3  # comparisons in a row that the policy may lose


@dataclass(frozen=True)
class EndedRecord:
    """A job that has ended, with the wait that was predicted when it was first seen."""

    job: JobRecord
    wait_s: float
    runtime_s: float
    predicted_wait_s: float | None


@dataclass(frozen=True)
class GuardVerdict:
    jobs: int
    policy_slowdown: float  # in the engine, over the window
    baseline_slowdown: float
    real_slowdown: float
    wait_error_s: float | None  # mean of |real − predicted| waits
    strikes: int
    trips: bool


@dataclass
class LiveGuard:
    policy: str
    baseline: str
    limits: GuardLimits = field(default_factory=GuardLimits)

    def __post_init__(self) -> None:
        self._actions: deque[float] = deque()
        self._ended: deque[EndedRecord] = deque(maxlen=self.limits.window)
        self._since = self._strikes = 0

    def allowed_actions(self, wanted: int) -> int:
        """How many of so many actions may be done now; those count as done."""
        now = time.monotonic()
        while self._actions and self._actions[0] < now - 60:
            self._actions.popleft()
        allowed = max(min(wanted, self.limits.actions_per_minute - len(self._actions)), 0)
        self._actions.extend([now] * allowed)
        return allowed

    def fair_starts(self, starts: Sequence[RankedStart], snapshot: Snapshot) -> tuple[list[RankedStart], list[RankedStart]]:
        """The starts that leave others their part of the machine, and the rest. A user who has nothing may always start a job."""
        capacity = sum(_width(node.shape.gpus, node.shape.cpu_milli) for node in snapshot.nodes if node.shape is not None)
        most = (1.0 - self.limits.fairness_floor) * capacity
        held: dict[str | None, float] = {}
        for running in snapshot.running:
            held[running.job.user] = held.get(running.job.user, 0.0) + _job_width(running.job)
        jobs = {one.job.job_id: one.job for one in snapshot.queue}
        users = {job.user for job in jobs.values()}
        fair, unfair = [], []
        for start in starts:
            job = jobs[start.job_id]
            has = held.get(job.user, 0.0)
            if users - {job.user} and has > 0 and has + _job_width(job) > most:
                unfair.append(start)
                continue
            held[job.user] = has + _job_width(job)
            fair.append(start)
        return fair, unfair

    def note_ended(self, ended: EndedRecord) -> None:
        self._ended.append(ended)
        self._since += 1

    def compare(self, cluster: Cluster) -> GuardVerdict | None:
        """Compare policy and baseline over the window, whenever half of it is new. None: there is nothing to compare yet."""
        if len(self._ended) < self.limits.window or self._since < self.limits.window // 2:
            return None
        self._since = 0
        records = sorted(self._ended, key=lambda one: one.job.submit)
        try:
            mine, its = (_mean_slowdown(records, cluster, policy) for policy in (self.policy, self.baseline))
        except QueuewiseError:
            return None  # the window cannot be replayed, for example because nodes have left
        worse = mine > its * (1 + self.limits.margin)
        self._strikes = self._strikes + 1 if worse else 0
        real = float(np.mean([_slowdown(one.wait_s, one.runtime_s) for one in records]))
        errors = [abs(one.wait_s - one.predicted_wait_s) for one in records if one.predicted_wait_s is not None]
        error = float(np.mean(errors)) if errors else None
        return GuardVerdict(len(records), mine, its, real, error, self._strikes, self._strikes >= self.limits.strikes)


def _width(gpus: int, cpu_milli: int | None) -> float:
    return float(gpus) or (cpu_milli or 0) / 1000


def _job_width(job: JobRecord) -> float:
    return job.num_tasks * (job.gpu_milli / 1000 or job.cpu_milli / 1000)


def _slowdown(wait_s: float, runtime_s: float) -> float:
    return max((wait_s + runtime_s) / max(runtime_s, SLOWDOWN_FLOOR_S), 1.0)


def _mean_slowdown(records: Sequence[EndedRecord], cluster: Cluster, policy: str) -> float:
    """Mean bounded slowdown of the window in the engine."""
    jobs = [one.job for one in records]
    partitions = tuple(sorted({job.partition for job in jobs if job.partition is not None}))
    users = tuple(sorted({job.user for job in jobs if job.user is not None}))
    workload = Workload(
        submit=np.array([job.submit for job in jobs]),
        runtime=np.array([one.runtime_s for one in records]),
        requested=np.array([job.estimate for job in jobs]),
        num_tasks=np.array([job.num_tasks for job in jobs], np.int32),
        gpu_milli=np.array([job.gpu_milli for job in jobs], np.int32),
        cpu_milli=np.array([job.cpu_milli for job in jobs], np.int32),
        mem_mib=np.array([job.mem_mib for job in jobs], np.int32),
        partition=np.array([-1 if job.partition is None else partitions.index(job.partition) for job in jobs], np.int32),
        partitions=partitions,
        user=np.array([-1 if job.user is None else users.index(job.user) for job in jobs], np.int32),
        users=users,
    )
    if not plays_apart(policy):
        predicted = np.array([job.estimate if job.predicted is None else job.predicted for job in jobs])
        for name in parse_policy(policy).own_estimates:
            if learns_by_waits(name):
                declare_predictions(workload, cluster, name, predicted)
    schedule = simulate(workload, cluster, policy, estimates=workload.requested)
    started = np.isfinite(schedule.start)
    wait = np.where(started, schedule.start - workload.submit, 0.0)
    return float(
        np.mean([_slowdown(w, r) for w, r in zip(wait[started].tolist(), workload.runtime[started].tolist(), strict=True)] or [1.0])
    )
