"""Talking to Slurm: reading its state, and the few changes that are ever made to it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from queuewise.errors import InputError
from queuewise.serve.slurm_records import MARK, SlurmJob, SlurmNodeState, SlurmReservation, read_jobs, read_nodes
from queuewise.workload.node_lists import expand_nodes

TIMEOUT_S = 30.0
PLACED = f"{MARK} placed"  # admin_comment of jobs whose list of nodes is ours


@dataclass
class SlurmCommands:
    """Runs the commands of Slurm. `env` is added to the environment."""

    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **self.env, "LC_ALL": "C"}
        try:
            return subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except FileNotFoundError:
            raise InputError(f"{command[0]} was not found", hint="run it where the commands of Slurm are, or add them to PATH") from None
        except subprocess.TimeoutExpired:
            raise InputError(f"{' '.join(command)} took longer than {TIMEOUT_S:.0f} s", hint="slurmctld may be down or busy") from None

    def read(self, *command: str) -> str:
        done = self.run(*command)
        if done.returncode:
            raise InputError(f"{' '.join(command)} failed: {done.stderr.strip()[:300]}", hint="slurmctld may be down; scontrol ping tells")
        return done.stdout

    def jobs(self) -> list[SlurmJob]:
        return read_jobs(self.read("squeue", "--json"))

    def nodes(self) -> list[SlurmNodeState]:
        text = self.read("sinfo", "--json")
        try:
            return read_nodes(text)
        except InputError:  # newer releases list partitions there
            return read_nodes(self.read("scontrol", "show", "nodes", "--json"))

    def reservations(self) -> list[SlurmReservation]:
        return read_reservations(self.read("scontrol", "show", "reservation", "-o"))

    def update(self, changes: Sequence[str]) -> list[str]:
        """Send all changes by one scontrol, in order; returns what it complained about."""
        if not changes:
            return []
        lines = "".join(f"update {change}\n" for change in changes)
        done = self.run("scontrol", "--quiet", stdin=f"{lines}quit\n")
        return [line for line in done.stderr.splitlines() if line.strip()]


def read_reservations(text: str) -> list[SlurmReservation]:
    """The output of `scontrol show reservation -o`."""
    found = []
    for line in text.splitlines():
        fields = dict(part.partition("=")[::2] for part in line.split())
        if "ReservationName" in fields and fields.get("Nodes", "(null)") not in ("(null)", ""):
            start, end = (_moment(fields.get(name, "")) for name in ("StartTime", "EndTime"))
            found.append(SlurmReservation(fields["ReservationName"], expand_nodes(fields["Nodes"]), start, end))
    return found


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()  # local time, as Slurm prints it
    except ValueError:
        raise InputError(f"{text!r} is no time", where="scontrol show reservation", hint="unset SLURM_TIME_FORMAT") from None


def start_change(job: SlurmJob, job_id: str, nodes: Sequence[str], factor: int) -> str:
    """The change that starts a job now, on these nodes. A list of nodes that the user has given stays as it is."""
    place = "" if job.required and job.comment != PLACED else f' ReqNodeList={",".join(nodes)} AdminComment="{PLACED}"'
    return f"JobId={job_id} SiteFactor={factor}{place} StartTime=now"


def forget_place(job_id: str) -> str:
    """The change that lets Slurm place a job by itself again."""
    return f'JobId={job_id} ReqNodeList= AdminComment="{MARK} released" StartTime=now'


def wait_longer(job_ids: Sequence[str], grace_s: int) -> str:
    """The change that keeps jobs waiting for us: somebody has looked at them."""
    return f"JobId={','.join(job_ids)} StartTime=now+{grace_s}seconds"


def release_change(job_id: str) -> str:
    """The change that makes a job eligible now."""
    return f"JobId={job_id} StartTime=now"


class ServerClock:
    """Unix time that does not jump with the clock of this machine, and is never before what Slurm has already stamped."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self, jobs: Sequence[SlurmJob] = ()) -> float:
        stamps = [job.submit for job in jobs] + [job.start for job in jobs if job.state == "RUNNING"]
        self._offset = max(self._offset, max(stamps, default=0.0) - time.monotonic())
        return time.monotonic() + self._offset
