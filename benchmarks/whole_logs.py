"""Mean bounded slowdowns over whole logs, beside published ones: fill a table of docs/results.md.

python benchmarks/whole_logs.py     two minutes; reads ../shared/traces, or where QUEUEWISE_TRACES says

The logs are read with --processors requested --clean, as in the study whose figures stand beside ours (Gaussier et al., SC 2015).
Reservations go by requested times; predictions learn from jobs that have ended. Beside the replay of the log as it is, the mean of eight
replays with submissions shaken by up to 60 s shows how much of a figure is chance.
"""

from __future__ import annotations

import json

import numpy as np
from render_performance import RESULTS, Results, fill, table
from wise import LOGS, PAGE, read

from queuewise import load_cluster, simulate
from queuewise.cli.console import note
from queuewise.evaluation.measure import BOUND_S
from queuewise.evaluation.protocol import SHAKE_S
from queuewise.policies.estimating import declare_part
from queuewise.runs import write_text
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.transform import shake

FILE = RESULTS / "whole_logs.json"
POLICIES = ("fcfs+easy", "fcfs+easy:sjf", "sjf+easy", "wise", "saf:predicted+easy:sjf:predicted~3d", "model:generalist-hpc")
PUBLISHED = {  # EASY, EASY-SJBF, with practical prediction, the best of 2,880 predictors in hindsight
    "KTH": (92.6, 69.4, 62.9, 45.8),
    "CTC": (49.6, 30.0, 26.5, 15.2),
}
SHAKES = 8


def slowdown(schedule: Schedule) -> float:
    waits, runtime = schedule.start - schedule.workload.submit, schedule.workload.runtime
    return float(np.mean(np.maximum((waits + runtime) / np.maximum(runtime, BOUND_S), 1.0)))


def measure(log: str) -> dict[str, dict[str, float]]:
    workload, cluster = read(log), load_cluster(LOGS[log][1])
    found = {}
    for policy in POLICIES:
        as_it_is = slowdown(simulate(workload, cluster, policy, estimates="requested"))
        shaken = []
        for seed in range(1, SHAKES + 1):
            jobs, order = shake(workload, SHAKE_S, seed)
            declare_part(jobs, workload, order)
            shaken.append(slowdown(simulate(jobs, cluster, policy, estimates="requested")))
        found[policy] = {"bsld": as_it_is, "shaken_mean": float(np.mean(shaken)), "least": min(shaken), "greatest": max(shaken)}
        note(f"{log} {policy}: {found[policy]}")
    return found


def whole_logs(results: Results) -> str:
    logs = results["whole_logs"]
    columns = ["policy", *(text for log in logs for text in (f"{log}: bsld", "eight shaken replays: mean (least … greatest)"))]
    rows = []
    for policy in POLICIES:
        cells = [(one["bsld"], one["shaken_mean"], one["least"], one["greatest"]) for one in (logs[log][policy] for log in logs)]
        rows.append([f"`{policy}`", *(text for a, b, c, d in cells for text in (f"{a:.1f}", f"{b:.1f} ({c:.1f} … {d:.1f})"))])
    for place, name in enumerate(("EASY", "EASY-SJBF", "practical prediction", "best of 2,880 predictors in hindsight")):
        rows.append([f"published: {name}", *(text for log in logs for text in (f"{PUBLISHED[log][place]:.1f}", ""))])
    return table(columns, rows, left=1)


def main() -> None:
    found = {log: measure(log) for log in PUBLISHED}
    write_text(FILE, json.dumps(found, indent=1) + "\n")
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"whole_logs": found}, {"whole_logs": whole_logs}))


if __name__ == "__main__":
    main()
