"""Compare policies on a synthetic workload: a table on the screen and a picture of the waits.

Run it with `scripts/demo`, or `python examples/compare_policies.py FOLDER` to choose where the picture goes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

import queuewise
from queuewise.cli.console import announce_compilation, print_table
from queuewise.report.readable import duration, figure

mpl.use("Agg")
import matplotlib.pyplot as plt

TIMES = {
    "1 s": 1,
    "10 s": 10,
    "1 min": 60,
    "10 min": 600,
    "1 h": 3600,
    "6 h": 21_600,
    "1 d": 86_400,
    "3 d": 259_200,
    "10 d": 864_000,
    "30 d": 2_592_000,
}
PLAIN = ["fcfs", "fcfs+easy", "sjf+easy", "saf+easy"]
POLICIES = [*PLAIN, "saf+easy~3d", "wise", "model:generalist-hpc"]
MODEL, JOBS, CLUSTER = "lublin", 5000, "flat:256"
NEXT = f"""
~3d bounds the waits: no job is passed for longer than three days. wise orders by runtimes that it predicts, and
model:generalist-hpc is a variant of it that was found on other logs. Both have the same bound.

Try next:
  queuewise simulate --workload {MODEL} --jobs {JOBS} --cluster {CLUSTER} --policy wise --load-factor 0.9
  queuewise size {MODEL} --jobs {JOBS} --cluster {CLUSTER} --target "p90 wait < 4h"
  queuewise evaluate --workload {MODEL} --cluster {CLUSTER} --policy fcfs+easy --policy wise --out runs/first --report

Your own log (sacct, SWF, CSV): docs/tutorials/operator.md
"""


def main(folder: Path) -> None:
    announce_compilation()
    schedules = queuewise.simulate(MODEL, CLUSTER, POLICIES, jobs=JOBS, seed=1)
    rows = []
    for policy, schedule in schedules.items():
        summary = queuewise.summarise(schedule)
        waits = [duration(summary["wait_s"][name]) for name in ("mean", "p50", "p99", "max")]
        rows.append([policy, *waits, figure(summary["bounded_slowdown"]["mean"], 1), figure(summary["cpu_utilisation"], 3)])
    columns = ["policy", "mean wait", "median", "p99", "longest", "bounded slowdown", "use"]
    print_table(columns, rows, title=f"{JOBS:,} jobs of the model {MODEL} on {CLUSTER}")
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "waits.png"
    draw_waits(list(schedules.values()), picture)
    print(f"picture: {picture}")
    print(NEXT if shutil.which("queuewise") else NEXT.replace("Try next:\n", "Try next:\n  source .venv/bin/activate\n"))


def draw_waits(schedules: list[queuewise.Schedule], picture: Path) -> None:
    """Which share of the jobs waited at most how long, one line a policy."""
    fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")

    for schedule in schedules:
        waits = np.sort(schedule.first_wait[schedule.finished])
        style = "--" if schedule.policy in PLAIN else "-"
        axes.plot(np.maximum(waits, 1.0), np.arange(1, waits.size + 1) / waits.size, style, label=schedule.policy)
    axes.set_xscale("log")
    axes.set_xticks([*TIMES.values()], labels=[*TIMES], minor=False)
    axes.minorticks_off()
    axes.set_title(f"{len(schedules[0].workload):,} jobs of the model {MODEL} on {CLUSTER}", loc="left")
    axes.set_xlabel("wait for the first start")
    axes.set_ylabel("share of jobs that waited at most this long")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    fig.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
