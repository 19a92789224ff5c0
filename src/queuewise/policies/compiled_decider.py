"""Policies of compiled rules as deciders: a view of queue and machine in, decisions out.

A replay of such a policy runs in the engine as a whole. Where somebody else moves the clock (a step-by-step replay, a planner, a live
cluster), `CompiledDecider` makes the same decisions: the engine starts from a snapshot of the view and makes one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.interface import Decision, Migrate, Preempt, Start, View
from queuewise.policies.names import parse_policy
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.policies.simulation import Simulation
from queuewise.policies.snapshot import RunningJob, Snapshot, WaitingJob
from queuewise.policies.snapshot_jobs import jobs_of

USAGE = ("fairshare", "multifactor")
LEVELS = tuple(name for name, rule in PREEMPTIVE.items() if rule.option)  # rules by levels of service


class CompiledDecider:
    """A named policy that decides instant by instant.

    Between two decisions it remembers what only the policy knows: the committed job, reservations, holds and the numbers that
    functions keep. Some policies need more than a view shows, and are refused: orders that look at the history of the log
    (`predicted`) or at what accounts or users have used, and rules that go by levels of service. `random` orders by the position among
    the jobs of the view.
    """

    wake_at = math.inf  # when it wants to be asked again, even if nothing happens before

    def __init__(
        self,
        policy: str,
        *,
        dispatch: str = "reorder",
        conditions: Conditions = PERFECT,
        max_wait: str | None = None,
        params: Sequence[float] | None = None,
    ) -> None:
        parsed = parse_policy(policy).bounded(max_wait)
        if parsed.decides_in_python or parsed.history or any(name.startswith("predicted") for name in parsed.own_estimates):
            raise InputError(f"{policy} cannot decide from a view alone", hint="use an order that needs neither predictions nor a class")
        by_users = any("user" in own.used_parameters for own in parsed.own)
        if by_users or {parsed.order, parsed.backfill_order} & set(USAGE):
            raise InputError(f"{policy} goes by past usage, which a view does not show", hint="use drf, or replay it as a whole")
        if parsed.order in LEVELS:
            raise InputError(f"{policy} goes by levels of service, which a view does not show", hint="use srtf, or replay it as a whole")
        self.policy, self._parsed = policy, parsed
        self._options: dict[str, Any] = {"dispatch": dispatch, "conditions": conditions, "max_wait": max_wait, "params": params}
        self._last: Snapshot | None = None

    def reset(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._seed, self._last = cluster, seed, None

    def decide(self, view: View) -> Iterable[Decision]:
        before = view.snapshot()
        self.wake_at = math.inf
        if not before.queue:
            return []
        start = before if self._last is None else _remembering(before, self._last)
        workload, estimate = jobs_of(start)
        simulation = Simulation(workload, self._cluster, self.policy, estimates=estimate, seed=self._seed, start=start, **self._options)
        simulation.decide()
        self._last = simulation.snapshot(history=False)
        self.wake_at = min(simulation.next_timer, self._next_overdue(self._last))
        return _decisions(before, self._last, view, moves=self._parsed.backfill == "defrag")

    def _next_overdue(self, snapshot: Snapshot) -> float:
        times = (one.job.submit + self._parsed.max_wait_s for one in snapshot.queue)
        return min((time for time in times if time > snapshot.now), default=math.inf)


def _remembering(snapshot: Snapshot, last: Snapshot) -> Snapshot:
    """The snapshot with what the policy itself knew after its last decision."""
    known = {one.job.job_id: one for one in last.queue}

    def recall(one: WaitingJob) -> WaitingJob:
        mine = known.get(one.job.job_id)
        if mine is None or mine.progress.stops != one.progress.stops:
            return one
        held = mine.held_until if mine.held_until is not None and mine.held_until > snapshot.now else None
        return replace(one, committed=mine.committed, held_until=held, planned_start=mine.planned_start, planned_places=mine.planned_places)

    history = replace(snapshot.history, memory=last.history.memory)
    return replace(snapshot, queue=tuple(recall(one) for one in snapshot.queue), history=history)


def _decisions(before: Snapshot, after: Snapshot, view: View, *, moves: bool) -> list[Decision]:
    """What turns one into the other: stops first, then starts and moves in the order in which they happened."""
    stays = {one.job.job_id: one.progress.stops for one in before.running}
    goes_on = {one.job.job_id for one in after.running if moves or one.progress.stops == stays.get(one.job.job_id)}
    decisions: list[Decision] = [Preempt(view.index(job_id)) for job_id in stays if job_id not in goes_on]
    for one in after.running:
        job_id = one.job.job_id
        if job_id not in stays or job_id not in goes_on:
            decisions.append(Start(view.index(job_id), _tasks(one)))
        elif one.progress.stops != stays[job_id]:
            decisions.append(Migrate(view.index(job_id), _tasks(one)))
    return decisions


def _tasks(one: RunningJob) -> Mapping[int, int]:
    tasks: dict[int, int] = {}
    for place in one.places:
        tasks[place.node] = tasks.get(place.node, 0) + place.tasks
    return tasks
