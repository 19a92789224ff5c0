"""Talking to Slurm: reading its state, and the few changes that are ever made to it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from queuewise.errors import InputError
from queuewise.serve.holding import grace_in_mark
from queuewise.serve.slurm_order import MadeOrder
from queuewise.serve.slurm_records import MARK, SlurmJob, SlurmNodeState, SlurmReservation, read_jobs, read_nodes
from queuewise.workload.node_lists import expand_nodes

TIMEOUT_S = 30.0
AT_ONCE = 25  # changes between two looks at the switch
GRACE = f"{MARK} grace"  # how the admin_comment of jobs begins whose begin time the submit plugin has set; the seconds follow
GRACE_S = 300
SLACK_S = 60.0  # clocks of slurmctld and this machine may differ, and changes take a while
PLACED = f"{MARK} placed"  # admin_comment of jobs whose list of nodes is ours
RELEASED = f"{MARK} released"  # and of jobs that are Slurm's again
_MARKED = re.compile(rf"{GRACE}(?: (\d+))?(?: until (\d+))?$")
_PROMPT = re.compile(r"^(?:scontrol: )+")


@dataclass
class SlurmCommands:
    """Runs the commands of Slurm. `env` is added to the environment."""

    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **self.env, "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}  # lists of array tasks are not cut off
        try:
            return subprocess.run(
                command, input=stdin, env=env, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_S, check=False
            )  # names of jobs may hold any bytes
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
        return read_jobs(self.read("squeue", "--json", "--states=all"))

    def nodes(self) -> list[SlurmNodeState]:
        text = self.read("sinfo", "--json")
        try:
            return read_nodes(text)
        except InputError:  # newer releases list partitions there
            return read_nodes(self.read("scontrol", "show", "nodes", "--json"))

    def reservations(self) -> list[SlurmReservation]:
        return read_reservations(self.read("scontrol", "show", "reservation", "-o"))

    def memory_counts(self) -> bool:
        """Whether memory is shared out among jobs, so that one that names none gets all of a node's."""
        text = self.read("scontrol", "show", "config")
        return bool(re.search(r"^SelectTypeParameters\s*=.*MEMORY", text, re.MULTILINE | re.IGNORECASE))

    def site_factors(self) -> dict[int, int]:
        """SiteFactor by the number of the job, for releases whose JSON has none."""
        rows = [line.split() for line in self.read("sprio", "--noheader", "--format=%i %S").splitlines()]
        try:
            return {int(row[0]): int(float(row[1])) for row in rows if len(row) == 2 and row[0].isdecimal()}
        except (ValueError, OverflowError) as error:
            raise InputError(f"a line is not understood: {error}"[:200], where="sprio", hint="report the output of sprio") from None

    def update(self, changes: Sequence[str], goes_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Send changes by scontrol, in order, as long as `goes_on`; returns what it complained about."""
        complaints: list[str] = []
        for at in range(0, len(changes), AT_ONCE):
            if not goes_on():
                return [*complaints, f"stopped before {len(changes) - at} of {len(changes)} changes"]
            lines = "".join(f"update {change}\n" for change in changes[at : at + AT_ONCE])
            done = self.run("scontrol", stdin=f"{lines}quit\n")
            said = [plain for line in done.stderr.splitlines() if (plain := _PROMPT.sub("", line).strip())]
            complaints += said or ([f"scontrol failed with code {done.returncode}"] if done.returncode else [])
        return complaints


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
    except (ValueError, OverflowError):
        raise InputError(f"{text!r:.60} is no time", where="scontrol show reservation", hint="unset SLURM_TIME_FORMAT") from None


def start_change(job: SlurmJob, job_id: str, nodes: Sequence[str], factor: int) -> str:
    """The change that starts a job now, on these nodes. A list of nodes that the user has given stays as it is."""
    place = "" if job.required and job.comment != PLACED else f' ReqNodeList={",".join(nodes)} AdminComment="{PLACED}"'
    return f"JobId={job_id} SiteFactor={factor}{place} StartTime=now"


def forget_place(job: SlurmJob, now: float) -> str:
    """The change that lets Slurm place a job by itself again. A later begin time is not ours, and stays."""
    begin = "" if begins_later(job, now) else " StartTime=now"
    return f'JobId={job.address} SiteFactor=0 ReqNodeList= AdminComment="{RELEASED}"{begin}'


def wait_longer(job_ids: Sequence[str], grace_s: int, now: float) -> str:
    """The change that keeps jobs waiting for us: somebody has looked at them. It does not go by the clock of this machine."""
    until = int(now) + grace_s
    return f'JobId={",".join(job_ids)} AdminComment="{GRACE} {grace_s} until {until}" StartTime={datetime.fromtimestamp(until).isoformat()}'


def release_change(job_id: str) -> str:
    """The change that makes a job eligible now, and leaves it to Slurm."""
    return f'JobId={job_id} AdminComment="{RELEASED}" StartTime=now'


def grace_of(job: SlurmJob) -> float:
    """How long the submit plugin has kept the job back; it says so in its mark."""
    found = _MARKED.match(job.comment)
    return grace_in_mark((found and found[1]) or "", GRACE_S)


def begins_later(job: SlurmJob, now: float) -> bool:
    """Whether somebody else has set the begin time since we did: the mark says to what we have set it."""
    found = _MARKED.match(job.comment)
    if job.comment == PLACED:
        return job.eligible > now + SLACK_S
    if not found or job.eligible <= now:
        return False
    if found[2]:
        return abs(job.eligible - float(found[2])) > SLACK_S
    return job.eligible > now + grace_of(job) + SLACK_S


def ours(job: SlurmJob, now: float) -> bool:
    """Whether a job waits because of us."""
    return job.state == "PENDING" and (job.comment == PLACED or (job.comment.startswith(GRACE) and not begins_later(job, now)))


def give_back(jobs: Sequence[SlurmJob], now: float) -> list[str]:
    """The changes that leave everything to Slurm: jobs lose their places, and do not wait for us any longer."""
    return [forget_place(job, now) if job.comment == PLACED else release_change(job.address) for job in jobs if ours(job, now)]


def hand_over(slurm: SlurmCommands | None = None, home: Path | None = None) -> str:
    """Leave all jobs to Slurm, without an agent: also the order that agents with this home have made. Returns what was done."""
    slurm = slurm or SlurmCommands()
    made = MadeOrder(home)
    try:
        jobs = slurm.jobs()
        changes = give_back(jobs, ServerClock().now(jobs))
        order = made.undone(jobs)
        complaints = slurm.update([*changes, *order])
    except InputError as error:
        return f"jobs that waited for an agent start by themselves when their grace ends; Slurm could not be asked: {error.message}"
    if not complaints:
        made.forget()
    said = [
        f"{len(changes)} jobs were given back to Slurm",
        *([f"{len(order)} lost the place in the queue that we gave them"] if order else []),
    ]
    return "; ".join([*said, *complaints])[:500]


class ServerClock:
    """Unix time that does not jump with the clock of this machine, and is never before what Slurm has stamped on the jobs it lists."""

    def __init__(self, present: float | None = None) -> None:
        self._offset = (time.time() if present is None else present) - time.monotonic()
        self._ahead: dict[str, float] = {}  # job -> offset that its stamps ask for, as long as it is listed

    def now(self, jobs: Sequence[SlurmJob] = ()) -> float:
        present = time.monotonic()
        if jobs:
            stamps = {job.job_id: max(job.submit, job.start if job.state == "RUNNING" else 0.0) for job in jobs}
            self._ahead = {
                job_id: max(stamp - present, self._ahead.get(job_id, -1e18))
                for job_id, stamp in stamps.items()
                if stamp - present > self._offset or job_id in self._ahead
            }
        return present + max([self._offset, *self._ahead.values()])
