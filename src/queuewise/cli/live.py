"""`queuewise live`: the switch that turns agents and services off, and the audit log."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class Off:
    """Turn every agent and service of this user off, within a second. What waits for an agent of Slurm or LSF is released."""

    reason: str = ""
    """Kept in the file that says so."""

    def run(self) -> None:
        import shutil

        from queuewise.cli.console import note
        from queuewise.serve.kill_switch import live_home, switch_off

        home = live_home()
        note(f"off: {switch_off(home, self.reason)}; queuewise live on undoes it")
        if shutil.which("squeue") is not None:  # also for an agent that is gone
            from queuewise.serve.slurm_control import hand_over

            note(hand_over(home=home))
        if shutil.which("bjobs") is not None:
            from queuewise.serve import lsf_agent

            note(lsf_agent.hand_over())


@dataclass(frozen=True)
class On:
    """Undo `off`."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.serve.kill_switch import live_home, switch_on

        note("on" if switch_on(live_home()) else "it was not off")


@dataclass(frozen=True)
class Status:
    """Say whether it is on."""

    def run(self) -> None:
        from queuewise.serve.kill_switch import is_off, live_home

        print("off" if is_off(live_home()) else "on")


@dataclass(frozen=True)
class ReplayAudit:
    """Decide every entry of an audit log again and compare. Exit code 3 if one differs."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The audit log."""
    entry: int | None = None
    """Only this line (from 1)."""
    run_files: Flag = False
    """Also decide by policies in Python files that the log names. Such files run as programs do."""
    json: Flag = False
    """Print one line of JSON per entry."""

    def run(self) -> int | None:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.serve.audit_log import replay_audit

        total = different = 0
        for one in replay_audit(Path(self.file), self.entry, run_files=self.run_files):
            total += 1
            different += not one.same
            if self.json:
                print(json_text.dumps({"entry": one.number, "policy": one.entry["policy"], "same": one.same, **one.again}))
            elif not one.same:
                for name in one.differs:
                    print(f"entry {one.number} ({one.entry['policy']}), {name}: {one.entry.get(name)} then, {one.again[name]} now")
        if self.entry is not None and not total:
            raise InputError(f"has no decision on line {self.entry}", where=self.file, hint="lines count from 1; leave --entry out for all")
        note(f"{total - different} of {total} decisions are the same")
        return 3 if different else None


Live = (
    Annotated[Off, tyro.conf.subcommand("off")]
    | Annotated[On, tyro.conf.subcommand("on")]
    | Annotated[Status, tyro.conf.subcommand("status")]
    | Annotated[ReplayAudit, tyro.conf.subcommand("replay")]
)
