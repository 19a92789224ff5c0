"""How policies bear what they were not made for: more load, bad estimates, failing nodes. Fill a table of docs/results.md.

python benchmarks/robustness.py     reads ../shared/traces, or where QUEUEWISE_TRACES says

The report days of KTH (`flat:100`) and Philly (`80x8:P100`), four replays with shaken submissions each: as they are; with the same jobs
submitted in 1 ÷ 1.2 of the time; with reservations by runtimes with 50 % noise (`noisy:0.5`); and, on Philly's nodes, with 10 % of them
down at any time (`mtbf_h = 90`, `mttr_h = 10`).
"""

from __future__ import annotations

import json
from typing import Any

from render_performance import RESULTS, Results, fill, table
from wise import LOGS, PAGE, read

from queuewise import load_cluster
from queuewise.cli.console import note
from queuewise.cluster.conditions import PERFECT, Conditions, Failures
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.report.readable import duration
from queuewise.runs import write_text
from queuewise.search.block_verdicts import judge
from queuewise.workload.estimates import default_estimates

FILE = RESULTS / "robustness.json"
RULES = {"KTH": "model:generalist-hpc", "Philly": "model:generalist-gpu"}
OTHERS = ("wise", "saf:predicted+easy:sjf:predicted~3d", "sjf+easy", "fcfs+easy")
FAILING = Conditions(failures=Failures(mtbf_h=90.0, mttr_h=10.0))
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "load +20 %": {"load": 1.2},
    "noisy estimates": {"estimates": "noisy:0.5"},
    "failing nodes": {"conditions": FAILING},
}


def measure(log: str, case: dict[str, Any]) -> dict[str, Any]:
    workload = read(log)
    estimates = case.get("estimates", default_estimates(workload))
    if "load" in case:
        workload = workload.replace(submit=workload.submit[0] + (workload.submit - workload.submit[0]) / case["load"])
    settings = ReplaySettings(estimates=estimates, conditions=case.get("conditions", PERFECT))
    policies = [RULES[log], *OTHERS]
    found = judge(workload, load_cluster(LOGS[log][1]), policies, settings, "report", shakes=4)
    return {policy: {score: found.mean(policy, score) for score in ("bsld", "wait")} for policy in policies}


def robustness(results: Results) -> str:
    rows = []
    for log, cases in results["robustness"].items():
        usual = cases["as it is"]
        for case, policies in cases.items():
            cells = []
            for policy, row in policies.items():
                factors = (
                    ""
                    if case == "as it is"
                    else f" (×{row['bsld'] / usual[policy]['bsld']:.2f}, ×{row['wait'] / usual[policy]['wait']:.2f})"
                )
                cells.append(f"{row['bsld']:.1f}, {duration(row['wait'])}{factors}")
            rows.append([log, case, *cells])
    return table(["log", "case", "the generalist", *(f"`{policy}`" for policy in OTHERS)], rows, left=2)


def main() -> None:
    made: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for log in RULES:
        for case, settings in CASES.items():
            if case in made.get(log, {}) or (log == "KTH" and "conditions" in settings):
                continue
            made.setdefault(log, {})[case] = measure(log, settings)
            note(f"{log}, {case}: {made[log][case]}")
            write_text(FILE, json.dumps(made, indent=1) + "\n")
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"robustness": made}, {"robustness": robustness}))


if __name__ == "__main__":
    main()
