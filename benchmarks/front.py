"""The front of wait, utilisation, fairness and energy: rules of the family with other weights, beside heuristics. One figure.

python benchmarks/front.py     reads ../shared/traces, or where QUEUEWISE_TRACES says; writes docs/figures/front.svg

The report days of KTH (`flat:100`) and Philly (`80x8:P100`, where idle nodes sleep after 15 minutes; its log names no users). Each point is
the mean of four replays with shaken submissions. The weights of age, width and of what does not fit change; predictions, reservations and
the bound are those of `wise`.
"""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from render_performance import FIGURES, RESULTS
from wise import LOGS, read

from queuewise import load_cluster
from queuewise.cli.console import note
from queuewise.cluster.conditions import PERFECT, Conditions, Power
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.policies.found_rules import NUMBERS, FoundRule, rule_text
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import draw_panels
from queuewise.runs import write_text
from queuewise.search.block_verdicts import verdicts_on
from queuewise.workload.estimates import default_estimates

FILE = RESULTS / "front.json"
WEIGHTS = {"age": (0.25, 1.0, 3.0), "log_width": (0.5, 1.0), "blocked": (0.0, 1.0)}
HEURISTICS = ("fcfs+easy", "fcfs+easy:sjf", "sjf+easy", "saf+easy~3d", "wfp3+easy", "fcfs+conservative")
SLEEPING = Conditions(power=Power(sleep_after_s=900.0, wake_s=180.0, sleep_watts=15.0))
SHAKES = 4
AXES = {  # log: metrics of the panels, with labels
    "KTH": {"cpu_utilisation": "utilisation", "jain_index": "fairness (Jain index of users)"},
    "Philly": {"gpu_utilisation": "utilisation", "energy_kwh": "energy, kWh"},
}


def write_rules(folder: Path) -> dict[str, str]:
    """Names of policies by weights."""
    names = {}
    for number, values in enumerate(product(*WEIGHTS.values())):
        numbers = {"log_runtime": 1.0} | dict(zip(WEIGHTS, values, strict=True))
        rule = FoundRule(tuple(numbers.get(name, 0.0) for name in NUMBERS), "predicted", "+easy:sjf:predicted~3d")
        (folder / f"{number}").mkdir()
        write_text(folder / f"{number}" / "rule.toml", rule_text(rule, {}))
        names[f"model:{folder / str(number)}"] = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    return names


def measure(log: str, folder: Path) -> dict[str, dict[str, Any]]:
    workload = read(log)
    settings = ReplaySettings(estimates=default_estimates(workload), conditions=SLEEPING if log == "Philly" else PERFECT)
    rules = write_rules(folder)
    found = verdicts_on(workload, load_cluster(LOGS[log][1]), [*HEURISTICS, "wise", *rules], settings, "report", shakes=SHAKES)
    return {
        rules.get(policy, policy): {
            "wait_s": found.mean(policy, "wait"),
            **{name: fmean(cell.metrics[name] for cell in cells) for name in AXES[log]},
        }
        for policy, cells in found.cells.items()
    }


def chart(log: str, metric: str, label: str, rows: dict[str, dict[str, Any]]) -> Chart:
    groups = {
        "rules with other weights": [row for name, row in rows.items() if name.startswith("log_runtime")],
        "heuristics": [rows[name] for name in HEURISTICS],
        "wise": [rows["wise"]],
    }
    series = tuple(
        Series(name, [row["wait_s"] / 3600 for row in points], [row[metric] for row in points]) for name, points in groups.items()
    )
    return Chart(f"{log}-{metric}", f"{log}: {label}", "", "points", "mean wait, h", label, series)


def main() -> None:
    made: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for log in AXES:
        if log not in made:
            with tempfile.TemporaryDirectory() as folder:
                made[log] = measure(log, Path(folder))
            note(f"{log}: {made[log]}")
            write_text(FILE, json.dumps(made, indent=1) + "\n")
    panels = [chart(log, metric, label, made[log]) for log, axes in AXES.items() for metric, label in axes.items()]
    draw_panels(panels, "Wait against utilisation, fairness and energy", FIGURES / "front.svg")


if __name__ == "__main__":
    main()
