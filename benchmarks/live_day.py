"""Replay two days of KTH-SP2, sixty times as fast, on a real Slurm under its own backfill, `wise` and a rule that `learn` found.

queuewise learn KTH-SP2-1996-2.swf.gz --cluster flat:100 --processors requested --clean --budget 12m --out runs/learn-KTH
python benchmarks/live_day.py run --learned runs/learn-KTH --out DIR      about 45 minutes; all clusters run at once
python benchmarks/live_day.py judge --learned runs/learn-KTH --out DIR [--results]
python benchmarks/live_day.py render                                      write the table of docs/live.md from what was kept

The days are the two with the most jobs among those of the last 35 % of the log on which more processor time was submitted than the
machine has. Every cluster starts empty and gets the same jobs at the same instants. The log is read from ../shared/traces, or where
QUEUEWISE_TRACES says. `run` skips what was measured before, and begins again what was not finished. `judge` prints what was measured as
JSON, in seconds of log time; with --results it is kept in benchmarks/results/live_day.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from live_day_results import CORES, FASTER, KEPT, NODES, SLURM, judge, judge_when, render
from render_performance import REPOSITORY

from queuewise import load_workload
from queuewise.errors import InputError
from queuewise.policies.snapshot import JobRecord
from queuewise.runs import write_text
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.local_slurm import LocalSlurm, NodeKind
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory
from queuewise.serve.service import WARM_UP
from queuewise.serve.slurm_agent import SlurmAgent
from queuewise.serve.slurm_control import SlurmCommands
from queuewise.serve.slurm_records import SlurmJob
from queuewise.serve.slurm_snapshot import take_snapshot
from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ReadOptions

TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
LOG = TRACES / "swf" / "KTH-SP2-1996-2.swf.gz"
DAY_S = 86_400.0
LONGEST_S = 50 * 60.0  # of one run, after the last submission
READY_S = 900.0  # for a policy to be compiled
TRIES = 5  # of one submission


@dataclass(frozen=True)
class Day:
    number: int
    jobs: Workload  # times of the log ÷ FASTER
    history: RuntimeHistory  # of the jobs that were submitted before, and had ended


def read_days() -> list[Day]:
    log = load_workload(LOG, options=ReadOptions(processors="requested", clean=True)).workload
    number = (log.submit // DAY_S).astype(int)
    work = np.bincount(number, weights=log.runtime * log.num_tasks) / DAY_S
    jobs = np.bincount(number)
    late = np.arange(len(jobs)) >= np.quantile(number, 0.65)
    chosen = sorted(np.flatnonzero(late & (work > NODES * CORES)), key=lambda day: -jobs[day])[:2]
    return [_day(log, number, int(day)) for day in sorted(chosen)]


def _day(log: Workload, number: Any, day: int) -> Day:
    jobs = log.take(np.flatnonzero(number == day))
    limits = np.ceil(jobs.requested / 3600) * 60  # minutes of real time, in seconds
    jobs = jobs.replace(
        submit=(jobs.submit - day * DAY_S) / FASTER, runtime=np.maximum(jobs.runtime / FASTER, 0.01), requested=limits,
        job_id=np.arange(len(jobs)), recorded_wait=np.full(len(jobs), np.nan),
    )  # fmt: skip
    ended = np.flatnonzero(log.submit + np.nan_to_num(log.recorded_wait) + log.runtime < day * DAY_S)[-3000:]
    runs = [_run(log, int(j)) for j in ended]
    return Day(day, jobs, LogHistory(runs))


def _run(log: Workload, j: int) -> EndedRun:
    user = log.users[log.user[j]] if log.user[j] >= 0 else ""
    limit = float(np.ceil(log.requested[j] / 3600) * 3600)
    return EndedRun(f"u{user}", "sbatch", int(log.num_tasks[j]), limit, min(float(log.runtime[j]), limit), float(j) - len(log))


class LogHistory(RuntimeHistory):
    """Runs in seconds of log time, which is asked and answered in real time: there most runs are shorter than the second from which on
    runtimes are told apart."""

    def note(self, run: EndedRun) -> None:
        super().note(replace(run, limit_s=run.limit_s * FASTER, runtime_s=run.runtime_s * FASTER))

    def predict_many(self, jobs: Sequence[tuple[str, str, int, float]]) -> list[float]:
        found = super().predict_many([(user, name, width, limit_s * FASTER) for user, name, width, limit_s in jobs])
        return [value / FASTER for value in found]

    def draw(self, job: JobRecord, elapsed_s: float, generator: np.random.Generator) -> float:
        requested, predicted = (None if value is None else value * FASTER for value in (job.requested, job.predicted))
        slower = replace(job, estimate=job.estimate * FASTER, requested=requested, predicted=predicted)
        return super().draw(slower, elapsed_s * FASTER, generator) / FASTER


# --- one run


class LogUsers(SlurmCommands):
    """The users of the log are the accounts of the jobs: all jobs are submitted by one user."""

    def jobs(self) -> list[SlurmJob]:
        return [replace(job, user=job.account) for job in super().jobs()]


@dataclass
class Beside:
    """What runs beside the submissions, in a thread: when it is ready, what went wrong, and when it is to stop."""

    work: Callable[[Beside], None]
    stop: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    def start(self) -> None:
        """Returns when it is ready; a RuntimeError if it never is."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self.ready.wait(READY_S):
            raise RuntimeError(f"not ready within {READY_S:.0f} s")
        self.check()

    def _run(self) -> None:
        try:
            self.work(self)
        except BaseException as error:  # the thread that submits must know
            self.failure = error
        finally:
            self.ready.set()

    def check(self) -> None:
        if self.failure is not None:
            raise RuntimeError("what runs beside the submissions has failed") from self.failure

    def end(self) -> None:
        self.stop.set()
        self._thread.join(60)
        self.check()


