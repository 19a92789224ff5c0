"""The agent beside Slurm: reads queue and nodes, decides, and records, advises or acts.

The cluster never depends on it: jobs that it has not looked at become eligible by themselves, a job that did not start where it was put is
given back to Slurm, and when the switch is turned off everything that waits for the agent is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError, QueuewiseError
from queuewise.policies.snapshot import JobRecord, Snapshot, WaitingJob
from queuewise.serve.audit_log import AuditLog, decision_entry
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.holding import HeldJob, divide_held
from queuewise.serve.kill_switch import is_off, sleep_until_switched
from queuewise.serve.live_guard import EndedRecord, LiveGuard
from queuewise.serve.live_policy import RankedStart
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory
from queuewise.serve.slurm_control import (
    PLACED,
    ServerClock,
    SlurmCommands,
    forget_place,
    give_back,
    grace_of,
    ours,
    release_change,
    start_change,
    wait_longer,
)
from queuewise.serve.slurm_demand import NOT_RELEASED
from queuewise.serve.slurm_order import MadeOrder, site_changes
from queuewise.serve.slurm_records import SlurmJob, SlurmNodeState, SlurmReservation
from queuewise.serve.slurm_snapshot import Manner, SlurmState, take_snapshot, tasks_of
from queuewise.serve.slurm_watchdog import PATIENCE_S, Watchdog
from queuewise.serve.snapshot_cluster import cluster_of

MODES = ("shadow", "advise", "act")
WAYS = ("priority", "start")
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
HIGHEST_FACTOR = 1_000_000  # SiteFactor of the first job that is to start
LONGEST_S = 10.0  # without a decision, even if nothing changes
RENEWED_AT_ONCE = 100  # jobs in one change


@dataclass(frozen=True)
class Cycle:
    """What one look at the cluster led to."""

    now: float  # Unix time
    outcome: str  # of the answer, or `idle`, `off`, `unreachable`, `unlogged`, `failed`
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
    clock: ServerClock = field(default_factory=ServerClock)
    watchdog: Watchdog | None = None  # gives back what the agent leaves if it is killed

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.by not in WAYS:
            raise InputError(f"mode {self.mode!r} by {self.by!r}", hint=f"modes are {', '.join(MODES)}; by {' or '.join(WAYS)}")
        self._placed: dict[str, float] = {}  # job -> when it was told to start (monotonic)
        self._promised: dict[str, dict[str, int]] = {}  # and where: node -> tasks
        self._factor = HIGHEST_FACTOR
        self._made_order = MadeOrder(self.home)
        self._first_seen: dict[str, tuple[JobRecord, float | None, float]] = {}  # job -> record, expected wait, submit (Unix time)
        self._learned: set[str] = set()
        self._predicted: dict[str, float] = {}
        self._snapshot: Snapshot | None = None  # the last one
        self._node_sets: dict[str, tuple[str, ...]] = {}  # that records of jobs name, also of those that have ended
        self._memory_counts: bool | None = None
        self._seen: Hashable = None
        self._decide_at = 0.0  # even if nothing has changed; monotonic

    def run(self, interval_s: float, *, until: Callable[[], bool] = lambda: False, each: Callable[[Cycle], None] | None = None) -> None:
        """Look at the cluster again and again. `each` is shown every cycle."""
        while not until():
            began, was_off = time.monotonic(), self._is_off()
            cycle = self.look()
            if each is not None:
                each(cycle)
            if cycle.problem:
                self.tell(f"{cycle.outcome}: {cycle.problem}")
            if self._is_off() == was_off:
                sleep_until_switched(began + interval_s, self.home, until)

    def look(self) -> Cycle:
        """One cycle: read, decide, record, act. Whatever fails, the next one starts afresh."""
        try:
            return self._look()
        except Exception as error:  # whatever one job, node or policy leads to, the agent goes on
            return Cycle(self.clock.now(), "failed", self.policy.name, problem=f"{type(error).__name__}: {error}"[:500])

    def _look(self) -> Cycle:
        try:
            jobs, nodes, reservations = self.slurm.jobs(), self.slurm.nodes(), self.slurm.reservations()
            if self._memory_counts is None:
                self._memory_counts = self.slurm.memory_counts()
            factors = self._present_factors(jobs) if self.by == "priority" else {}
        except QueuewiseError as error:
            return Cycle(time.time(), "unreachable", self.policy.name, problem=str(error))
        now = self.clock.now(jobs)
        if self._is_off():
            return self._let_go(jobs, now)
        self._learn(jobs)
        listed = tuple((job.job_id, job.state, job.priority, job.array_text, job.comment, job.eligible) for job in jobs)
        seen = listed, tuple(nodes), tuple(reservations)
        if seen == self._seen and time.monotonic() < self._decide_at:
            return Cycle(now, "idle", self.policy.name, waiting=sum(job.state == "PENDING" for job in jobs))
        try:
            cycle = self._decide(self._state(jobs, nodes, reservations, now), jobs, factors, now)
            if cycle.outcome != "unlogged":
                self._seen = seen
            return cycle
        except QueuewiseError as error:
            return Cycle(now, "rejected", self.policy.name, problem=str(error))

    def _present_factors(self, jobs: Sequence[SlurmJob]) -> dict[str, int]:
        """The SiteFactors of waiting jobs."""
        waiting = [job for job in jobs if job.state == "PENDING"]
        listed = self.slurm.site_factors() if any(job.site_factor is None for job in waiting) else {}
        return {job.job_id: listed.get(job.number, 0) if job.site_factor is None else job.site_factor for job in waiting}

    def _decide(self, state: SlurmState, jobs: Sequence[SlurmJob], factors: Mapping[str, int], now: float) -> Cycle:
        snapshot = self._snapshot = state.snapshot
        answer = self.policy.answer(snapshot)
        starts, unfair = list(answer.decided.starts), list[RankedStart]()
        if self.guard is not None:
            starts, unfair = self.guard.fair_starts(starts, snapshot)
        order, expected = self._expectation(snapshot)
        self._note_waiting(snapshot.queue, state.node_sets, snapshot.epoch, expected or {})
        commands, left_alone = self._stragglers(jobs, state.nodes), dict(state.left_alone)
        commands += self._releases(jobs, left_alone, now)
        if self.by == "start":
            commands += [self._start(state.jobs[str(one.job_id)], str(one.job_id), one.nodes) for one in starts]
            held = self._held(state, {str(one.job_id) for one in starts}, now)
            kept, let_go = divide_held(held, expected, now=now, max_wait=self.policy.max_wait)
            left_alone |= let_go
            commands += [release_change(job_id) for job_id in let_go]
            commands += _renewals(kept, now)
        else:
            ranked = list({(job := state.jobs[job_id]).job_id: job for job_id in order}.values())
            commands += site_changes(ranked, factors)
        wake_in = LONGEST_S if answer.decided.wake_at is None else answer.decided.wake_at - snapshot.now
        self._decide_at = time.monotonic() + min(max(wake_in, 0.0), LONGEST_S)
        allowed = len(commands)
        if self.guard is not None and self.mode == "act":
            allowed = self.guard.allowed_actions(len(commands))
        cycle = Cycle(
            now, answer.outcome, answer.policy, tuple(one.as_json() for one in starts), order, tuple(commands[:allowed]),
            left_alone, {str(one.job_id): "the fairness floor" for one in unfair}, expected or {},
            "; ".join(filter(None, (answer.problem, self.policy.forecast_problem))),
            len(snapshot.queue), len(snapshot.running),
        )  # fmt: skip
        return self._carry_out(cycle, state, answer)

    def _expectation(self, snapshot: Snapshot) -> tuple[tuple[str, ...], dict[str, float | None] | None]:
        """The order in which waiting jobs would start, and when (Unix times). None: nobody knows."""
        if not snapshot.queue or not (self.by == "priority" or self.expects):
            return (), None
        forecast = self.policy.forecast(snapshot)
        if forecast is None:
            return (), None
        order = forecast.order if self.guard is None else self.guard.fair_order(forecast.order, snapshot)
        starts = {str(job_id): None if at is None else at + snapshot.epoch for job_id, at in forecast.starts.items()}
        return tuple(str(job_id) for job_id in order), starts

    def _carry_out(self, cycle: Cycle, state: SlurmState, answer: Answer) -> Cycle:
        """Record the decision, then do it. What cannot be recorded is not done."""
        if self.audit is not None and (cycle.starts or cycle.commands or answer.problem):
            epoch = state.snapshot.epoch
            starts = {job_id: None if at is None else at - epoch for job_id, at in cycle.expected_starts.items()}
            entry = decision_entry(
                answer, state.snapshot, self.policy, mode=self.mode, by=self.by, cluster_time=cycle.now,
                fairness_floor=None if self.guard is None else self.guard.limits.fairness_floor, held_back=list(cycle.held_back),
                forecast_policy=self.policy.forecast_policy if cycle.expected_starts else "", order=cycle.order, expected_starts=starts,
                commands=cycle.commands,
            )  # fmt: skip
            try:
                self.audit.write(entry)
            except OSError as error:
                return replace(cycle, outcome="unlogged", commands=(), problem=f"the audit log cannot be written: {error.strerror}")
        if self.mode == "act" and self.by == "priority":
            try:
                self._made_order.note([job_id for command in cycle.commands if (job_id := _ordered_job(command))])
            except OSError as error:
                return replace(cycle, outcome="unlogged", commands=(), problem=f"{self.home} cannot be written: {error.strerror}")
        if self.mode == "advise":
            for command in cycle.commands:
                self.tell(f"scontrol update {command}")
        if self.mode == "act" and not self._is_off():
            if self.watchdog is not None and cycle.commands:
                self.watchdog.ensure()
            complaints = self.slurm.update(cycle.commands, lambda: not self._is_off())
            self._note_done(cycle)
            if complaints:
                return replace(cycle, problem="; ".join(complaints)[:500])
        return cycle

    def _start(self, job: SlurmJob, job_id: str, nodes: Sequence[str]) -> str:
        self._factor = self._factor - 1 if self._factor > 1 else HIGHEST_FACTOR
        return start_change(job, job_id, nodes, self._factor)

    def _releases(self, jobs: Sequence[SlurmJob], left_alone: Mapping[str, str], now: float) -> list[str]:
        """Jobs that wait for us although they are left alone become eligible now."""
        return [
            release_change(job.address)
            for job in jobs
            if ours(job, now) and job.comment != PLACED and job.eligible > now
            and (why := {left_alone.get(task, "") for task in tasks_of(job, 0)}) and not why & {"", *NOT_RELEASED}
        ]  # fmt: skip

    def _held(self, state: SlurmState, started: set[str], now: float) -> list[HeldJob]:
        """The jobs that wait for us and do not start now."""
        waiting = [(str(one.job.job_id), state.jobs[str(one.job.job_id)]) for one in state.snapshot.queue]
        held = [(k, job) for k, job in waiting if k not in started and ours(job, now) and job.comment != PLACED]
        return [HeldJob(k, job.submit, job.eligible, grace_of(job)) for k, job in held]

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

    def _tasks_by_node(self, places: Sequence[Sequence[Any]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for n, tasks, _ in places:
            if self._snapshot is not None and (shape := self._snapshot.nodes[n].shape) is not None:
                found[shape.name] = found.get(shape.name, 0) + tasks
        return found

    def _stragglers(self, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNodeState]) -> list[str]:
        """Give jobs back to Slurm that wait although they were told to start, or whose nodes have left. An agent before this one may
        have told them."""
        now = time.monotonic()
        usable = {node.name for node in nodes if node.usable}
        waiting = {job.job_id: job for job in jobs if job.state == "PENDING" and job.comment == PLACED}
        for job_id in set(self._placed) - set(waiting):
            del self._placed[job_id]
            self._promised.pop(job_id, None)
        late = [
            job
            for job_id, job in waiting.items()
            if now > self._placed.setdefault(job_id, now) + PATIENCE_S or not set(job.required) <= usable
        ]
        return [forget_place(job, self.clock.now(jobs)) for job in sorted(late, key=lambda job: job.number)]

    def _let_go(self, jobs: Sequence[SlurmJob], now: float) -> Cycle:
        """Switched off: release all that waits for us, and take our order back."""
        commands = give_back(jobs, now) + self._made_order.undone(jobs)
        complaints = []
        if self.mode == "act":
            complaints = self.slurm.update(commands)
            if not complaints:
                self._made_order.forget()
        problem = "; ".join(complaints)[:500] or (f"released {len(commands)} jobs" if commands else "")
        return Cycle(now, "off", self.policy.name, commands=tuple(commands), problem=problem)

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
        manner = Manner(self.partitions, places=self.by == "start", memory_counts=bool(self._memory_counts))
        return take_snapshot(jobs, nodes, now, manner=manner, predict=predict, reservations=reservations, promised=told)

    def _predict(self, jobs: Sequence[SlurmJob]) -> None:
        """Predict the runtimes of new jobs, once: what is learned later is for later jobs."""
        present = {job.job_id for job in jobs if job.state in ("PENDING", "RUNNING")}
        self._predicted = {job_id: value for job_id, value in self._predicted.items() if job_id in present}
        new = [job for job in jobs if job.job_id in present and job.job_id not in self._predicted]
        values = self.history.predict_many([(job.user, job.name, job.tasks, job.limit_s) for job in new])
        self._predicted |= {job.job_id: value for job, value in zip(new, values, strict=True)}

    def _note_waiting(
        self, queue: Sequence[WaitingJob], node_sets: Mapping[str, tuple[str, ...]], epoch: float, expected: Mapping[str, float | None]
    ) -> None:
        for one in queue:
            job_id = str(one.job.job_id)
            if job_id not in self._first_seen:
                at, submit = expected.get(job_id), one.job.submit + epoch
                self._first_seen[job_id] = one.job, None if at is None else max(at - submit, 0.0), submit
        named = {record.partition for record, _, _ in self._first_seen.values()}
        named |= set() if self.guard is None else self.guard.partitions
        self._node_sets = {name: nodes for name, nodes in {**self._node_sets, **node_sets}.items() if name in named}

    def _learn(self, jobs: Sequence[SlurmJob]) -> None:
        """Learn from jobs that have ended since the last look, and let the guard judge."""
        listed = {job.job_id for job in jobs}
        self._learned &= listed
        self._made_order.forget_others(listed)
        self._first_seen = {
            job_id: seen for job_id, seen in self._first_seen.items() if job_id in listed or job_id.partition("_")[0] in listed
        }
        for job in jobs:
            if job.state not in ENDED or job.job_id in self._learned or job.start <= 0 or job.end <= job.start:
                continue
            self._learned.add(job.job_id)
            self.history.note(EndedRun(job.user, job.name, job.tasks, job.limit_s, job.end - job.start, job.end))
            seen = self._first_seen.pop(job.job_id, None)
            if self.guard is not None and seen is not None:
                record = replace(seen[0], submit=seen[2])
                self.guard.note_ended(EndedRecord(record, job.start - job.submit, job.end - job.start, seen[1]))
        if self.guard is not None and self.guard.is_due and self._snapshot is not None and not self.policy.distrusted:
            self._judge(self.guard, self._snapshot)

    def _judge(self, guard: LiveGuard, snapshot: Snapshot) -> None:
        verdict = guard.compare(self._cluster_of_all(snapshot))
        if verdict is None:
            self.tell(f"the last {guard.limits.window} jobs cannot be replayed: {guard.problem}")
            return
        self.tell(str(verdict))
        if verdict.trips:
            self.policy.distrusted = f"{self.policy.name} did worse than {guard.baseline}: {verdict}"
            self.tell(f"switched to {self.policy.fallback}: {self.policy.distrusted}")

    def _cluster_of_all(self, snapshot: Snapshot) -> Cluster:
        """The cluster with all sets of nodes that jobs of the guard's window could use."""

        def sets_of(name: str) -> set[str]:
            return {label for label, nodes in self._node_sets.items() if name in nodes}

        nodes = tuple(
            replace(node, shape=replace(shape, partitions=tuple(sorted({*shape.partitions, *sets_of(shape.name)}))))
            for node in snapshot.nodes
            if (shape := node.shape) is not None
        )
        return cluster_of(replace(snapshot, nodes=nodes))


def _renewals(kept: Sequence[HeldJob], now: float) -> list[str]:
    """The changes that keep jobs waiting, each for as long as at its submission."""
    by_grace: dict[int, list[str]] = {}
    for one in kept:
        by_grace.setdefault(int(one.grace_s), []).append(one.job_id)
    return [
        wait_longer(jobs[at : at + RENEWED_AT_ONCE], grace_s, now)
        for grace_s, jobs in by_grace.items()
        for at in range(0, len(jobs), RENEWED_AT_ONCE)
    ]


def _ordered_job(command: str) -> str:
    """The id of the job, or array, that a change gives a SiteFactor; empty if it gives none."""
    parts = dict(part.partition("=")[::2] for part in command.split())
    return parts["JobId"].partition("_[")[0] if "SiteFactor" in parts else ""
