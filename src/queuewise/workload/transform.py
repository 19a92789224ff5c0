"""Transformations of workloads: select, filter, merge, split, change the load, make jobs elastic. Runtimes never change.

All functions return new workloads. Times stay on the log's clock unless a function is meant to change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import ANY_PARTITION, COLUMNS, UNKNOWN, Floats, Workload
from queuewise.workload.speedup import parse_curve


def window(workload: Workload, start: float, *, stop: float | None = None, num_jobs: int | None = None) -> Workload:
    """Jobs submitted in [start, stop), or the first `num_jobs` jobs submitted from `start` on. Times are unchanged."""
    if (stop is None) == (num_jobs is None):
        raise InputError("a window needs either stop or num_jobs", hint="use exactly one of them")
    first = int(np.searchsorted(workload.submit, start, side="left"))
    last = int(np.searchsorted(workload.submit, stop, side="left")) if stop is not None else first + int(num_jobs or 0)
    chosen = workload.take(slice(first, max(first, last)))
    if num_jobs is not None and len(chosen) < num_jobs:
        raise InputError(f"only {len(chosen)} jobs are submitted from {start:g} s on, but {num_jobs} were requested")
    return chosen


def without_kinds(workload: Workload) -> Workload:
    """The same jobs, which may run on any GPU kind."""
    return workload.replace(kind_set=np.zeros(len(workload), np.int32), kind_sets=((),))


def offered_load(workload: Workload, *, gpus: float | None = None, cores: float | None = None) -> float:
    """Submitted work ÷ capacity of the cluster between the first and the last submission.

    With `gpus` the work is in GPU-seconds, with `cores` in core-seconds. The time after the last submission does not count.
    """
    if (gpus is None) == (cores is None):
        raise InputError("the load needs either gpus or cores", hint="use exactly one of them")
    capacity = gpus if gpus is not None else cores
    amount = workload.gpus if gpus is not None else workload.cores
    span = float(workload.submit[-1] - workload.submit[0]) if len(workload) else 0.0
    if span <= 0 or not capacity or capacity < 0:
        raise InputError(f"the load is undefined: submissions span {span:g} s and the cluster has {capacity} GPUs or cores")
    return float(amount @ workload.runtime) / (capacity * span)


def rescale_load(workload: Workload, load: float, *, gpus: float | None = None, cores: float | None = None) -> Workload:
    """The same jobs, submitted faster or slower so that `offered_load` is `load`. Daily cycles are stretched as well."""
    if load <= 0:
        raise InputError(f"cannot rescale to load {load:g}", hint="use a load above 0; 1 is the full capacity of the cluster")
    return stretch(workload, offered_load(workload, gpus=gpus, cores=cores) / load)


def stretch(workload: Workload, factor: float) -> Workload:
    """Multiply every inter-arrival time by `factor`. The first submission stays, and deadlines move with their submissions."""
    if not (np.isfinite(factor) and factor > 0):
        raise InputError(f"cannot stretch time by {factor:g}", hint="use a factor above 0")
    if not len(workload):
        return workload
    submit = workload.submit[0] + (workload.submit - workload.submit[0]) * factor
    return workload.replace(submit=submit, deadline=workload.deadline - workload.submit + submit)


def distinct_ids(workload: Workload) -> Workload:
    """The same jobs, numbered if several have the same id: snapshots tell jobs by their ids."""
    if len(set(workload.job_id.tolist())) == len(workload):
        return workload
    return workload.replace(job_id=np.arange(len(workload)))


def thin(workload: Workload, keep: float, seed: int = 0) -> Workload:
    """A random share `keep` of the jobs, chosen independently: the load decreases, daily cycles stay."""
    if not 0 < keep <= 1:
        raise InputError(f"cannot keep a share of {keep:g} of the jobs", hint="use a share in (0, 1]")
    return workload.take(np.random.default_rng(seed).random(len(workload)) < keep)


def shake(workload: Workload, seconds: float, seed: int, *, boundary: int = 0) -> tuple[Workload, NDArray[np.int64]]:
    """Move every submission by up to so many seconds, earlier or later. Returns the jobs in their new order, and which jobs they are.

    The first `boundary` jobs stay before the others.
    """
    submit, rows = shaken_order(workload.submit, seconds, seed, boundary=boundary)
    number = np.empty(len(rows), np.int64)
    number[rows] = np.arange(len(rows))
    columns = {column: getattr(workload, column)[rows] for column in COLUMNS}
    return workload.replace(**columns | {"submit": submit}, dependencies=workload.dependencies.renumbered(number)), rows


def shaken_order(submit: Floats, seconds: float, seed: int, *, boundary: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """The submissions of `shake` in their new order, and which jobs they are of."""
    shaken = submit + np.random.default_rng(seed).uniform(-seconds, seconds, len(submit))
    if 0 < boundary < len(submit):
        shaken[:boundary] = np.minimum(shaken[:boundary], submit[boundary])
        shaken[boundary:] = np.maximum(shaken[boundary:], submit[boundary])
    rows = np.argsort(shaken, kind="stable")
    return shaken[rows], rows


def vary(workload: Workload, sigma: float, loads: tuple[float, float], seed: int) -> tuple[Workload, Floats]:
    """Another log of the same kind: every job's runtime and request times a lognormal factor of its own, and submissions that follow each
    other faster by one factor from `loads`. Returns it and the jobs' factors [J].
    """
    rng = np.random.default_rng(seed)
    faster, factors = rng.uniform(*loads), rng.lognormal(0.0, sigma, len(workload))
    first = workload.submit[0] if len(workload) else 0.0
    varied = workload.replace(
        submit=first + (workload.submit - first) / faster, runtime=workload.runtime * factors, requested=workload.requested * factors
    )
    return varied, factors


def make_elastic(workload: Workload, share: float, least: float, most: float, curve: str, seed: int = 0) -> Workload:
    """Make a random share of the jobs elastic, with `least` to `most` times their tasks (at least one) and speeds from the curve."""
    if not 0 < share <= 1:
        raise InputError(f"cannot make a share of {share:g} of the jobs elastic", hint="use a share in (0, 1]")
    if not 0 <= least <= 1 <= most < np.inf:
        raise InputError(
            f"invalid range for elastic jobs: {least:g} to {most:g} times their tasks",
            hint="use a range that includes 1, for example 0.5-2",
        )
    parse_curve(curve)
    tasks = workload.num_tasks.astype(np.int64)
    chosen = np.random.default_rng(seed).random(len(workload)) < share
    greatest = np.minimum(np.floor(tasks * most), np.iinfo(np.int32).max)
    return workload.replace(
        min_tasks=np.where(chosen, np.maximum(np.ceil(tasks * least), 1), workload.min_tasks).astype(np.int32),
        max_tasks=np.where(chosen, greatest, workload.max_tasks).astype(np.int32),
        scaling=np.where(chosen, len(workload.scalings), workload.scaling).astype(np.int32),
        scalings=(*workload.scalings, curve),
    )


def parse_elastic(text: str) -> tuple[float, float, float, str]:
    """Parse `SHARE,LEAST-MOST,CURVE` for `make_elastic`."""
    try:
        share, sizes, curve = text.split(",", 2)
        least, most = sizes.split("-")
        return float(share), float(least), float(most), curve
    except ValueError:
        raise InputError(f"{text!r} is not SHARE,LEAST-MOST,CURVE", hint="for example 0.3,0.5-2,amdahl:0.05") from None


def filter_jobs(
    workload: Workload,
    *,
    partition: str | Sequence[str] | None = None,
    user: str | Sequence[str] | None = None,
    min_size: float = 0.0,
    max_size: float = np.inf,
    keep: Callable[[Workload], NDArray[np.bool_]] | None = None,
) -> Workload:
    """Jobs of these partitions and users with a size (GPUs, or cores without GPUs) in [min_size, max_size] that `keep` selects."""
    chosen = (workload.size >= min_size) & (workload.size <= max_size)
    if partition is not None:
        chosen &= _in_names(workload.partition, workload.partitions, partition, "partition")
    if user is not None:
        chosen &= _in_names(workload.user, workload.users, user, "user")
    if keep is not None:
        chosen &= keep(workload)
    return workload.take(chosen)


def _in_names(column: NDArray[np.int32], names: tuple[str, ...], wanted: str | Sequence[str], kind: str) -> NDArray[np.bool_]:
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in wanted:
        if name not in names:
            raise unknown_name(kind, name, names)
    return np.isin(column, [names.index(name) for name in wanted])


def merge(workloads: Sequence[Workload], name: str = "merged") -> Workload:
    """All jobs on one clock: that of the earliest epoch if all are known. Partitions, users and groups are matched by name.

    Job ids become `<workload>/<id>`, and codes of job names stay distinct, because two logs use the same codes for different names.
    """
    if not workloads:
        raise InputError("nothing to merge", hint="pass at least one workload")
    epochs = [w.epoch for w in workloads]
    epoch = min(epochs) if all(epochs) else 0.0
    names = {table: tuple(dict.fromkeys(entry for w in workloads for entry in getattr(w, table))) for table in _CODED.values()}
    names["kind_sets"] = ((), *(kinds for kinds in names["kind_sets"] if kinds))
    columns: dict[str, list[NDArray[Any]]] = {column: [] for column in COLUMNS}
    first_code = 0
    for w in workloads:
        shift = w.epoch - epoch if epoch else 0.0
        changed: dict[str, NDArray[Any]] = {c: _recode(getattr(w, c), getattr(w, table), names[table]) for c, table in _CODED.items()}
        changed["submit"], changed["deadline"] = w.submit + shift, w.deadline + shift
        changed["job_name"] = np.where(w.job_name == UNKNOWN, UNKNOWN, w.job_name + first_code).astype(np.int32)
        changed["job_id"] = np.array([f"{w.name}/{i}" for i in w.job_id.tolist()], dtype=np.str_)
        first_code += int(w.job_name.max(initial=-1)) + 1
        for column in COLUMNS:
            columns[column].append(changed.get(column, getattr(w, column)))
    joined = {column: np.concatenate(parts) for column, parts in columns.items()}
    return Workload.sorted(**joined, **names, name=name, epoch=epoch)


_CODED = {"kind_set": "kind_sets", "partition": "partitions", "user": "users", "group": "groups", "qos": "qos_names", "scaling": "scalings"}


def _recode(codes: NDArray[np.int32], old: tuple[Any, ...], new: tuple[Any, ...]) -> NDArray[np.int32]:
    """Convert codes into `old` to codes into `new`. Negative codes (unknown, any) stay."""
    table = np.array([new.index(entry) for entry in old] + [UNKNOWN], dtype=np.int32)
    assert ANY_PARTITION == UNKNOWN  # both are the last entry of the table
    return table[codes]


@dataclass(frozen=True, eq=False)
class Split:
    """Three consecutive parts of a log, with gaps between them."""

    train: Workload
    validation: Workload
    test: Workload


def split_by_time(workload: Workload, train: float = 0.6, validation: float = 0.2, test: float = 0.2, gap_s: float = 0.0) -> Split:
    """Split the time span of the submissions by these shares.

    The first `gap_s` seconds of validation and of test are omitted, so that jobs of one part do not run into the next.
    """
    shares = np.array([train, validation, test])
    if not (shares >= 0).all() or train <= 0 or abs(shares.sum() - 1) > 1e-9 or gap_s < 0:
        raise InputError(
            f"cannot split by {train:g}/{validation:g}/{test:g} with a gap of {gap_s:g} s",
            hint="shares must add up to 1, and the gap must not be negative",
        )
    if not len(workload):
        raise InputError("cannot split a workload without jobs")
    begin, end = float(workload.submit[0]), float(workload.submit[-1])
    after_end = float(np.nextafter(end, np.inf))  # parts are half-open intervals, and the last job must be in the last part

    def cut(share: float) -> float:
        return begin + share * (end - begin) if share < 1 - 1e-9 else after_end

    return Split(
        train=window(workload, begin, stop=cut(train)),
        validation=window(workload, cut(train) + gap_s, stop=cut(train + validation)),
        test=window(workload, cut(train + validation) + gap_s, stop=after_end),
    )


# --- where a log begins

FEW_BEFORE = 0.2  # of the submissions expected before the first end: with fewer, the log was selected by ends
FEWER_BEFORE, SMALL_PART = 0.9, 0.05  # or with fewer than this, if they are a small part of the log: a queue was there when it begins


def log_begin(submit: Floats, recorded_end: Floats) -> float:
    """When the log begins: at its first submission, or at its first end if it was selected by ends.

    A log that was selected by ends has few submissions before its first end: only jobs that ran or waited then.
    """
    first, first_end, span = float(submit[0]), float(np.nanmin(recorded_end)), float(submit[-1] - submit[0])
    if first_end <= first or span <= 0:
        return first
    before, expected = int((submit < first_end).sum()), len(submit) * min((first_end - first) / span, 1.0)
    fewest = FEWER_BEFORE if before <= SMALL_PART * len(submit) else FEW_BEFORE
    return first_end if before < fewest * expected else first