def run_one(day: Day, policy: str, out: Path, name: str) -> None:
    """Run a day under a policy, unless that was done before."""
    home = out / f"{day.number}-{name}"
    if (home / "measured.json").exists():
        return
    shutil.rmtree(home, ignore_errors=True)  # of a run that was not finished
    (home / "started").mkdir(parents=True)
    (home / "slurm").mkdir()
    slurm = LocalSlurm(
        home / "slurm",
        (NodeKind("n", NODES, cores=CORES, mib=100_000),),
        scheduler="bf_interval=1,bf_resolution=1,bf_continue,sched_interval=5",
    )
    with slurm:
        commands = LogUsers({"SLURM_CONF": str(slurm.home / "slurm.conf")})
        steer = _steer if policy != SLURM else _watch
        beside = Beside(lambda own: steer(day, policy, commands, home, own.stop, own.ready))
        beside.start()
        submitted = _submit_all(day, slurm, home, beside)
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline and len(list((home / "started").iterdir())) < len(submitted):
            beside.check()
            time.sleep(2)
        beside.end()
    starts = {path.name: float(path.read_text() or "nan") for path in (home / "started").iterdir()}
    rows = [{"job": j, "submit": at, "start": starts.get(slurm_id)} for j, (slurm_id, at) in submitted.items()]
    write_text(home / "measured.json", json.dumps({"day": day.number, "policy": policy, "rows": rows}))


def _submit_all(day: Day, slurm: LocalSlurm, home: Path, beside: Beside) -> dict[int, tuple[str, float]]:
    began = time.time() + 2.0
    submitted: dict[int, tuple[str, float]] = {}
    for j in range(len(day.jobs)):
        time.sleep(max(began + float(day.jobs.submit[j]) - time.time(), 0.0))
        beside.check()
        submitted[j] = _submit(day, j, slurm, home), time.time()
    return submitted


def _submit(day: Day, j: int, slurm: LocalSlurm, home: Path) -> str:
    """The id of the job. A slurmctld that is busy is asked again, which `submission_lag` shows."""
    script = f"#!/bin/sh\ndate +%s.%N > {home}/started/$SLURM_JOB_ID\nexec sleep {day.jobs.runtime[j]:.3f}\n"
    user = day.jobs.users[day.jobs.user[j]] if day.jobs.user[j] >= 0 else ""
    size = f"--ntasks={day.jobs.num_tasks[j]}", "--mem-per-cpu=1", f"--time={int(day.jobs.requested[j] // 60)}", f"--account=u{user}"
    quiet = ("--parsable", "--output=/dev/null", "--error=/dev/null", f"--chdir={home}", "--job-name=sbatch")
    for tries in range(1, TRIES + 1):
        try:
            return slurm.run("sbatch", *quiet, *size, stdin=script).strip()
        except (InputError, subprocess.TimeoutExpired):
            if tries == TRIES:
                raise
            time.sleep(0.5)
    raise AssertionError("unreachable")


