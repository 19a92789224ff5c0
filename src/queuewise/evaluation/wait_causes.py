"""Where waiting comes from: the wait of every job, in seconds by cause.

docs/metrics.md, "Causes of waits", defines the causes and their order. `cause_walk` finds the causes of the time that jobs
spend in their queues. The time in which a job waits for other jobs, or is placed and its nodes wake, follows from the
schedule alone.

The seconds of a finished job add up to its wait (`measure.wait`) exactly, in floating point and in any order: all but the
largest are rounded down to multiples of the last digit of the wait, and the largest is the rest. So no partial sum has to
be rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.evaluation.breakdown import KEYS
from queuewise.evaluation.cause_walk import (
    ANSWER_SIGNATURE,
    CAUSES,
    DEPENDENCY,
    ROOM_SIZE,
    WAKING,
    Walk,
    WalkCounts,
    answer_of_rule,
    walk_causes,
)
from queuewise.evaluation.measure import Floats, Measurement, measure, wait
from queuewise.sim import backfill, placement, preemption, queue
from queuewise.sim.core.compilation import JIT_DISABLED, address_of
from queuewise.sim.core.rules import Order
from queuewise.sim.core.schedule import QUEUED, Origin, Schedule
from queuewise.sim.core.setup import Layout, lay_out
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.core.tables import addresses_of
from queuewise.workload.jobs import Workload

RESERVING = (backfill.EASY, backfill.EASY_STRICT, backfill.CONSERVATIVE, backfill.SLURM)

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WaitCauses:
    """The waits of all jobs of a replay, by cause."""

    workload: Workload
    seconds: Floats  # [J, causes] in the order of CAUSES; NaN for jobs that have not finished

    @property
    def finished(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.seconds[:, 0])

    def means(self) -> dict[str, float | None]:
        """Mean seconds of a finished job by cause; they add up to the mean wait. None if no job has finished."""
        seconds = self.seconds[self.finished]
        if not len(seconds):
            return dict.fromkeys(CAUSES)
        waits = seconds.sum(axis=1)
        (mean,) = _adding_up_to(waits.mean(keepdims=True), seconds.mean(axis=0, keepdims=True))
        return dict(zip(CAUSES, mean.tolist(), strict=True))

    def shares(self) -> dict[str, float]:
        """Share of all waiting by cause, the greatest first; causes that did not occur are left out."""
        return _shares(self._total)

    @cached_property
    def _total(self) -> Floats:
        """[causes] seconds of all finished jobs; there may be a million of them."""
        total: Floats = self.seconds[self.finished].sum(axis=0)
        return total

    def by(self, key: str) -> list[CauseRow]:
        """The same by `partition`, `group` (account) or another key of `breakdown`, the longest waiting first."""
        if key not in KEYS:
            raise unknown_name("breakdown", key, KEYS)
        rows = np.flatnonzero(self.finished)
        column, label = KEYS[key](self.workload)
        values, code = np.unique(column[rows], return_inverse=True)
        total = np.zeros((len(values), len(CAUSES)))
        np.add.at(total, code.ravel(), self.seconds[rows])
        jobs = np.bincount(code.ravel(), minlength=len(values))
        found = [CauseRow(label(v), int(jobs[i]), float(total[i].sum()), _shares(total[i])) for i, v in enumerate(values)]
        return sorted(found, key=lambda row: -row.wait_s)


@dataclass(frozen=True)
class CauseRow:
    """The waiting of some finished jobs."""

    key: str
    jobs: int
    wait_s: float  # of all jobs together
    shares: dict[str, float]  # of wait_s, by cause, the greatest first


def _shares(seconds: Floats) -> dict[str, float]:
    total = float(seconds.sum())
    return {CAUSES[k]: float(seconds[k]) / total for k in np.argsort(-seconds, kind="stable") if seconds[k] > 0}


def in_words(shares: dict[str, float]) -> str:
    """Shares as text, for example "61 % GPUs, 39 % priority"; what would be 0 % is left out."""
    shown = {cause: text for cause, share in shares.items() if (text := f"{100 * share:.0f}") != "0"}
    return ", ".join(f"{text} % {'GPUs' if cause == 'gpus' else cause}" for cause, text in shown.items())


def wait_causes(schedule: Schedule) -> WaitCauses:
    """Why each job waited, for a schedule that `simulate` returned."""
    if schedule.origin is None:
        raise InputError(
            "the schedule was read from files, which do not say how it came about",
            hint="use the schedule that simulate returns, or the columns wait_…_s of its jobs.parquet",
        )
    m = measure(schedule)
    job, begin, end, waking = _waits(m, schedule.origin)
    found = np.zeros((len(schedule.workload), len(CAUSES)))
    found[:, DEPENDENCY] = _released(schedule, schedule.origin) - schedule.workload.submit
    found[:, WAKING] = waking
    waits, seconds = _walk(schedule, schedule.origin, job, begin, end)
    np.add.at(found, job[waits], seconds)
    result = np.full(found.shape, np.nan)
    result[m.rows] = _adding_up_to(wait(m), found[m.rows])
    return WaitCauses(schedule.workload, result)


def _released(schedule: Schedule, origin: Origin) -> Floats:
    """[J] when the job joined its queue, if it did."""
    submit = schedule.workload.submit
    return submit if origin.ready is None else np.maximum(submit, origin.ready)


def _waits(m: Measurement, origin: Origin) -> tuple[Ints, Floats, Floats, Floats]:
    """Job, begin and end of every stay in a queue, before the first run and between two; and [J] seconds for which nodes woke."""
    schedule, num_jobs = m.schedule, len(m.schedule.workload)
    order = np.lexsort((schedule.piece_start, schedule.piece_job))
    job, start = schedule.piece_job[order].astype(np.int64), schedule.piece_start[order]
    opens = np.ones(len(order), bool)
    opens[1:] = (job[1:] != job[:-1]) | (start[1:] != start[:-1])
    job, start, run = job[opens], start[opens], order[opens]  # one row per run
    waking = np.bincount(job, weights=m.sleeps.piece_ready[run] - start, minlength=num_jobs).astype(np.float64, copy=False)
    released = _released(schedule, origin)
    begin = released[job]
    again = np.flatnonzero(job[1:] == job[:-1]) + 1
    begin[again] = schedule.piece_end[run[again - 1]]
    left = np.flatnonzero(schedule.status == QUEUED)  # they wait to the end
    last = np.searchsorted(job, left, side="right") - 1
    has_run = (last >= 0) & (job[last] == left) if len(job) else np.zeros(len(left), bool)
    since = released[left]
    since[has_run] = schedule.piece_end[run[last[has_run]]]
    return np.concatenate((job, left)), np.concatenate((begin, since)), np.concatenate((start, np.full(len(left), np.inf))), waking


def _walk(schedule: Schedule, origin: Origin, job: Ints, begin: Floats, end: Floats) -> tuple[Ints, Floats]:
    """The stays that took time, and their seconds by cause."""
    layout = _laid_out(schedule, origin)
    world = layout.world
    if (world.job_class[job] < 0).any():
        raise InputError("jobs ran that can never run on this cluster", hint="leave workload and cluster of the schedule as they are")
    waits = np.flatnonzero(end > begin)
    waits = waits[np.argsort(begin[waits], kind="stable")]
    late = np.maximum(schedule.workload.submit[job[waits]] + origin.rules.max_wait_s, begin[waits])
    late[late >= end[waits]] = np.inf
    pieces = np.flatnonzero(schedule.piece_end > schedule.piece_start)
    counts = WalkCounts(
        num_waits=len(waits),
        num_ends=np.isfinite(end[waits]).sum(),
        num_late=np.isfinite(late).sum(),
        num_starts=len(pieces),
        num_stops=np.isfinite(schedule.piece_end[pieces]).sum(),
        rule=_rule_address() if world.policy.room_is_not_enough else 0,
        reserves=origin.rules.backfill in RESERVING or origin.rules.depth != NO_LIMIT,
    )
    lengths = {
        "waits": len(waits), "causes": len(CAUSES), "pieces": len(pieces), "classes": int(world.sizes.num_classes),
        "rooms": ROOM_SIZE, "queues": int(world.sizes.num_queues), "nodes": int(world.sizes.num_nodes),
    }  # fmt: skip
    walk = Walk.allocate(
        lengths, count=counts, begin=begin[waits], end=end[waits], late_at=late, wait_class=world.job_class[job[waits]],
        by_end=np.argsort(end[waits], kind="stable"), by_late=np.argsort(late, kind="stable"), **_pieces(schedule, world.job_class, pieces),
    )  # fmt: skip
    machine, z = layout.machine, layout.machine.clone()
    walk_causes(*(addresses_of(table) for table in (world, machine, z, layout.state, walk)))
    return waits, walk.seconds.reshape(len(waits), len(CAUSES))


@cache
def _rule_address() -> int:
    if not JIT_DISABLED:
        answer_of_rule.compile(ANSWER_SIGNATURE)  # type: ignore[attr-defined]
    return address_of(answer_of_rule)


def _laid_out(schedule: Schedule, origin: Origin) -> Layout:
    """World and machine of the replay. Orders do not matter here, nor who preempts whom."""
    return lay_out(
        schedule.workload,
        schedule.cluster,
        replace(
            origin.rules,
            order=Order(fixed=schedule.workload.submit),
            depth=NO_LIMIT,
            dispatch=queue.REORDER,
            keys=preemption.NOT_PREEMPTIVE,
            levels=None,
            stops=0,
            rule=placement.PACK if origin.rules.rule == placement.BY_SOLVER else origin.rules.rule,  # both place whatever has room
        ),
        runtime=schedule.workload.runtime,
        estimate=schedule.estimate,
        conditions=origin.conditions.model_copy(update={"dependencies": False}),
    )


def _pieces(schedule: Schedule, job_class: NDArray[np.int32], pieces: Ints) -> dict[str, NDArray[Any]]:
    start, end = schedule.piece_start[pieces], schedule.piece_end[pieces]
    return {
        "by_start": np.argsort(start, kind="stable"),
        "by_stop": np.argsort(end, kind="stable"),
        "piece_class": job_class[schedule.piece_job[pieces]],
        "piece_node": schedule.piece_node[pieces],
        "piece_tasks": schedule.piece_tasks[pieces],
        "piece_gpus": schedule.piece_gpus[pieces],
        "piece_start": start,
        "piece_end": end,
    }


def _adding_up_to(waits: Floats, seconds: Floats) -> Floats:
    """[J, causes] the seconds, changed by rounding errors so that each row adds up to the wait exactly."""
    digit = np.spacing(waits)
    largest = seconds.argmax(axis=1)
    exact = np.zeros_like(seconds)
    left = waits.copy()
    for k in range(seconds.shape[1]):
        part = np.where(largest == k, 0.0, np.minimum(np.floor(seconds[:, k] / digit) * digit, left))
        exact[:, k] = part
        left -= part
    exact[np.arange(len(waits)), largest] = left
    return exact
