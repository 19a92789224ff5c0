"""The agent beside LSF: reads jobs and hosts by their commands, decides, and prints or runs the commands that follow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from queuewise.errors import InputError, QueuewiseError
from queuewise.serve.audit_log import AuditLog
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.kill_switch import is_off
from queuewise.serve.live_policy import Decided
from queuewise.serve.lsf_advice import AdviceServer, advice_text
from queuewise.serve.lsf_records import HOST_FIELDS, JOB_FIELDS, QUEUE_FIELDS, read_lsf_hosts, read_lsf_jobs, read_lsf_queues
from queuewise.serve.lsf_snapshot import LsfState, brun_command, order_commands, resume_commands, take_lsf_snapshot

TIMEOUT_S = 30.0
Runs = Callable[[Sequence[str]], str]


def run_command(command: Sequence[str]) -> str:
    """Run a command of LSF and return what it prints."""
    try:
        env = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    except FileNotFoundError:
        raise InputError(f"{command[0]} was not found", hint="source LSF's profile first") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} took longer than {TIMEOUT_S:.0f} s", hint="mbatchd may be down") from None
    if done.returncode:
        raise InputError(f"{' '.join(command)} failed: {done.stderr.strip()[:300]}", hint="check LSF with lsid")
    return done.stdout


@dataclass
class LsfAgent:
    policy: GuardedPolicy
    mode: str = "shadow"
    by: str = "order"
    queues: tuple[str, ...] = ()
    audit: AuditLog | None = None
    home: Path | None = None  # of the switch
    run: Runs = field(default=run_command)

    def look(self) -> dict[str, Any]:
        """One cycle: read, decide, record, act."""
        now = time.time()
        cycle: dict[str, Any] = {"now": now, "outcome": "off", "policy": self.policy.name, "starts": [], "commands": [], "problem": ""}
        if self.home is not None and is_off(self.home):
            return cycle
        try:
            state = self._read(now)
        except QueuewiseError as error:
            return {**cycle, "outcome": "unreachable", "problem": str(error)}
        answer = self.policy.answer(state.snapshot)
        commands = self._commands(state, answer.decided.starts)
        cycle |= {
            "outcome": answer.outcome, "policy": answer.policy, "problem": answer.problem, "commands": [list(one) for one in commands],
            "starts": [start.as_json() for start in answer.decided], "left_alone": dict(state.left_alone),
        }  # fmt: skip
        if self.audit is not None and commands:
            try:
                self.audit.write(
                    {
                        "time": now, "mode": self.mode, "by": self.by, "policy": answer.policy, "max_wait": self.policy.max_wait,
                        "outcome": answer.outcome, "decision": answer.decided.as_json(), "commands": cycle["commands"],
                        "snapshot": asdict(state.snapshot),
                    }
                )  # fmt: skip
            except OSError as error:
                return {**cycle, "outcome": "unlogged", "problem": f"the audit log cannot be written: {error.strerror}", "commands": []}
        if self.mode == "act":
            cycle["problem"] = "; ".join(filter(None, (cycle["problem"], *(self._do(one) for one in commands))))
        return cycle

    def _read(self, now: float) -> LsfState:
        jobs = read_lsf_jobs(self.run(("bjobs", "-u", "all", "-o", " ".join(JOB_FIELDS), "-json")), now)
        hosts = read_lsf_hosts(self.run(("bhosts", "-o", " ".join(HOST_FIELDS), "-json")))
        active = read_lsf_queues(self.run(("bqueues", "-o", " ".join(QUEUE_FIELDS), "-json")))
        steered = [name for name in active if not self.queues or name in self.queues]
        return take_lsf_snapshot(jobs, hosts, now, queues=steered, held=self.by != "order")

    def advise(self, server: AdviceServer) -> str:
        """Give the plugin new advice; returns what went wrong. Without advice, and when switched off, LSF decides."""
        if self.home is not None and is_off(self.home):
            server.give(advice_text(Decided(()), ()))
            return ""
        try:
            state = self._read(time.time())
            answer = self.policy.answer(state.snapshot)
        except QueuewiseError as error:
            return str(error)
        server.give(advice_text(answer.decided, [one.job.job_id for one in state.snapshot.queue]))
        return answer.problem

    def _commands(self, state: LsfState, starts: Sequence[Any]) -> list[tuple[str, ...]]:
        if self.by == "order":
            order = [str(job_id) for job_id in self.policy.forecast(state.snapshot).order]
            return order_commands(order) if order != [str(one.job.job_id) for one in state.snapshot.queue] else []
        if self.by == "resume":
            return [command for start in starts for command in resume_commands(start, state.jobs[str(start.job_id)])]
        per_task = {one.job.job_id: one.job.cpu_milli // 1000 for one in state.snapshot.queue}
        return [brun_command(start, state.jobs[str(start.job_id)], per_task[start.job_id]) for start in starts]

    def _do(self, command: Sequence[str]) -> str:
        try:
            self.run(command)
        except QueuewiseError as error:
            return str(error)
        return ""
