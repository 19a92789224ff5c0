"""A policy in numbers: what the kernels need to know of it. Names and formulas belong to `queuewise.policies`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numba import from_dtype, njit, types

from queuewise.sim import placement, preemption, queue
from queuewise.sim.backfill import NO_BACKFILL, SlurmLoops
from queuewise.sim.core.compilation import JIT_DISABLED, keep_binaries
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.core.tables import F64
from queuewise.sim.placement import NODE_FACTS
from queuewise.sim.queue import FACTS, Records
from queuewise.sim.queue.account_tree import NOBODY, Accounts

# void score(facts[J], pending[number], number, now, outlook, users, params, out[number]): writes out[i] for the job pending[i], of which
# the least goes first. A function that holds jobs has the same signature and writes how long each of them must not start.
SCORING_SIGNATURE = types.void(
    from_dtype(FACTS)[::1], types.int32[::1], types.int64, types.float64,
    types.float64[::1], types.float64[::1], types.float64[::1], types.float64[::1],
)  # fmt: skip
# void score(facts[N], nodes[number], number, demand, params, out[number]): the same for the nodes that have room for a task of a job.
NODE_SCORING_SIGNATURE = types.void(
    from_dtype(NODE_FACTS)[::1], types.int64[::1], types.int64, types.float64[::1], types.float64[::1], types.float64[::1]
)


def scoring_function(function: Callable[..., None], *, signature: Any = SCORING_SIGNATURE, cache: bool = True) -> Callable[..., None]:
    """Compile a function that scores the queue (or nodes), with the one signature by which kernels call it."""
    if JIT_DISABLED:
        return function
    compiled: Any = njit(error_model="numpy", nogil=True)(function)
    if cache:
        keep_binaries(compiled)
    compiled.compile(signature)
    compiled.disable_compile()
    return compiled


@dataclass(frozen=True, eq=False)
class Order:
    """How jobs are sorted: by a score that never changes (given, or taken at the start), or by a function asked at every decision."""

    fixed: F64 | None = None  # [J] least first
    once: Callable[[Iterator[Records]], F64] | None = None  # makes `fixed` from what may be known of the jobs, some at a time
    function: Callable[..., None] | None = None  # a scoring_function
    params: F64 = field(default_factory=lambda: np.zeros(1))
    estimate: F64 | None = None  # [J] what the order knows of runtimes, if that is not what the replay's reservations go by
    hold: Callable[..., None] | None = None  # a scoring_function that says how long each job must not start
    looks_around: bool = False  # a function reads the outlook
    looks_at_users: bool = False  # a function reads what users have had
    memory: int = 0  # numbers that the function keeps between calls, 0 at first
    fair: int = queue.FIXED  # FAIRSHARE, FAIRTREE, MULTIFACTOR (`fixed` is what its other factors add up to) or DRF
    accounts: Accounts = NOBODY  # fair orders only

    @property
    def changes(self) -> bool:
        """Whether the order, or what it holds, changes with time."""
        return self.function is not None or self.hold is not None or self.fair != queue.FIXED


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of attained service. A level's key is its number, unless it follows from services (services.py)."""

    bound: F64  # [L] service at which each level but the last ends
    by_time: bool = False  # service is seconds of running, not GPUs × seconds
    promotes: bool = False  # jobs that wait long at a low level return to the first
    learns: bool = False  # keys follow from the services of jobs that have ended, once there are enough of them
    services: F64 | None = None  # keys follow from these, and nothing is learned


NO_LOOPS = SlurmLoops()


class Solver(Protocol):
    """What places gangs from outside the engine (placement.BY_SOLVER)."""

    address: int  # of a function place(number, world, machine, state, c) that returns whether it has placed a gang of class c
    number: int  # of this solver
    lookahead: int  # waiting jobs, with the one that is placed, that it looks at

    @property
    def statistics(self) -> Any:
        """How placements were found; `as_dict()` for results."""

    def raise_failure(self) -> None:
        """Raise what went wrong in `place`, which cannot raise by itself."""


@dataclass(frozen=True, eq=False)
class Rules:
    """All of a policy."""

    order: Order
    backfill_order: Order | None = None  # None: the same as `order`
    backfill: int = NO_BACKFILL
    depth: int = NO_LIMIT  # candidates a pass looks at
    slurm: SlurmLoops = field(default_factory=lambda: NO_LOOPS)  # with the backfill rule SLURM
    rule: int = placement.PACK
    rule_option: int = NO_LIMIT
    node_scorer: Callable[..., None] | None = None  # a scoring_function of nodes, for the rule BY_SCORE
    node_params: F64 = field(default_factory=lambda: np.zeros(1))  # of node_scorer
    solver: Solver | None = None  # for the rule BY_SOLVER
    dispatch: int = queue.REORDER
    max_wait_s: float = np.inf  # jobs that have waited so long are overdue
    guessed: bool = False  # jobs that outlive their estimates are expected to go on (backfill/outlived.py)
    seed: int = 0
    keys: int = preemption.NOT_PREEMPTIVE  # what a preemptive policy sorts by
    levels: Levels | None = None  # with BY_LEVEL
    keeps_list: bool = False  # queues are lists even if the order never changes, because others will take turns with it
    stops: int = 0  # by somebody outside the engine: the log of pieces has room for so many
    time_limit_s: float = np.inf  # for one call of a policy's own function

    @property
    def orders(self) -> tuple[Order, ...]:
        return (self.order,) if self.backfill_order is None else (self.order, self.backfill_order)

    @property
    def accounts(self) -> Accounts:
        return next((order.accounts for order in self.orders if order.fair != queue.FIXED), NOBODY)

    @property
    def dynamic(self) -> bool:
        """Whether queues must be scanned: trees need scores that never change, and do not count jobs."""
        if self.keys != preemption.NOT_PREEMPTIVE:
            return False
        return self.keeps_list or self.depth != NO_LIMIT or any(order.changes for order in self.orders)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Equal for rules whose layouts differ only in scores and parameters. Valid for as long as the rules are kept."""
        mine = [getattr(self, name) for name in _names(Rules, "order", "backfill_order", "node_params")]
        of_orders = [getattr(order, name) for order in self.orders for name in _names(Order, "fixed", "once", "params")]
        return tuple(value if isinstance(value, int | float) else id(value) for value in (*mine, *of_orders))

    @property
    def needs_facts(self) -> bool:
        return self.dynamic or any(order.once is not None for order in self.orders)

    def settled(self, facts: Callable[[F64 | None], Iterator[Records]]) -> Rules:
        """With the scores of orders that are asked once. `facts` lists what may be known of all jobs, by an order's own estimates."""

        def settle(order: Order) -> Order:
            return order if order.once is None else replace(order, once=None, fixed=order.once(facts(order.estimate)))

        return replace(self, order=settle(self.order), backfill_order=None if self.backfill_order is None else settle(self.backfill_order))


def _names(kind: type[Any], *without: str) -> list[str]:
    return [one.name for one in fields(kind) if one.name not in without]
