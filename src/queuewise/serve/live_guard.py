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
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.errors import QueuewiseError
from queuewise.policies import simulate
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.names import parse_policy, plays_apart
from queuewise.policies.snapshot import JobId, JobRecord, NodeShape, Place, Snapshot
from queuewise.serve.live_policy import RankedStart
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import WHOLE_GPU, Floats, Workload, named_partitions

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

    def __str__(self) -> str:
        error = "" if self.wait_error_s is None else f", waits {self.wait_error_s:.0f} s from the predicted ones on average"
        return (
            f"mean bounded slowdown of {self.jobs} jobs in the engine {self.policy_slowdown:.2f}, of the baseline "
            f"{self.baseline_slowdown:.2f}; in reality {self.real_slowdown:.2f}{error}"
        )


@dataclass
class LiveGuard:
    policy: str
    baseline: str
    limits: GuardLimits = field(default_factory=GuardLimits)
    max_wait: str | None = None  # bound on waits under both, as in `load_policy`

    def __post_init__(self) -> None:
        self._actions: deque[float] = deque()
        self._ended: deque[EndedRecord] = deque(maxlen=self.limits.window)
        self._since = self._strikes = 0
        self.problem = ""  # why the last comparison could not be made

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
        shares = _Shares(snapshot, 1.0 - self.limits.fairness_floor)
        fair: list[RankedStart] = []
        unfair: list[RankedStart] = []
        for start in starts:
            if shares.allow(start.job_id):
                shares.take(start)
                fair.append(start)
            else:
                unfair.append(start)
        return fair, unfair

    def fair_order(self, order: Sequence[JobId], snapshot: Snapshot) -> list[JobId]:
        """The order with the jobs last whose users already have their part of the machine."""
        shares = _Shares(snapshot, 1.0 - self.limits.fairness_floor)
        return sorted(order, key=lambda job_id: not shares.allow(job_id))

    @property
    def partitions(self) -> set[str | None]:
        """Those of the jobs that are compared."""
        return {one.job.partition for one in self._ended}

    @property
    def is_due(self) -> bool:
        return len(self._ended) >= self.limits.window and self._since >= self.limits.window // 2

    def note_ended(self, ended: EndedRecord) -> None:
        self._ended.append(ended)
        self._since += 1

    def compare(self, cluster: Cluster) -> GuardVerdict | None:
        """Compare policy and baseline over the window, whenever half of it is new. None: there is nothing to compare yet."""
        if not self.is_due:
            return None
        self._since, self.problem = 0, ""
        records = sorted(self._ended, key=lambda one: one.job.submit)
        try:
            mine, its = (_mean_slowdown(records, cluster, policy, self.max_wait) for policy in (self.policy, self.baseline))
        except QueuewiseError as refusal:
            self.problem = str(refusal)  # for example because nodes have left
            return None
        worse = mine > its * (1 + self.limits.margin)
        self._strikes = self._strikes + 1 if worse else 0
        real = float(np.mean([_slowdown(one.wait_s, one.runtime_s) for one in records]))
        errors = [abs(one.wait_s - one.predicted_wait_s) for one in records if one.predicted_wait_s is not None]
        error = float(np.mean(errors)) if errors else None
        return GuardVerdict(len(records), mine, its, real, error, self._strikes, self._strikes >= self.limits.strikes)


class _Shares:
    """What users hold of nodes: GPUs and cores (milli) and memory (MiB)."""

    def __init__(self, snapshot: Snapshot, most: float) -> None:
        self._most = most  # part of any of them that one user may have
        self._jobs = {one.job.job_id: one.job for one in snapshot.queue}
        self._partitions = [() if node.shape is None else node.shape.partitions for node in snapshot.nodes]
        self._capacity = np.array([_capacity(node.shape) for node in snapshot.nodes]).reshape(-1, 3)  # [N, 3]
        self._known: dict[str | None, NDArray[np.bool_]] = {}  # [N] by partition
        self._held: dict[str | None, Floats] = {}  # [N, 3] by user
        self._waiting: dict[str | None, set[str | None]] = {}  # partition -> users who wait for it
        for one in snapshot.queue:
            self._waiting.setdefault(one.job.partition, set()).add(one.job.user)
        for running in snapshot.running:
            self._add(running.job, running.places)

    def allow(self, job_id: JobId) -> bool:
        """Whether a job leaves others their part of the nodes that it may use. A user who has nothing of them may start one."""
        job = self._jobs[job_id]
        nodes = self._nodes_of(job.partition)
        held = self._held.get(job.user)
        others = any(users - {job.user} and (nodes & self._nodes_of(name)).any() for name, users in self._waiting.items())
        if held is None or not held[nodes].any() or not others:
            return True
        need = job.num_tasks * _needs(job)
        room = self._most * self._capacity[nodes].sum(axis=0) - held[nodes].sum(axis=0)
        return bool((need <= room)[need > 0].all())

    def take(self, start: RankedStart) -> None:
        self._add(self._jobs[start.job_id], start.places)

    def _add(self, job: JobRecord, places: Sequence[Place]) -> None:
        held = self._held.setdefault(job.user, np.zeros_like(self._capacity))
        for place in places:
            held[place.node] += place.tasks * _needs(job)

    def _nodes_of(self, partition: str | None) -> NDArray[np.bool_]:
        if partition not in self._known:
            wanted = None if partition is None else set(named_partitions(partition))
            may = [wanted is None or bool(wanted.intersection(names)) for names in self._partitions]
            self._known[partition] = np.array(may, np.bool_)
        return self._known[partition]


def _capacity(shape: NodeShape | None) -> tuple[float, float, float]:
    if shape is None:
        return np.inf, np.inf, np.inf
    return (
        float(shape.gpus * WHOLE_GPU),
        np.inf if shape.cpu_milli is None else float(shape.cpu_milli),
        np.inf if shape.mem_mib is None else float(shape.mem_mib),
    )


def _needs(job: JobRecord) -> Floats:
    """[3] what a task takes."""
    return np.array([job.gpu_milli, job.cpu_milli, job.mem_mib], np.float64)


def _slowdown(wait_s: float, runtime_s: float) -> float:
    return max((wait_s + runtime_s) / max(runtime_s, SLOWDOWN_FLOOR_S), 1.0)


def _mean_slowdown(records: Sequence[EndedRecord], cluster: Cluster, policy: str, max_wait: str | None) -> float:
    """Mean bounded slowdown of the window in the engine. Jobs that never start wait until all would have run one after another."""
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
    schedule = simulate(workload, cluster, policy, estimates=workload.requested, max_wait=max_wait)
    never = float(workload.submit.max() + workload.runtime.sum())
    wait = np.where(np.isfinite(schedule.start), schedule.start, never) - workload.submit
    return float(np.mean([_slowdown(w, r) for w, r in zip(wait.tolist(), workload.runtime.tolist(), strict=True)]))
