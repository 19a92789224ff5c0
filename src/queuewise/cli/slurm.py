"""`queuewise slurm`: an agent beside Slurm, and what users ask about their jobs."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from queuewise.cli.inputs import waiting_job

if TYPE_CHECKING:
    from queuewise.policies.snapshot import JobId, Snapshot
    from queuewise.serve.runtime_history import RuntimeHistory
    from queuewise.serve.slurm_agent import Cycle, SlurmAgent
    from queuewise.serve.slurm_snapshot import SlurmState

LONGEST_DEADLINE_S = 3600.0
MOST_DRAWS = 1_000_000
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class RunAgent:
    """Look at queue and nodes again and again, decide, and record, print or carry out what is decided. This is the default."""

    mode: Literal["shadow", "advise", "act"] = "shadow"
    """shadow: record what would be done. advise: print the commands. act: carry them out."""
    by: Literal["priority", "start"] = "priority"
    """priority: set SiteFactor, and leave starts to Slurm. start: bring begin times forward, on chosen nodes."""
    policy: str = "fcfs+easy"
    """Policy to decide by (queuewise policies lists the parts of names)."""
    fallback: str | None = None
    """Policy that decides if the other is late, fails or does worse. Default: wise where all jobs have predictions, else fcfs+easy."""
    deadline: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """How long a decision may take."""
    max_wait: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = "3d"
    """Bound on waits under policies whose names have none, such as 3d."""
    interval: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 2.0
    """Time between two looks."""
    partitions: tuple[str, ...] = ()
    """Partitions whose jobs are steered. Default: all."""
    history: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """A log of earlier jobs, from which runtimes are predicted."""
    audit: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Where decisions are recorded. Default: audit.jsonl in the folder of live programs."""
    actions_per_minute: int = 600
    """At most so many changes."""
    fairness_floor: float = 0.1
    """Part of the machine that no single user gets while others wait."""
    once: Flag = False
    """Look once."""
    json: Flag = False
    """Print what was decided as JSON, one line per look."""

    def run(self) -> int | None:
        import sys

        agent = self._agent()
        if not self.once:
            agent.run(self.interval, each=self._print if self.json else None)
            return None
        cycle = agent.look()
        if self.json:
            self._print(cycle)
        else:
            for start in cycle.starts:
                print(f"job {start['job_id']} on {','.join(start['nodes'])}")
            print(f"{cycle.outcome}: {len(cycle.starts)} of {cycle.waiting} waiting jobs would start now", file=sys.stderr)
            if cycle.problem:
                print(cycle.problem, file=sys.stderr)
        return 2 if cycle.outcome in ("unreachable", "rejected", "failed") else None

    def _print(self, cycle: Cycle) -> None:
        print(json_text.dumps(cycle.as_json(self.mode)), flush=True)

    def _agent(self) -> SlurmAgent:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.serve.audit_log import AuditLog
        from queuewise.serve.guarded_policy import GuardedPolicy
        from queuewise.serve.kill_switch import live_home
        from queuewise.serve.live_guard import GuardLimits, LiveGuard
        from queuewise.serve.slurm_agent import SlurmAgent
        from queuewise.serve.slurm_watchdog import Watchdog

        if not 0 < self.deadline <= LONGEST_DEADLINE_S:
            raise InputError(f"--deadline {self.deadline:g}", hint=f"give seconds above 0 and up to {LONGEST_DEADLINE_S:g}")
        if not (self.interval > 0 and self.actions_per_minute > 0 and 0 <= self.fairness_floor < 1):
            raise InputError("times and numbers must be above 0, and the fairness floor below 1", hint="see queuewise slurm --help")
        home = live_home()
        history = _history(self.history)
        policy = GuardedPolicy(self.policy, fallback=self.fallback, deadline_s=self.deadline, max_wait=self.max_wait)
        limits = GuardLimits(actions_per_minute=self.actions_per_minute, fairness_floor=self.fairness_floor)
        return SlurmAgent(
            policy,
            mode=self.mode,
            by=self.by,
            partitions=self.partitions,
            history=history,
            audit=AuditLog(Path(self.audit) if self.audit else home / "audit.jsonl"),
            guard=LiveGuard(self.policy, policy.fallback, limits, self.max_wait),
            home=home,
            watchdog=Watchdog(home, {}) if self.mode == "act" else None,
            tell=print if self.mode == "advise" and not self.json else note,
        )


