"""What counts: the jobs and the span of time a metric looks at, and the times of those jobs.

A `Measurement` leaves out the first and last jobs of a replay when asked to (warm-up and cool-down): they are simulated and not
counted. Which jobs count depends on the workload alone, so it is the same for every policy. Per-job vectors hold the *finished*
counted jobs, in order of submission; rejected and unfinished jobs are counted by `metrics`, never averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.evaluation.node_sleep import SleepPeriods, node_sleeps
from queuewise.sim.core.schedule import Schedule

Floats = NDArray[np.float64]
BOUND_S = 10.0  # runtimes below this count as this in the bounded slowdown (Feitelson et al., JSSPP 1997)


@dataclass(frozen=True, eq=False)
class Measurement:
    schedule: Schedule
    jobs: slice  # the counted jobs: a range, since jobs are in order of submission
    begin: float  # the span over which utilisation, energy and queue lengths are taken, NaN when there is none
    end: float

    @property
    def span(self) -> float:
        """Seconds of the span, NaN where nothing was counted."""
        return self.end - self.begin

    @property
    def num_jobs(self) -> int:
        return self.jobs.stop - self.jobs.start  # type: ignore[no-any-return]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Indices of the finished counted jobs."""
        return np.flatnonzero(self.schedule.finished[self.jobs]) + int(self.jobs.start)

    @cached_property
    def sleeps(self) -> SleepPeriods:
        """When nodes slept, in the whole replay."""
        return node_sleeps(self.schedule)

    @cached_property
    def runs(self) -> Runs:
        """The runs of all jobs of the replay that were stopped at least once."""
        return _runs(self.schedule, self.sleeps.piece_ready)


def measure(schedule: Schedule, *, warmup: float = 0.0, cooldown: float = 0.0) -> Measurement:
    """Count all jobs but the first `warmup` and the last `cooldown` share of them.

    The span runs from the first counted submission to the last end; with a cool-down it ends at the first
    submission that is not counted, so that a draining machine does not dilute the utilisation.
    """
    if not (warmup >= 0.0 and cooldown >= 0.0 and warmup + cooldown < 1.0):
        raise InputError(
            f"warm-up {warmup:g} and cool-down {cooldown:g} leave no jobs to count",
            hint="give shares of the jobs between 0 and 1 that add up to less than 1",
        )
    num = len(schedule.workload)
    first, last = int(warmup * num), num - int(cooldown * num)
    begin = float(schedule.workload.submit[first]) if first < last else np.nan
    end = float(schedule.workload.submit[last]) if first < last < num else last_event(schedule)
    return Measurement(schedule, slice(first, last), begin, end)


def measure_from(schedule: Schedule, first: int) -> Measurement:
    """Count the jobs from row `first` on, over the span from the first of their submissions to the last end."""
    num = len(schedule.workload)
    begin = float(schedule.workload.submit[first]) if first < num else np.nan
    return Measurement(schedule, slice(first, num), begin, last_event(schedule))


def last_event(schedule: Schedule) -> float:
    """The last end of a job (or start, where it is still running), NaN if nothing ever started."""
    latest = np.nan
    for times in (schedule.end, schedule.start):
        finite = times[np.isfinite(times)]
        if finite.size:
            latest = float(np.fmax(latest, finite.max()))
    return latest


def first_wait(m: Measurement) -> Floats:
    """Seconds from submission to first start."""
    return m.schedule.first_wait[m.rows]


def wait(m: Measurement) -> Floats:
    """Seconds between submission and end in which the job did not run: before its first start, and after each stop until it ran again."""
    if not m.schedule.preemptions.any():
        return first_wait(m)
    job, begin, end = times_between_runs(m)
    between = np.bincount(job, weights=end - begin, minlength=len(m.schedule.workload))
    return first_wait(m) + between[m.rows]


def jct(m: Measurement) -> Floats:
    """Job completion time: seconds from submission to end."""
    return m.schedule.end[m.rows] - m.schedule.workload.submit[m.rows]


def service(m: Measurement) -> Floats:
    """Seconds on the machine: end minus start, less the time a stopped job spent off it. With `wait` this adds up to the JCT."""
    seconds = m.schedule.end[m.rows] - m.schedule.start[m.rows]
    stopped = np.flatnonzero(m.schedule.preemptions[m.rows] > 0)
    if stopped.size:
        on_machine = np.bincount(m.runs.job, weights=m.runs.end - m.runs.begin, minlength=len(m.schedule.workload))
        seconds[stopped] = on_machine[m.rows[stopped]]
    return seconds


def times_between_runs(m: Measurement) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Jobs, begins and ends of the times in which a job that had started did not run; waking nodes count as well."""
    runs = m.runs
    again = np.flatnonzero((runs.job[1:] == runs.job[:-1]) & (runs.end[:-1] >= m.schedule.start[runs.job[:-1]]))
    return runs.job[again], runs.end[again], runs.begin[again + 1]


def slowdown(m: Measurement) -> Floats:
    """JCT ÷ service, for jobs with a service above zero (it is undefined for the others, which `bounded_slowdown` covers)."""
    seconds = service(m)
    ran = seconds > 0
    return jct(m)[ran] / seconds[ran]


def bounded_slowdown(m: Measurement) -> Floats:
    """max(1, JCT ÷ max(service, 10 s)) (Feitelson et al., JSSPP 1997). Without preemption JCT is wait + run and service is run."""
    seconds = service(m)
    np.maximum(seconds, BOUND_S, out=seconds)
    ratio = jct(m)
    ratio /= seconds
    return np.maximum(ratio, 1.0, out=ratio)


@dataclass(frozen=True, eq=False)
class Runs:
    """The stays of stopped jobs on the machine, by job and time: one run is all pieces of a job with the same start."""

    job: NDArray[np.int64]  # [R]
    begin: Floats  # [R] when all its nodes were awake, or its end if that came first
    end: Floats  # [R]
    place: NDArray[np.uint64]  # [R] equal when a run stands on the same nodes with the same tasks as another


def _runs(schedule: Schedule, ready: Floats) -> Runs:
    """The runs of the jobs that were stopped at least once; `ready` [P] is when the nodes of the piece's run were awake."""
    pieces = np.flatnonzero(schedule.preemptions[schedule.piece_job] > 0)
    order = pieces[np.lexsort((schedule.piece_start[pieces], schedule.piece_job[pieces]))]
    job, start = schedule.piece_job[order].astype(np.int64), schedule.piece_start[order]
    if not order.size:
        return Runs(job, start, start, job.astype(np.uint64))
    opens = np.flatnonzero(np.concatenate(([True], (job[1:] != job[:-1]) | (start[1:] != start[:-1]))))
    with np.errstate(over="ignore"):
        node = (schedule.piece_node[order].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        node ^= node >> np.uint64(29)
        place = np.add.reduceat(node * schedule.piece_tasks[order].astype(np.uint64), opens)
    return Runs(job[opens], ready[order][opens], schedule.piece_end[order][opens], place)
