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
from reference.state import Demand, Job, Piece, Pin, State, nodes_of


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
    """Start the first candidate that fits and may start, and begin again at the front, until there is none."""
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


def none_beside_a_reservation(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    """Start candidates in order until one may not start, because it does not fit or would delay the head."""
    shadow = shadow_time(sim, head)
    waiting = list(candidates)
    while waiting:
        job = waiting.pop(0)
        pieces = sim.placer.place(job, sim.state)
        if pieces is None or (shadow < math.inf and not leaves_place(sim, head, shadow, job, pieces)):
            return
        sim.start(job, pieces)
        waiting = sim.candidates_again(waiting)


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

    start_again_and_again(sim, candidates, lambda job, pieces: leaves_place(sim, head, shadow, job, pieces))


def leaves_place(sim: Simulation, head: Job, shadow: float, job: Job, pieces: list[Piece]) -> bool:
    """Whether the head still has a place at its shadow time if the job starts there now."""
    if expected_end_if_started(sim, job, pieces) <= shadow:
        return True
    at_shadow = state_at(sim, shadow)
    at_shadow.take(pieces, job.demand)
    return sim.placer.fits(head, at_shadow)


def easy_strict(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    shadow = shadow_time(sim, head)
    start_again_and_again(sim, candidates, lambda job, pieces: expected_end_if_started(sim, job, pieces) < shadow)


# --- conservative

Moment = tuple[float, int]  # a time of the plan, and which of its instants


@dataclass(frozen=True)
class Hold:
    """What a running or reserved job has from one moment on, until another."""

    job: Job
    pieces: list[Piece]
    begin: Moment
    end: Moment
    starts: bool = False  # it is a start, on what is really free now

    @property
    def lateness(self) -> tuple[Moment, bool]:
        """A start now comes before a reservation from now on."""
        return self.begin, not self.starts


def end_of(begin: Moment, length: float) -> Moment:
    """A hold of no length has its instant, and ends with the next."""
    time, instant = begin
    return (time + length, 0) if time + length > time else (time, instant + 1)


@dataclass
class Plan:
    """The future of the cluster as far as this pass has settled it."""

    empty: State
    holds: list[Hold] = field(default_factory=list)
    known: dict[Moment, State] = field(default_factory=dict)  # free_at, remembered until the next hold

    def add(self, hold: Hold) -> None:
        self.holds.append(hold)
        self.known.clear()

    def free_at(self, moment: Moment) -> State:
        if moment not in self.known:
            state = self.empty.copy()
            for hold in self.holds:
                if hold.begin <= moment < hold.end:
                    state.take(hold.pieces, hold.job.demand)
            self.known[moment] = state
        return self.known[moment]

    def view(self, begin: Moment, end: Moment) -> State:
        """The least that is free at any moment from `begin` until before `end`."""
        view = self.free_at(begin).at(begin[0])
        for moment in {hold.begin for hold in self.holds if begin < hold.begin < end}:  # what is free falls only where a hold begins
            view = view.least(self.free_at(moment))
        return view

    def moments(self) -> set[Moment]:
        """Where anything changes."""
        return {moment for hold in self.holds for moment in (hold.begin, hold.end)}


def conservative(sim: Simulation, head: Job, candidates: list[Job]) -> None:
    empty = head.machine.empty()
    empty.closed = sim.state.closed
    plan = Plan(empty)
    for job in sim.running.values():
        plan.add(Hold(job, job.pieces, (-math.inf, 0), (job.expected_end(sim.now), 0)))
    waiting = [head, *candidates]
    while waiting:
        job = waiting.pop(0)
        hold = better(earliest(sim, plan, job), pinned(sim, plan, job))
        job.pin = None
        if hold is None:
            continue
        plan.add(hold)
        if hold.starts:
            sim.start(job, hold.pieces)
            waiting = sim.candidates_again(waiting)
        else:
            job.pin = Pin(hold.begin[0], hold.pieces)


def better(found: Hold | None, kept: Hold | None) -> Hold | None:
    """What was found if it is earlier than what was remembered, or as early with more tasks."""
    if found is None or kept is None:
        return found or kept
    if found.lateness == kept.lateness:
        return found if num_tasks(found.pieces) > num_tasks(kept.pieces) else kept
    return min(found, kept, key=lambda hold: hold.lateness)


def num_tasks(pieces: list[Piece]) -> int:
    return sum(piece.tasks for piece in pieces)


def earliest(sim: Simulation, plan: Plan, job: Job) -> Hold | None:
    """The first start or reservation where the placement rule finds a place; None if closed or barred nodes leave none at any time."""
    now = (sim.now, 0)
    tried = {moment for moment in plan.moments() if moment > now} | {(time, 0) for time in sim.lifts()} | {now}
    for moment, starts in [(now, True), *((moment, False) for moment in sorted(tried))]:
        for size in job.sizes:
            end = end_of(moment, job.est * size.worst_factor)
            pieces = sim.placer.place_size(size, view_of(sim, plan, moment, end, starts=starts))
            if pieces is not None:
                return Hold(job, pieces, moment, end, starts)
    assert plan.empty.closed or job.demand.bars, "a job that is not rejected fits once everything is gone"
    return None


def view_of(sim: Simulation, plan: Plan, begin: Moment, end: Moment, *, starts: bool) -> State:
    view = plan.view(begin, end)
    return view.least(sim.state) if starts else view


def pinned(sim: Simulation, plan: Plan, job: Job) -> Hold | None:
    """The job where and when its last reservation was, or from now on if that time is past, if that is still free."""
    if job.pin is None:
        return None
    length = job.est * job.sized(job.pin.pieces).worst_factor
    first = (max(job.pin.time, sim.now), 0)
    instants = [first, *sorted(moment for moment in plan.moments() if moment[0] == first[0] and moment > first)]
    for moment, starts in [(first, True)] * (first[0] == sim.now) + [(moment, False) for moment in instants]:
        end = end_of(moment, length)
        if can_stand(sim, job, job.pin.pieces, view_of(sim, plan, moment, end, starts=starts)):
            return Hold(job, job.pin.pieces, moment, end, starts)
    return None


def can_stand(sim: Simulation, job: Job, pieces: list[Piece], view: State) -> bool:
    """Whether just these pieces are free in a view."""
    demand = job.sized(pieces).demand
    if any(piece.node in view.closed or demand.is_barred(piece.node, view.time) for piece in pieces):
        return False
    after = view.copy()
    after.take(pieces, demand)
    return not after.overdrawn and after.drawn <= sim.placer.budget


def place_head(sim: Simulation, job: Job) -> list[Piece] | None:
    """Where the first job of a queue starts: on the place it remembers if that is due and free, otherwise where the rule puts it."""
    pieces = sim.placer.place(job, sim.state)
    if job.pin is None or job.pin.time > sim.now or not can_stand(sim, job, job.pin.pieces, sim.state):
        return pieces
    return pieces if pieces is not None and num_tasks(pieces) > num_tasks(job.pin.pieces) else job.pin.pieces


RULES: dict[str, Callable[[Simulation, Job, list[Job]], None]] = {
    "none": none,
    "greedy": greedy,
    "easy": easy,
    "easy-strict": easy_strict,
    "conservative": conservative,
    "defrag": greedy,  # once the head has been tried with migrations, see Simulator.start_from_head
}
