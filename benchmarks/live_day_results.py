"""What was measured on the days of `live_day.py`: waits beside the engine's prediction and Slurm's own, and how good `when` was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from render_performance import REPOSITORY, RESULTS, table

from queuewise import simulate
from queuewise.cluster.accounts import Fairness, PriorityWeights
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.names import parse_policy
from queuewise.policies.snapshot import Snapshot
from queuewise.runs import write_text
from queuewise.serve.start_times import start_times
from queuewise.workload.estimates import learns_by_waits
from queuewise.workload.jobs import Floats

if TYPE_CHECKING:  # which uses this module
    from live_day import Day

FASTER = 60.0
NODES, CORES = 5, 20
KEPT = RESULTS / "live_day.json"
PAGE = REPOSITORY / "docs" / "live.md"
SLURM = "slurm"
MOST_LAG_S = 5.0  # real time: a run whose submissions came later was disturbed, and is compared with nothing
FLOOR_S = 10.0  # of runtimes in slowdowns, log time
BLOCKS = 1000  # drawn for the interval


def cluster_of_day() -> Any:
    return build("day", [NodeGroup(NODES, cpus=CORES, mem_gib=100_000 / 1024, name="n")])


def predicted_waits(day: Day, policy: str, conf: Path) -> Floats:
    """Waits in the engine, seconds of log time: Slurm's loops start the jobs, in the order of its own priorities or of the policy."""
    jobs, cluster = day.jobs, cluster_of_day()
    name = f"multifactor+slurm:{conf}" if policy == SLURM else f"{'wise:predicted' if policy == 'wise' else policy}+slurm:{conf}"
    users = [f"u{jobs.users[u]}" if u >= 0 else "u" for u in jobs.user.tolist()]
    rows = zip(users, jobs.num_tasks.tolist(), jobs.requested.tolist(), strict=True)
    guess = np.array(day.history.predict_many([(user, "sbatch", width, limit) for user, width, limit in rows]))
    for own in parse_policy(name).own_estimates:
        if learns_by_waits(own):
            declare_predictions(jobs, cluster, own, guess)
    schedule = simulate(jobs, cluster, name, estimates=jobs.requested, conditions=Conditions(fairness=weights_of(conf)))
    return np.asarray((schedule.start - jobs.submit) * FASTER)


def weights_of(conf: Path) -> Fairness:
    """The weights of multifactor in a slurm.conf; those that it does not name are 0, as in Slurm."""
    lines = (line.partition("=") for line in conf.read_text().splitlines() if line.startswith("PriorityWeight"))
    named = {name.removeprefix("PriorityWeight").lower(): float(value) for name, _, value in lines}
    usual = ("age", "assoc", "fairshare", "jobsize", "partition", "qos")
    age, association, fairshare, job_size, partition, qos = (named.get(name, 0.0) for name in usual)
    weights = PriorityWeights(age=age, association=association, fairshare=fairshare, job_size=job_size, partition=partition, qos=qos)
    return Fairness(weights=weights)


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


def rendered(found: dict[str, Any]) -> str:
    """The tables of docs/live.md."""
    runs = {name: row for name, row in found.items() if isinstance(row, dict) and "mean_bsld" in row}
    compared = {name: row for name, row in found.items() if isinstance(row, dict) and "low" in row}
    cells = [[name, *_figures(row)] for name, row in runs.items()]
    columns = ["day and policy", "wait, s", "in the engine", "slowdown", "in the engine", "start latency, s", ""]
    against = [[name, f"{row['mean']:+,.1f}", _interval(row), _verdict(row)] for name, row in compared.items()]
    when = found["when"]
    if not when["jobs"]:
        return "\n\n".join([table(columns, cells), table(["difference", "mean", "95 % interval", ""], against)])
    shares = [f"{name}: {value:.0%}" for name, value in when.items() if "within" in name and value is not None]
    covered = when["covered"]
    said = f"`slurm when` for {when['jobs']} jobs: " + "; ".join(shares)
    said += "." if covered is None else f"; {covered:.0%} of the starts within the band."
    return "\n\n".join([table(columns, cells), table(["difference", "mean", "95 % interval", ""], against), said])


def _figures(row: dict[str, Any]) -> list[str]:
    waits, latency = [f"{row[name]:,.0f}" for name in ("mean_wait_s", "engine_mean_wait_s")], row["start_latency_s"]
    slowdowns = [f"{row[name]:.1f}" for name in ("mean_bsld", "engine_mean_bsld")]
    return [*waits, *slowdowns, "–" if latency is None else f"{latency:.1f}", "disturbed" if row["disturbed"] else ""]


def _interval(row: dict[str, float]) -> str:
    return f"{row['low']:+,.1f} to {row['high']:+,.1f}"


def _verdict(row: dict[str, float]) -> str:
    if row["low"] == row["high"]:
        return "not told apart"  # one block says nothing about others
    return "better" if row["high"] < 0 else "worse" if row["low"] > 0 else "not told apart"


def render() -> None:
    begin, end = "<!-- day -->", "<!-- /day -->"
    before, _, rest = PAGE.read_text().partition(begin)
    write_text(PAGE, f"{before}{begin}\n{rendered(json.loads(KEPT.read_text()))}\n{end}{rest.partition(end)[2]}")
