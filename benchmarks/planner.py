"""Compare planners with their base policy and with the best heuristic of the earlier days. Fill the tables of docs/planning.md.

python benchmarks/planner.py [LOG ...]     reads ../shared/traces, or where QUEUEWISE_TRACES says

The best heuristic is chosen by its mean on the days of `val`; all are then compared on those of `report` (`--protocol days`), beginning
14 days before, once as submitted and once shaken. Cells that are in benchmarks/results/planner.json are not measured again.
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
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.estimates import default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ReadOptions

PAGE = REPOSITORY / "docs" / "planning.md"
FILE = RESULTS / "planner.json"
TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
LOGS = {  # file, cluster
    "KTH": ("swf/KTH-SP2-1996-2.swf.gz", "flat:100"),
    "CTC": ("swf/CTC-SP2-1996-3.1-cln.swf.gz", "flat:338"),
    "HPC2N": ("swf/HPC2N-2002-2.2-cln.swf.gz", "flat:240"),
    "Lublin-1": ("swf/lublin_256.swf.gz", "flat:256"),
    "Venus": ("helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "80x8:V100-16"),
    "Philly": ("philly/philly_jobs_2017-09_to_10.csv.gz", "80x8:P100"),
}
BASE = "sjf+easy"
HEURISTICS = (
    "fcfs+easy", "fcfs+easy:sjf", "sjf+easy", "saf+easy", "sjf+greedy", "saf+greedy", "f1+easy", "f4+easy", "wfp3+easy", "unicep+easy",
)  # fmt: skip
MEMBERS = "fcfs+easy,saf+easy,sjf+greedy"
PLANNED = (f"portfolio:{MEMBERS}", f"recent:{MEMBERS}", f"plan:{BASE}")
SCORES = ("bsld", "wait")
WARM_S = 14 * 86_400.0


def read(log: str) -> Workload:
    path = TRACES / LOGS[log][0]
    options = ReadOptions(processors="requested", clean=True) if ".swf" in path.name else None
    return load_workload(path, options=options).workload


def series(cells: list[Cell], score: str) -> ScoreSeries:
    return mean_series([cell.units or {} for cell in cells], [(1.0, score)])


def best_before(workload: Workload, cluster: Any, estimates: str) -> dict[str, str]:
    """The heuristic with the least mean on the days of `val`, by score."""
    plan = make_plan("days", workload, block="val", warm_s=WARM_S, shakes=2)
    cells = run_experiment(Experiment(workload, cluster, plan, ReplaySettings(estimates=estimates)), HEURISTICS, simulate, threads=1)
    means = {policy: [cell for cell in cells if cell.policy == policy] for policy in HEURISTICS}
    return {score: min(means, key=lambda policy: series(means[policy], score).mean) for score in SCORES}


def measure(log: str, estimates: str, results: dict[str, Any], keep: Any) -> None:
    """The rows of one log and kind of estimates."""
    workload, cluster = read(log), load_cluster(LOGS[log][1])
    if "best" not in results:
        results["best"] = best_before(workload, cluster, estimates)
        keep()
    thinking: dict[str, Any] = {}

    def watched(*arguments: Any, **options: Any) -> Schedule:
        schedule: Schedule = simulate(*arguments, **options)
        thinking[schedule.policy] = schedule.thinking
        return schedule

    plan = make_plan("days", workload, warm_s=WARM_S, shakes=2)
    experiment = Experiment(workload, cluster, plan, ReplaySettings(estimates=estimates))
    compared = list(dict.fromkeys([BASE, *results["best"].values()]))
    rows = results.setdefault("policies", {})
    usual: dict[str, list[Cell]] = {}
    for policy in (*compared, *PLANNED):
        if policy in rows and policy not in compared:
            continue
        cells = run_experiment(experiment, [policy], watched, threads=1)
        row: dict[str, Any] = {"max_wait_s": max(cell.metrics["wait_s"]["max"] for cell in cells), "thinking": thinking.get(policy)}
        if policy in compared:
            usual[policy] = cells
        for score in SCORES:
            mine = series(cells, score)
            row[score] = mine.mean
            for name, other in {"base": BASE, "best": results["best"][score]}.items():
                its = series(usual.get(other, cells), score)
                difference = compare(mine, its)
                low, high = difference.ci95 or (float("nan"), float("nan"))
                row[f"{score}_{name}_percent"] = [100 * value / its.mean for value in (difference.diff, low, high)]
        rows[policy] = row
        note(f"{log} {estimates} {policy}: {row}")
        keep()


def percent(values: list[float]) -> str:
    return f"{values[0]:+.1f} ({values[1]:+.1f} … {values[2]:+.1f})"


def render(results: Results) -> str:
    rows = []
    for log, kinds in results["planner"].items():
        for estimates, found in kinds.items():
            for policy, row in found.get("policies", {}).items():
                thinking = row["thinking"]
                each = f"{thinking['decision_us']['mean'] / 1000:.1f}" if thinking and thinking["decision_us"] else ""
                is_compared = policy == BASE or policy in found["best"].values()
                against = ["", ""] if is_compared else [percent(row[f"{score}_best_percent"]) for score in SCORES]
                mark = "**" if policy in found["best"].values() else ""
                cells = [f"{row['bsld']:.1f}", against[0], duration(row["wait"]), against[1], duration(row["max_wait_s"]), each]
                rows.append([log, estimates, f"{mark}`{policy}`{mark}", *cells])
    figures = ["bsld", "against the best, %", "wait", "against the best, %", "longest wait", "ms per decision"]
    return table(["log", "estimates", "policy", *figures], rows, left=3)


def main() -> None:
    results: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}

    def keep() -> None:
        write_text(FILE, to_json(results))

    wanted = [one for one in sys.argv[1:] if one != "render"] or ([] if "render" in sys.argv else list(LOGS))
    for estimates_of in ("oracle", "default"):
        for log in wanted:
            estimates = default_estimates(read(log)) if estimates_of == "default" else "oracle"
            measure(log, estimates, results.setdefault(log, {}).setdefault(estimates, {}), keep)
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"planner": results}, {"planner": render}))


if __name__ == "__main__":
    main()
