"""The agent beside Slurm: reads queue and nodes, decides, and records, advises or acts.

The cluster never depends on it: jobs that it has not looked at become eligible by themselves, a job that did not start where it was put is
given back to Slurm, and when the switch is turned off everything that waits for the agent is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError, QueuewiseError
from queuewise.policies.snapshot import JobRecord, WaitingJob
from queuewise.serve.audit_log import AuditLog
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.kill_switch import is_off
from queuewise.serve.live_guard import EndedRecord, LiveGuard
from queuewise.serve.live_policy import RankedStart
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory
from queuewise.serve.slurm_control import PLACED, ServerClock, SlurmCommands, forget_place, release_change, start_change, wait_longer
from queuewise.serve.slurm_records import MARK, SlurmJob, SlurmNodeState, SlurmReservation
from queuewise.serve.slurm_snapshot import SlurmState, take_snapshot
from queuewise.serve.snapshot_cluster import cluster_of

MODES = ("shadow", "advise", "act")
WAYS = ("priority", "start")
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
HIGHEST_FACTOR = 1_000_000  # SiteFactor of the first job
PATIENCE_S = 10.0  # how long a job may take to start where it was put
LONGEST_S = 10.0  # without a decision, even if nothing changes
RENEWED_AT_ONCE = 100  # jobs in one change
GLANCE_S = 0.2  # how often the switch is looked at between two cycles


@dataclass(frozen=True)
class Cycle:
    """What one look at the cluster led to."""

    now: float  # Unix time
    outcome: str  # of the answer, or `idle`, `off`, `unreachable`, `unlogged`
    policy: str
    starts: tuple[dict[str, Any], ...] = ()
    order: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    left_alone: dict[str, str] = field(default_factory=dict)
    held_back: dict[str, str] = field(default_factory=dict)  # by the guard
    expected_starts: dict[str, float | None] = field(default_factory=dict)  # Unix times, in the engine
    problem: str = ""
    waiting: int = 0
    running: int = 0

    def as_json(self, mode: str) -> dict[str, Any]:
        return {"mode": mode, **asdict(self)}


@dataclass
class SlurmAgent:
    policy: GuardedPolicy
    mode: str = "shadow"
    by: str = "priority"
    slurm: SlurmCommands = field(default_factory=SlurmCommands)
    partitions: tuple[str, ...] = ()
    history: RuntimeHistory = field(default_factory=RuntimeHistory)
    audit: AuditLog | None = None
    guard: LiveGuard | None = None
    home: Path | None = None  # of the switch
    tell: Callable[[str], None] = print
    expects: bool = True  # roll the queue forward in every cycle
    grace_s: int = 300  # as of the submit plugin

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.by not in WAYS:
            raise InputError(f"mode {self.mode!r} by {self.by!r}", hint=f"modes are {', '.join(MODES)}; by {' or '.join(WAYS)}")
        self.clock = ServerClock()
        self._placed: dict[str, float] = {}  # job -> when it was told to start (monotonic)
        self._promised: dict[str, dict[str, int]] = {}  # and where: node -> tasks
        self._factors: dict[str, int] = {}
        self._factor = HIGHEST_FACTOR
        self._first_seen: dict[str, tuple[JobRecord, float | None, float]] = {}  # job -> record, expected wait, submit (Unix time)
        self._learned: set[str] = set()
        self._predicted: dict[str, float] = {}
        self._cluster: Cluster | None = None
        self._seen: Hashable = None
        self._decide_at = 0.0  # even if nothing has changed; monotonic

    def run(self, interval_s: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Look at the cluster again and again."""
        while not until():
            began = time.monotonic()
            cycle = self.look()
            if cycle.problem:
                self.tell(f"{cycle.outcome}: {cycle.problem}")
            was_off = cycle.outcome == "off"
            while time.monotonic() < began + interval_s and not until() and self._is_off() == was_off:
                time.sleep(min(GLANCE_S, interval_s))

    def look(self) -> Cycle:
        """One cycle: read, decide, record, act. Whatever fails, the next one starts afresh."""
        try:
            jobs, nodes, reservations = self.slurm.jobs(), self.slurm.nodes(), self.slurm.reservations()
        except QueuewiseError as error:
            return Cycle(time.time(), "unreachable", self.policy.name, problem=str(error))
        now = self.clock.now(jobs)
        if self._is_off():
            return self._let_go(jobs, now)
        self._learn(jobs)
        seen = tuple((job.job_id, job.state, job.priority, job.array_text) for job in jobs), tuple(nodes), tuple(reservations)
        if seen == self._seen and time.monotonic() < self._decide_at:
            return Cycle(now, "idle", self.policy.name, waiting=sum(job.state == "PENDING" for job in jobs))
        try:
            cycle = self._decide(self._state(jobs, nodes, reservations, now), jobs, now)
            if cycle.outcome != "unlogged":
                self._seen = seen
            return cycle
        except QueuewiseError as error:
            return Cycle(now, "rejected", self.policy.name, problem=str(error))

    def _decide(self, state: SlurmState, jobs: Sequence[SlurmJob], now: float) -> Cycle:
        snapshot = state.snapshot
        self._cluster = cluster_of(snapshot)
        answer = self.policy.answer(snapshot)
        starts = list(answer.decided.starts)
        unfair: list[RankedStart] = []
        if self.guard is not None:
            starts, unfair = self.guard.fair_starts(starts, snapshot)
        order: tuple[str, ...] = ()
        expected: dict[str, float | None] = {}
        if (self.by == "priority" or self.expects) and snapshot.queue:
            forecast = self.policy.forecast(snapshot)
            order = tuple(str(job_id) for job_id in forecast.order)
            expected = {str(job_id): None if at is None else at + snapshot.epoch for job_id, at in forecast.starts.items()}
        self._note_waiting(snapshot.queue, snapshot.epoch, expected)
        commands = self._stragglers(jobs)
        if self.by == "start":
            commands += [self._start(state.jobs[str(one.job_id)], str(one.job_id), one.nodes) for one in starts]
            commands += self._renewals(state, {str(one.job_id) for one in starts}, now)
        else:
            commands += self._reorder(order)
        wake_in = LONGEST_S if answer.decided.wake_at is None else answer.decided.wake_at - snapshot.now
        self._decide_at = time.monotonic() + min(max(wake_in, 0.0), LONGEST_S)
        allowed = len(commands)
        if self.guard is not None and self.mode == "act":
            allowed = self.guard.allowed_actions(len(commands))
        cycle = Cycle(
            now, answer.outcome, answer.policy, tuple(one.as_json() for one in starts), order, tuple(commands[:allowed]),
            dict(state.left_alone), {str(one.job_id): "the fairness floor" for one in unfair}, expected, answer.problem,
            len(snapshot.queue), len(snapshot.running),
        )  # fmt: skip
        return self._carry_out(cycle, state, answer)

    def _carry_out(self, cycle: Cycle, state: SlurmState, answer: Answer) -> Cycle:
        """Record the decision, then do it. What cannot be recorded is not done."""
        if self.audit is not None and (cycle.starts or cycle.commands or answer.problem):
            entry = {
                "time": cycle.now, "mode": self.mode, "by": self.by, "policy": answer.policy, "max_wait": self.policy.max_wait,
                "outcome": answer.outcome, "problem": answer.problem, "decision": answer.decided.as_json(), "commands": cycle.commands,
                "snapshot": asdict(state.snapshot),
            }  # fmt: skip
            try:
                self.audit.write(entry)
            except OSError as error:
                return replace(cycle, outcome="unlogged", commands=(), problem=f"the audit log cannot be written: {error.strerror}")
        if self.mode == "advise":
            for command in cycle.commands:
                self.tell(f"scontrol update {command}")
        if self.mode == "act" and not self._is_off():
            complaints = self.slurm.update(cycle.commands)
            self._note_done(cycle)
            if complaints:
                return replace(cycle, problem="; ".join(complaints)[:500])
        return cycle

    def _start(self, job: SlurmJob, job_id: str, nodes: Sequence[str]) -> str:
        self._factor = self._factor - 1 if self._factor > 1 else HIGHEST_FACTOR
        return start_change(job, job_id, nodes, self._factor)

    def _renewals(self, state: SlurmState, started: set[str], now: float) -> list[str]:
        """Keep jobs waiting whose grace would end although they were looked at."""
        kept = [
            job_id
            for one in state.snapshot.queue
            if (job_id := str(one.job.job_id)) not in started
            and (job := state.jobs[job_id]).comment.startswith(MARK)
            and job.comment != PLACED
            and now < job.eligible < now + self.grace_s / 2
        ]
        return [wait_longer(kept[at : at + RENEWED_AT_ONCE], self.grace_s) for at in range(0, len(kept), RENEWED_AT_ONCE)]

    def _reorder(self, order: Sequence[str]) -> list[str]:
        """Changes of SiteFactor, only if the present ones give another order."""
        present = [self._factors.get(job_id, 0) for job_id in order]
        if all(one > other for one, other in pairwise(present)) and all(present):
            return []
        step = max(HIGHEST_FACTOR // (len(order) + 1), 1)
        wanted = {job_id: HIGHEST_FACTOR - step * position for position, job_id in enumerate(order)}
        return [f"JobId={job_id} SiteFactor={factor}" for job_id, factor in wanted.items() if self._factors.get(job_id) != factor]

    def _note_done(self, cycle: Cycle) -> None:
        now = time.monotonic()
        where = {start["job_id"]: start["places"] for start in cycle.starts}
        for command in cycle.commands:
            parts = dict(part.partition("=")[::2] for part in command.split())
            job_id = parts["JobId"]  # renewals name several, and are not noted
            if parts.get("ReqNodeList"):
                self._placed[job_id] = now
                self._promised[job_id] = self._tasks_by_node(where.get(job_id, ()))
            elif "ReqNodeList" in parts:
                self._placed.pop(job_id, None)
                self._promised.pop(job_id, None)
            if "SiteFactor" in parts:
                self._factors[job_id] = int(parts["SiteFactor"])

    def _tasks_by_node(self, places: Sequence[Sequence[Any]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for n, tasks, _ in places:
            if self._cluster is not None:
                name = self._cluster.node_names[n]
                found[name] = found.get(name, 0) + tasks
        return found

    def _stragglers(self, jobs: Sequence[SlurmJob]) -> list[str]:
        """Give jobs back to Slurm that wait although they were told to start: also those that an agent before this one has told."""
        now = time.monotonic()
        waiting = {job.job_id for job in jobs if job.state == "PENDING" and job.comment == PLACED}
        for job_id in set(self._placed) - waiting:
            del self._placed[job_id]
            self._promised.pop(job_id, None)
        late = [job_id for job_id in waiting if now > self._placed.setdefault(job_id, now) + PATIENCE_S]
        return [forget_place(job_id) for job_id in sorted(late)]

    def _let_go(self, jobs: Sequence[SlurmJob], now: float) -> Cycle:
        """Switched off: release all that waits for us."""
        waiting = [job for job in jobs if job.state == "PENDING" and job.comment.startswith(MARK)]
        commands = [forget_place(job.job_id) for job in waiting if job.comment == PLACED]
        commands += [release_change(job.job_id) for job in waiting if job.comment != PLACED and job.eligible > now]
        if self.mode == "act":
            self.slurm.update(commands)
        return Cycle(
            now, "off", self.policy.name, commands=tuple(commands), problem="" if not commands else f"released {len(commands)} jobs"
        )

    def _is_off(self) -> bool:
        return self.home is not None and is_off(self.home)

    # --- what is known

    def _state(
        self, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNodeState], reservations: Sequence[SlurmReservation], now: float
    ) -> SlurmState:
        predicts = self.policy.goes_by_predictions or len(self.history) > 0
        if predicts:
            self._predict(jobs)
        told = {job_id: self._promised[job_id] for job_id in self._placed if job_id in self._promised}
        predict = (lambda job: self._predicted.get(job.job_id, job.limit_s)) if predicts else None
        return take_snapshot(jobs, nodes, now, partitions=self.partitions, predict=predict, reservations=reservations, promised=told)

    def _predict(self, jobs: Sequence[SlurmJob]) -> None:
        """Predict the runtimes of new jobs, once: what is learned later is for later jobs."""
        present = {job.job_id for job in jobs if job.state in ("PENDING", "RUNNING")}
        self._predicted = {job_id: value for job_id, value in self._predicted.items() if job_id in present}
        new = [job for job in jobs if job.job_id in present and job.job_id not in self._predicted]
        values = self.history.predict_many([(job.user, job.name, job.tasks, job.limit_s) for job in new])
        self._predicted |= {job.job_id: value for job, value in zip(new, values, strict=True)}

    def _note_waiting(self, queue: Sequence[WaitingJob], epoch: float, expected: dict[str, float | None]) -> None:
        for one in queue:
            job_id = str(one.job.job_id)
            if job_id not in self._first_seen:
                at, submit = expected.get(job_id), one.job.submit + epoch
                self._first_seen[job_id] = one.job, None if at is None else max(at - submit, 0.0), submit

    def _learn(self, jobs: Sequence[SlurmJob]) -> None:
        """Learn from jobs that have ended since the last look, and let the guard judge."""
        for job in jobs:
            if job.state not in ENDED or job.job_id in self._learned or job.start <= 0 or job.end <= job.start:
                continue
            self._learned.add(job.job_id)
            self.history.note(EndedRun(job.user, job.name, job.tasks, job.limit_s, job.end - job.start, job.end))
            seen = self._first_seen.pop(job.job_id, None)
            if self.guard is not None and seen is not None:
                record = replace(seen[0], submit=seen[2])
                self.guard.note_ended(EndedRecord(record, job.start - job.submit, job.end - job.start, seen[1]))
        if self.guard is not None and self._cluster is not None and not self.policy.distrusted:
            verdict = self.guard.compare(self._cluster)
            if verdict is not None and verdict.trips:
                self.policy.distrusted = (
                    f"{self.policy.name} had a mean bounded slowdown of {verdict.policy_slowdown:.2f} in the engine, "
                    f"{self.guard.baseline} {verdict.baseline_slowdown:.2f}"
                )
                self.tell(f"switched to {self.policy.fallback}: {self.policy.distrusted}")
