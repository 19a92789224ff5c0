"""Members: the policies that a planner tries and acts by. They take turns with one queue, so the tables of all have one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT
from queuewise.errors import InputError
from queuewise.policies.interface import ReplayRequest
from queuewise.policies.known import Jobs
from queuewise.policies.names import Policy, parse_policy
from queuewise.policies.replaying import known_jobs
from queuewise.sim import backfill, preemption, queue
from queuewise.sim.core.engine import functions_of, limited_runtime
from queuewise.sim.core.rules import Order, Rules
from queuewise.sim.core.setup import Layout, lay_out
from queuewise.sim.core.state import NO_LIMIT, Machine
from queuewise.sim.placement import BY_SCORE, BY_SOLVER
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Floats

FILLING = (backfill.NO_BACKFILL, backfill.GREEDY, backfill.EASY)


@dataclass(frozen=True, eq=False)
class Member:
    """A policy, its rules, and a simulation of the workload under it."""

    name: str
    policy: Policy
    rules: Rules
    layout: Layout
    empty: Machine  # nothing runs on it, ever
    jobs: Jobs

    @property
    def functions(self) -> list[Callable[..., None]]:
        return functions_of(self.rules)

    def scores_of(self, jobs: Jobs) -> list[Floats]:
        """The scores of other jobs by both orders, if they never change; zeros otherwise."""
        made = self.policy.rules(jobs, "reorder")
        orders = (made.order, made.order if made.backfill_order is None else made.backfill_order)
        return [np.zeros(len(jobs)) if order.fixed is None else order.fixed for order in orders]


def make_members(request: ReplayRequest, names: tuple[str, ...]) -> list[Member]:
    """The members of a replay, with tables of one shape."""
    if request.conditions != PERFECT:
        raise InputError(f"{request.policy} plans without outages, quotas, reservations and the like", hint="omit the conditions")
    if request.dispatch != "reorder":
        raise InputError(f"{request.policy} decides at every event", hint="use --dispatch reorder")
    members = [_make_member(request, name) for name in names]
    bounds = {one.policy.max_wait_s for one in members}
    if len(bounds) > 1:
        raise InputError(f"{request.policy}: its members have different bounds on waiting", hint="give all members the same bound, or none")
    return members


def _make_member(request: ReplayRequest, name: str) -> Member:
    policy = parse_policy(name).bounded(request.max_wait)
    known = Estimates(request.estimate, guessed=request.guessed)
    jobs = known_jobs(policy, request.workload, request.cluster, known, request.seed, request.conditions, request.budgets)
    rules = policy.rules(jobs, request.dispatch)
    _check(name, rules)
    rules = replace(rules, keeps_list=True, backfill_order=rules.order if rules.backfill_order is None else rules.backfill_order)
    runtime, _ = limited_runtime(request.workload, request.kill_at_limit)
    layout = lay_out(request.workload, request.cluster, rules, runtime=runtime, estimate=request.estimate, history=jobs.history)
    layout.world.policy.tracks_free_times = 0  # only members that reserve would keep them up to date
    return Member(name, policy, rules, layout, layout.machine.clone(), jobs)


def _check(name: str, rules: Rules) -> None:
    orders: tuple[Order, ...] = rules.orders
    reason = ""
    if rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill not in FILLING or rules.depth != NO_LIMIT:
        reason = "only orders with no backfill, greedy or easy, without a depth"
    elif any(order.fair != queue.FIXED or order.looks_at_users or order.hold is not None or order.memory for order in orders):
        reason = "only orders that remember nothing and hold no jobs"
    elif any(order.once is not None for order in orders) or rules.rule in (BY_SCORE, BY_SOLVER):
        reason = "only the orders and placements that Queuewise has"
    if reason:
        raise InputError(f"{name} cannot be a member of a planner: {reason} can", hint="for example plan:sjf+easy")


def part_of_jobs(jobs: Jobs, rows: Any, submit: Floats) -> Jobs:
    """Some rows of the columns of jobs, submitted at other times."""
    columns = {name: getattr(jobs, name)[rows] for name in ("size", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib", "priority")}
    columns |= {name: getattr(jobs, name)[rows] for name in ("user", "group", "partition", "qos", "estimate")}
    history = {name: column[rows] for name, column in jobs.history.items()} | {"index": jobs.index[rows].astype(np.float64)}
    own = {name: column[rows] for name, column in jobs.own_estimates.items()}
    deadline = jobs.deadline[rows] - jobs.submit[rows] + submit
    return replace(jobs, **columns, submit=submit, deadline=deadline, history=history, own_estimates=own)
