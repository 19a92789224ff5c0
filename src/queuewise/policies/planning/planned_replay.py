"""Replays under a planner: the engine advances as usual, and at some instants the planner says under which member, or what starts first.

All members share one machine and one queue. To let another act, the kernel is called with its world.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from queuewise.policies.interface import ReplayRequest
from queuewise.policies.planning.futures import Futures
from queuewise.policies.planning.members import Member, make_members, part_of_jobs
from queuewise.policies.planning.rollouts import AS_USUAL, MOST_QUEUED, NO_PASS, Now, Rollouts
from queuewise.policies.resuming import start_from
from queuewise.policies.thinking import Thinking
from queuewise.sim.core.engine import compiled_replay, limited_runtime, schedule_of, simulate
from queuewise.sim.core.schedule import DONE, KILLED, Schedule
from queuewise.sim.core.stepwise import ASK_FIT, NEXT_INSTANT, START, START_OVERDUE, act
from queuewise.sim.core.tables import addresses_of
from queuewise.sim.core.watch import run_watched
from queuewise.workload.dependencies import NO_DEPENDENCIES
from queuewise.workload.jobs import Floats

NOBODY = np.zeros(0, np.int64)
ROUNDS = 3  # of a decision: after each but the last, the worse half of the candidates is dropped
MARGIN = 0.02  # another member must be better by so much
LEAST_GAIN = 0.001  # so must another first job: it changes the waits of few jobs


class PlannedReplay:
    """One replay. Subclasses say what happens at an instant."""

    def __init__(self, request: ReplayRequest, names: tuple[str, ...]) -> None:
        self.request, self.statistics = request, Thinking()
        self.members = make_members(request, names)
        self.world, self.machine, self.state = self.members[0].layout.tables
        if request.start is not None:
            self.state = start_from(request.start, request.workload, [], self.world, self.machine, self.state)
        self._spare = self.machine.clone()
        self._tables = [addresses_of(table) for table in (self.machine, self._spare, self.state)]
        self._worlds = [addresses_of(one.layout.world) for one in self.members]
        self._functions = [one.functions for one in self.members]
        self._kernels = [compiled_replay(one.layout.world) for one in self.members]
        self.acting = 0  # the member that decides

    def run(self) -> Schedule:
        began = time.perf_counter()
        run_watched(self.advance, self.state.count)
        request, first = self.request, self.members[0]
        _, killed = limited_runtime(request.workload, request.kill_at_limit)
        self.state.status[(self.state.status == DONE) & killed] = KILLED
        schedule = schedule_of(
            request.workload, request.cluster, replace(first.rules, keeps_list=False), self.state, request.estimate, request.policy,
            request.estimates, time.perf_counter() - began,
        )  # fmt: skip
        return replace(schedule, thinking=self.statistics.as_dict())

    def advance(self) -> None:
        """Run to the end."""
        raise NotImplementedError

    @property
    def now(self) -> float:
        return float(self.state.clock.now)

    @property
    def queued(self) -> NDArray[np.int64]:
        """The waiting jobs, in order of submission."""
        return np.sort(self.state.pending[: self.state.count.pending_jobs]).astype(np.int64)[:MOST_QUEUED]

    @property
    def is_over(self) -> bool:
        count = self.state.count
        return bool(count.arrived == len(self.world.submit) and count.running_jobs == 0 and count.events == 0)

    def run_until(self, end: float) -> None:
        """Advance through all instants up to and including a time, under the acting member."""
        self.state.clock.stop_at = end
        self._kernels[self.acting](self._worlds[self.acting], *self._tables, *self._functions[self.acting])

    def next_instant(self) -> bool:
        """Advance to the next instant without a decision; False if there is none.

        Overdue jobs start there: they come before what is decided, and what is asked about others goes by the reservation of the first.
        """
        self.state.clock.stop_at = np.inf
        if not self._act(NEXT_INSTANT, 0):
            return False
        if self.world.policy.bounds_waits:
            self._act(START_OVERDUE, 0)
        return True

    def decide(self) -> None:
        """Let the acting member make one pass now."""
        count = self.state.count
        count.log_full = 1  # a pass is due: the kernel begins with it
        self._forget()
        self.run_until(np.nextafter(self.now, -np.inf))

    def act_by(self, member: int) -> None:
        """Let another member decide from now on."""
        self.acting = member
        self._forget()

    def _forget(self) -> None:
        """What one member has found out about the queue does not hold for another."""
        self.state.dirty[:] = 1
        self.state.head[:] = self.state.newcomer[:] = self.state.shadow_head[:] = -1

    def fits(self, j: int) -> bool:
        return self._act(ASK_FIT, j)

    def start(self, j: int) -> bool:
        return self._act(START, j)

    def _act(self, action: int, j: int) -> bool:
        machine, spare, state = self._tables
        return bool(act(self._worlds[self.acting], machine, spare, state, action, j, NOBODY, NOBODY, NOBODY))

    @property
    def present(self) -> Now:
        return Now(self.state, self.state.start, self.queued)


class LookingAhead(PlannedReplay):
    """A replay that rolls candidates out."""

    def __init__(self, request: ReplayRequest, names: tuple[str, ...]) -> None:
        super().__init__(request, names)
        self._futures = Futures(request)
        self.rollouts = [Rollouts(one, request.workload, request.cluster) for one in self.members]
        self._decisions = 0
        self.num_rollouts = 0

    def compare(self, number: int, evaluate: Callable[[int, Sequence[int]], Floats], samples: int) -> NDArray[np.float64]:
        """[number] the mean wait of each candidate over the draws that it was tried with; inf for those that were dropped.

        `evaluate` returns the waits of some candidates for one draw.
        """
        left = list(range(number))
        sums, tried = np.zeros(number), 0
        for one in range(ROUNDS):
            upto = -(-samples * (one + 1) // ROUNDS)
            for sample in range(tried, upto):
                sums[left] += evaluate(sample, left)
                self.num_rollouts += len(left)
            tried = upto
            if one + 1 < ROUNDS and len(left) > 2 and tried:
                left = sorted(sorted(left, key=lambda k: sums[k])[: max(2, -(-len(left) // 2))])
        found = np.full(number, np.inf)
        found[left] = sums[left] / max(tried, 1)
        return found

    def samples_for(self, candidates: int) -> int:
        """How many draws the budget allows: at most so many as are wanted."""
        budgets = self.request.budgets
        return max(1, min(budgets.plan_samples, budgets.plan_budget // max(candidates, 1)))


class Portfolio(LookingAhead):
    """`portfolio:A,B,C`: every so often, the member that does best in rollouts takes over."""

    EVERY_S = 1800.0  # between two choices

    def advance(self) -> None:
        while not self.is_over:
            self.run_until(max(self.now, float(self._next_time())) + self.EVERY_S)
            if self.state.count.pending_jobs > 1:
                began = time.perf_counter()
                chosen = self._choose()
                self.statistics.note((time.perf_counter() - began) * 1e6)
                name = self.members[chosen].name
                self.statistics.choices[name] = self.statistics.choices.get(name, 0) + 1
                if chosen != self.acting:
                    self.act_by(chosen)
                    self.decide()

    def _next_time(self) -> float:
        """When something happens next, if nothing waits: until then there is nothing to choose."""
        count = self.state.count
        if count.pending_jobs or count.arrived == len(self.world.submit):
            return self.now if not count.events else float(self.state.event_time[0])
        return float(self.world.submit[count.arrived])

    def _choose(self) -> int:
        present = self.present
        known = np.concatenate([present.running, present.queued])
        self._decisions += 1
        number, arrived = self._decisions, int(self.state.count.arrived)

        def evaluate(sample: int, left: Sequence[int]) -> Floats:
            expected = self._futures.draw(present.time, arrived, known, present.worked, number, sample)
            return np.array([self.rollouts[k].run(present, expected, np.array([AS_USUAL]))[0] for k in left])

        waits = self.compare(len(self.members), evaluate, self.samples_for(len(self.members)))
        best = int(np.argmin(waits))
        return best if waits[best] < waits[self.acting] * (1.0 - MARGIN) else self.acting


class Planner(LookingAhead):
    """`plan:POLICY`: whenever something can start, it is tried what would follow if another job started first, or none."""

    def advance(self) -> None:
        while self.next_instant():
            waiting = self.queued if self.state.count.pending_jobs > 1 else NOBODY
            candidates = self._candidates(waiting)
            if not candidates:
                self.decide()
                continue
            began = time.perf_counter()
            chosen = self._choose(waiting, candidates)
            self.statistics.note((time.perf_counter() - began) * 1e6)
            kind = {AS_USUAL: "as usual", NO_PASS: "wait"}.get(chosen, "another first")
            self.statistics.choices[kind] = self.statistics.choices.get(kind, 0) + 1
            if chosen >= 0:
                self.start(int(waiting[chosen]))
            if chosen != NO_PASS or not self.state.count.running_jobs:
                self.decide()

    def _candidates(self, waiting: NDArray[np.int64]) -> list[int]:
        """Positions of waiting jobs that fit: of those with the best scores, as many as the budget allows."""
        if len(waiting) < 2 or not self.state.count.running_jobs:
            return []
        most = max(1, min(self.request.budgets.plan_budget // max(self.request.budgets.plan_samples, 1), 16) - 2)
        first = self._order(waiting)
        found: list[int] = []
        classes: set[int] = set()
        for k in first.tolist():
            c = int(self.world.job_class[waiting[k]])
            if c not in classes and self.fits(int(waiting[k])):
                found.append(k)
                if len(found) == most:
                    break
            elif c not in classes:
                classes.add(c)  # no other job of its class fits
        return found

    def _order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions by the scores of the base policy, if these never change; otherwise by submission."""
        scores = self.world.fixed_score[waiting]
        return np.arange(len(waiting)) if np.isnan(scores).any() else np.argsort(scores, kind="stable")

    def _choose(self, waiting: NDArray[np.int64], candidates: list[int]) -> int:
        present = self.present
        known = np.concatenate([present.running, present.queued])
        self._decisions += 1
        number, arrived = self._decisions, int(self.state.count.arrived)
        first = np.array([AS_USUAL, NO_PASS, *candidates], np.int64)

        def evaluate(sample: int, left: Sequence[int]) -> Floats:
            expected = self._futures.draw(present.time, arrived, known, present.worked, number, sample)
            return self.rollouts[0].run(present, expected, first[list(left)])

        waits = self.compare(len(first), evaluate, self.samples_for(len(first)))
        best = int(np.argmin(waits))
        return int(first[best]) if waits[best] < waits[0] * (1.0 - LEAST_GAIN) else AS_USUAL


