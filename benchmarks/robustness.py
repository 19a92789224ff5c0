"""How policies bear what they were not made for: more load, bad estimates, failing nodes. Fill a table of docs/results.md.

python benchmarks/robustness.py     reads ../shared/traces, or where QUEUEWISE_TRACES says

The report days of KTH (`flat:100`) and Philly (`80x8:P100`), four replays with shaken submissions each: as they are; with the same jobs
submitted in 1 ÷ 1.2 of the time; with reservations by runtimes with 50 % noise (`noisy:0.5`); and, on Philly's nodes, with 10 % of them
down at any time (`mtbf_h = 90`, `mttr_h = 10`). The heuristics beside our rule are those that `queuewise learn` found best of all, by the
training days and, in hindsight, by the report days: run `python benchmarks/learn.py --runs KTH-realistic-0 Philly-realistic-0` first.
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
from queuewise.search.block_verdicts import verdicts_on
from queuewise.workload.estimates import default_estimates

FILE = RESULTS / "robustness.json"
RULES = {"KTH": "model:generalist-hpc", "Philly": "wise"}  # for GPU clusters the generalist is wise
OURS, BEST, HINDSIGHT, USUAL = "our rule", "best heuristic of the training days", "best in hindsight", "fcfs+easy"
FAILING = Conditions(failures=Failures(mtbf_h=90.0, mttr_h=10.0))
USUAL_CASE = "as it is"
CASES: dict[str, dict[str, Any]] = {
    USUAL_CASE: {},
    "load +20 %": {"load": 1.2},
    "noisy estimates": {"estimates": "noisy:0.5"},
    "failing nodes": {"conditions": FAILING},
}


def compared(log: str) -> dict[str, str]:
    """The policies of a log, by their columns."""
    learned = json.loads((RESULTS / "learn" / f"{log}-realistic-0.json").read_text(encoding="utf-8"))
    hindsight = learned["test"]["bsld"]["hindsight_policy"]
    return {OURS: RULES[log], BEST: learned["baseline"], HINDSIGHT: hindsight, USUAL: "fcfs+easy"}


def measure(log: str, case: dict[str, Any]) -> dict[str, Any]:
    workload = read(log)
    estimates = case.get("estimates", default_estimates(workload))
    if "load" in case:
        workload = workload.replace(submit=workload.submit[0] + (workload.submit - workload.submit[0]) / case["load"])
    settings = ReplaySettings(estimates=estimates, conditions=case.get("conditions", PERFECT))
    policies = compared(log)
    found = verdicts_on(workload, load_cluster(LOGS[log][1]), list(policies.values()), settings, "report", shakes=4)
    means = {policy: {score: found.mean(policy, score) for score in ("bsld", "wait")} for policy in policies.values()}
    return {column: {"policy": policy, **means[policy]} for column, policy in policies.items()}


def cell(row: dict[str, Any], usual: dict[str, Any] | None) -> str:
    figures = f"{row['bsld']:.1f}, {duration(row['wait'])}"
    if usual is None:
        return f"`{row['policy']}`: {figures}"
    return f"{figures} (×{row['bsld'] / usual['bsld']:.2f}, ×{row['wait'] / usual['wait']:.2f})"


def robustness(results: Results) -> str:
    rows = []
    for log, cases in results["robustness"].items():
        for case, columns in cases.items():
            usual = None if case == USUAL_CASE else cases[USUAL_CASE]
            rows.append([log, case, *(cell(row, usual and usual[column]) for column, row in columns.items())])
    return table(["log", "case", OURS, BEST, HINDSIGHT, USUAL], rows, left=2)


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
