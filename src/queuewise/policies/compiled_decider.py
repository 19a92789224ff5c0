"""Policies of compiled rules as deciders: a view of queue and machine in, decisions out.

A replay of such a policy runs in the engine as a whole. Where somebody else moves the clock (a step-by-step replay, a planner, a live
cluster), `CompiledDecider` makes the same decisions: the engine starts from a snapshot of the view and makes one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.errors import InputError
from queuewise.policies.estimating import declare_predictions
from queuewise.policies.interface import Decider, PrefixedPolicies
from queuewise.policies.names import check_text, parse_policy, plays_apart
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.policies.simulation import Simulation
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.snapshot_decider import SnapshotDecider
from queuewise.policies.snapshot_jobs import Index, jobs_of
from queuewise.prefixes import policies_of
from queuewise.workload.estimates import learns_by_waits as is_prediction
from queuewise.workload.jobs import Workload

REQUESTED = "requested"
USAGE = ("fairshare", "fairtree", "multifactor")
LEVELS = tuple(name for name, rule in PREEMPTIVE.items() if rule.option)  # rules by levels of service


def make_decider(
    policy: str,
    *,
    dispatch: str = "reorder",
    conditions: Conditions = PERFECT,
    max_wait: str | None = None,
    params: Sequence[float] | None = None,
) -> Decider:
    """What decides by the named policy, instant by instant: rules, functions and classes of the user's own, trained models."""
    check_text(policy)
    if plays_apart(policy):
        if params is not None:
            raise InputError(f"{policy} takes no params", hint="leave params out")
        policies: PrefixedPolicies = policies_of(policy)
        return policies.decider(policy, dispatch=dispatch, conditions=conditions, max_wait=max_wait)
    parsed = parse_policy(policy)
    if parsed.decides_in_python:
        if parsed.bounded(max_wait).max_wait_s < np.inf or parsed.placement != "pack" or params is not None:
            raise InputError(
                f"{policy}: a class decides by itself; bounds and placements are kept by a replay, and params are for functions",
                hint=f"write make_decider({parsed.order!r}), and give simulate the max_wait; or give simulate the name",
            )
        made: Decider = parsed.own[0].value()
        return made
    return CompiledDecider(policy, dispatch=dispatch, conditions=conditions, max_wait=max_wait, params=params)


class CompiledDecider(SnapshotDecider):
    """A policy of compiled rules that decides instant by instant.

    Some policies need more than a view shows, and are refused: orders with estimates of their own (but for `requested` and `predicted`, if
    all jobs have them), orders that look at the history of the log or at what accounts or users have used, rules that go by levels of
    service, and what goes by the log as a whole or by single events.
    """

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
        unseen = [name for name in parsed.own_estimates if name != REQUESTED and not is_prediction(name)]
        if parsed.decides_in_python or parsed.history or unseen:
            raise InputError(
                f"{policy} cannot decide from a view alone", hint="use an order without a class, predictions or estimates of its own"
            )
        by_users = any("user" in own.used_parameters for own in parsed.own)
        if by_users or {parsed.order, parsed.backfill_order} & set(USAGE):
            raise InputError(f"{policy} goes by past usage, which a view does not show", hint="use drf, or replay it as a whole")
        if parsed.order in LEVELS:
            raise InputError(f"{policy} goes by levels of service, which a view does not show", hint="use srtf, or replay it as a whole")
        super().__init__(parsed, moves=parsed.backfill == "defrag")
        self.policy = policy
        self._options: dict[str, Any] = {"dispatch": dispatch, "conditions": conditions, "max_wait": max_wait, "params": params}

    def _make_pass(self, start: Snapshot, index: Index) -> tuple[Snapshot, float]:
        workload, estimate = jobs_of(start, self._cluster, self._options["conditions"], index)
        for name in self._policy.own_estimates:
            self._declare(name, workload, start)
        numbers = np.array([index(job_id) for job_id in workload.job_id.tolist()], np.int64)
        simulation = Simulation(
            workload, self._cluster, self.policy, estimates=estimate, seed=self._seed, start=start, index=numbers, **self._options
        )
        simulation.decide()
        return simulation.snapshot(history=False), simulation.next_timer

    def _declare(self, name: str, workload: Workload, start: Snapshot) -> None:
        """Make estimates of the policy's own known for the jobs of the snapshot; raise an InputError if one has none."""
        known = {one.job.job_id: one.job.predicted if is_prediction(name) else one.job.requested for one in start.jobs}
        missing = [job_id for job_id, value in known.items() if value is None]
        if missing:
            what, hint = "requested times", "leave the estimates out of the name"
            if is_prediction(name):
                what, hint = "predictions", "give the jobs of the snapshot the field predicted, or leave the estimates out of the name"
            raise InputError(f"{self.policy} goes by {what}, and job {missing[0]} has none", hint=hint)
        if is_prediction(name):
            values = np.array([known[job_id] for job_id in workload.job_id.tolist()], np.float64)
            declare_predictions(workload, self._cluster, name, values, self._seed)
