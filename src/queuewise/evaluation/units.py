"""Sums of scores over the jobs of each unit of time, by which policies are compared in the protocol `days`.

A job belongs to the unit in which the log has its submission. Units without jobs that count are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.evaluation import measure
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.evaluation.scores import Score
from queuewise.evaluation.statistics import ScoreSeries


def _slowdown(m: Measurement) -> Floats:
    """[finished jobs] NaN where the job has none, because it ran for 0 s."""
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = measure.service(m)
        return np.where(seconds > 0, measure.jct(m) / seconds, np.nan)


LOG_BSLD = "log_bsld"  # sums of the logarithm of the bounded slowdown, for geometric means
PER_JOB: Mapping[str, Callable[[Measurement], Floats]] = {  # scores that are means over jobs
    "bsld": measure.bounded_slowdown,
    "wait": measure.wait,
    "jct": measure.jct,
    "slowdown": _slowdown,
}


def check_score(score: Score) -> None:
    """Raise an InputError if the protocol days cannot compare policies by this score."""
    names = [name for _, name in score.terms]
    other = [name for name in names if name not in PER_JOB]
    if other:
        raise InputError(
            f"score {other[0]!r} is not a mean over jobs, which the protocol days compares day by day",
            hint=f"use {', '.join(PER_JOB)} or a sum of them, or --protocol windows",
        )
    if len(names) > 1 and "slowdown" in names:
        raise InputError(
            f"score {score.name!r} adds slowdown, which jobs of 0 s do not have, to means over all jobs",
            hint="use bsld, or slowdown alone, or --protocol windows",
        )


def unit_numbers(submit: Floats, unit_s: float | None) -> NDArray[np.int64]:
    """[J] the unit of each job, counted from the first submission. Without a unit there is one, the whole counted part."""
    return np.zeros(len(submit), np.int64) if unit_s is None else ((submit - submit.min(initial=np.inf)) // unit_s).astype(np.int64)


def unit_sums(m: Measurement, unit_s: float | None, submit: Floats) -> dict[str, list[float]]:
    """Number of jobs (`jobs`) and sums of every score and of LOG_BSLD by unit; `slowdown_jobs` are those that have a slowdown.

    `submit` [J] are the submissions in the log. So units have the same jobs in all replays, however the submissions are shaken.
    """
    unit = unit_numbers(submit[m.jobs], unit_s)[m.rows - m.jobs.start]
    number = int(unit.max(initial=0)) + 1
    values = {name: of(m) for name, of in PER_JOB.items()}
    sums = {"jobs": np.bincount(unit, minlength=number)}
    sums |= {name: np.bincount(unit, weights=np.nan_to_num(its), minlength=number) for name, its in values.items()}
    sums[LOG_BSLD] = np.bincount(unit, weights=np.log(values["bsld"]), minlength=number)
    sums["slowdown_jobs"] = np.bincount(unit[~np.isnan(values["slowdown"])], minlength=number)
    return {name: its.astype(np.float64).tolist() for name, its in sums.items()}


def mean_series(cells: Sequence[Mapping[str, Any]], terms: Sequence[tuple[float, str]]) -> ScoreSeries:
    """The weighted sum of scores by unit, averaged over replays of the same jobs. Units at the end may be missing in some."""
    missing = [name for _, name in terms if any(name not in cell for cell in cells)]
    if missing:
        raise InputError(f"the run has no {missing[0]} by day: an earlier version wrote it", hint="evaluate again with another --out")
    number = max(len(cell["jobs"]) for cell in cells)
    counted = "slowdown_jobs" if [name for _, name in terms] == ["slowdown"] else "jobs"

    def mean(values: Callable[[Mapping[str, Any]], Floats]) -> Floats:
        padded = [np.pad(values(cell), (0, number - len(cell["jobs"]))) for cell in cells]
        found: Floats = np.mean(padded, axis=0)
        return found

    jobs = mean(lambda cell: np.array(cell[counted]))
    sums = mean(lambda cell: np.sum([weight * np.array(cell[name]) for weight, name in terms], axis=0))
    used = jobs > 0
    return ScoreSeries(sums[used], jobs[used])
