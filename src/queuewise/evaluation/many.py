"""`simulate_many`: replays of many candidates on many windows of a workload, on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.measure import Floats, Measurement, bounded_slowdown, last_event, wait
from queuewise.evaluation.metrics import makespan
from queuewise.evaluation.scores import machine_utilisation
from queuewise.policies import parse_policy, simulate
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.window_replays import Candidate, ReplayOptions, WindowRows, can_share_a_call, replay_windows
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.estimates import Estimates, default_estimates
from queuewise.workload.jobs import Workload

FIGURES = ("wait_s", "max_wait_s", "bounded_slowdown", "makespan_s", "utilisation")


@dataclass(frozen=True, eq=False)
class ManyReplays:
    """Figures of K candidates on W windows, as docs/metrics.md defines them; NaN where one is undefined."""

    wait_s: Floats  # [K, W] mean
    max_wait_s: Floats  # [K, W]
    bounded_slowdown: Floats  # [K, W] mean
    makespan_s: Floats  # [K, W]
    utilisation: Floats  # [K, W] of the GPUs, or of the cores if the cluster has no GPUs
    starts: list[list[Floats]] | None = None  # [K][W] first start of each job of the window, inf if it has none

    def __repr__(self) -> str:
        candidates, windows = self.wait_s.shape
        waits = self.wait_s[~np.isnan(self.wait_s)]
        means = f": mean waits from {waits.min():,.0f} to {waits.max():,.0f} s" if waits.size else ""
        return f"ManyReplays({candidates} candidates, {windows} windows{means})"


def simulate_many(
    workload: Workload,
    cluster: Cluster,
    candidates: Sequence[str | tuple[str, Iterable[float]]],
    *,
    windows: Sequence[tuple[int, int]],
    start: Literal["empty"] | Sequence[Snapshot] = "empty",
    dispatch: str = "reorder",
    estimates: str | Floats | Estimates | None = None,
    conditions: Conditions | None = None,
    kill_at_limit: bool = False,
    seed: int = 0,
    max_wait: str | None = None,
    threads: int | None = None,
    per_job: bool = False,
) -> ManyReplays:
    """Replay every window `(first_job, num_jobs)` of the workload under every candidate.

    A candidate is the name of a policy, or `(name, params)` with the parameters of its score function. All figures are
    those of `simulate` with the same options on `workload.take(slice(first_job, first_job + num_jobs))`. Replays begin
    on an empty cluster, or with one snapshot per window: then the jobs that wait or run there are replayed with those
    of the window, and are not counted. `threads` is the number of cores by default. `per_job` adds the start of every
    job of the windows.
    """
    parts = _windows(workload, windows, start)
    members = [_candidate(number, one) for number, one in enumerate(candidates)]
    for policy in {one.policy for one in members}:
        parse_policy(policy)
    if not parts or not members:
        raise InputError(f"no {'candidates' if parts else 'windows'} are given", hint="give at least one of each")
    known = default_estimates(workload) if estimates is None else estimates
    options = ReplayOptions(dispatch, known, seed, kill_at_limit, PERFECT if conditions is None else conditions, max_wait)
    results = _Results(len(members), parts, per_job)
    if threads is not None and threads < 1:
        raise InputError(f"threads is {threads}", hint="give at least 1, or leave it out to use all cores")
    shares_a_call = {policy: can_share_a_call(policy) for policy in {one.policy for one in members}}
    together = [one for one in members if shares_a_call[one.policy]]
    if together:
        replay_windows(workload, cluster, together, parts, options, threads or len(os.sched_getaffinity(0)), results.note)
    for one in members:
        for number, part in enumerate(() if shares_a_call[one.policy] else parts):
            schedule = simulate(workload.take(part.rows), cluster, one.policy, params=one.params, **options.of_window(part))
            results.note(one, number, schedule)
    return results.complete()


class _Results:
    def __init__(self, candidates: int, windows: Sequence[WindowRows], per_job: bool) -> None:
        self._windows = windows
        self._figures = {name: np.full((candidates, len(windows)), np.nan) for name in FIGURES}
        self._starts: list[list[Any]] | None = [[None] * len(windows) for _ in range(candidates)] if per_job else None

    def note(self, one: Candidate, column: int, schedule: Schedule) -> None:
        counted = self._windows[column].counted
        for name, figure in _figures(schedule, counted).items():
            self._figures[name][one.number, column] = np.nan if figure is None else figure
        if self._starts is not None:
            self._starts[one.number][column] = schedule.start[counted]

    def complete(self) -> ManyReplays:
        return ManyReplays(**self._figures, starts=self._starts)


def _figures(schedule: Schedule, counted: slice) -> dict[str, float | None]:
    m = Measurement(schedule, counted, float(schedule.workload.submit[counted.start]), last_event(schedule))
    waits, slowdowns = wait(m), bounded_slowdown(m)
    return {
        "wait_s": float(waits.mean()) if waits.size else None,
        "max_wait_s": float(waits.max()) if waits.size else None,
        "bounded_slowdown": float(slowdowns.mean()) if slowdowns.size else None,
        "makespan_s": makespan(m),
        "utilisation": machine_utilisation(m),
    }


def _windows(workload: Workload, windows: Sequence[tuple[int, int]], start: str | Sequence[Snapshot]) -> list[WindowRows]:
    for first, number in windows:
        if number < 1 or first < 0 or first + number > len(workload):
            raise InputError(
                f"window ({first}, {number}) is not a part of the {len(workload):,} jobs",
                hint="a window is (first_job, num_jobs), with at least one job; jobs are counted from 0",
            )
    if isinstance(start, str):
        if start != "empty":
            raise InputError(f"start is {start!r}", hint="give 'empty', or a list with one snapshot per window")
        return [WindowRows(slice(first, first + number), slice(0, number)) for first, number in windows]
    if len(start) != len(windows):
        raise InputError(f"there are {len(start)} snapshots for {len(windows)} windows", hint="give one snapshot per window")
    rows = [one.select(workload, *window) for one, window in zip(start, windows, strict=True)]
    return [
        WindowRows(chosen, slice(len(chosen) - number, len(chosen)), one)
        for chosen, one, (_, number) in zip(rows, start, windows, strict=True)
    ]


def _candidate(number: int, one: str | tuple[str, Iterable[float]]) -> Candidate:
    if isinstance(one, str):
        return Candidate(number, one, None)
    try:
        policy, params = one
        return Candidate(number, policy, tuple(float(value) for value in params))
    except (TypeError, ValueError):
        raise InputError(f"candidate {one!r} is no policy", hint="give a name, or (name, params) with numbers") from None
