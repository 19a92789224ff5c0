"""Protocols: the parts of a workload that every policy is measured on, and the settings that a protocol fixes.

A `Plan` is made before any policy runs and depends only on the workload, so all policies see the same jobs. In the protocol `days`,
every window is a whole replay of the log, with submissions shaken a little, and the jobs of the counted part are measured day by day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.transform import log_begin, split_by_time

PROTOCOLS = {
    "days": "the log from its first job on, the later part counted day by day (default for logs)",
    "windows": "n random windows of k consecutive jobs",
    "blocks": "as windows, but from one block (val or report) of a log split by time; training uses the first block",
    "replay": "the whole log, once",
    "rlscheduler": "sequences of 1,024 jobs as in the RLScheduler paper: commit dispatch, estimates by request",
    "packing": "jobs arrive one after the other and never leave, until the cluster is full",
}
RLSCHEDULER_STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
RLSCHEDULER_JOBS = 1024
BLOCKS = ("train", "val", "report")
DEFAULT_SPLIT = (0.45, 0.2, 0.35)  # shares of the time span of the log
EARLY_SHARE = 0.1  # of the span: with more before the log begins, the time that is split begins with the log
ROUNDED = 1e-3  # what rounded shares may lack to add up to 1
DEFAULT_WINDOWS = 10
WARM_POLICY = "fcfs+easy"  # a replay under it gives what windows that start warm begin with
BLOCK_SEEDS = {"train": range(1_000_000), "val": range(2_000_000, 3_000_000), "report": range(10_000_000, 11_000_000)}


@dataclass(frozen=True)
class Window:
    """Jobs [start, stop) of the log. With a model or the packing protocol, `seed` selects the jobs and start is 0."""

    start: int
    stop: int
    seed: int | None = None
    counted: int = 0  # the first of these jobs that counts
    shake: int | None = None  # number of the replay with shaken submissions; 0: as in the log

    @property
    def num_jobs(self) -> int:
        return self.stop - self.start

    @property
    def label(self) -> str:
        return f"{self.start}" if self.seed is None else f"seed {self.seed}"

    def first_counted(self, replayed: int) -> int:
        """The first of `replayed` jobs that counts: not those that the window began with."""
        return self.counted if self.shake is not None else replayed - self.num_jobs

    @classmethod
    def from_list(cls, numbers: Sequence[int]) -> Window:
        """A window as `as_list` describes it. Only windows of a log are shaken, and only those of models have a seed."""
        start, stop, *others = numbers
        if len(others) == 2:
            return cls(start, stop, counted=others[0], shake=others[1])
        return cls(start, stop, *others)

    def as_list(self) -> list[int]:
        """What is different about it, for a fingerprint."""
        return [self.start, self.stop, *(number for number in (self.seed,) if number is not None), *(
            () if self.shake is None else (self.counted, self.shake)
        )]  # fmt: skip


@dataclass(frozen=True)
class Plan:
    protocol: str
    windows: tuple[Window, ...]
    dispatch: str | None = None  # fixed by the protocol, or None if the user chooses
    estimates: str | None = None
    unit_s: float | None = None  # protocol days: seconds of the units of time that are compared; None: there are too few

    def counted(self, num_jobs: int) -> NDArray[np.bool_]:
        """[J] which jobs of a log count in some window. The protocol packing draws from all of them."""
        counts = np.zeros(num_jobs, dtype=bool)
        for window in self.windows:
            counts[window.start + window.counted : window.stop] = True
        return counts

    @property
    def distinct_jobs(self) -> int:
        """How many jobs count in some window. Windows with a seed have jobs of their own."""
        drawn = sum(window.stop for window in self.windows if window.seed is not None)
        return drawn + len({job for w in self.windows if w.seed is None for job in range(w.start + w.counted, w.stop)})


def parse_split(text: str) -> tuple[float, float, float]:
    """`0.45,0.2,0.35`: the shares of train, val and report. Thirds may be rounded: a sum that is nearly 1 is made 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1.0) > ROUNDED:
        raise InputError(f"split {text!r} is not three shares that add up to 1", hint="for example 0.45,0.2,0.35 (train, val, report)")
    if not shares[0]:
        raise InputError(f"split {text!r} leaves nothing for train", hint="give it a small share, for example 0.01,0.49,0.5")
    total = sum(shares)
    train, val, report = shares if abs(total - 1.0) <= 1e-9 else (share / total for share in shares)
    return train, val, report


