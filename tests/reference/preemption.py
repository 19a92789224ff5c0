"""Preemptive policies that go by a key ("Preemptive policies" of the normative page).

A policy is told of starts and stops, keeps the levels of jobs, and serves a queue. What it asks of the simulation is in
`Simulation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from queuewise.workload.jobs import Workload
from reference.placement import Placer
from reference.state import Job, Piece, State

LEVELS = 40  # thresholds of las and gittins
DEFAULT_THRESHOLD = {"tiresias": 3600.0}  # GPU-seconds; 60, under las seconds, of the others
PROMOTE_AFTER = 8.0  # times the time worked
FIRST_COMPUTATION = 16  # services that gittins must know before it goes by them
NAMES = ("srtf", "priority-preempt", "las", "las2d", "tiresias", "gittins", "gittins-oracle")


class Simulation(Protocol):
    state: State
    placer: Placer
    jobs: list[Job]
    running: dict[int, Job]
    queues: list[set[int]]

    @property
    def now(self) -> float: ...
    def queue_of(self, job: Job) -> int: ...
    def start(self, job: Job, pieces: list[Piece]) -> None: ...
    def preempt(self, job: Job) -> None: ...
    def old_enough(self, job: Job) -> bool: ...
    def oldest_overdue(self, queued: set[int]) -> int | None: ...
    def set_timer(self, time: float, job: Job, action: Callable[[], None]) -> None: ...


def gittins_index(services: list[float], attained: float) -> float:
    """The greatest ratio of jobs that finish to service spent on them, over all ways to go on from the attained service."""
    above = sorted(s for s in services if s > attained)
    best, done = 0.0, 0.0
    for k, service in enumerate(above, start=1):
        done += service - attained
        best = max(best, k / (done + (len(above) - k) * (service - attained)))
    return best


class Preemptive:
    """One of NAMES, with the levels of all jobs."""

    def __init__(self, sim: Simulation, name: str, threshold: float | None, workload: Workload) -> None:
        self.sim = sim
        self.name = name
        first = threshold if threshold is not None else DEFAULT_THRESHOLD.get(name, 60.0)
        self.thresholds = {"tiresias": [first], "srtf": [], "priority-preempt": []}.get(name, [first * 2.0**i for i in range(LEVELS)])
        self.priority = workload.priority.tolist()
        self.attained = [0.0] * len(workload)
        self.level = [0] * len(workload)
        self.lead: int | None = None  # the overdue job that comes before all others
        self.level_key = [float(i) for i in range(len(self.thresholds) + 1)]
        self.services: list[float] = []  # of jobs that have ended
        self.next_lesson = FIRST_COMPUTATION
        if name == "gittins-oracle":
            self.services = [r * n for r, n in zip(workload.runtime.tolist(), workload.size.tolist(), strict=True) if r > 0]
            self.learn()

    def key(self, job: Job) -> float:
        if job.index == self.lead:
            return -math.inf
        if self.name == "srtf":
            if job.run is None:
                return job.est
            return max(job.est - max(self.sim.now - job.run.begin, 0.0) / job.run.factor, 0.0)
        if self.name == "priority-preempt":
            return -float(self.priority[job.index])
        return self.level_key[self.level[job.index]]

    # --- levels

    def pace(self, job: Job) -> float:
        """Service attained in a second of running."""
        return 1.0 if self.name == "las" else job.size

    def started(self, job: Job) -> None:
        """Set the timer of the level that the present run passes next."""
        j, level = job.index, self.level[job.index]
        if level < len(self.thresholds):
            passes_at = job.stay.begin + max(self.thresholds[level] - self.attained[j], 0.0) / self.pace(job)
            self.sim.set_timer(passes_at, job, lambda: self.next_level(job))

    def next_level(self, job: Job) -> None:
        self.level[job.index] += 1
        self.started(job)

    def ended(self, job: Job) -> None:
        service = self.attained[job.index] + self.pace(job) * max(self.sim.now - job.stay.begin, 0.0)
        if self.name == "gittins" and service > 0:
            self.services.append(service)

    def learn(self) -> None:
        self.level_key = [-gittins_index(self.services, attained) for attained in [0.0, *self.thresholds]]

    def before_decision(self) -> None:
        """After all that happens at an instant: learn, if enough jobs have ended."""
        if self.name == "gittins" and len(self.services) >= self.next_lesson:
            self.learn()
            self.next_lesson = 2 * len(self.services)

    def stopped(self, job: Job, worked: float) -> None:
        self.attained[job.index] += self.pace(job) * worked
        if self.name == "tiresias" and self.level[job.index] == 1:
            self.sim.set_timer(self.sim.now + PROMOTE_AFTER * job.worked, job, lambda: self.promote(job))

    def promote(self, job: Job) -> None:
        self.attained[job.index] = 0.0
        self.level[job.index] = 0

    # --- the pass

    def serve(self, q: int) -> None:
        sim = self.sim
        aside: set[int] = set()
        while waiting := sim.queues[q] - aside:
            lead = sim.oldest_overdue(sim.queues[q])
            self.lead = None if lead in aside else lead
            job = min((sim.jobs[j] for j in waiting), key=lambda job: (self.key(job), job.index))
            pieces = sim.placer.place(job, sim.state)
            if pieces is not None:
                sim.start(job, pieces)
            elif self.make_room(q, job):
                aside.clear()
            else:
                aside.add(job.index)

    def victims(self, q: int, job: Job) -> list[Job]:
        """The running jobs that may be stopped for this one, in the order in which they would go."""
        possible = [
            other
            for other in self.sim.running.values()
            if self.sim.queue_of(other) == q
            and self.key(other) > self.key(job)
            and self.sim.old_enough(other)
            and any(job.demand.accepts[n] for n in other.nodes)
        ]
        return sorted(possible, key=lambda other: (self.key(other), other.index), reverse=True)

    def make_room(self, q: int, job: Job) -> bool:
        """Stop what must be stopped for the job and start it, if that can be done."""
        sim = self.sim
        trial = sim.state.copy()
        gone: list[Job] = []
        pieces = None
        for victim in self.victims(q, job):
            trial.give_back(victim.pieces, victim.demand)
            gone.append(victim)
            pieces = sim.placer.place(job, trial)
            if pieces is not None:
                break
        if pieces is None:
            return False
        trial.take(pieces, job.demand)
        for victim in reversed(list(gone)):
            with_it = trial.copy()
            with_it.take(victim.pieces, victim.demand)
            if not with_it.overdrawn:
                trial = with_it
                gone.remove(victim)
        for victim in gone:
            sim.preempt(victim)
        sim.start(job, pieces)
        return True
