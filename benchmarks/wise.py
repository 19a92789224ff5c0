"""Compare `wise` with heuristics on later days of five public logs: fill the tables of docs/results.md.

python benchmarks/wise.py [LOG ...]     ten minutes; reads ../shared/traces, or where QUEUEWISE_TRACES says

Every log is replayed as by `queuewise evaluate --protocol days`: from its first job, eight times, with shaken submissions; the last
35 % of its days count. SWF files are read with --processors requested --clean.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from render_performance import REPOSITORY, RESULTS, Results, fill, table

from queuewise import load_cluster, load_workload, simulate
from queuewise.cli.console import note
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.replay_files import to_json
from queuewise.evaluation.statistics import ScoreSeries, compare
from queuewise.evaluation.units import mean_series
from queuewise.report.readable import duration
from queuewise.runs import write_text
from queuewise.workload.estimates import default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ReadOptions

PAGE = REPOSITORY / "docs" / "results.md"
TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
FILE = RESULTS / "wise.json"
LOGS = {  # file, cluster
    "KTH": ("swf/KTH-SP2-1996-2.swf.gz", "flat:100"),
    "CTC": ("swf/CTC-SP2-1996-3.1-cln.swf.gz", "flat:338"),
    "HPC2N": ("swf/HPC2N-2002-2.2-cln.swf.gz", "flat:240"),
    "Venus": ("helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "80x8:V100-16"),
    "Philly": ("philly/philly_jobs_2017-09_to_10.csv.gz", "80x8:P100"),
}
WISE = "wise"
OTHERS = ("fcfs+easy", "fcfs+easy:sjf", "sjf+easy", "saf+easy~3d", "saf:predicted+easy:sjf:predicted~3d", "wfp3+easy")
SCORES = ("bsld", "wait")


def read(log: str) -> Workload:
    path = TRACES / LOGS[log][0]
    options = ReadOptions(processors="requested", clean=True) if ".swf" in path.name else None
    return load_workload(path, options=options).workload


def series(cells: list[Cell], score: str) -> ScoreSeries:
    return mean_series([cell.units or {} for cell in cells], [(1.0, score)])


def measure(log: str) -> dict[str, Any]:
    """The means of every policy, and the differences of `wise` from each in percent, with intervals."""
    workload, cluster = read(log), load_cluster(LOGS[log][1])
    estimates = default_estimates(workload)
    plan = make_plan("days", workload)
    experiment = Experiment(workload, cluster, plan, ReplaySettings(estimates=estimates))
    cells = run_experiment(experiment, [WISE, *OTHERS], simulate)
    by_policy = {policy: [cell for cell in cells if cell.policy == policy] for policy in (WISE, *OTHERS)}
    rows = {}
    for policy, mine in by_policy.items():
        rows[policy] = {"max_wait_s": max(cell.metrics["wait_s"]["max"] for cell in mine)}
        for score in SCORES:
            own, other = series(by_policy[WISE], score), series(mine, score)
            rows[policy][score] = other.mean
            if policy != WISE:
                difference = compare(own, other)
                rows[policy][f"{score}_percent"] = [100 * value / other.mean for value in (difference.diff, *(difference.ci95 or ()))]
    counted = series(by_policy[WISE], "bsld").jobs
    return {"cluster": LOGS[log][1], "estimates": estimates, "days": len(counted), "jobs": round(float(counted.sum())), "policies": rows}


def percent(values: list[float]) -> str:
    """A difference, and its interval if it has one."""
    interval = f" ({values[1]:+,.0f} … {values[2]:+,.0f})" if len(values) > 1 else ""
    return f"{values[0]:+,.0f} %{interval}"


def wise(results: Results) -> str:
    rows = []
    for log, found in results["wise"].items():
        own = found["policies"][WISE]
        rows.append([log, f"**`{WISE}`**", f"{own['bsld']:.1f}", "", duration(own["wait"]), "", duration(own["max_wait_s"])])
        for policy, row in found["policies"].items():
            if policy != WISE:
                cells = [f"{row['bsld']:.1f}", percent(row["bsld_percent"]), duration(row["wait"]), percent(row["wait_percent"])]
                rows.append(["", f"`{policy}`", *cells, duration(row["max_wait_s"])])
    columns = ["log", "policy", "mean bsld", "`wise` against it", "mean wait", "`wise` against it", "longest wait"]
    return table(columns, rows, left=2)


def wise_logs(results: Results) -> str:
    rows = [
        [log, f"`{found['cluster']}`", f"`{found['estimates']}`", f"{found['days']}", f"{found['jobs']:,}"]
        for log, found in results["wise"].items()
    ]
    return table(["log", "cluster", "`--estimates`", "counted days", "counted jobs"], rows, left=3)


def main() -> None:
    results: Results = {"wise": json.loads(FILE.read_text(encoding="utf-8"))} if FILE.exists() else {"wise": {}}
    for log in sys.argv[1:] or LOGS:
        results["wise"][log] = measure(log)
        note(f"{log}: {results['wise'][log]['policies'][WISE]}")
        write_text(FILE, to_json(results["wise"]))
    results["wise"] = {log: results["wise"][log] for log in LOGS if log in results["wise"]}
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), results, {"wise": wise, "wise_logs": wise_logs}))


if __name__ == "__main__":
    main()
