"""Backfill: what else may start while the head is blocked ("Backfill" of the normative page).

Every rule has the form `rule(sim, head, candidates)` and starts jobs through `sim.start(job, pieces)`. A simulation
shows the rules its `now`, the `state` of the cluster, the `running` jobs and the `placer`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from reference.placement import Placer
from reference.state import Demand, Job, Piece, State, nodes_of


class Simulation(Protocol):
    state: State
    running: dict[int, Job]
    placer: Placer

    @property
    def now(self) -> float: ...
    def start(self, job: Job, pieces: list[Piece]) -> None: ...
    def lifts(self) -> list[float]: ...
    def candidates_again(self, candidates: list[Job]) -> list[Job]: ...


def none(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    """The head blocks the queue."""


def start_again_and_again(sim: Simulation, candidates: list[Job], may_start: Callable[[Job, list[Piece]], bool]) -> None:
    """Start the first candidate that fits and may start, and begin anew at the front, until there is none."""
    waiting = list(candidates)
    while True:
        too_large: set[tuple[tuple[Demand, int], ...]] = set()  # until a start; then it need not be tried for an equal job
        for job in waiting:
            demands = tuple((size.demand, size.num_tasks) for size in job.sizes)
            if demands in too_large:
                continue
            pieces = sim.placer.place(job, sim.state)
            if pieces is None:
                too_large.add(demands)
            if pieces is not None and may_start(job, pieces):
                sim.start(job, pieces)
                waiting.remove(job)
                waiting = sim.candidates_again(waiting)
                break
        else:
            return


def greedy(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    start_again_and_again(sim, candidates, lambda job, pieces: True)


# --- EASY


def state_at(sim: Simulation, time: float) -> State:
    """The cluster once all running jobs with an expected end ≤ time are gone."""
    state = sim.state.at(time)
    for job in sim.running.values():
        if job.expected_end(sim.now) <= time:
            state.give_back(job.pieces, job.demand)
    return state


def shadow_time(sim: Simulation, head: Job) -> float:
    """The earliest time at which the head fits if running jobs end when expected, ∞ if it never does."""
    times = {job.expected_end(sim.now) for job in sim.running.values()} | set(sim.lifts())
    return next((time for time in sorted(times) if sim.placer.fits(head, state_at(sim, time))), math.inf)


def expected_end_if_started(sim: Simulation, job: Job, pieces: list[Piece]) -> float:
    return sim.now + job.est * job.sized(pieces).factor_on(nodes_of(pieces))


def easy(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    shadow = shadow_time(sim, head)
    if shadow == math.inf:
        greedy(sim, head, candidates)
        return

    def head_still_fits(job: Job, pieces: list[Piece]) -> bool:
        at_shadow = state_at(sim, shadow)
        if expected_end_if_started(sim, job, pieces) > shadow:
            at_shadow.take(pieces, job.demand)
        return sim.placer.fits(head, at_shadow)

    start_again_and_again(sim, candidates, head_still_fits)


def easy_strict(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    shadow = shadow_time(sim, head)
    start_again_and_again(sim, candidates, lambda job, pieces: expected_end_if_started(sim, job, pieces) < shadow)


# --- conservative


@dataclass(frozen=True)
class Hold:
    """What a running or reserved job has during [begin, end)."""

    job: Job
    pieces: list[Piece]
    begin: float
    end: float


@dataclass
class Plan:
    """The future of the cluster as far as this pass has settled it."""

    empty: State
    holds: list[Hold] = field(default_factory=list)
    known: dict[float, State] = field(default_factory=dict)  # free_at, remembered until the next hold

    def add(self, hold: Hold) -> None:
        self.holds.append(hold)
        self.known.clear()

    def free_at(self, time: float) -> State:
        if time not in self.known:
            state = self.empty.copy()
            for hold in self.holds:
                if hold.begin <= time < hold.end:
                    state.take(hold.pieces, hold.job.demand)
            self.known[time] = state
        return self.known[time]

    def view(self, begin: float, end: float) -> State:
        """The least that is free at any time of [begin, end), at the instant `begin` if that is empty."""
        view = self.free_at(begin).at(begin)
        for time in {hold.begin for hold in self.holds if begin < hold.begin < end}:  # what is free falls only where a hold begins
            view = view.least(self.free_at(time))
        return view


def conservative(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    empty = head.machine.empty()
    empty.closed = sim.state.closed
    plan = Plan(empty)
    for job in sim.running.values():
        plan.add(Hold(job, job.pieces, -math.inf, job.expected_end(sim.now)))
    waiting = [head, *candidates]
    while waiting:
        job = waiting.pop(0)
        if (hold := hold_at(sim, plan, job, sim.now, really=True)) is not None:
            sim.start(job, hold.pieces)
            plan.add(hold)
            waiting = sim.candidates_again(waiting)
        elif (reservation := reserve(sim, plan, job)) is not None:
            plan.add(reservation)


def hold_at(sim: Simulation, plan: Plan, job: Job, time: float, *, really: bool = False) -> Hold | None:
    """The job from this time on, in the greatest size that fits; `really`: on what is free at this moment."""
    for size in job.sizes:
        length = job.est * size.worst_factor
        view = plan.view(time, time + length)
        pieces = sim.placer.place_size(size, view.least(sim.state) if really else view)
        if pieces is not None:
            return Hold(job, pieces, time, time + length)
    return None


def reserve(sim: Simulation, plan: Plan, job: Job) -> Hold | None:
    """The earliest hold for a job that cannot start now; None if closed nodes leave it no place at any time."""
    for time in sorted({sim.now} | {hold.end for hold in plan.holds} | set(sim.lifts())):
        if (hold := hold_at(sim, plan, job, time)) is not None:
            return hold
    assert plan.empty.closed or job.demand.bars, "a job that is not rejected fits once everything is gone"
    return None


RULES: dict[str, Callable[[Simulation, Job, list[Job]], None]] = {
    "none": none,
    "greedy": greedy,
    "easy": easy,
    "easy-strict": easy_strict,
    "conservative": conservative,
    "defrag": greedy,  # once the head has been tried with migrations, see Simulator.start_from_head
}
