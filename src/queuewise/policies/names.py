"""Policy names: `order[+backfill[/depth][:order]][@placement[:option]]`, parsed here and nowhere else.

`FILE.py:NAME` may stand for an order or a placement: a function of the user's own (see `user`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from queuewise.errors import InputError, unknown_name
from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.deciding import check_class, listed_order
from queuewise.policies.known import Jobs, OracleJobs
from queuewise.policies.ordering import ORDERS, OrderRule, order_rule
from queuewise.policies.placing import PLACEMENTS, parse_placement
from queuewise.policies.preemptive import PREEMPTIVE, parse_option
from queuewise.policies.user_code import JOB_PARAMETERS, NODE_PARAMETERS, UserCode, find_user_code, is_reference
from queuewise.policies.user_scores import UserScore, check_score, job_score, node_score
from queuewise.sim import queue
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.placement import BY_SCORE

DISPATCHES = {"reorder": queue.REORDER, "commit": queue.COMMIT}
GRAMMAR = (
    "order[+backfill[/depth][:order]][@placement], e.g. sjf+easy@pack; FILE.py:NAME stands for an order or placement of your own, "
    "model:RUN is a trained network"
)


@dataclass(frozen=True)
class Policy:
    """A parsed name."""

    order: str
    backfill: str = "none"
    depth: int = NO_LIMIT
    backfill_order: str = ""  # empty: the same order
    placement: str = "pack"
    level: float = 0.0  # option of a preemptive policy

    @property
    def decides_in_python(self) -> bool:
        """Whether it is a class of the user's own."""
        return is_reference(self.order) and find_user_code(self.order).is_class

    def rules(self, jobs: Jobs, dispatch: str) -> Rules:
        own_placement = is_reference(self.placement)
        rule, option = (BY_SCORE, NO_LIMIT) if own_placement else parse_placement(self.placement)
        node_scorer = node_score(self.placement).scorer if own_placement else None
        limit = min((own.time_limit_s for own in self.own), default=np.inf)
        if self.order in PREEMPTIVE:
            if parse_dispatch(dispatch) == queue.COMMIT:
                raise InputError(f"{self.order} cannot commit to a job: each start changes its order", hint="use --dispatch reorder")
            made = PREEMPTIVE[self.order].make(jobs, self.level)
            return dataclasses.replace(made, rule=rule, rule_option=option, node_scorer=node_scorer, seed=jobs.seed, time_limit_s=limit)
        second = self.backfill_order if self.backfill_order not in ("", self.order) else ""
        return Rules(
            order=listed_order() if self.decides_in_python else _order(self.order).make(jobs),
            backfill_order=_order(second).make(jobs) if second else None,
            backfill=BACKFILLS[self.backfill].code,
            depth=self.depth,
            rule=rule,
            rule_option=option,
            node_scorer=node_scorer,
            dispatch=parse_dispatch(dispatch),
            seed=jobs.seed,
            stops=int(self.decides_in_python),  # it may
            time_limit_s=limit,
        )

    @property
    def sees(self) -> type[Jobs]:
        """What the policy may know about jobs."""
        return OracleJobs if self.order in PREEMPTIVE and PREEMPTIVE[self.order].oracle else Jobs

    @property
    def uses_predictions(self) -> bool:
        named = (ORDERS[name] for name in (self.order, self.backfill_order) if name in ORDERS)
        return any(rule.uses_predictions for rule in named) or any(own.uses_predictions for own in self.own)

    @property
    def own(self) -> list[UserCode]:
        """The user's own functions in it."""
        return [find_user_code(part) for part in (self.order, self.backfill_order, self.placement) if is_reference(part)]

    def compile(self) -> list[UserScore]:
        """Compile the user's own functions in it, as the first replay would."""
        named = () if self.decides_in_python else (self.order, self.backfill_order)
        orders = [job_score(part) for part in named if is_reference(part)]
        return orders + ([node_score(self.placement)] if is_reference(self.placement) else [])


def _order(name: str) -> OrderRule | UserScore:
    return job_score(name) if is_reference(name) else order_rule(name)


def _check_order(name: str) -> None:
    if is_reference(name):
        check_score(name, JOB_PARAMETERS)
    else:
        order_rule(name)


def _check_placement(text: str) -> None:
    if is_reference(text):
        check_score(text, NODE_PARAMETERS)
    else:
        parse_placement(text)


def parse_dispatch(name: str) -> int:
    if name not in DISPATCHES:
        raise unknown_name("dispatch", name, DISPATCHES)
    return DISPATCHES[name]


def parse_policy(name: str) -> Policy:
    """Check a name and take it apart."""
    scheduling, at, placement = name.strip().partition("@")
    if at and not placement:
        raise InputError(f"policy {name!r} has nothing after @", hint=f"placements: {', '.join(PLACEMENTS)}")
    order, plus, filling = scheduling.partition("+")
    if not order:
        raise InputError(f"policy {name!r} names no order", hint=GRAMMAR)
    _check_placement(placement or "pack")
    first, _, option = scheduling.partition(":")
    if first in PREEMPTIVE:
        return Policy(first, placement=placement or "pack", level=parse_option(first, option))
    if first == "defrag":
        _check_order(option or "fcfs")
        return Policy(option or "fcfs", "defrag", placement=placement or "pack")
    if order in (*PREEMPTIVE, "defrag"):
        raise InputError(f"policy {name!r}: {order} leaves nothing to backfill", hint=f"write {order}, or {order}@pack")
    if is_reference(order) and find_user_code(order).is_class:
        check_class(order)
        if plus:
            raise InputError(f"policy {name!r}: a class decides itself what to backfill", hint=f"write {order}, or {order}@pack")
        return Policy(order, placement=placement or "pack")
    if not is_reference(order) and order not in ORDERS:
        raise unknown_name("order", order, (*policy_names(), "defrag"))
    _check_order(order)
    filling, _, second = filling.partition(":")
    backfill, slash, depth = filling.partition("/")
    if not plus:
        backfill = "greedy" if order == "random" else "none"
    if backfill not in BACKFILLS:
        raise unknown_name("backfill", backfill, BACKFILLS)
    if slash and not (depth.isdigit() and int(depth) > 0):
        raise InputError(f"policy {name!r}: depth {depth!r} is no positive number", hint="for example fcfs+easy/32")
    if second:
        _check_order(second)
    if slash and (second or order) == "drf":
        raise InputError(f"policy {name!r}: drf sorts the queue again after each start, so /D has no first D", hint="leave /D out")
    return Policy(order, backfill, int(depth) if slash else NO_LIMIT, second, placement or "pack")


def policy_names() -> tuple[str, ...]:
    """One name for each order (it combines with every backfill and placement) and preemptive policy (with every placement)."""
    return (*ORDERS, *PREEMPTIVE)
