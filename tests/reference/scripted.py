"""Decisions that were made elsewhere, by a network: which job starts, stops or moves when, or in which order the jobs go at each decision.

Everything else, what fits and where, ends, failures, jobs that come back and the bound on waiting, is the reference's own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reference import backfill
from reference.state import Job, Piece

GIVEN = "given"  # the order of a policy whose orders a `GivenOrders` has


@dataclass(frozen=True)
class Start:
    """A start, and the place if the decider chooses that too."""

    time: float
    job: int
    pieces: list[Piece] | None = None


@dataclass(frozen=True)
class Stop:
    """A running job is preempted."""

    time: float
    job: int


@dataclass(frozen=True)
class Move:
    """A running job is migrated to where the placement rule puts it."""

    time: float
    job: int


class Script:
    """Decisions in the order in which they happen.

    There may be several decisions at one time. A start that is not possible at the first of them may be meant for the next. No job may
    have length zero, or a start that is possible may be meant for the next, too, when something has been freed.
    """

    def __init__(self, decisions: Iterable[Start | Stop | Move]) -> None:
        self.left = deque(decisions)

    def decide(self, sim: Any) -> bool:
        self.start_overdue(sim)
        assert not self.left or self.left[0].time >= sim.now, f"impossible: {self.left[0]}"
        while self.left and self.left[0].time == sim.now and self.follow(sim, self.left[0]):
            stopped = isinstance(self.left.popleft(), Stop)
            if stopped:
                self.start_overdue(sim)
        return True

    def start_overdue(self, sim: Any) -> None:
        """Overdue jobs go before everything else; the script has their starts."""
        for queue in sim.queues:
            while (j := sim.oldest_overdue(queue)) is not None and (pieces := sim.placer.place(sim.jobs[j], sim.state)) is not None:
                assert self.left, f"the overdue job {j} could start at {sim.now}"
                start = self.left.popleft()
                assert (type(start), start.time, start.job) == (Start, sim.now, j), f"the overdue job {j} goes before {start}"
                sim.start(sim.jobs[j], pieces)

    def follow(self, sim: Any, decision: Start | Stop | Move) -> bool:
        """Do it if it is possible now."""
        if isinstance(decision, Start):
            return self.follow_start(sim, decision)
        if decision.job not in sim.running or not sim.old_enough(sim.jobs[decision.job]):
            return False
        job = sim.jobs[decision.job]
        if isinstance(decision, Stop):
            sim.preempt(job)
            return True
        pieces = sim.placer.place(job, sim.state)  # beside its old place
        if pieces is None or sim.oldest_overdue(sim.queues[sim.queue_of(job)]) is not None:
            return False
        sim.migrate([(job, pieces)])
        return True

    def follow_start(self, sim: Any, start: Start) -> bool:
        """Start the job if it waits, fits, is within its quota and delays no overdue job."""
        job, queue = sim.jobs[start.job], sim.queues[sim.queue_of(sim.jobs[start.job])]
        if start.job not in queue or (sim.quotas is not None and start.job not in sim.quotas.in_order([start.job])):
            return False
        pieces = sim.placer.place(job, sim.state) if start.pieces is None else start.pieces
        if pieces is None or (start.pieces is not None and not backfill.can_stand(sim, job, pieces, sim.state)):
            return False
        head = sim.oldest_overdue(queue)
        if head is not None and not leaves_reservation(sim, sim.jobs[head], job, pieces):
            return False
        sim.start(job, pieces)
        return True


def leaves_reservation(sim: Any, head: Job, job: Job, pieces: list[Piece]) -> bool:
    shadow = backfill.shadow_time(sim, head)
    return shadow == math.inf or backfill.leaves_place(sim, head, shadow, job, pieces)


Moment = tuple[float, frozenset[int], frozenset[int]]  # a time, who waits and who runs: there may be several decisions at one time


class GivenOrders:
    """The order of the waiting jobs at each decision, None where nothing but overdue jobs may start."""

    def __init__(self, orders: dict[Moment, list[int] | None]) -> None:
        self.orders = orders
        self.order: list[int] = []

    def decide(self, sim: Any) -> bool:
        moment = sim.now, frozenset().union(*sim.queues), frozenset(sim.running)
        found = self.orders.get(moment, [])  # where the network was not asked, nothing can start, in whatever order
        if found is None:
            start_overdue(sim)
            return True
        self.order = found
        return False

    def in_order(self, rows: list[int]) -> list[int]:
        place = {j: at for at, j in enumerate(self.order)}
        return sorted(rows, key=lambda j: place.get(j, j))


def start_overdue(sim: Any) -> None:
    for queue in sim.queues:
        while (j := sim.oldest_overdue(queue)) is not None and (pieces := sim.placer.place(sim.jobs[j], sim.state)) is not None:
            sim.start(sim.jobs[j], pieces)
