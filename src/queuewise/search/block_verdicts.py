"""Policies compared on the days of one block of a log: validation days, by which a policy is chosen, and report days, looked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import UTILISATION, busier_resource, mean_of
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.statistics import Difference, ScoreSeries, TypicalDifference, compare, compare_scores
from queuewise.evaluation.units import mean_series
from queuewise.policies import simulate
from queuewise.search.evolution import LEAST_WAIT_S
from queuewise.search.objective import TOTALS, total_of
from queuewise.workload.jobs import Workload

MEAN_METRICS = {"bsld": "bounded_slowdown", "wait": "wait_s"}


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Cells of policies on the days of a block, replayed several times with shaken submissions."""

    cells: dict[str, list[Cell]]

    def series(self, policy: str, score: str) -> ScoreSeries:
        return mean_series([cell.units or {} for cell in self.cells[policy]], [(1.0, score)])

    def mean(self, policy: str, score: str) -> float:
        return self.series(policy, score).mean

    def max_wait(self, policy: str) -> float:
        return max(float(cell.metrics["wait_s"]["max"]) for cell in self.cells[policy])

    def joint(self, policy: str, other: str, objective: Mapping[str, float]) -> TypicalDifference:
        """The difference in an objective of bounded slowdown and mean wait: of their geometric mean with its weights, paired by day."""
        return compare_scores(
            [_padded(name, self.series(policy, name)) for name in objective],
            [_padded(name, self.series(other, name)) for name in objective],
            list(objective.values()),
        )

    def costs(self, policy: str, other: str, objective: Mapping[str, float]) -> list[float]:
        """The cost of a policy relative to another one in every replay: below 0 is better."""
        pairs = zip(self.cells[policy], self.cells[other], strict=True)
        return [sum(weight * np.log(_value(name, a) / _value(name, b)) for name, weight in objective.items()) for a, b in pairs]

    def total(self, policy: str, name: str) -> float:
        """The mean over replays of a figure of an objective, written so that less is better."""
        return float(np.mean([total_of(name, cell.metrics) for cell in self.cells[policy]]))

    def beside(self, policy: str) -> tuple[float | None, float | None, float | None]:
        """What stands beside the scores: the 99 % quantile of waits in seconds, makespan ÷ span, and the use of the busier resource."""
        cells = self.cells[policy]
        used = UTILISATION[busier_resource([cell for some in self.cells.values() for cell in some])]
        rows = [[cell.metrics["wait_s"]["p99"], cell.makespan_by_span, cell.metrics.get(used)] for cell in cells]
        p99, makespan, use = (mean_of(values) for values in zip(*rows, strict=True))
        return p99, makespan, use

    def difference(self, policy: str, other: str, score: str) -> Difference:
        return compare(self.series(policy, score), self.series(other, score))

    def percent(self, policy: str, other: str, score: str) -> tuple[float | None, list[float] | None]:
        """The difference of two policies in percent of the other, with its interval; None where nobody waits under the other."""
        found, mean = self.difference(policy, other, score), self.mean(other, score)
        if not mean:
            return None, None
        interval = None if found.ci95 is None else [100 * value / mean for value in found.ci95]
        return 100 * found.diff / mean, interval


def _padded(name: str, series: ScoreSeries) -> ScoreSeries:
    """Waits with so much added to each that days on which hardly anybody waits say little, as in the search."""
    return ScoreSeries(series.sums + LEAST_WAIT_S * series.jobs, series.jobs) if name == "wait" else series


def _value(name: str, cell: Cell) -> float:
    """A figure of an objective in one replay."""
    if name in TOTALS:
        return total_of(name, cell.metrics)
    return float(cell.metrics[MEAN_METRICS[name]]["mean"]) + (LEAST_WAIT_S if name == "wait" else 0.0)


def verdicts_on(
    workload: Workload,
    cluster: Cluster,
    policies: Sequence[str],
    settings: ReplaySettings,
    block: str,
    *,
    shakes: int,
    folder: Path | None = None,
    on_cell: Callable[[Any], None] = lambda cell: None,
) -> Verdicts:
    plan = make_plan("days", workload, block=block, split=settings.split, shakes=shakes)
    names = list(dict.fromkeys(policies))
    cells = run_experiment(Experiment(workload, cluster, plan, settings), names, simulate, folder=folder, on_cell=on_cell)
    return Verdicts({name: [cell for cell in cells if cell.policy == name] for name in names})