@dataclass(frozen=True)
class When:
    """When will a job start: the 10th, 50th and 90th percentile, and what a shorter limit or another partition would change."""

    job: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="JOB|SCRIPT")]
    """The id of a waiting job, or a batch script with #SBATCH lines."""
    snapshot: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A snapshot that `queuewise slurm save` wrote. Default: the cluster as it is now."""
    history: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """A log of earlier jobs, from which runtimes are drawn. Without one they are drawn from the limits."""
    policy: str = "priority+slurm"
    """How jobs are started: by default as Slurm does, with the priorities that they have now."""
    draws: int = 100
    """How often the queue is rolled forward."""
    what_if: bool = True
    """Also say what a shorter limit or another partition would change."""
    json: Flag = False
    """Print JSON with p10, p50 and p90 in Unix time."""

    def run(self) -> None:
        from queuewise.errors import InputError
        from queuewise.serve.start_times import start_times

        if not 1 <= self.draws <= MOST_DRAWS:
            raise InputError(f"--draws {self.draws} is not between 1 and {MOST_DRAWS:,}", hint="leave it out for the default")
        history = _history(self.history)
        snapshot, left_alone = _snapshot_and_others(self.snapshot, history)
        if self.job in left_alone:
            raise InputError(f"job {self.job}: {left_alone[self.job]}", hint="nobody can say when it starts; ask when that has changed")
        snapshot, job = _with_job(snapshot, self.job, history)
        found = start_times(snapshot, [job], history, policy=self.policy, draws=self.draws)[0].as_json()
        changes = self._changes(snapshot, job, history) if self.what_if else {}
        if self.json:
            print(json_text.dumps({**found, "now": snapshot.now + snapshot.epoch, "changes": changes}))
            return
        for name in ("p10", "p50", "p90"):
            print(f"{name}  {_clock(found[name], snapshot)}")
        for what, at in changes.items():
            print(f"with {what}: p50 {_clock(at, snapshot)}")

    def _changes(self, snapshot: Snapshot, job: JobId, history: RuntimeHistory) -> dict[str, float | None]:
        from queuewise.serve.start_times import SHORTER, other_partitions, start_times, with_other_limit, with_other_partition

        others = {f"{part:.0%} of the limit": with_other_limit(snapshot, job, part) for part in SHORTER}
        others |= {f"partition {name}": with_other_partition(snapshot, job, name) for name in other_partitions(snapshot, job)}
        draws = max(self.draws // 4, 1)
        return {what: start_times(changed, [job], history, policy=self.policy, draws=draws)[0].p50 for what, changed in others.items()}


@dataclass(frozen=True)
class Why:
    """Why a job waits: who is ahead, what blocks it, what would help."""

    job: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="JOB")]
    """The id of a waiting job."""
    snapshot: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A snapshot that `queuewise slurm save` wrote. Default: the cluster as it is now."""
    policy: str = "priority+slurm"
    """How jobs are started: by default as Slurm does, with the priorities that they have now."""
    json: Flag = False
    """Print JSON."""

    def run(self) -> None:
        from queuewise.serve.live_policy import load_policy

        snapshot, left_alone = _snapshot_and_others(self.snapshot, None)
        if left := left_alone.get(self.job):
            print(json_text.dumps({"job_id": self.job, "reason": left}) if self.json else f"job {self.job}: {left}")
            return
        found = load_policy(self.policy).explain(snapshot, waiting_job(snapshot, self.job))
        if self.json:
            expected = found.expected_start
            print(json_text.dumps({**found.as_json(), "expected_start": None if expected is None else expected + snapshot.epoch}))
            return
        print(f"job {self.job}: {found.reason}")
        if found.ahead:
            more = f" and {found.jobs_ahead - len(found.ahead)} more" if found.jobs_ahead > len(found.ahead) else ""
            print(f"ahead of it: {', '.join(map(str, found.ahead))}{more}")
        print(f"expected start if all run to their limits: {_clock(_later(found.expected_start, snapshot), snapshot)}")
        for hint in found.hints:
            print(f"would help: {hint}")


@dataclass(frozen=True)
class Save:
    """Write a snapshot of the cluster as it is now, for `when` and `why` elsewhere."""

    out: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File to write."""

    def run(self) -> None:
        from queuewise.cli.console import note

        _snapshot(None, None).save(Path(self.out))
        note(f"written to {self.out}")


@dataclass(frozen=True)
class Install:
    """Show the lines that Slurm needs so that jobs can be started by an agent, as a diff; with --apply, write them."""

    conf: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The slurm.conf. Default: that of SLURM_CONF, or /etc/slurm/slurm.conf."""
    grace: Annotated[int, tyro.conf.arg(metavar="SECONDS")] = 300
    """New jobs become eligible after this time by themselves, even if nobody looks at them."""
    partitions: tuple[str, ...] = ()
    """Partitions whose jobs get a begin time. Default: all."""
    apply: Flag = False
    """Write the files."""

    def run(self) -> None:
        from queuewise.serve.slurm_install import find_conf, installation

        _show_or_apply(installation(find_conf(self.conf), grace_s=self.grace, partitions=self.partitions), self.apply)


