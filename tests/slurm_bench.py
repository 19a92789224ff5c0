"""A real Slurm on loopback with the submit plugin, and what tests do with it."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from queuewise.serve.audit_log import AuditLog
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.local_slurm import LocalSlurm, NodeKind
from queuewise.serve.slurm_agent import Cycle, SlurmAgent
from queuewise.serve.slurm_control import SlurmCommands

FIFTY_NODES = (NodeKind("a100n", 20, 8, "a100"), NodeKind("v100n", 20, 4, "v100"), NodeKind("cpun", 10))


Starts = Callable[..., "Bench"]


def command(bench: Bench, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "queuewise", *arguments]


def environment(bench: Bench) -> dict[str, str]:
    return {**bench.slurm.env, "QUEUEWISE_LIVE_HOME": str(bench.slurm.home / "live")}


class Bench:
    """A cluster with the submit plugin, and what tests do with it."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm, self.commands = slurm, SlurmCommands({"SLURM_CONF": str(slurm.home / "slurm.conf")})
        self.random = random.Random(5)

    def agent(self, policy: str = "sjf+easy", **options: Any) -> SlurmAgent:
        options = {"mode": "act", "by": "start", "audit": AuditLog(self.slurm.home / "audit.jsonl"), **options}
        return SlurmAgent(GuardedPolicy(policy), slurm=self.commands, tell=lambda text: None, **options)

    def submit_many(self, number: int, seconds: tuple[float, float] = (0.3, 1.0), *options: str) -> list[str]:
        """Jobs of random sizes, by one call for each."""
        return [
            str(
                self.slurm.submit(
                    self.random.uniform(*seconds), f"--gres=gpu:{self.random.choice((1, 1, 1, 2, 2, 4))}", "-N1", "--mem=100",
                    f"--time={self.random.randint(1, 90)}", *options,
                )
            )
            for _ in range(number)
        ]  # fmt: skip

    def rows(self) -> dict[str, dict[str, Any]]:
        return {str(row["job_id"]): row for row in json.loads(self.slurm.run("squeue", "--json"))["jobs"]}

    def states(self, ids: list[str]) -> set[str]:
        rows = self.rows()
        return {str(rows[job]["job_state"]) for job in ids}

    def order_of_starts(self) -> list[str]:
        return re.findall(r"(?:Allocate|Started) JobId=(\d+)", (self.slurm.home / "slurmctld.log").read_text())

    def drive(self, agent: SlurmAgent, ids: list[str], *, seconds: float = 120.0, pause: float = 0.2) -> list[tuple[str, tuple[str, ...]]]:
        """Let the agent look until all jobs have ended. Returns what it started, in order."""
        told: list[tuple[str, tuple[str, ...]]] = []
        cycles: deque[Cycle] = deque(maxlen=4)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            cycle = agent.look()
            cycles.append(cycle)
            told += [(start["job_id"], tuple(start["nodes"])) for start in cycle.starts]
            if not cycle.starts and self.states(ids) <= {"COMPLETED"}:
                return told
            time.sleep(pause)
        log = (self.slurm.home / "slurmctld.log").read_text().splitlines()
        left = self.slurm.run("squeue", "--states=PENDING,RUNNING", "-o", "%i %T %r %S %n %k")
        said = (f"not all jobs ended in {seconds} s", left, self.slurm.run("sinfo", "-N"), *map(str, cycles), *log[-40:])
        raise AssertionError("\n".join(said))
