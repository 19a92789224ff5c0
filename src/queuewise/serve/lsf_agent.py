"""The agent beside LSF: reads jobs and hosts by their commands, decides, and prints or runs the commands that follow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from queuewise.errors import InputError, QueuewiseError
from queuewise.serve.audit_log import AuditLog, decision_entry
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.holding import HeldJob, divide_held
from queuewise.serve.kill_switch import is_off, sleep_until_switched
from queuewise.serve.live_guard import LiveGuard
from queuewise.serve.live_policy import Decided, RankedStart
from queuewise.serve.lsf_advice import END, AdviceServer, advice_text
from queuewise.serve.lsf_records import (
    HELD,
    HOST_FIELDS,
    JOB_FIELDS,
    QUEUE_FIELDS,
    WAITING,
    LsfJob,
    read_lsf_hosts,
    read_lsf_jobs,
    read_lsf_queues,
)
from queuewise.serve.lsf_snapshot import (
    PLACED,
    LsfState,
    brun_command,
    give_back_commands,
    keep_command,
    order_commands,
    resume_commands,
    take_lsf_snapshot,
)
from queuewise.serve.runtime_history import RuntimeHistory

TIMEOUT_S = 30.0
PATIENCE_S = 60.0  # how long a job may take to start where it was put
Runs = Callable[[Sequence[str]], str]


def run_command(command: Sequence[str]) -> str:
    """Run a command of LSF and return what it prints."""
    try:
        env = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_S, check=False, env=env
        )  # names of jobs may hold any bytes
    except FileNotFoundError:
        raise InputError(f"{command[0]} was not found", hint="source LSF's profile first") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} took longer than {TIMEOUT_S:.0f} s", hint="mbatchd may be down") from None
    if done.returncode:
        raise InputError(f"{' '.join(command)} failed: {done.stderr.strip()[:300]}", hint="check LSF with lsid")
    return done.stdout


def all_given_back(jobs: Sequence[LsfJob], now: float) -> list[tuple[str, ...]]:
    """The commands after which no job waits for us, or on hosts of ours."""
    waiting = [job for job in jobs if job.state in (*WAITING, *HELD)]
    ours = [job for job in waiting if job.description == PLACED or (job.is_marked and not job.begins_later(now))]
    return [command for job in ours for command in give_back_commands(job)]


def hand_over(run: Runs = run_command) -> str:
    """Leave all jobs to LSF, without an agent. Returns what was done."""
    now, problems = time.time(), list[str]()
    try:
        commands = all_given_back(read_lsf_jobs(run(("bjobs", "-u", "all", "-o", " ".join(JOB_FIELDS), "-json")), now), now)
    except QueuewiseError as error:
        return f"jobs that waited for an agent start by themselves when their grace ends; LSF could not be asked: {error}"
    for command in commands:
        try:
            run(command)
        except QueuewiseError as error:
            problems.append(str(error))
    given_back = len({command[-1] for command in commands})
    return "; ".join([f"{given_back} jobs were given back to LSF", *problems])[:500]


@dataclass
class LsfAgent:
    """Whatever it does, jobs start by themselves without it: the esub gives them a begin time, not a hold."""

    policy: GuardedPolicy
    mode: str = "shadow"
    by: str = "order"
    queues: tuple[str, ...] = ()
    audit: AuditLog | None = None
    guard: LiveGuard | None = None
    home: Path | None = None  # of the switch
    run: Runs = field(default=run_command)
    history: RuntimeHistory = field(default_factory=RuntimeHistory)  # of jobs that have ended; bjobs does not list them for long

    def __post_init__(self) -> None:
        self._order: list[str] = []  # as it was last brought about
        self._advised = END
        self._listed: list[LsfJob] = []  # all jobs of the last look
        self._placed: dict[str, float] = {}  # job -> when it was first seen to wait on hosts of ours (monotonic)

    def watch(self, interval_s: float, each: Callable[[dict[str, Any]], None]) -> NoReturn:
        """Look again and again."""
        while True:
            began, was_off = time.monotonic(), self._is_off()
            cycle = self.look()
            each(cycle)
            if self._is_off() == was_off:
                sleep_until_switched(began + interval_s, self.home)

    def look(self) -> dict[str, Any]:
        """One cycle: read, decide, record, act. Whatever fails, the next one starts afresh."""
        now = time.time()
        cycle: dict[str, Any] = {"now": now, "outcome": "off", "policy": self.policy.name, "starts": [], "commands": [], "problem": ""}
        try:
            return self._let_go(cycle) if self._is_off() else self._look(cycle)
        except QueuewiseError as error:
            return {**cycle, "outcome": "unreachable", "problem": str(error)}
        except Exception as error:  # whatever one job, host or policy leads to, the agent goes on
            return {**cycle, "outcome": "failed", "problem": f"{type(error).__name__}: {error}"[:500]}

    def _look(self, cycle: dict[str, Any]) -> dict[str, Any]:
        now = cycle["now"]
        state = self._read(now)
        answer = self.policy.answer(state.snapshot)
        starts, unfair = list(answer.decided.starts), list[RankedStart]()
        if self.guard is not None:
            starts, unfair = self.guard.fair_starts(starts, state.snapshot)
        commands, let_go = self._commands(state, starts, now)
        if self.guard is not None and self.mode == "act":
            commands = commands[: self.guard.allowed_actions(len(commands))]
        cycle |= {
            "outcome": answer.outcome, "policy": answer.policy, "problem": answer.problem, "commands": [list(one) for one in commands],
            "starts": [start.as_json() for start in starts], "left_alone": {**state.left_alone, **let_go},
            "held_back": {str(one.job_id): "the fairness floor" for one in unfair},
        }  # fmt: skip
        if self.audit is not None and commands:
            try:
                self.audit.write(self._entry(cycle, state, answer))
            except OSError as error:
                return {**cycle, "outcome": "unlogged", "problem": f"the audit log cannot be written: {error.strerror}", "commands": []}
        if self.mode == "act":
            cycle["problem"] = "; ".join(filter(None, (cycle["problem"], *self._do_all(commands))))[:500]
        return cycle

    def _entry(self, cycle: dict[str, Any], state: LsfState, answer: Answer) -> dict[str, Any]:
        return decision_entry(
            answer, state.snapshot, self.policy, mode=self.mode, by=self.by,
            fairness_floor=None if self.guard is None else self.guard.limits.fairness_floor, held_back=list(cycle.get("held_back", ())),
            commands=cycle["commands"],
        )  # fmt: skip

    def _jobs(self, now: float) -> list[LsfJob]:
        return read_lsf_jobs(self.run(("bjobs", "-u", "all", "-o", " ".join(JOB_FIELDS), "-json")), now)

    def _read(self, now: float) -> LsfState:
        jobs = self._listed = self._jobs(now)
        hosts = read_lsf_hosts(self.run(("bhosts", "-o", " ".join(HOST_FIELDS), "-json")))
        active = read_lsf_queues(self.run(("bqueues", "-o", " ".join(QUEUE_FIELDS), "-json")))
        steered = {name: queue for name, queue in active.items() if not self.queues or name in self.queues}
        predict = self._predict if self.policy.goes_by_predictions else None
        return take_lsf_snapshot(jobs, hosts, now, queues=steered, held=self.by != "order", predict=predict)

    def _predict(self, job: LsfJob, limit_s: float) -> float:
        """The limit, while nothing is known of jobs like it."""
        return self.history.predict(job.user, job.project, job.slots, limit_s)

    def advise(self, server: AdviceServer) -> str:
        """Give the plugin new advice; returns what went wrong. Without advice, and when switched off, LSF decides."""
        if self._is_off():
            server.give(advice_text(Decided(()), ()))
            return ""
        try:
            state = self._read(time.time())
            answer = self.policy.answer(state.snapshot)
            advice = advice_text(answer.decided, [one.job.job_id for one in state.snapshot.queue])
            if self.audit is not None and advice not in (self._advised, END):
                self.audit.write(decision_entry(answer, state.snapshot, self.policy, mode="advise plugin"))
            self._advised = advice
            server.give(advice)
        except Exception as error:
            return str(error) if isinstance(error, QueuewiseError) else f"{type(error).__name__}: {error}"
        return answer.problem

    def _commands(self, state: LsfState, starts: Sequence[RankedStart], now: float) -> tuple[list[tuple[str, ...]], dict[str, str]]:
        """What to run, and the jobs that are given back to LSF, with the reason."""
        waiting = [str(one.job.job_id) for one in state.snapshot.queue]
        forecast = self.policy.forecast(state.snapshot) if waiting else None
        if self.by == "order":
            order = [] if forecast is None else [str(job_id) for job_id in forecast.order]
            present = [job_id for job_id in self._order if job_id in state.jobs]
            present += [job_id for job_id in waiting if job_id not in present]
            self._order = present
            return order_commands(order, present) if order else [], {}
        started = {str(start.job_id) for start in starts}
        jobs = [state.jobs[job_id] for job_id in waiting if job_id not in started]
        held = [HeldJob(job.job_id, job.submit, job.begin or 0.0, job.grace_s) for job in jobs]
        expected = None if forecast is None else {str(job_id): at for job_id, at in forecast.starts.items()}
        kept, let_go = divide_held(held, expected, now=now, max_wait=self.policy.max_wait)
        commands = [command for job in self._stragglers() for command in give_back_commands(job)]
        commands += [command for start in starts for command in self._start(start, state)]
        commands += [command for job_id in let_go for command in give_back_commands(state.jobs[job_id])]
        return commands + [keep_command(state.jobs[one.job_id], now + one.grace_s) for one in kept], let_go

    def _start(self, start: RankedStart, state: LsfState) -> list[tuple[str, ...]]:
        job = state.jobs[str(start.job_id)]
        if self.by == "resume":
            return resume_commands(start, job)
        per_task = next(one.job.cpu_milli // 1000 for one in state.snapshot.queue if one.job.job_id == start.job_id)
        return [brun_command(start, job, per_task)]

    def _stragglers(self) -> list[LsfJob]:
        """Jobs that wait although they were told to start, also by an agent before this one."""
        now = time.monotonic()
        waiting = {job.job_id: job for job in self._listed if job.state in WAITING and job.description == PLACED}
        self._placed = {job_id: self._placed.get(job_id, now) for job_id in waiting}
        return [job for job_id, job in waiting.items() if now > self._placed[job_id] + PATIENCE_S]

    def _let_go(self, cycle: dict[str, Any]) -> dict[str, Any]:
        """Switched off: no job waits for us any longer."""
        if self.by == "order":
            return cycle
        commands = all_given_back(self._jobs(cycle["now"]), cycle["now"])
        problems = [self._do(one) for one in commands] if self.mode == "act" else []
        return {**cycle, "commands": [list(one) for one in commands], "problem": "; ".join(filter(None, problems))[:500]}

    def _do_all(self, commands: Sequence[tuple[str, ...]]) -> list[str]:
        """Run commands until the switch is turned; returns what went wrong."""
        problems: list[str] = []
        for at, command in enumerate(commands):
            if self._is_off():
                return [*problems, f"stopped before {len(commands) - at} of {len(commands)} commands"]
            problem = self._do(command)
            if problem:
                problems.append(problem)
            elif command[0] == "btop":  # it is there now, and the others follow it
                self._order.remove(command[1])
                self._order.insert(int(command[2]) - 1, command[1])
        return problems

    def _do(self, command: Sequence[str]) -> str:
        try:
            self.run(command)
        except QueuewiseError as error:
            return str(error)
        return ""

    def _is_off(self) -> bool:
        return self.home is not None and is_off(self.home)
