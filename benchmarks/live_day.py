"""Replay two days of KTH-SP2, sixty times as fast, on a real Slurm under its own backfill, `wise` and a rule that `learn` found.

queuewise learn KTH-SP2-1996-2.swf.gz --cluster flat:100 --processors requested --clean --budget 12m --out runs/learn-KTH
python benchmarks/live_day.py run --learned runs/learn-KTH --out DIR      about 45 minutes; all clusters run at once
python benchmarks/live_day.py judge --learned runs/learn-KTH --out DIR    prints what was measured as JSON, in seconds of log time

The days are the two with the most jobs among those of the last 35 % of the log on which more processor time was submitted than the
machine has. Every cluster starts empty and gets the same jobs at the same instants. The log is read from ../shared/traces, or where
QUEUEWISE_TRACES says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from render_performance import REPOSITORY

from queuewise import load_workload, simulate
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.names import parse_policy, plays_apart
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.local_slurm import LocalSlurm, NodeKind
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory
from queuewise.serve.service import WARM_UP
from queuewise.serve.slurm_agent import SlurmAgent
from queuewise.serve.slurm_control import SlurmCommands
from queuewise.serve.slurm_records import SlurmJob
from queuewise.serve.slurm_snapshot import take_snapshot
from queuewise.serve.start_times import start_times
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.loaded import ReadOptions

TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
LOG = TRACES / "swf" / "KTH-SP2-1996-2.swf.gz"
FASTER = 60.0
DAY_S = 86_400.0
NODES, CORES = 5, 20
LONGEST_S = 50 * 60.0  # of one run
MOST_LAG_S = 5.0  # real time: a run whose submissions came later was disturbed, and is compared with nothing
SLURM = "slurm"
FLOOR_S = 10.0  # of runtimes in slowdowns, log time
BLOCKS = 1000  # drawn for the interval


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
    return Day(day, jobs, RuntimeHistory(runs))


def _run(log: Workload, j: int) -> EndedRun:
    user = log.users[log.user[j]] if log.user[j] >= 0 else ""
    limit = float(np.ceil(log.requested[j] / 3600) * 60)
    runtime = min(max(float(log.runtime[j]) / FASTER, 0.01), limit)
    return EndedRun(f"u{user}", "sbatch", int(log.num_tasks[j]), limit, runtime, float(j) - len(log))


# --- one run


class LogUsers(SlurmCommands):
    """The users of the log are the accounts of the jobs: all jobs are submitted by one user."""

    def jobs(self) -> list[SlurmJob]:
        return [replace(job, user=job.account) for job in super().jobs()]


def run_one(day: Day, policy: str, out: Path, name: str) -> None:
    home = out / f"{day.number}-{name}"
    home.mkdir(parents=True, exist_ok=True)
    slurm = LocalSlurm(
        home / "slurm",
        (NodeKind("n", NODES, cores=CORES, mib=100_000),),
        scheduler="bf_interval=1,bf_resolution=1,bf_continue,sched_interval=5",
    )
    slurm.home.mkdir(exist_ok=True)
    (home / "started").mkdir(exist_ok=True)
    with slurm:
        commands = LogUsers({"SLURM_CONF": str(slurm.home / "slurm.conf")})
        stop, ready = threading.Event(), threading.Event()
        thread = threading.Thread(target=_steer if policy != SLURM else _watch, args=(day, policy, commands, home, stop, ready))
        thread.start()
        ready.wait()
        submitted = _submit_all(day, slurm, home)
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline and len(list((home / "started").iterdir())) < len(submitted):
            time.sleep(2)
        stop.set()
        thread.join(60)
    starts = {path.name: float(path.read_text() or "nan") for path in (home / "started").iterdir()}
    rows = [{"job": j, "submit": at, "start": starts.get(slurm_id)} for j, (slurm_id, at) in submitted.items()]
    (home / "measured.json").write_text(json.dumps({"day": day.number, "policy": policy, "rows": rows}))


def _submit_all(day: Day, slurm: LocalSlurm, home: Path) -> dict[int, tuple[str, float]]:
    began = time.time() + 2.0
    submitted: dict[int, tuple[str, float]] = {}
    for j in range(len(day.jobs)):
        time.sleep(max(began + float(day.jobs.submit[j]) - time.time(), 0.0))
        script = f"#!/bin/sh\ndate +%s.%N > {home}/started/$SLURM_JOB_ID\nexec sleep {day.jobs.runtime[j]:.3f}\n"
        user = day.jobs.users[day.jobs.user[j]] if day.jobs.user[j] >= 0 else ""
        options = (
            f"--ntasks={day.jobs.num_tasks[j]}",
            "--mem-per-cpu=1",
            f"--time={int(day.jobs.requested[j] // 60)}",
            f"--account=u{user}",
        )
        quiet = ("--parsable", "--output=/dev/null", "--error=/dev/null", f"--chdir={home}", "--job-name=sbatch")
        at = time.time()
        submitted[j] = slurm.run("sbatch", *quiet, *options, stdin=script).strip(), at
    return submitted


def _steer(day: Day, policy: str, commands: SlurmCommands, home: Path, stop: threading.Event, ready: threading.Event) -> None:
    guarded = GuardedPolicy(policy, deadline_s=10.0)
    guarded.answer(WARM_UP, deadline_s=600.0)  # compile, or load from the cache
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


# --- judging


def cluster_of_day() -> Any:
    return build("day", [NodeGroup(NODES, cpus=CORES, mem_gib=100_000 / 1024, name="n")])


def predicted_waits(day: Day, policy: str, conf: Path) -> Floats:
    """Waits in the engine, seconds of log time."""
    jobs, cluster = day.jobs, cluster_of_day()
    name = f"multifactor+slurm:{conf}" if policy == SLURM else policy  # the agent sets priorities: Slurm's loops start the jobs
    if not plays_apart(name):
        users = [f"u{jobs.users[u]}" if u >= 0 else "u" for u in jobs.user.tolist()]
        rows = zip(users, jobs.num_tasks.tolist(), jobs.requested.tolist(), strict=True)
        guess = np.array([day.history.predict(user, "sbatch", width, limit) for user, width, limit in rows])
        for own in parse_policy(name).own_estimates:
            if learns_by_waits(own):
                declare_predictions(jobs, cluster, own, guess)
    schedule = simulate(jobs, cluster, name, estimates=jobs.requested)
    return np.asarray((schedule.start - jobs.submit) * FASTER)


def slowdowns(waits: Floats, day: Day) -> Floats:
    runtime = day.jobs.runtime * FASTER
    return np.maximum((waits + runtime) / np.maximum(runtime, FLOOR_S), 1.0)


def paired_interval(mine: Floats, its: Floats, hours: Any) -> tuple[float, float, float]:
    """Mean of the differences, and a 95 % interval over blocks of an hour of log."""
    known = ~(np.isnan(mine) | np.isnan(its))
    difference, hours = (mine - its)[known], hours[known]
    blocks = [difference[hours == hour] for hour in np.unique(hours)]
    generator = np.random.default_rng(0)
    means = [np.concatenate([blocks[b] for b in generator.integers(0, len(blocks), len(blocks))]).mean() for _ in range(BLOCKS)]
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return float(difference.mean()), low, high


def submission_lag(day: Day, rows: list[dict[str, Any]]) -> float:
    """How much later than planned the latest submission came, beside the first one; seconds of real time."""
    late = np.array([row["submit"] for row in rows]) - day.jobs.submit[[row["job"] for row in rows]]
    return float((late - late.min()).max())


def judge(days: list[Day], policies: dict[str, str], out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for day in days:
        hours = (day.jobs.submit * FASTER // 3600).astype(int)
        waits: dict[str, Floats] = {}
        for name, policy in policies.items():
            path = out / f"{day.number}-{name}" / "measured.json"
            if not path.exists():
                continue
            rows = json.loads(path.read_text())["rows"]
            real = np.full(len(day.jobs), np.nan)
            for row in rows:
                if row["start"] is not None:
                    real[row["job"]] = max(row["start"] - row["submit"], 0.0) * FASTER
            lag = submission_lag(day, rows)
            if lag <= MOST_LAG_S:
                waits[name] = real
            engine = predicted_waits(day, policy, out / f"{day.number}-slurm" / "slurm" / "slurm.conf")
            at_once = engine <= 0
            found[f"{day.number} {name}"] = {
                "jobs": len(real), "submission_lag_s": lag, "disturbed": lag > MOST_LAG_S,
                "started": int((~np.isnan(real)).sum()), "mean_wait_s": float(np.nanmean(real)),
                "mean_bsld": float(np.nanmean(slowdowns(real, day))), "engine_mean_wait_s": float(np.mean(engine)),
                "engine_mean_bsld": float(np.mean(slowdowns(engine, day))), "median_error_s": float(np.nanmedian(np.abs(real - engine))),
                "mean_error_s": float(np.nanmean(real - engine)),
                "start_latency_s": float(np.nanmedian(real[at_once]) / FASTER) if at_once.any() else None,
            }  # fmt: skip
        for name in policies:
            if name != SLURM and name in waits and SLURM in waits:
                for what, of in (("wait_s", lambda w: w), ("bsld", lambda w, day=day: slowdowns(w, day))):
                    mean, low, high = paired_interval(of(waits[name]), of(waits[SLURM]), hours)
                    found[f"{day.number} {name} − slurm, {what}"] = {"mean": mean, "low": low, "high": high}
    return found


def judge_when(days: list[Day], out: Path) -> dict[str, Any]:
    """How good `when` was under Slurm's own scheduling, beside squeue --start."""
    ours, theirs, covered = [], [], []
    for day in days:
        home = out / f"{day.number}-slurm"
        if not (home / "seen").is_dir():
            continue
        starts = {path.name: float(path.read_text() or "nan") for path in (home / "started").iterdir()}
        for path in sorted((home / "seen").iterdir()):
            entry = json.loads(path.read_text())
            start = starts.get(entry["job"])
            snapshot = Snapshot.from_plain(entry["snapshot"])
            if start is None or all(one.job.job_id != entry["job"] for one in snapshot.queue):
                continue
            now = snapshot.now + snapshot.epoch
            found = start_times(snapshot, [entry["job"]], day.history)[0]
            real = max(start - now, 1.0)
            if found.p10 is not None and found.p50 is not None and found.p90 is not None:
                ours.append(max(found.p50 - now, 1.0) / real)
                covered.append(found.p10 - 1.0 <= start <= found.p90 + 1.0)
            planned = entry["planned"]
            if planned and planned != "N/A":
                at = time.mktime(time.strptime(planned, "%Y-%m-%dT%H:%M:%S"))
                theirs.append(max(at - now, 1.0) / real)
    return {
        "jobs": len(ours),
        **_within("when", ours),
        **_within("squeue --start", theirs),
        "covered": float(np.mean(covered)) if covered else None,
    }


def _within(name: str, ratios: list[float]) -> dict[str, Any]:
    values = np.array(ratios)
    shares = {f"{name} within {k}x": float(((values >= 1 / k) & (values <= k)).mean()) if len(values) else None for k in (2, 3)}
    return {f"{name} jobs": len(values), **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "judge", "one"))
    parser.add_argument("--learned", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--day", type=int, help="only this day")
    parser.add_argument("--name", help="only this policy")
    given = parser.parse_args()
    policies = {SLURM: SLURM, "wise": "wise", "learned": f"model:{given.learned}"}
    days = [day for day in read_days() if given.day in (None, day.number)]
    out = given.out.resolve()
    if given.action == "one":
        run_one(days[0], policies[given.name], out, given.name)
    elif given.action == "judge":
        print(json.dumps({**judge(days, policies, out), "when": judge_when(days, out)}, indent=2))
    else:
        names = [given.name] if given.name else list(policies)
        for day in days:
            for name in names:
                command = [sys.executable, __file__, "one", "--learned", given.learned, "--out", str(out), "--day", str(day.number)]
                subprocess.Popen([*command, "--name", name])


if __name__ == "__main__":
    main()