class Recent(PlannedReplay):
    """`recent:A,B,C`: once a day, the member that would have had the least mean wait in the last days takes over.

    They are replayed on an empty cluster with what is known: runtimes of jobs that have ended, estimates of the others.
    """

    EVERY_S = 86_400.0
    LAST_S = 7 * 86_400.0

    def advance(self) -> None:
        submit = self.world.submit
        end = float(submit[0]) + self.EVERY_S
        while not self.is_over:
            self.run_until(end)
            if self.state.count.arrived > 1:
                began = time.perf_counter()
                chosen = self._choose(end)
                self.statistics.note((time.perf_counter() - began) * 1e6)
                name = self.members[chosen].name
                self.statistics.choices[name] = self.statistics.choices.get(name, 0) + 1
                if chosen != self.acting:
                    self.act_by(chosen)
            end = np.inf if self.state.count.arrived == len(submit) else end + self.EVERY_S

    def _choose(self, now: float) -> int:
        arrived = int(self.state.count.arrived)
        rows = np.arange(int(np.searchsorted(self.world.submit, now - self.LAST_S)), arrived)
        if not len(rows):
            return self.acting
        waits = [self._wait_of(one, rows, self._known_runtimes(rows)) for one in self.members]
        best = int(np.argmin(waits))
        return best if waits[best] < waits[self.acting] * (1.0 - MARGIN) else self.acting

    def _known_runtimes(self, rows: NDArray[np.int64]) -> Floats:
        ended = np.isin(self.state.status[rows], (DONE, KILLED))
        worked = np.where(self.state.start[rows] < np.inf, self.now - self.state.start[rows], 0.0)
        return np.where(ended, self.world.runtime[rows], np.maximum(self.request.estimate[rows], worked))

    def _wait_of(self, member: Member, rows: NDArray[np.int64], runtime: Floats) -> float:
        """The mean wait of these jobs under a member."""
        request = self.request
        part = request.workload.take(rows).replace(runtime=runtime, dependencies=NO_DEPENDENCIES)
        jobs = part_of_jobs(member.jobs, rows, part.submit)
        rules = member.policy.rules(jobs, "reorder")
        schedule = simulate(part, request.cluster, rules, estimate=request.estimate[rows], history=jobs.history)
        return float(schedule.first_wait[schedule.finished].mean()) if schedule.finished.any() else np.inf


KINDS: dict[str, type[PlannedReplay]] = {"plan": Planner, "portfolio": Portfolio, "recent": Recent}