def make_plan(
    protocol: str,
    workload: Workload,
    *,
    num_windows: int | None = None,
    window_jobs: int = 1024,
    seed: int = 0,
    overlap: bool = False,
    starts: Sequence[int] | None = None,
    block: str = "report",
    from_model: bool = False,
    split: tuple[float, float, float] = DEFAULT_SPLIT,
    warm_s: float | None = None,
    shakes: int = 8,
) -> Plan:
    """The windows of a protocol. `starts` are 0-based job indices to use instead of random ones.

    Without a number there are DEFAULT_WINDOWS, or as many as the log holds without overlapping.
    """
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if not len(workload):
        raise InputError(f"workload {workload.name} has no jobs", hint="use a workload with at least one job")
    jobs = block_jobs(workload, split)[block] if protocol == "blocks" and not from_model else range(len(workload))
    if num_windows is None:
        drawn = protocol == "packing" or (from_model and protocol == "blocks")  # each window is a workload of its own
        fits = DEFAULT_WINDOWS if drawn or overlap else len(jobs) // max(window_jobs, 1)
        num_windows = max(1, min(DEFAULT_WINDOWS, fits))
    if num_windows < 1 or window_jobs < 1:
        raise InputError(f"{num_windows} windows of {window_jobs} jobs leave nothing to measure", hint="use at least 1 of each")
    if protocol == "days":
        return _days(workload, block, split, warm_s, shakes)
    if starts is not None and protocol in ("replay", "packing", "blocks"):
        raise InputError(f"protocol {protocol} does not support --starts", hint="use --protocol windows or rlscheduler")
    if protocol == "replay":
        return Plan(protocol, (Window(0, len(workload)),))
    if protocol == "packing":
        return Plan(protocol, tuple(Window(0, len(workload), seed + index) for index in range(num_windows)))
    if protocol == "rlscheduler":
        chosen = RLSCHEDULER_STARTS if starts is None else starts
        known = "oracle" if np.isnan(workload.requested).all() else "requested"  # its program takes the runtime of jobs without a request
        return Plan(protocol, _windows_at(chosen, RLSCHEDULER_JOBS, len(workload)), "commit", known)
    if protocol == "blocks":
        return Plan(
            protocol, block_windows(workload, block, num_windows, window_jobs, seed, from_model=from_model, split=split, overlap=overlap)
        )
    if starts is None:
        starts = draw_starts(jobs, num_windows, window_jobs, seed, overlap=overlap)
    return Plan(protocol, _windows_at(starts, window_jobs, len(workload)))


def draw_starts(jobs: range, num_windows: int, window_jobs: int, seed: int, *, overlap: bool = False) -> list[int]:
    """First jobs of random windows inside `jobs`, in order. They have no jobs in common, unless they may overlap."""
    room = len(jobs) - window_jobs + 1
    if room < 1:
        raise InputError(
            f"a window of {window_jobs} jobs does not fit into the {len(jobs)} jobs of this part of the log",
            hint="use smaller windows (--window-jobs, or --jobs of train), a longer log, or --protocol replay",
        )
    rng = np.random.default_rng(seed)
    if overlap:
        if num_windows > room:
            raise InputError(
                f"{len(jobs)} jobs have only {room} different windows of {window_jobs} jobs", hint=f"use --windows {room} or less"
            )
        return sorted(jobs.start + int(start) for start in rng.choice(room, num_windows, replace=False))
    spare = len(jobs) - num_windows * window_jobs
    if spare < 0:
        raise InputError(
            f"{num_windows} windows of {window_jobs} jobs do not fit into {len(jobs)} jobs without overlapping",
            hint=f"use --windows {len(jobs) // window_jobs} or less, smaller windows, or --overlap, with intervals that say less",
        )
    gaps = np.sort(rng.integers(0, spare + 1, num_windows))
    return [jobs.start + int(gap) + number * window_jobs for number, gap in enumerate(gaps)]


def _windows_at(starts: Sequence[int], window_jobs: int, num_jobs: int) -> tuple[Window, ...]:
    for start in starts:
        if not 0 <= start <= num_jobs - window_jobs:
            raise InputError(
                f"a window of {window_jobs} jobs from job {start} exceeds the log, which has {num_jobs} jobs",
                hint=f"starts are 0-based and at most {num_jobs - window_jobs}" if num_jobs >= window_jobs else "the log is too short",
            )
    if len(set(starts)) < len(starts):
        raise InputError("a window is given twice", hint="use each start once; equal windows would count twice in the intervals")
    return tuple(Window(start, start + window_jobs) for start in starts)