def _steer(day: Day, policy: str, commands: SlurmCommands, home: Path, stop: threading.Event, ready: threading.Event) -> None:
    guarded = GuardedPolicy(policy, deadline_s=10.0)
    guarded.answer(WARM_UP, deadline_s=600.0)  # compile, or load from the cache
    until = time.monotonic() + READY_S
    while guarded.forecast(WARM_UP) is None or guarded.forecast_problem:  # the same for what priorities go by
        if time.monotonic() > until:
            raise RuntimeError(f"no forecast: {guarded.forecast_problem}")
    agent = SlurmAgent(
        guarded, mode="act", by="priority", slurm=commands, history=day.history, expects=False,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    agent.look()
    ready.set()
    agent.run(0.5, until=stop.is_set)


def _watch(day: Day, policy: str, commands: SlurmCommands, home: Path, stop: threading.Event, ready: threading.Event) -> None:
    """Under Slurm's own scheduling: for every job that waits, keep the state and Slurm's own prediction shortly after its submission."""
    seen: set[str] = set()
    ready.set()
    (home / "seen").mkdir(exist_ok=True)
    while not stop.wait(1.0):
        jobs = commands.jobs()
        now = time.time()
        new = [job for job in jobs if job.state == "PENDING" and job.job_id not in seen and now - job.submit >= 2.0]
        if not new:
            continue
        known = day.history

        def predict(job: SlurmJob, known: RuntimeHistory = known) -> float:
            return known.predict(job.user, job.name, job.tasks, job.limit_s)

        state = take_snapshot(jobs, commands.nodes(), now, predict=predict)
        listed = commands.read("squeue", "--start", "--noheader", "-o", "%i %S").split("\n")
        planned = dict(line.split() for line in listed if len(line.split()) == 2)
        for job in new:
            seen.add(job.job_id)
            entry = {"job": job.job_id, "planned": planned.get(job.job_id), "snapshot": json.loads(state.snapshot.to_json())}
            (home / "seen" / f"{job.job_id}.json").write_text(json.dumps(entry))


def run_all(days: list[Day], names: Sequence[str], given: argparse.Namespace) -> int:
    """Every run in a process of its own, all at once. Returns how many failed."""
    running = []
    for day in days:
        for name in names:
            command = [sys.executable, __file__, "one", "--learned", given.learned, "--out", str(given.out), "--day", str(day.number)]
            running.append((f"{day.number}-{name}", subprocess.Popen([*command, "--name", name])))
    failed = [name for name, process in running if process.wait()]
    for name in failed:
        print(f"{name} has failed; run it again: what was measured is kept", file=sys.stderr)
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "judge", "one", "render"))
    parser.add_argument("--learned", default="generalist-hpc", help="run folder of learn; by default the rule of the package")
    parser.add_argument("--out", type=Path, default=Path("runs/live-day"))
    parser.add_argument("--day", type=int, help="only this day")
    parser.add_argument("--name", help="only this policy")
    parser.add_argument("--jobs", type=int, help="only so many jobs of each day, to try it out")
    parser.add_argument("--results", action="store_true")
    given = parser.parse_args()
    if given.action == "render":
        render()
        return 0
    given.out = given.out.resolve()
    policies = {SLURM: SLURM, "wise": "wise", "learned": f"model:{given.learned}"}
    days = [day for day in read_days() if given.day in (None, day.number)]
    if given.jobs is not None:
        days = [replace(day, jobs=day.jobs.take(slice(0, given.jobs))) for day in days]
    if given.action == "run":
        return run_all(days, [given.name] if given.name else list(policies), given)
    if given.action == "one":
        run_one(days[0], policies[given.name], given.out, given.name)
        return 0
    found = json.dumps({"learned": given.learned, **judge(days, policies, given.out), "when": judge_when(days, given.out)}, indent=2)
    if given.results:
        write_text(KEPT, found + "\n")
    else:
        print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
