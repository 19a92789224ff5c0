"""Stretches of a log on which candidates are compared: consecutive jobs, with shaken submissions.

A stretch begins on an empty machine. Its first jobs fill the machine and do not count. It is as long as time allows, up to
the whole range, because a policy that leaves jobs behind pays for it only later. Submissions are shaken because a single
replay of a log says little: a few seconds more or less decide which jobs meet. Where a search draws the same days again
and again, runtimes and load are varied a little as well (`vary`): otherwise it learns which jobs met on those days.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.measure import BOUND_S, Measurement, last_event
from queuewise.evaluation.protocol import SHAKE_S
from queuewise.policies.estimating import declare_part
from queuewise.policies.found_rules import FoundRule
from queuewise.policies.window_replays import Candidate, ReplayOptions, WindowRows, replay_windows
from queuewise.search.flat_replays import FlatReplays, can_replay, is_flat
from queuewise.search.objective import totals_of
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.transform import shake, vary

FIGURES = ("bsld", "wait", "max_wait")
FILLING = 0.1  # share of the jobs that do not count
PARTS = 8  # of what counts, each with figures of its own
RUNTIMES, LOADS = 0.15, (0.95, 1.1)  # of stretches that are varied: sigma of the factors of runtimes, and factors of the load


@dataclass(frozen=True, eq=False)
class Figures:
    """[K, PARTS] of K candidates, part by part, and [K] of all counted jobs together."""

    bsld: Floats  # mean
    wait: Floats  # mean, seconds
    max_wait: Floats  # seconds
    totals: Mapping[str, Floats] = field(default_factory=dict)  # by name, as `objective.total_of`

    def values(self, name: str) -> Floats:
        """[K, PARTS] or [K, 1] of a figure of an objective."""
        return self.totals[name][:, None] if name in self.totals else getattr(self, name)

    def followed_by(self, others: Figures) -> Figures:
        """The figures of these candidates, and then those of others on the same stretch."""
        figures = {name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in FIGURES}
        return Figures(**figures, totals={name: np.concatenate([value, others.totals[name]]) for name, value in self.totals.items()})


@dataclass(frozen=True)
class Stretch:
    first: int
    stop: int
    shake: int  # seed
    varies: bool = False  # runtimes and load are a little different, too


class NumberedPolicy(Protocol):
    """A policy with numbers for the functions in its name, such as a FoundRule."""

    @property
    def policy(self) -> str: ...

    @property
    def numbers(self) -> tuple[float, ...]: ...


class Stretches:
    """Stretches of the jobs of a range. `totals` are figures of all jobs together that replays are asked for."""

    def __init__(self, workload: Workload, cluster: Cluster, jobs: range, options: ReplayOptions, totals: Sequence[str] = ()) -> None:
        self._workload, self._cluster, self._jobs, self._options, self._totals = workload, cluster, jobs, options, totals
        self._threads = len(os.sched_getaffinity(0))

    def draw(self, rng: np.random.Generator, most_jobs: int, *, varies: bool = False) -> Stretch:
        """A random stretch of so many jobs, or the whole range if it has fewer."""
        length = min(most_jobs, len(self._jobs))
        first = self._jobs.start + int(rng.integers(0, len(self._jobs) - length + 1))
        return Stretch(first, first + length, int(rng.integers(1, 1 << 31)), varies)

    def replay(self, rules: Sequence[NumberedPolicy | str], stretch: Stretch) -> Figures:
        """Replay a stretch under rules, or under policies given by name."""
        rows = np.arange(stretch.first, stretch.stop)
        filling = int(len(rows) * FILLING)
        jobs, order = shake(self._workload.take(rows), SHAKE_S, stretch.shake, boundary=filling)
        jobs, factors = vary(jobs, RUNTIMES, LOADS, stretch.shake) if stretch.varies else (jobs, None)
        declare_part(jobs, self._workload, rows[order], factors)
        found = {name: np.full((len(rules), PARTS), np.nan) for name in FIGURES}
        totals = {name: np.full(len(rules), np.nan) for name in self._totals}

        def note(number: int, start: Floats) -> None:
            for name, values in _figures(jobs, start, filling).items():
                found[name][number] = values

        def note_schedule(one: Candidate, _: int, schedule: Schedule) -> None:
            note(one.number, schedule.start)
            if self._totals:
                counted = Measurement(schedule, slice(filling, len(jobs)), float(jobs.submit[filling]), last_event(schedule))
                for name, value in totals_of(self._totals, counted).items():
                    totals[name][one.number] = value

        candidates = [
            Candidate(number, rule, None) if isinstance(rule, str) else Candidate(number, rule.policy, rule.numbers)
            for number, rule in enumerate(rules)
        ]
        quick = self._quick(jobs, rules)
        if quick:
            flat = FlatReplays(jobs, self._cluster, self._options)
            for number, start in zip(quick, flat.starts(list(quick.values()), self._threads), strict=True):
                note(number, start)
        others = [one for one in candidates if one.number not in quick]
        whole = [WindowRows(np.arange(len(rows)), slice(0, len(rows)))]
        if others:
            replay_windows(jobs, self._cluster, others, whole, self._options, self._threads, note_schedule, known_as_in_the_log=True)
        return Figures(**found, totals=totals)

    def _quick(self, jobs: Workload, rules: Sequence[NumberedPolicy | str]) -> dict[int, FoundRule]:
        """The rules that need not be replayed by the engine, by number."""
        if self._totals or not is_flat(jobs, self._cluster, self._options):
            return {}
        return {number: rule for number, rule in enumerate(rules) if isinstance(rule, FoundRule) and can_replay(rule)}


def _figures(jobs: Workload, start: Floats, filling: int) -> dict[str, Floats]:
    counted = np.flatnonzero(np.isfinite(start))
    counted = counted[counted >= filling]
    waits = start[counted] - jobs.submit[counted]
    runtime = jobs.runtime[counted]
    slowdown = np.maximum((waits + runtime) / np.maximum(runtime, BOUND_S), 1.0)
    return {"bsld": _by_part(slowdown, np.mean, 1.0), "wait": _by_part(waits, np.mean, 0.0), "max_wait": _by_part(waits, np.max, 0.0)}


def _by_part(values: Floats, figure: Callable[[Floats], Any], nobody: float) -> Floats:
    """[PARTS] the figure of each part; `nobody` where it has no jobs, because too few of the stretch can run."""
    return np.array([figure(part) if len(part) else nobody for part in np.array_split(values, PARTS)])