@dataclass(frozen=True)
class Uninstall:
    """Show what undoes `install`, as a diff; with --apply, do it."""

    conf: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The slurm.conf. Default: that of SLURM_CONF, or /etc/slurm/slurm.conf."""
    apply: Flag = False
    """Write the files."""

    def run(self) -> None:
        from queuewise.serve.slurm_install import find_conf, removal

        _show_or_apply(removal(find_conf(self.conf)), self.apply)
        if self.apply:
            _leave_all_to_slurm()


SlurmCommand = (
    Annotated[RunAgent, tyro.conf.subcommand("run")]
    | Annotated[When, tyro.conf.subcommand("when")]
    | Annotated[Why, tyro.conf.subcommand("why")]
    | Annotated[Save, tyro.conf.subcommand("save")]
    | Annotated[Install, tyro.conf.subcommand("install")]
    | Annotated[Uninstall, tyro.conf.subcommand("uninstall")]
)


def _show_or_apply(changes: list[Any], apply: bool) -> None:
    from queuewise.cli.console import note

    for change in changes:
        print(change.diff, end="")
        if apply:
            change.apply()
    if not changes:
        note("nothing to change")
    elif apply:
        note("written; run scontrol reconfigure")
    else:
        note("nothing was written; --apply writes it")


def _leave_all_to_slurm() -> None:
    """Jobs that wait for an agent, or on its places, become Slurm's."""
    from queuewise.cli.console import note
    from queuewise.serve.kill_switch import live_home
    from queuewise.serve.slurm_control import hand_over

    note(hand_over(home=live_home()))


def _history(log: str | None) -> RuntimeHistory:
    from queuewise.serve.runtime_history import RuntimeHistory

    if log is None:
        return RuntimeHistory()
    from queuewise.workload import load_workload

    return RuntimeHistory.of(load_workload(Path(log)).workload)


def _snapshot(path: str | None, history: RuntimeHistory | None) -> Snapshot:
    from queuewise.policies.snapshot import Snapshot

    return _state(history).snapshot if path is None else Snapshot.load(Path(path))


def _snapshot_and_others(path: str | None, history: RuntimeHistory | None) -> tuple[Snapshot, Mapping[str, str]]:
    """The snapshot, and why waiting jobs of the cluster are not in it."""
    if path is not None:
        return _snapshot(path, history), {}
    state = _state(history)
    return state.snapshot, state.left_alone


def _state(history: RuntimeHistory | None) -> SlurmState:
    """The cluster as it is now, with all jobs that could start."""
    from queuewise.serve.slurm_control import ServerClock, SlurmCommands
    from queuewise.serve.slurm_records import SlurmJob
    from queuewise.serve.slurm_snapshot import Manner, take_snapshot

    slurm = SlurmCommands()
    jobs = slurm.jobs()

    def predict(job: SlurmJob) -> float | None:
        return history.predict(job.user, job.name, job.tasks, job.limit_s) if history is not None and len(history) else None

    manner = Manner(memory_counts=slurm.memory_counts())
    return take_snapshot(jobs, slurm.nodes(), ServerClock().now(jobs), manner=manner, predict=predict, reservations=slurm.reservations())


def _with_job(snapshot: Snapshot, job: str, history: RuntimeHistory) -> tuple[Snapshot, JobId]:
    """The snapshot and the id of the job; a script is added to the queue."""
    if any(str(one.job.job_id) == job for one in snapshot.queue) or not Path(job).is_file():
        return snapshot, waiting_job(snapshot, job)
    import getpass

    from queuewise.serve.start_times import with_script

    return with_script(snapshot, Path(job).read_text(encoding="utf-8", errors="replace"), getpass.getuser(), history, where=job)


def _later(at: float | None, snapshot: Snapshot) -> float | None:
    return None if at is None else at + snapshot.epoch


def _clock(at: float | None, snapshot: Snapshot) -> str:
    from datetime import datetime

    if at is None:
        return "never"
    wait = max(at - snapshot.now - snapshot.epoch, 0.0)
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}  (in {wait / 60:.1f} min)"
