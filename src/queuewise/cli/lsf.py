"""`queuewise lsf`: an agent beside LSF, and the plugin of its scheduler."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from queuewise.serve.runtime_history import RuntimeHistory

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class RunLsfAgent:
    """Look at jobs and hosts, decide, and print or carry out what is decided. This is the default."""

    mode: Literal["shadow", "advise", "act"] = "shadow"
    """shadow: say what would be done. advise: print the commands. act: carry them out."""
    by: Literal["order", "start", "resume"] = "order"
    """order: bring jobs to the top with btop, and leave starts to LSF. start: brun on chosen hosts, for jobs that the esub has held back.
    resume: the same with bmod, without the rights of an administrator."""
    policy: str = "fcfs+easy"
    """Policy to decide by (queuewise policies lists the parts of names)."""
    fallback: str | None = None
    """Policy that decides if the other is late or fails. Default: wise where all jobs have predictions, else fcfs+easy."""
    max_wait: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = "3d"
    """Bound on waits under policies whose names have none, such as 3d."""
    queues: tuple[str, ...] = ()
    """Queues whose jobs are steered. Default: all."""
    history: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """A log of earlier jobs, from which runtimes are predicted. Without one, predictions are the limits."""
    interval: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """Time between two looks."""
    actions_per_minute: int = 600
    """At most so many commands."""
    fairness_floor: float = 0.1
    """Part of the machine that no single user gets while others wait."""
    once: Flag = False
    """Look once."""
    json: Flag = False
    """Print what was decided as JSON, one line per look."""

    def run(self) -> int | None:
        from queuewise.errors import InputError
        from queuewise.serve.audit_log import AuditLog
        from queuewise.serve.guarded_policy import GuardedPolicy
        from queuewise.serve.kill_switch import live_home
        from queuewise.serve.live_guard import GuardLimits, LiveGuard
        from queuewise.serve.lsf_agent import LsfAgent

        if not (self.interval > 0 and self.actions_per_minute > 0 and 0 <= self.fairness_floor < 1):
            raise InputError("times and numbers must be above 0, and the fairness floor below 1", hint="see queuewise lsf --help")
        home = live_home()
        limits = GuardLimits(actions_per_minute=self.actions_per_minute, fairness_floor=self.fairness_floor)
        policy = GuardedPolicy(self.policy, fallback=self.fallback, deadline_s=30.0, max_wait=self.max_wait)
        agent = LsfAgent(
            policy, history=_history(self.history), mode=self.mode, by=self.by, queues=self.queues,
            audit=AuditLog(home / "audit.jsonl"), home=home,
            guard=LiveGuard(self.policy, policy.fallback, limits, self.max_wait),
        )  # fmt: skip
        if not self.once:
            agent.watch(self.interval, self._print)
        cycle = agent.look()
        self._print(cycle)
        return 2 if cycle["outcome"] in ("unreachable", "failed") else None

    def _print(self, cycle: dict[str, Any]) -> None:
        from queuewise.cli.console import note

        if self.json:
            print(json_text.dumps({"mode": self.mode, **cycle}), flush=True)
        elif self.mode != "act":
            for command in cycle["commands"]:
                print(" ".join(command), flush=True)
        if cycle["problem"]:
            note(f"{cycle['outcome']}: {cycle['problem']}")


@dataclass(frozen=True)
class AdvisePlugin:
    """Give the plugin of LSF's scheduler the order of jobs and their hosts, over a unix socket."""

    socket: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """Unix socket to listen on: the plugin's QUEUEWISE_SOCKET."""
    policy: str = "fcfs+easy"
    """Policy to decide by (queuewise policies lists the parts of names)."""
    fallback: str | None = None
    """Policy that decides if the other is late or fails. Default: wise where all jobs have predictions, else fcfs+easy."""
    max_wait: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = "3d"
    """Bound on waits under policies whose names have none, such as 3d."""
    queues: tuple[str, ...] = ()
    """Queues whose jobs are steered. Default: all."""
    history: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """A log of earlier jobs, from which runtimes are predicted. Without one, predictions are the limits."""
    interval: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 2.0
    """Time between two looks."""

    def run(self) -> None:
        import time

        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.serve.audit_log import AuditLog
        from queuewise.serve.guarded_policy import GuardedPolicy
        from queuewise.serve.kill_switch import live_home, sleep_until_switched
        from queuewise.serve.lsf_advice import AdviceServer
        from queuewise.serve.lsf_agent import LsfAgent

        if not self.interval > 0:
            raise InputError(f"--interval {self.interval:g}", hint="give seconds above 0")
        policy = GuardedPolicy(self.policy, fallback=self.fallback, deadline_s=30.0, max_wait=self.max_wait)
        home = live_home()
        agent = LsfAgent(policy, history=_history(self.history), queues=self.queues, home=home, audit=AuditLog(home / "audit.jsonl"))
        with AdviceServer(Path(self.socket), home=home) as server:
            while True:
                began = time.monotonic()
                if problem := agent.advise(server):
                    note(problem)
                sleep_until_switched(began + self.interval, home)


@dataclass(frozen=True)
class BuildPlugin:
    """Compile schmod_queuewise.so for mbschd against the headers of an LSF."""

    out: Annotated[str, tyro.conf.arg(metavar="FILE.so")] = "schmod_queuewise.so"
    """File to write."""
    headers: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder with the site's lssched.h and queuewise_site.h (docs/live.md). Default: our own declarations, which only the tests use."""
    compiler: str = "cc"
    """C compiler."""
    flags: tuple[str, ...] = ()
    """Further flags of the compiler."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.serve.lsf_plugin_build import build_plugin

        build_plugin(Path(self.out), None if self.headers is None else Path(self.headers), self.compiler, self.flags)
        note(f"{self.out} written; name it in lsb.modules and run badmin reconfig (docs/live.md)")


@dataclass(frozen=True)
class Esub:
    """Print the esub that gives new jobs a begin time for `--by start`."""

    grace: Annotated[int, tyro.conf.arg(metavar="SECONDS")] = 300
    """New jobs may start after this time by themselves, even if nobody looks at them."""

    def run(self) -> None:
        from queuewise.errors import InputError
        from queuewise.serve.holding import LONGEST_GRACE_S
        from queuewise.serve.lsf_snapshot import esub

        if not 60 <= self.grace <= LONGEST_GRACE_S:
            raise InputError(f"--grace {self.grace}", hint=f"give 60 to {LONGEST_GRACE_S:,} s: LSF counts begin times in minutes")
        print(esub(self.grace), end="")


def _history(log: str | None) -> RuntimeHistory:
    from queuewise.serve.runtime_history import RuntimeHistory
    from queuewise.workload import load_workload

    return RuntimeHistory() if log is None else RuntimeHistory.of(load_workload(Path(log)).workload)


LsfCommand = (
    Annotated[RunLsfAgent, tyro.conf.subcommand("run")]
    | Annotated[AdvisePlugin, tyro.conf.subcommand("advise")]
    | Annotated[BuildPlugin, tyro.conf.subcommand("build-plugin")]
    | Annotated[Esub, tyro.conf.subcommand("esub")]
)
