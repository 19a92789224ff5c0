"""Compare policies on a synthetic workload: a table on the screen and a picture of the waits.

Run it with `scripts/demo`, or `python examples/compare_policies.py FOLDER` to choose where the picture goes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

import queuewise
from queuewise.cli.console import announce_compilation, duration, figure, print_table

mpl.use("Agg")
import matplotlib.pyplot as plt

TIMES = {"1 s": 1, "10 s": 10, "1 min": 60, "10 min": 600, "1 h": 3600, "6 h": 21_600, "1 d": 86_400, "3 d": 259_200}
POLICIES = ("fcfs", "fcfs+easy", "fcfs+conservative", "fcfs+greedy", "sjf", "sjf+easy", "saf+greedy", "wfp3+easy", "f1+easy")


def main(folder: Path) -> None:
    workload = queuewise.load_workload("bursty", jobs=2000, seed=1).workload
    cluster = queuewise.load_cluster("4x8:V100-16")
    announce_compilation()
    schedules = [queuewise.simulate(workload, cluster, policy, estimates="oracle") for policy in POLICIES]
    rows = []
    for schedule in schedules:
        summary = queuewise.summarise(schedule)
        rows.append([
            summary["policy"], duration(summary["wait_s"]["mean"]), duration(summary["wait_s"]["p99"]), duration(summary["jct_s"]["mean"]),
            figure(summary["bounded_slowdown"]["mean"], 1), figure(summary["gpu_utilisation"], 3), figure(summary["energy_kwh"]),
        ])  # fmt: skip
    columns = ["policy", "mean wait", "p99 wait", "mean JCT", "bounded slowdown", "GPU use", "kWh"]
    print_table(columns, rows, title=f"{workload.name}: {len(workload):,} jobs on {cluster.num_gpus} GPUs")

    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "waits.png"
    draw_waits(schedules, picture)
    print(f"picture: {picture}")


def draw_waits(schedules: list[queuewise.Schedule], picture: Path) -> None:
    """Which share of the jobs waited at most how long, one line a policy."""
    fig, axes = plt.subplots(figsize=(8, 5), layout="constrained")

    for schedule in schedules:
        waits = np.sort(schedule.first_wait[schedule.finished])
        axes.plot(np.maximum(waits, 1.0), np.arange(1, waits.size + 1) / waits.size, label=schedule.policy)
    axes.set_xscale("log")
    axes.set_xticks([*TIMES.values()], labels=[*TIMES], minor=False)
    axes.minorticks_off()
    axes.set_title(f"{schedules[0].workload.name}: {len(schedules[0].workload):,} jobs on {schedules[0].cluster.num_gpus} GPUs", loc="left")
    axes.set_xlabel("wait for the first start")
    axes.set_ylabel("share of jobs that waited at most this long")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    fig.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
