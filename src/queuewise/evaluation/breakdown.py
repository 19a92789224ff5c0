"""The same metrics by priority, user, group (account or virtual cluster), size or partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import unknown_name
from queuewise.evaluation.measure import Floats, Measurement, bounded_slowdown, jct, service, wait
from queuewise.workload.jobs import UNKNOWN, Workload

Codes = NDArray[np.int64]
Labels = Callable[[Any], str]


@dataclass(frozen=True)
class GroupRow:
    """Metrics of the finished jobs in one class."""

    key: str
    jobs: int
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    jct_mean_s: float
    bounded_slowdown_mean: float
    gpu_hours: float
    core_hours: float


def size_class(size: Floats) -> Codes:
    """0 for less than one GPU (or core), then 1 + ⌈log2 size⌉: classes 1, 2, 3–4, 5–8, ..."""
    return np.where(size < 1, 0, 1 + np.ceil(np.log2(np.maximum(size, 1)))).astype(np.int64)


def size_label(code: int) -> str:
    low, high = 2 ** (code - 2) + 1 if code > 1 else 1, 2 ** (code - 1) if code else 1
    return "<1" if code == 0 else f"{int(high)}" if low >= high else f"{int(low)}–{int(high)}"


def _named(column: NDArray[np.int32], names: Sequence[str]) -> tuple[NDArray[Any], Labels]:
    return column, lambda code: "unknown" if code == UNKNOWN else names[code] if code < len(names) else str(code)


KEYS: dict[str, Callable[[Workload], tuple[NDArray[Any], Labels]]] = {
    "priority": lambda w: (w.priority, lambda value: f"{value:g}"),
    "user": lambda w: _named(w.user, w.users),
    "group": lambda w: _named(w.group, w.groups),
    "size": lambda w: (size_class(w.size), size_label),
    "partition": lambda w: _named(w.partition, w.partitions),
}


def breakdown(m: Measurement, key: str) -> list[GroupRow]:
    """One row per class, in order; empty if no job finished."""
    if key not in KEYS:
        raise unknown_name("breakdown", key, KEYS)
    column, label = KEYS[key](m.schedule.workload)
    values, code = np.unique(column[m.rows], return_inverse=True)
    code = code.ravel()
    count = np.bincount(code, minlength=len(values))
    waits, held, workload = wait(m), _task_seconds(m), m.schedule.workload

    def total(x: Floats) -> Floats:
        return np.bincount(code, weights=x, minlength=len(values)).astype(np.float64, copy=False)

    columns = (
        total(waits) / count,
        *_quantiles(waits, code, count, (0.5, 0.95)),
        total(jct(m)) / count,
        total(bounded_slowdown(m)) / count,
        total(held * workload.gpu_milli[m.rows]) / 3.6e6,
        total(held * workload.cpu_milli[m.rows]) / 3.6e6,
    )
    return [GroupRow(label(v), int(count[i]), *(float(c[i]) for c in columns)) for i, v in enumerate(values)]


@dataclass(frozen=True)
class PriorityRow:
    """Completion times of the finished jobs with one priority."""

    priority: float
    jobs: int
    jct_mean_s: float
    jct_median_s: float
    jct_std_s: float
    jct_min_s: float
    jct_max_s: float
    wait_mean_s: float
    bounded_slowdown_mean: float


def by_priority(m: Measurement) -> list[PriorityRow]:
    """One row per priority, ascending; empty if no job finished."""
    priority, times, waits, slowdowns = m.schedule.workload.priority[m.rows], jct(m), wait(m), bounded_slowdown(m)
    rows = []
    for value in np.unique(priority):
        mine = priority == value
        spread = (np.mean, np.median, np.std, np.min, np.max)
        figures = [float(of(times[mine])) for of in spread] + [float(waits[mine].mean()), float(slowdowns[mine].mean())]
        rows.append(PriorityRow(float(value), int(mine.sum()), *figures))
    return rows


def _task_seconds(m: Measurement) -> Floats:
    """Tasks × seconds on the machine, for each finished job."""
    schedule = m.schedule
    if not schedule.workload.is_elastic.any():
        return service(m) * schedule.workload.num_tasks[m.rows]
    seconds = schedule.piece_tasks * (schedule.piece_end - schedule.piece_start)
    ended = np.isfinite(seconds)
    held: Floats = np.bincount(schedule.piece_job[ended], weights=seconds[ended], minlength=len(schedule.workload)).astype(np.float64)
    return held[m.rows]


def _quantiles(x: Floats, code: Codes, count: Codes, points: tuple[float, ...]) -> list[Floats]:
    """Quantiles of each class, interpolated linearly as in NumPy's default."""
    if not x.size:
        return [np.empty(0) for _ in points]
    ordered = x[np.lexsort((x, code))]
    first = np.concatenate(([0], np.cumsum(count)[:-1]))
    result = []
    for point in points:
        position = first + point * (count - 1)
        low = np.floor(position).astype(np.int64)
        high = np.minimum(low + 1, first + count - 1)
        result.append(ordered[low] + (position - low) * (ordered[high] - ordered[low]))
    return result


def as_dicts(rows: Sequence[GroupRow | PriorityRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
