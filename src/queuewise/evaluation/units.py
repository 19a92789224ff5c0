"""Sums of scores over the jobs of each unit of time, by which policies are compared in the protocol `days`.

A job belongs to the unit in which it was submitted. Units without jobs that count are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from queuewise.evaluation import measure
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.evaluation.statistics import ScoreSeries

PER_JOB: Mapping[str, Callable[[Measurement], Floats]] = {  # scores that are means over jobs
    "bsld": measure.bounded_slowdown,
    "wait": measure.wait,
    "jct": measure.jct,
}


def unit_sums(m: Measurement, unit_s: float | None) -> dict[str, list[float]]:
    """Number of jobs (`jobs`) and sums of every score by unit. Without a unit there is one, the whole counted part."""
    submit = m.schedule.workload.submit[m.rows]
    unit = np.zeros(len(submit), np.int64) if unit_s is None else ((submit - m.begin) // unit_s).astype(np.int64)
    number = int(unit.max(initial=0)) + 1
    sums = {"jobs": np.bincount(unit, minlength=number)} | {
        name: np.bincount(unit, weights=values(m), minlength=number) for name, values in PER_JOB.items()
    }
    return {name: values.astype(np.float64).tolist() for name, values in sums.items()}


def mean_series(cells: Sequence[Mapping[str, Any]], terms: Sequence[tuple[float, str]]) -> ScoreSeries:
    """The weighted sum of scores by unit, averaged over replays of the same jobs. Units at the edge may lack a few jobs in some."""
    number = max(len(cell["jobs"]) for cell in cells)

    def mean(values: Callable[[Mapping[str, Any]], Floats]) -> Floats:
        padded = [np.pad(values(cell), (0, number - len(cell["jobs"]))) for cell in cells]
        found: Floats = np.mean(padded, axis=0)
        return found

    jobs = mean(lambda cell: np.array(cell["jobs"]))
    sums = mean(lambda cell: np.sum([weight * np.array(cell[name]) for weight, name in terms], axis=0))
    used = jobs > 0
    return ScoreSeries(sums[used], jobs[used])
