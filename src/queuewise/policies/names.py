"""Policy names: `order[+backfill[/depth][:order]][@placement[:option]]`, parsed here and nowhere else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from queuewise.errors import InputError, unknown_name
from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.ordering import ORDERS, Jobs, order_rule
from queuewise.policies.placing import PLACEMENTS, parse_placement
from queuewise.policies.preemptive import PREEMPTIVE, parse_option
from queuewise.sim.rules import Rules
from queuewise.sim.state import COMMIT, NO_LIMIT, REORDER

DISPATCHES = {"reorder": REORDER, "commit": COMMIT}
GRAMMAR = "order[+backfill[/depth][:order]][@placement], e.g. sjf+easy@pack"


@dataclass(frozen=True)
class Policy:
    """A parsed name."""

    order: str
    backfill: str = "none"
    depth: int = NO_LIMIT
    backfill_order: str = ""  # empty: the same order
    placement: str = "pack"
    level: float = 0.0  # option of a preemptive policy

    def rules(self, jobs: Jobs, dispatch: str) -> Rules:
        rule, option = parse_placement(self.placement)
        if self.order in PREEMPTIVE:
            if parse_dispatch(dispatch) == COMMIT:
                raise InputError(f"{self.order} cannot commit to a job: it sorts the queue anew", hint="use --dispatch reorder")
            made = PREEMPTIVE[self.order].make(jobs, self.level)
            return dataclasses.replace(made, rule=rule, rule_option=option, seed=jobs.seed)
        second = self.backfill_order if self.backfill_order not in ("", self.order) else ""
        return Rules(
            order=order_rule(self.order).make(jobs),
            backfill_order=order_rule(second).make(jobs) if second else None,
            backfill=BACKFILLS[self.backfill].code,
            depth=self.depth,
            rule=rule,
            rule_option=option,
            dispatch=parse_dispatch(dispatch),
            seed=jobs.seed,
        )


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
    parse_placement(placement or "pack")
    first, _, option = scheduling.partition(":")
    if first in PREEMPTIVE:
        return Policy(first, placement=placement or "pack", level=parse_option(first, option))
    if first.partition("+")[0] in PREEMPTIVE:
        raise InputError(f"policy {name!r}: a preemptive policy leaves nothing to backfill", hint=f"write {order}, or {order}@pack")
    if first == "defrag":
        order_rule(option or "fcfs")
        return Policy(option or "fcfs", "defrag", placement=placement or "pack")
    order_rule(order)
    filling, _, second = filling.partition(":")
    backfill, slash, depth = filling.partition("/")
    if not plus:
        backfill = "greedy" if order == "random" else "none"
    if backfill not in BACKFILLS:
        raise unknown_name("backfill", backfill, BACKFILLS)
    if slash and not (depth.isdigit() and int(depth) > 0):
        raise InputError(f"policy {name!r}: depth {depth!r} is no positive number", hint="for example fcfs+easy/32")
    if second:
        order_rule(second)
    return Policy(order, backfill, int(depth) if slash else NO_LIMIT, second, placement or "pack")


def policy_names() -> tuple[str, ...]:
    """One name for each order (it combines with every backfill and placement) and preemptive policy (with every placement)."""
    return (*ORDERS, *PREEMPTIVE)
