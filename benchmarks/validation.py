"""Validate the replays of six public logs: fill the table of docs/validation.md and draw its figures.

python benchmarks/validation.py          a minute; reads ../shared/traces, or where QUEUEWISE_TRACES says
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from render_performance import FIGURES, REPOSITORY, RESULTS, Results, fill, prose, table

from queuewise.cli.console import note
from queuewise.evaluation.log_validation import Validation, validate
from queuewise.evaluation.replay_files import to_json
from queuewise.policies import simulate
from queuewise.report.readable import duration
from queuewise.report.validation_charts import draw_validation
from queuewise.runs import write_text

PAGE = REPOSITORY / "docs" / "validation.md"
TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
LOGS = {
    "sacct": "slurm/xdmod_phillips_sacct.log.gz",
    "Eagle": "slurm/nrel_eagle_sample.csv",
    "Venus": "helios/venus_sample_cluster_log.csv",
    "KTH": "swf/KTH-SP2-1996-2.swf.gz",
    "CTC": "swf/CTC-SP2-1996-3.1-cln.swf.gz",
    "HPC2N": "swf/HPC2N-2002-2.2-cln.swf.gz",
}
DRAWN = ("sacct", "HPC2N")
SHAKEN = ("KTH", "CTC", "HPC2N")
SHAKES, SHAKE_S = 8, 60.0


def figures(found: Validation) -> dict[str, Any]:
    cluster = found.replay.schedule.cluster
    size = {"nodes": cluster.num_nodes, "cores": cluster.num_cores, "gpus": cluster.num_gpus}
    return {"jobs": found.jobs, "at_begin": found.at_begin, "policy": found.policy, "cluster": size, **found.as_json()}


def shaken_spread(found: Validation) -> float:
    """(largest − least) ÷ mean of the mean waits of replays whose submissions are shifted by up to SHAKE_S. Jobs keep their order."""
    schedule = found.replay.schedule
    means = []
    for seed in range(SHAKES):
        shift = np.random.default_rng(seed).uniform(-SHAKE_S, SHAKE_S, len(schedule.workload))
        jobs = schedule.workload.replace(submit=np.sort(schedule.workload.submit + shift))
        again = simulate(jobs, schedule.cluster, schedule.policy, estimates=schedule.estimates)
        means.append(float(again.first_wait[np.isfinite(again.first_wait)].mean()))
    return (max(means) - min(means)) / float(np.mean(means))


def noise(results: Results) -> str:
    spreads = [f"{row['shaken_spread']:.1%} on {name}" for name, row in results["logs"].items() if "shaken_spread" in row]
    return prose(
        f"In {SHAKES} replays of a log whose submissions are shifted at random by up to {SHAKE_S:.0f} s, the mean waits differ by "
        f"{', '.join(spreads)}, from the least to the largest."
    )


def logs(results: Results) -> str:
    rows = []
    for name, row in results["logs"].items():
        cluster = row["cluster"]
        machine = f"{cluster['gpus']:,} GPUs" if name == "Venus" else f"{cluster['cores']:,.0f} cores"
        pairs = [f"{duration(row['recorded'][key])} / {duration(row['replayed'][key])}" for key in ("mean", "p50", "p90", "p99")]
        rank = "–" if row["rank_correlation"] is None else f"{row['rank_correlation']:.2f}"
        rows.append(
            [
                name,
                f"`{row['verdict']}`",
                f"`{row['policy']}`",
                machine,
                f"{row['jobs']:,}",
                *pairs,
                rank,
                f"{row['utilisation_error']:.3f}",
            ]
        )
    waits = [f"{key} wait, recorded / replayed" for key in ("mean", "p50", "p90", "p99")]
    return table(["log", "verdict", "policy", "cluster", "jobs", *waits, "rank correlation", "utilisation error"], rows, left=4)


def main() -> None:
    results: Results = {"logs": {}}
    for name, path in LOGS.items():
        found = validate(TRACES / path)
        results["logs"][name] = figures(found)
        note(f"{name}: {found.verdict}")
        if name in SHAKEN:
            results["logs"][name]["shaken_spread"] = shaken_spread(found)
        if name in DRAWN:
            draw_validation(found.details(), FIGURES / f"validation-{name.lower()}.png")
    (RESULTS / "validation").mkdir(exist_ok=True)
    write_text(RESULTS / "validation" / "logs.json", to_json(results))
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), results, {"logs": logs, "noise": noise}))


if __name__ == "__main__":
    main()
