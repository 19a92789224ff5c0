"""Judge policies by their cells: scores with intervals, paired differences, ranks, and what else a table must show.

A comparison of cells that did not finish the same jobs is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell
from queuewise.evaluation.scores import Score
from queuewise.evaluation.statistics import SAME, ScoreSeries, Standing, TypicalDifference, compare, compare_geometric, ranking
from queuewise.evaluation.units import LOG_BSLD, check_score, mean_series

if TYPE_CHECKING:
    import polars as pl

UTILISATION = {"GPUs": "gpu_utilisation", "cores": "cpu_utilisation"}  # resource -> metric


@dataclass(frozen=True)
class Beside:
    """Figures that stand beside every score, because a score alone can be bought: an idle machine lowers slowdowns."""

    wait_s: float | None  # mean
    wait_p99_s: float | None
    max_wait_s: float | None
    makespan_by_span: float | None  # time until the last end ÷ time until the last submission of a job that ran
    utilisation: float | None  # of `Result.resource`
    geometric_mean: float | None  # of the bounded slowdown
    typical: TypicalDifference | None  # of that, against the best baseline, paired by day
    worst_unit: float  # the highest (or lowest, if higher is better) mean of a day or window
    waits_longer_than: str | None  # a policy that it is better than by the score, with clearly longer waits
    seen: bool  # a model that was trained or chosen on days that count


@dataclass(frozen=True, eq=False)
class Result:
    """The scores of every policy on every window or day, with a ranking."""

    score: Score
    series: Mapping[str, ScoreSeries]  # policy -> by window or day
    standings: Sequence[Standing]  # best first
    lower_bound: float | None  # mean over windows
    beside: Mapping[str, Beside]
    in_days: bool  # protocol days
    unit_s: float | None  # of these: seconds of the units that are compared, of a day or six hours; None: there is only one
    same: float  # relative difference below which policies are the same
    resource: str  # what the jobs compete for: "GPUs" or "cores"

    @property
    def per_window(self) -> dict[str, list[float]]:
        """Policy -> mean of every window or day."""
        return {policy: (one.sums / one.jobs).tolist() for policy, one in self.series.items()}

    def mark(self, policy: str) -> str:
        """What follows its name in tables; `legend` explains it."""
        beside = self.beside[policy]
        return (" *" if beside.waits_longer_than else "") + (" †" if beside.seen else "")

    @property
    def legend(self) -> list[str]:
        """A sentence for each mark that is used."""
        longer: dict[str, list[str]] = {}
        for policy, one in self.beside.items():
            if one.waits_longer_than:
                longer.setdefault(one.waits_longer_than, []).append(policy)
        found = [
            f"* {', '.join(marked)}: better than {other} by {self.score.name}, but jobs wait clearly longer"
            for other, marked in longer.items()
        ]
        if any(one.seen for one in self.beside.values()):
            found.append("† was trained or chosen on days that count here")
        return [*found, *self._typical_sentences()]

    def _typical_sentences(self) -> list[str]:
        """Policies that the mean cannot tell from the best baseline and the geometric mean can."""
        found = []
        for s in self.standings:
            typical, versus, best = self.beside[s.policy].typical, s.vs_best_baseline, self.beside.get(s.best_baseline or "")
            if typical is None or typical.ci95 is None or versus is None or versus.clear or best is None or not typical.clear:
                continue
            if self.score.name != "bsld" or abs(typical.relative) < SAME:
                continue
            low, high = typical.ci95
            found.append(
                f"{s.policy}: the means do not tell it from {s.best_baseline}, but the geometric means over jobs do: "
                f"{self.beside[s.policy].geometric_mean:.2f} against {best.geometric_mean:.2f}, "
                f"{typical.relative:+.0%} ({low:+.0%} … {high:+.0%})"
            )
        return found

    def to_frame(self) -> pl.DataFrame:
        """One row per policy, best first, with the keys of `as_json`; intervals are two columns."""
        frame: pl.DataFrame = _shown().frame_of_result(self)
        return frame

    def __repr__(self) -> str:
        return str(_shown().text_of_result(self))

    def _repr_html_(self) -> str:
        return str(_shown().html_of_result(self))

    def as_json(self) -> list[dict[str, Any]]:
        return [self._row(standing) for standing in self.standings]

    def _row(self, s: Standing) -> dict[str, Any]:
        beside, versus, series = self.beside[s.policy], s.vs_best_baseline, self.series[s.policy]
        row = {
            "policy": s.policy,
            "score": self.score.name,
            "mean": s.mean,
            "ci95": list(s.ci95 or (None, None)),
            "per_window": self.per_window[s.policy],
            "vs_best_baseline": None if versus is None else {
                "diff": versus.diff,
                "diff_percent": None if versus.relative is None else 100 * versus.relative,
                "ci95": list(versus.ci95 or (None, None)),
                "win_rate": versus.win_rate,
                "baseline": s.best_baseline,
                "better": versus.better(higher_is_better=self.score.higher_is_better),
            },
            "rank": s.rank,
            "same": versus is not None and versus.same,
            "same_below_percent": 100 * self.same,
            "wait_s": beside.wait_s,
            "wait_p99_s": beside.wait_p99_s,
            "max_wait_s": beside.max_wait_s,
            "makespan_by_span": beside.makespan_by_span,
            "utilisation": beside.utilisation,
            "resource": self.resource,
            "geometric_mean": beside.geometric_mean,
            "geometric_vs_best_baseline": _typical_json(beside.typical),
            "waits_longer": beside.waits_longer_than is not None,
            "seen": beside.seen,
            "lower_bound": self.lower_bound,
        }  # fmt: skip
        if self.in_days:
            jobs = [round(number) for number in series.jobs.tolist()]
            units = {"days": len(jobs), "unit_s": self.unit_s}
            row |= units | {"jobs": sum(jobs), "per_window_jobs": jobs, "worst_day": beside.worst_unit}
        return row


def _typical_json(typical: TypicalDifference | None) -> dict[str, Any] | None:
    if typical is None:
        return None
    interval = (None, None) if typical.ci95 is None else tuple(100 * bound for bound in typical.ci95)
    return {"diff_percent": 100 * typical.relative, "ci95_percent": list(interval), "clear": typical.clear}


def _shown() -> Any:
    """How results are shown: it needs the tables of reports, a layer below, so it is looked up by name."""
    return import_module("queuewise.api.shown")


def judge(cells: Sequence[Cell], score: Score, *, same: float = SAME, own: Collection[str] = ()) -> Result:
    """Scores, intervals and ranks. Raises an error unless all policies finished the same jobs of the same windows.

    Policies in `own` are the user's, whatever their names: no baselines.
    """
    check_equal_jobs(cells)
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    ordered = {policy: sorted((c for c in cells if c.policy == policy), key=lambda c: c.window) for policy in policies}
    series = {policy: _series(mine, score) for policy, mine in ordered.items()}
    baselines = [policy for policy in policies if is_baseline(policy) and policy not in own]
    standings = ranking(series, higher_is_better=score.higher_is_better, baselines=baselines, same=same)
    waits = {policy: _waits(mine) for policy, mine in ordered.items()}
    logarithms = {policy: _logarithms(mine) for policy, mine in ordered.items()}
    resource = busier_resource(cells)
    typical = {s.policy: _typical(s, logarithms) for s in standings}
    longer = _longer_waits(standings, waits)
    beside = {
        s.policy: _beside(ordered[s.policy], series[s.policy], longer.get(s.policy), typical[s.policy], score, resource) for s in standings
    }
    first, bound = cells[0], _mean_bound(ordered[policies[0]], score)
    return Result(score, series, standings, bound, beside, first.units is not None, first.unit_s, same, resource)


def _longer_waits(standings: Sequence[Standing], waits: Mapping[str, ScoreSeries | None]) -> dict[str, str]:
    """Policies that are better than another one by the score, with clearly longer waits, and that one: the best baseline if it can be."""
    found: dict[str, str] = {}
    for s in sorted(standings, key=lambda s: s.policy != s.best_baseline):
        theirs = waits[s.policy]
        for rival in s.behind:
            mine = waits[rival]
            if rival not in found and mine and theirs and mine.mean > theirs.mean and compare(theirs, mine).better():
                found[rival] = s.policy
    return found


def _series(cells: Sequence[Cell], score: Score) -> ScoreSeries:
    if cells[0].units is None:
        return ScoreSeries.of_means([score.of(cell.scores, f"{cell.policy}, window {cell.window}") for cell in cells])
    check_score(score)
    return mean_series([cell.units or {} for cell in cells], score.terms)


def _waits(cells: Sequence[Cell]) -> ScoreSeries | None:
    """The mean waits by window or day, None if no job finished in some window."""
    if cells[0].units is not None:
        return mean_series([cell.units or {} for cell in cells], [(1.0, "wait")])
    means = [cell.scores.get("wait") for cell in cells]
    return None if None in means else ScoreSeries.of_means([mean for mean in means if mean is not None])


def _logarithms(cells: Sequence[Cell]) -> ScoreSeries | None:
    """Logarithms of the bounded slowdown by day, None for windows and for runs of earlier versions."""
    units = [cell.units or {} for cell in cells]
    return mean_series(units, [(1.0, LOG_BSLD)]) if all(LOG_BSLD in one for one in units) else None


def _typical(standing: Standing, logarithms: Mapping[str, ScoreSeries | None]) -> TypicalDifference | None:
    mine, best = logarithms[standing.policy], logarithms.get(standing.best_baseline or "")
    if mine is None or best is None or standing.policy == standing.best_baseline:
        return None
    return compare_geometric(mine, best, comparisons=max(len(logarithms) - 1, 1))


def _beside(
    cells: Sequence[Cell],
    series: ScoreSeries,
    waits_longer_than: str | None,
    typical: TypicalDifference | None,
    score: Score,
    resource: str,
) -> Beside:
    waited = [cell.metrics.get("wait_s") or {} for cell in cells]
    means = series.sums / series.jobs
    return Beside(
        wait_s=mean_of([one.get("mean") for one in waited]),
        wait_p99_s=mean_of([one.get("p99") for one in waited]),
        max_wait_s=max((wait for one in waited if (wait := one.get("max")) is not None), default=None),
        makespan_by_span=mean_of([cell.makespan_by_span for cell in cells]),
        utilisation=mean_of([cell.metrics.get(UTILISATION[resource]) for cell in cells]),
        geometric_mean=mean_of([cell.geometric_mean for cell in cells]),
        typical=typical,
        worst_unit=float(means.min() if score.higher_is_better else means.max()),
        waits_longer_than=waits_longer_than,
        seen=any(cell.seen for cell in cells),
    )


def busier_resource(cells: Sequence[Cell]) -> str:
    """The resource of which the jobs use the larger share, over all policies. A few GPUs on a cluster of cores say little about it."""
    used = {resource: mean_of([cell.metrics.get(name) for cell in cells]) for resource, name in UTILISATION.items()}
    return max(UTILISATION, key=lambda resource: -1.0 if (share := used[resource]) is None else share)


def mean_of(values: Sequence[float | None]) -> float | None:
    """None if a value is undefined."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def is_baseline(policy: str) -> bool:
    """Whether a policy is a fixed rule, not a trained model, a planner or a user's function."""
    return not policy.startswith(("model:", "plan:")) and ".py" not in policy


def check_equal_jobs(cells: Sequence[Cell]) -> None:
    by_window: dict[int, Cell] = {}
    for cell in cells:
        other = by_window.setdefault(cell.window, cell)
        if cell.finished_digest != other.finished_digest:
            counts = " and ".join(f"{c.policy} {c.metrics['completed']} of {c.metrics['jobs']}" for c in (other, cell))
            raise InputError(
                f"window {cell.window}: policies did not finish the same jobs ({counts}), so their means are not comparable",
                hint="omit the policy that rejects jobs, or remove these jobs from the workload",
            )
    windows = {policy: {c.window for c in cells if c.policy == policy} for policy in {c.policy for c in cells}}
    if len({frozenset(w) for w in windows.values()}) > 1:
        raise InputError("policies were not measured on the same windows", hint="run evaluate again to complete the missing windows")


def _mean_bound(cells: Sequence[Cell], score: Score) -> float | None:
    if len(score.terms) > 1:
        return None
    weight, name = score.terms[0]
    mean = mean_of([cell.bounds.get(name) for cell in cells])
    return None if mean is None else weight * mean
