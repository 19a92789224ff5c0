"""Screening: every heuristic is replayed once over a whole log, and ranked by what its days of a block cost."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.evaluation.measure import Measurement, bounded_slowdown, last_event, wait
from queuewise.policies import simulate
from queuewise.search.evolution import LEAST_WAIT_S
from queuewise.search.flat_replays import is_of_cores, is_of_gpus
from queuewise.search.heuristics import FIRST, heuristics, placed, preemptive_policies
from queuewise.search.objective import totals_in, totals_of
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

PLACED = 6  # heuristics that are tried with every placement, where places matter
SLOWER = 2.0  # replays of a heuristic may take so much longer than those of the best


@dataclass(frozen=True)
class Screened:
    """Means of a heuristic over the days of each block, in one replay of the whole log. Nothing is chosen by those of the report days."""

    policy: str
    bsld: dict[str, float]  # by block
    wait: dict[str, float]
    totals: dict[str, dict[str, float]]  # by block: those of the objective
    seconds: float

    def cost(self, block: str, objective: Mapping[str, float]) -> float:
        values = {"bsld": self.bsld[block], "wait": self.wait[block] + LEAST_WAIT_S, **self.totals[block]}
        return sum(weight * math.log(values[name]) for name, weight in objective.items())


@dataclass
class Screening:
    """All heuristics of a log. `spent` gives the seconds since the command began."""

    workload: Workload
    cluster: Cluster
    replay: ReplaySettings
    objective: Mapping[str, float]
    blocks: Mapping[str, range]
    spent: Callable[[], float]
    found: list[Screened] = field(default_factory=list)
    tried: int = 0  # of those that were to be tried

    def run(self, until: float, *, preempt: bool) -> None:
        """Replay heuristics until so many seconds are spent, but at least those of FIRST."""
        estimates = self.replay.estimates or ""
        names = heuristics(estimates)
        others = preemptive_policies(estimates) if preempt else []
        self._replay_all([*names[: len(FIRST)], *others, *names[len(FIRST) :]], until)
        if self.places_matter:
            best = sorted(self.found, key=lambda one: one.cost("train", self.objective))[:PLACED]
            self._replay_all(placed([one.policy for one in best], self.cluster), until)

    @property
    def places_matter(self) -> bool:
        """Whether it can make a difference where a job is placed."""
        return not is_of_cores(self.workload, self.cluster) and not is_of_gpus(self.workload, self.cluster)

    def best(self, block: str) -> Screened:
        return min(self.found, key=lambda one: one.cost(block, self.objective))

    def best_in_hindsight(self) -> str:
        return min(self.found, key=lambda one: one.bsld["report"]).policy

    def seconds(self, policy: str) -> float:
        return next(one.seconds for one in self.found if one.policy == policy)

    def cost(self, policy: str, block: str) -> float:
        return next(one for one in self.found if one.policy == policy).cost(block, self.objective)

    def references(self, number: int) -> list[str]:
        """The best heuristic of the training days, and the next ones that are as quick to replay."""
        ranked = sorted(self.found, key=lambda one: one.cost("train", self.objective))
        quick = [one.policy for one in ranked[1:] if one.seconds <= SLOWER * ranked[0].seconds]
        return [ranked[0].policy, *quick[: number - 1]]

    def _replay_all(self, names: Sequence[str], until: float) -> None:
        threads = len(os.sched_getaffinity(0))
        self.tried += len(names)
        with ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(names), threads):
                if len(self.found) >= len(FIRST) and self.spent() + max(one.seconds for one in self.found[-threads:]) > until:
                    return
                self.found += pool.map(self._replay, names[first : first + threads])

    def _replay(self, name: str) -> Screened:
        began, how = time.monotonic(), self.replay
        schedule = simulate(
            self.workload, self.cluster, name, estimates=how.estimates, seed=how.seed, kill_at_limit=how.kill_at_limit,
            conditions=how.conditions,
        )  # fmt: skip
        parts = {block: measured_jobs(schedule, slice(jobs.start, jobs.stop)) for block, jobs in self.blocks.items()}
        bsld = {block: float(bounded_slowdown(part).mean()) for block, part in parts.items()}
        waits = {block: float(wait(part).mean()) for block, part in parts.items()}
        totals = {block: totals_of(totals_in(self.objective), part) for block, part in parts.items()}
        return Screened(name, bsld, waits, totals, time.monotonic() - began)


def measured_jobs(schedule: Schedule, jobs: slice) -> Measurement:
    return Measurement(schedule, jobs, float(schedule.workload.submit[jobs.start]), last_event(schedule))
