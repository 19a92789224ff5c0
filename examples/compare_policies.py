"""Compare policies on a synthetic workload: a table on the screen and a picture of the waits.

Run it with `scripts/demo`, or `python examples/compare_policies.py FOLDER` to choose where the picture goes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

import queuewise
from queuewise.cli.console import duration, figure, print_table, tell_compiling

mpl.use("Agg")
import matplotlib.pyplot as plt

POLICIES = ("fcfs", "fcfs+easy", "fcfs+greedy", "sjf", "sjf+easy", "saf+greedy", "wfp3+easy", "f1+easy")


def main(folder: Path) -> None:
    workload = queuewise.load_workload("bursty", jobs=2000, seed=1).workload
    cluster = queuewise.load_cluster("4x8:V100-16")
    tell_compiling()
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
        waits = np.sort(schedule.wait[schedule.finished])
        axes.plot(np.maximum(waits, 1.0) / 3600, np.arange(1, waits.size + 1) / waits.size, label=schedule.policy)
    axes.set_xscale("log")
    axes.set_xlabel("wait (hours)")
    axes.set_ylabel("share of jobs that waited at most this long")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    fig.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
