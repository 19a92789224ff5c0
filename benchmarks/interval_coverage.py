"""How often intervals hold the true difference of two policies, and how often equal policies are called different.

    python benchmarks/interval_coverage.py [--logs 400]

Four kinds of synthetic data, for which the true ratio of the means is known:

- `series`: scores of days drawn from lognormal distributions with memory from one day to the next, as the protocol `days`
  sees them. The truth follows from the distribution.
- `windows`: the same without memory, as the protocol `windows` sees them.
- `geometric`: the logarithms of `series`, as the geometric mean over jobs sees them. The truth is the mean of a million days.
- `logs`: logs of a workload model, replayed under two policies as `evaluate` does. The truth is the ratio of the means over
  all of these logs together.

Written to benchmarks/results/interval_coverage.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from queuewise import load_cluster, simulate
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.statistics import ScoreSeries, compare, compare_geometric
from queuewise.evaluation.units import mean_series
from queuewise.workload.models import generate
from queuewise.workload.transform import rescale_load

Floats = NDArray[np.float64]
REPOSITORY = Path(__file__).resolve().parent.parent
RATIO = 0.7  # of the means of two policies that differ
SPREAD = 0.3  # deviation of the logarithm, of each policy's own day
LEVEL = 20.0  # mean slowdown of a day beyond 1
LOAD = 0.7  # of the logs


def draw_series(rng: np.random.Generator, units: int, memory: float, sigma: float, ratio: float) -> tuple[ScoreSeries, ScoreSeries, float]:
    """Two policies on the same days, and the logarithm of the true ratio of their means."""
    steps = rng.standard_normal(units + 50)
    congestion = np.zeros(units + 50)
    for i in range(1, len(steps)):
        congestion[i] = memory * congestion[i - 1] + np.sqrt(1 - memory**2) * steps[i]
    jobs = np.exp(0.5 * rng.standard_normal(units))
    base = LEVEL * np.exp(sigma * congestion[50:] - sigma**2 / 2)
    mine, other = (base * np.exp(SPREAD * rng.standard_normal(units) - SPREAD**2 / 2) for _ in range(2))
    return (
        ScoreSeries(jobs * (1 + ratio * mine), jobs),
        ScoreSeries(jobs * (1 + other), jobs),
        float(np.log((1 + ratio * LEVEL) / (1 + LEVEL))),
    )


def draw_logarithms(rng: np.random.Generator, units: int, memory: float, ratio: float) -> tuple[ScoreSeries, ScoreSeries]:
    """The logarithms of the same days, weighted by their jobs."""
    mine, other, _ = draw_series(rng, units, memory, 1.0, ratio)
    return tuple(ScoreSeries(one.jobs * np.log(one.sums / one.jobs), one.jobs) for one in (mine, other))  # type: ignore[return-value]


def measure_geometric(units: int, memory: float, ratio: float, draws: int) -> dict[str, float]:
    mine, other = draw_logarithms(np.random.default_rng(2), 1_000_000, memory, ratio)
    truth = float(np.expm1((mine.sums / mine.jobs).mean() - (other.sums / other.jobs).mean()))
    rng, held, called = np.random.default_rng(1), 0, 0
    for _ in range(draws):
        found = compare_geometric(*draw_logarithms(rng, units, memory, ratio))
        assert found.ci95 is not None
        held += found.ci95[0] <= truth <= found.ci95[1]
        called += found.clear and found.relative < 0
    return {"coverage": held / draws, "called_better": called / draws}


def draw_logs(number: int, jobs: int) -> Iterator[tuple[ScoreSeries, ScoreSeries]]:
    """Logs of the model `lublin` by the protocol days, under two policies."""
    cluster = load_cluster("flat:256")
    for seed in range(number):
        log = rescale_load(generate("lublin", jobs, seed), LOAD, cores=256)
        plan = make_plan("days", log, shakes=1, split=(0.1, 0.0, 0.9))
        cells = run_experiment(Experiment(log, cluster, plan, ReplaySettings(estimates="oracle")), ["sjf+easy", "fcfs+easy"], simulate)
        mine, other = (mean_series([cell.units or {}], [(1.0, "bsld")]) for cell in cells)
        yield mine, other


def measure(pairs: list[tuple[ScoreSeries, ScoreSeries]], truth: float) -> dict[str, float]:
    held = called = 0
    for mine, other in pairs:
        found = compare(mine, other)
        assert found.ci95 is not None
        low, high = found.ci95[0] / other.mean, found.ci95[1] / other.mean
        held += low <= np.expm1(truth) <= high
        called += found.better()
    return {"coverage": held / len(pairs), "called_better": called / len(pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=4000)
    arguments = parser.parse_args()
    rows = []
    for kind, memories in (("series", (0.3, 0.6)), ("windows", (0.0,))):
        for units in (10, 30, 100):
            for memory in memories:
                for ratio in (RATIO, 1.0):
                    rng = np.random.default_rng(1)
                    drawn = [draw_series(rng, units, memory, 1.0, ratio) for _ in range(arguments.draws)]
                    row = measure([(mine, other) for mine, other, _ in drawn], drawn[0][2])
                    rows.append({"kind": kind, "units": units, "memory": memory, "ratio": ratio, "draws": len(drawn), **row})
                    print(json.dumps(rows[-1]), flush=True)
    for units in (10, 30, 100):
        for ratio in (RATIO, 1.0):
            found = measure_geometric(units, 0.6, ratio, arguments.draws)
            rows.append({"kind": "geometric", "units": units, "memory": 0.6, "ratio": ratio, "draws": arguments.draws, **found})
            print(json.dumps(rows[-1]), flush=True)
    pairs = list(draw_logs(arguments.logs, arguments.jobs))
    truth = float(np.log(sum(mine.sums.sum() for mine, _ in pairs) / sum(other.sums.sum() for _, other in pairs)))
    rows.append({"kind": "logs", "jobs": arguments.jobs, "ratio": float(np.exp(truth)), "draws": len(pairs), **measure(pairs, truth)})
    print(json.dumps(rows[-1]), flush=True)
    (REPOSITORY / "benchmarks" / "results" / "interval_coverage.json").write_text(
        json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
