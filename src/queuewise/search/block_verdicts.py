"""Policies compared on the days of one block of a log: validation days, by which a policy is chosen, and report days, looked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.statistics import Difference, ScoreSeries, compare
from queuewise.evaluation.units import mean_series
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload


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

    def difference(self, policy: str, other: str, score: str) -> Difference:
        return compare(self.series(policy, score), self.series(other, score))

    def percent(self, policy: str, other: str, score: str) -> tuple[float | None, list[float] | None]:
        """The difference of two policies in percent of the other, with its interval; None where nobody waits under the other."""
        found, mean = self.difference(policy, other, score), self.mean(other, score)
        if not mean:
            return None, None
        interval = None if found.ci95 is None else [100 * value / mean for value in found.ci95]
        return 100 * found.diff / mean, interval


def judge(
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
