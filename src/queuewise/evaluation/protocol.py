"""Protocols: the parts of a workload that every policy is measured on, and the settings that a protocol fixes.

A `Plan` is made before any policy runs and depends only on the workload, so all policies see the same jobs. Every window is replayed on an
empty cluster with the original submission times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import Workload
from queuewise.workload.transform import split_by_time

PROTOCOLS = {
    "windows": "n random windows of k consecutive jobs",
    "blocks": "as windows, but from one block (val or report) of a log split by time; training uses the first block",
    "replay": "the whole log, once",
    "rlscheduler": "sequences of 1,024 jobs as in the RLScheduler paper: commit dispatch, oracle estimates",
    "packing": "jobs arrive one after the other and never leave, until the cluster is full",
}
RLSCHEDULER_STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
RLSCHEDULER_JOBS = 1024
BLOCK_SHARES = {"train": 0.6, "val": 0.2, "report": 0.2}  # of the time span of the log
BLOCK_SEEDS = {"train": range(1_000_000), "val": range(2_000_000, 3_000_000), "report": range(10_000_000, 11_000_000)}


@dataclass(frozen=True)
class Window:
    """Jobs [start, stop) of the log. With a model or the packing protocol, `seed` selects the jobs and start is 0."""

    start: int
    stop: int
    seed: int | None = None

    @property
    def label(self) -> str:
        return f"{self.start}" if self.seed is None else f"seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    protocol: str
    windows: tuple[Window, ...]
    dispatch: str | None = None  # fixed by the protocol, or None if the user chooses
    estimates: str | None = None


def make_plan(
    protocol: str,
    workload: Workload,
    *,
    num_windows: int = 10,
    window_jobs: int = 1024,
    seed: int = 0,
    starts: Sequence[int] | None = None,
    block: str = "report",
    from_model: bool = False,
) -> Plan:
    """The windows of a protocol. `starts` are 0-based job indices to use instead of random ones."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if not len(workload):
        raise InputError(f"workload {workload.name} has no jobs", hint="use a workload with at least one job")
    if num_windows < 1 or window_jobs < 1:
        raise InputError(f"{num_windows} windows of {window_jobs} jobs leave nothing to measure", hint="use at least 1 of each")
    if starts is not None and protocol in ("replay", "packing", "blocks"):
        raise InputError(f"protocol {protocol} does not support --starts", hint="use --protocol windows or rlscheduler")
    if protocol == "replay":
        return Plan(protocol, (Window(0, len(workload)),))
    if protocol == "packing":
        return Plan(protocol, tuple(Window(0, len(workload), seed + index) for index in range(num_windows)))
    if protocol == "rlscheduler":
        chosen = RLSCHEDULER_STARTS if starts is None else starts
        return Plan(protocol, _windows_at(chosen, RLSCHEDULER_JOBS, len(workload)), "commit", "oracle")
    if protocol == "blocks":
        return Plan(protocol, block_windows(workload, block, num_windows, window_jobs, seed, from_model=from_model))
    if starts is None:
        starts = draw_starts(range(len(workload)), num_windows, window_jobs, seed)
    return Plan(protocol, _windows_at(starts, window_jobs, len(workload)))


def draw_starts(jobs: range, num_windows: int, window_jobs: int, seed: int) -> list[int]:
    """First jobs of distinct random windows inside `jobs`. The windows may overlap."""
    room = len(jobs) - window_jobs + 1
    if room < 1:
        raise InputError(
            f"a window of {window_jobs} jobs does not fit into the {len(jobs)} jobs of this part of the log",
            hint="use smaller windows (--window-jobs, or --jobs of train), a longer log, or --protocol replay",
        )
    if num_windows > room:
        raise InputError(f"{len(jobs)} jobs have only {room} different windows of {window_jobs} jobs", hint=f"use --windows {room} or less")
    return [jobs.start + int(start) for start in np.random.default_rng(seed).choice(room, num_windows, replace=False)]


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
    workload: Workload, block: str, num_windows: int, window_jobs: int, seed: int, *, from_model: bool = False
) -> tuple[Window, ...]:
    """Windows of one block. A log is split by time. A model gets a different seed per window, from the block's range of seeds."""
    if block not in BLOCK_SHARES:
        raise unknown_name("block", block, BLOCK_SHARES)
    if from_model:
        seeds = BLOCK_SEEDS[block]
        if not 0 <= seed * num_windows <= len(seeds) - num_windows:
            raise InputError(f"seed {seed} with {num_windows} windows exceeds the seeds of block {block}", hint="use a smaller --seed")
        first = seeds.start + seed * num_windows
        return tuple(Window(0, window_jobs, first + index) for index in range(num_windows))
    jobs = block_jobs(workload)[block]
    return _windows_at(draw_starts(jobs, num_windows, window_jobs, BLOCK_SEEDS[block].start + seed), window_jobs, len(workload))


def block_jobs(workload: Workload) -> dict[str, range]:
    """The jobs of each block, in time order."""
    parts = split_by_time(workload, BLOCK_SHARES["train"], BLOCK_SHARES["val"], BLOCK_SHARES["report"])
    first_val = len(parts.train)
    first_report = first_val + len(parts.validation)
    ranges = {"train": range(first_val), "val": range(first_val, first_report), "report": range(first_report, len(workload))}
    check_disjoint(ranges)
    return ranges


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