def block_windows(
    workload: Workload,
    block: str,
    num_windows: int,
    window_jobs: int,
    seed: int,
    *,
    from_model: bool = False,
    split: tuple[float, float, float] = DEFAULT_SPLIT,
    overlap: bool = False,
) -> tuple[Window, ...]:
    """Windows of one block. A log is split by time. A model gets a different seed per window, from the block's range of seeds."""
    if block not in BLOCKS:
        raise unknown_name("block", block, BLOCKS)
    if from_model:
        seeds = BLOCK_SEEDS[block]
        if not 0 <= seed * num_windows <= len(seeds) - num_windows:
            raise InputError(f"seed {seed} with {num_windows} windows exceeds the seeds of block {block}", hint="use a smaller --seed")
        first = seeds.start + seed * num_windows
        return tuple(Window(0, window_jobs, first + index) for index in range(num_windows))
    jobs = block_jobs(workload, split)[block]
    starts = draw_starts(jobs, num_windows, window_jobs, BLOCK_SEEDS[block].start + seed, overlap=overlap)
    return _windows_at(starts, window_jobs, len(workload))


def block_jobs(workload: Workload, split: tuple[float, float, float] = DEFAULT_SPLIT) -> dict[str, range]:
    """The jobs of each block, in time order. Jobs that were there when the log begins are in the first."""
    early = _submitted_early(workload)
    parts = split_by_time(workload.take(slice(early, None)), *split)
    first_val = early + len(parts.train)
    first_report = first_val + len(parts.validation)
    ranges = {"train": range(first_val), "val": range(first_val, first_report), "report": range(first_report, len(workload))}
    check_disjoint(ranges)
    return ranges


def _submitted_early(workload: Workload) -> int:
    """Jobs that ran or waited when the log begins, if their submissions would make up much of the time that is split."""
    ran = (workload.runtime > 0) & ~np.isnan(workload.recorded_wait)
    if not ran.any():
        return 0
    submit = workload.submit[ran]
    begin = log_begin(submit, submit + workload.recorded_wait[ran] + workload.runtime[ran])
    if begin - workload.submit[0] <= EARLY_SHARE * (workload.submit[-1] - workload.submit[0]):
        return 0
    return int(np.searchsorted(workload.submit, begin))


def check_disjoint(ranges: dict[str, range]) -> None:
    """Raise an error if a job belongs to two parts."""
    names = sorted(ranges, key=lambda name: ranges[name].start)
    for first, second in pairwise(names):
        shared = range(ranges[second].start, min(ranges[first].stop, ranges[second].stop))
        if shared:
            raise InputError(
                f"splits overlap: jobs {shared[0]} to {shared[-1]} are in both {first} and {second}",
                hint="make the ranges disjoint; a policy must not be evaluated on jobs it was trained on",
            )


# --- days

DAY_S = 86_400.0
UNITS_S = (DAY_S, 21_600.0)  # a day, or six hours where there are fewer than FEWEST_UNITS days
FEWEST_UNITS = 10  # whole ones with jobs
SHAKE_S = 60.0  # submissions are moved by up to so many seconds


def _days(workload: Workload, block: str, split: tuple[float, float, float], warm_s: float | None, shakes: int) -> Plan:
    """One replay per shake, from the log's first job or `warm_s` before the counted part, to the end of that part."""
    if shakes < 1:
        raise InputError(f"{shakes} replays leave nothing to measure", hint="use --shakes 1 for the log as it is, 8 to average over noise")
    if block not in BLOCKS:
        raise unknown_name("block", block, BLOCKS)
    jobs = block_jobs(workload, split)[block]
    if not len(jobs):
        shares = ",".join(f"{share:g}" for share in split)
        raise InputError(f"the part {block} of the log has no jobs with the split {shares}", hint="use a longer log, or another --split")
    first = 0 if warm_s is None else int(np.searchsorted(workload.submit, workload.submit[jobs.start] - warm_s))
    windows = tuple(Window(first, jobs.stop, counted=jobs.start - first, shake=number) for number in range(shakes))
    since = workload.submit[jobs.start : jobs.stop] - workload.submit[jobs.start]
    unit = next((unit for unit in UNITS_S if _whole_units(since, unit) >= FEWEST_UNITS), None)
    return Plan("days", windows, unit_s=unit)


def _whole_units(since: Floats, unit_s: float) -> int:
    """How many whole units have jobs, submitted so long after the first. The last unit is rarely whole."""
    unit = since // unit_s
    return len(np.unique(unit[unit < since[-1] // unit_s]))
