"""Run `queuewise learn` on every log, with exact runtimes and with those a scheduler knows: fill the tables of docs/results.md.

python benchmarks/learn.py [--runs NAME ...] [--budget 10m]     reads ../shared/traces, or where QUEUEWISE_TRACES says
python benchmarks/learn.py --render                             only fills the tables

A run is named LOG-ESTIMATES-SEED, as in KTH-oracle-0, and has one file in benchmarks/results/learn. Runs that have one are not made again.
The first seed of every log comes first. A run that was interrupted continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from render_performance import RESULTS, Results, fill, table
from wise import LOGS, PAGE, TRACES, percent

from queuewise.cli.console import note
from queuewise.report.readable import duration
from queuewise.runs import write_text

FOLDER = RESULTS / "learn"
MORE_LOGS = {"Lublin-1": ("swf/lublin_256.swf.gz", "flat:256"), "SDSC": ("swf/SDSC-SP2_reconstructed.swf.gz", "flat:128")}
UNCLEANED = ("Lublin-1",)  # it has no requests, so that --clean would leave nothing
REALISTIC = {"Lublin-1": "noisy:1.0", "Venus": "predicted", "Philly": "predicted"}  # requested for the others
ROWS = (  # the most important first
    ("KTH", "oracle"), ("Lublin-1", "oracle"), ("CTC", "oracle"), ("KTH", "realistic"), ("CTC", "realistic"), ("Philly", "oracle"),
    ("Venus", "oracle"), ("HPC2N", "oracle"), ("SDSC", "realistic"), ("Lublin-1", "realistic"), ("Philly", "realistic"),
    ("Venus", "realistic"), ("HPC2N", "realistic"),
)  # fmt: skip
SEEDS = (0, 1, 2)
NAMES = [f"{log}-{estimates}-{seed}" for seed in SEEDS for log, estimates in ROWS]


def command(name: str, budget: str, home: Path) -> list[str]:
    log, estimates, seed = name.rsplit("-", 2)
    file, cluster = (LOGS | MORE_LOGS)[log]
    known = "oracle" if estimates == "oracle" else REALISTIC.get(log, "requested")
    reading = ["--processors", "requested", *([] if log in UNCLEANED else ["--clean"])] if file.startswith("swf/") else []
    chosen = ["--cluster", cluster, "--estimates", known, "--budget", budget, "--seed", seed, "--out", str(home)]
    return ["learn", str(TRACES / file), *reading, *chosen, "--json"]


def run(name: str, budget: str) -> None:
    home = Path("runs/benchmark-learn") / name
    asked = command(name, budget, home)
    note(f"{name}: queuewise {' '.join(asked)}")
    subprocess.run([sys.executable, "-m", "queuewise", *asked], check=True)
    found = json.loads((home / "learned.json").read_text(encoding="utf-8"))
    asked[1] = (LOGS | MORE_LOGS)[name.rsplit("-", 2)[0]][0]
    write_text(FOLDER / f"{name}.json", json.dumps({"command": " ".join(["queuewise", *asked]), **found}, indent=1) + "\n")


def results() -> dict[str, dict[str, Any]]:
    return {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES if (FOLDER / f"{name}.json").exists()}


def against(found: dict[str, Any], policy: str, score: str) -> str:
    """The difference of the recommended policy from another one on the report days."""
    row = found["report_days"][policy][score]
    if policy == found["recommended"]:
        return ""
    return percent([row["recommended_percent"], *(row["ci95"] or (float("nan"), float("nan")))])


def rule_against(found: dict[str, Any], policy: str, score: str) -> str:
    """The difference of the rule that was found from a policy on the report days; empty in results that lack it."""
    row = found["report_days"][policy][score]
    if row.get("found_percent") is None:
        return ""
    return percent([row["found_percent"], *(row["found_ci95"] or (float("nan"), float("nan")))])


def rows_of(estimates: str, made: Results) -> list[list[str]]:
    rows = []
    for name in sorted(made, key=lambda name: (name.rsplit("-", 2)[0], name)):
        log, kind, seed = name.rsplit("-", 2)
        if kind != estimates:
            continue
        found = made[name]
        own, days = found["recommended"], found["report_days"]
        rule = "the rule" if found["verdict"] == "better" else f"`{own}`"
        hindsight = found["test"]["bsld"]["hindsight_policy"]
        second = hindsight if estimates == "oracle" else "wise"
        rows.append([
            log, seed, f"{found['verdict']}: {rule}", f"{days[own]['bsld']['mean']:.1f}", duration(days[own]["wait_s"]["mean"]),
            duration(days[own]["max_wait_s"]), f"`{found['baseline']}` {days[found['baseline']]['bsld']['mean']:.1f}",
            against(found, found["baseline"], "bsld"), against(found, found["baseline"], "wait_s"),
            f"`{second}` {days[second]['bsld']['mean']:.1f}", against(found, second, "bsld"), against(found, second, "wait_s"),
        ])  # fmt: skip
    return rows


def rendered(estimates: str, made: Results) -> str:
    second = "best in hindsight: bsld" if estimates == "oracle" else "`wise`: bsld"
    columns = ["log", "seed", "verdict", "bsld", "wait", "longest wait", "baseline: bsld", "bsld against it", "wait", second,
               "bsld against it", "wait"]  # fmt: skip
    return table(columns, rows_of(estimates, made), left=3)


def learned_oracle(made: Results) -> str:
    return rendered("oracle", made["learn"])


def learned_realistic(made: Results) -> str:
    return rendered("realistic", made["learn"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="*", default=NAMES, choices=NAMES, metavar="NAME", help="of %(choices)s; all by default")
    parser.add_argument("--budget", default="10m", help="of each run, %(default)s")
    parser.add_argument("--render", action="store_true", help="make no run")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name in arguments.runs:
        if not arguments.render and not (FOLDER / f"{name}.json").exists():
            run(name, arguments.budget)
    sections = {"learned_oracle": learned_oracle, "learned_realistic": learned_realistic}
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"learn": results()}, sections))


if __name__ == "__main__":
    main()
