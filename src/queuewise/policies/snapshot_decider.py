"""Deciders that are asked with a snapshot of the view: they make one pass from it, and what has changed are their decisions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.interface import Decision, Migrate, Preempt, ShownState, Start
from queuewise.policies.milp.terms import parse_objective
from queuewise.policies.names import Policy
from queuewise.policies.snapshot import Snapshot, WaitingJob
from queuewise.policies.snapshot_jobs import Index

NOT_SHOWN = {"easy-strict": "every single event", "fgd": "the jobs of the whole log"}


class SnapshotDecider(ABC):
    """Between two decisions it remembers what only the policy knows: the committed job, reservations, holds, numbers of functions.

    Partitions that no node has in common have one queue only while a job of both waits or runs; in a whole replay, from the beginning.
    """

    wake_at = math.inf  # when it wants to be asked again, even if nothing happens before

    def __init__(self, policy: Policy, *, moves: bool) -> None:
        refuse_unseen(policy.backfill, policy.placement)
        self._policy, self._moves = policy, moves
        self._last: Snapshot | None = None

    def reset(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._seed, self._last = cluster, seed, None

    def forget(self) -> None:
        """Forget earlier decisions: the next one goes by its snapshot alone."""
        self._last = None

    def decide(self, view: ShownState) -> Iterable[Decision]:
        before = view.snapshot()
        self.wake_at = math.inf
        if not before.queue:
            return []
        start = before if self._last is None else _remembering(before, self._last)
        self._last, timer = self._make_pass(start, view.index)
        self.wake_at = min(timer, self._next_overdue(self._last))
        return _decisions(before, self._last, view, moves=self._moves)

    @abstractmethod
    def _make_pass(self, start: Snapshot, index: Index) -> tuple[Snapshot, float]:
        """Decide once. Returns the state after it, and when the policy wants to decide next although nothing happens.

        `index` gives the position of a job in the log.
        """

    def _next_overdue(self, snapshot: Snapshot) -> float:
        times = (one.job.submit + self._policy.max_wait_s for one in snapshot.queue)
        return min((time for time in times if time > snapshot.now), default=math.inf)


def refuse_unseen(*parts: str) -> None:
    """Refuse backfill rules and placements that go by more than a view shows."""
    for part in parts:
        unseen = "fgd" if part.startswith("milp") and "fgd" in parse_objective(part.removeprefix("milp")).terms else part
        if unseen in NOT_SHOWN:
            what = NOT_SHOWN[unseen]
            raise InputError(f"{part} goes by {what}, which a view does not show", hint="use another rule, or replay it as a whole")


def _remembering(snapshot: Snapshot, last: Snapshot) -> Snapshot:
    """The snapshot with what the policy itself knew after its last decision."""
    known = {one.job.job_id: one for one in last.queue}

    def recall(one: WaitingJob) -> WaitingJob:
        mine = known.get(one.job.job_id)
        if mine is None or mine.progress.stops != one.progress.stops:
            return one
        held = mine.held_until if mine.held_until is not None and mine.held_until > snapshot.now else None
        return replace(one, committed=mine.committed, held_until=held, planned_start=mine.planned_start, planned_places=mine.planned_places)

    loops = last.history.backfilled_at, last.history.looped_at
    history = replace(snapshot.history, memory=last.history.memory, backfilled_at=loops[0], looped_at=loops[1])
    return replace(snapshot, queue=tuple(recall(one) for one in snapshot.queue), history=history)


def _decisions(before: Snapshot, after: Snapshot, view: ShownState, *, moves: bool) -> list[Decision]:
    """What turns one into the other: stops first, then starts and moves in the order in which they happened.

    A job whose work was not saved did not move: it was stopped, and started again.
    """
    stays = {one.job.job_id: one.progress.stops for one in before.running}
    moved = {one.job.job_id for one in after.running if moves and one.progress.saved}
    goes_on = moved | {one.job.job_id for one in after.running if one.progress.stops == stays.get(one.job.job_id)}
    decisions: list[Decision] = [Preempt(view.index(job_id)) for job_id in stays if job_id not in goes_on]
    for one in after.running:
        job_id = one.job.job_id
        if job_id not in stays or job_id not in goes_on:
            decisions.append(Start(view.index(job_id), one.places))
        elif one.progress.stops != stays[job_id]:
            decisions.append(Migrate(view.index(job_id), one.places))
    return decisions
