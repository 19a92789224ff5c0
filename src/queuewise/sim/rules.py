"""A policy in numbers: what the kernels need to know of it. Names and formulas belong to `queuewise.policies`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numba import from_dtype, njit, types

from queuewise.sim.compilation import JIT_DISABLED
from queuewise.sim.state import F64, FACTS, NO_BACKFILL, NO_LIMIT, NOT_PREEMPTIVE, PACK, REORDER

# void score(facts[J], pending[number], number, now, outlook, params, out[number]): writes out[i] for the job pending[i]; least goes first.
SCORING_SIGNATURE = types.void(
    from_dtype(FACTS)[::1], types.int32[::1], types.int64, types.float64, types.float64[::1], types.float64[::1], types.float64[::1]
)


def scoring_function(function: Callable[..., None], *, cache: bool = True) -> Callable[..., None]:
    """Compile a function that scores the queue, with the one signature by which kernels call it."""
    if JIT_DISABLED:
        return function
    return njit(SCORING_SIGNATURE, error_model="numpy", nogil=True, cache=cache)(function)


@dataclass(frozen=True, eq=False)
class Order:
    """How jobs are sorted: by a score that never changes, or by a compiled function that scores the queue at every decision."""

    fixed: F64 | None = None  # [J] least first
    function: Callable[..., None] | None = None  # a scoring_function
    params: F64 = field(default_factory=lambda: np.zeros(1))


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of attained service."""

    bound: F64  # [L] service at which each level but the last ends
    key: F64  # [L+1]
    promotes: bool = False  # jobs that wait long at a low level return to the first


@dataclass(frozen=True, eq=False)
class Rules:
    """All of a policy."""

    order: Order
    backfill_order: Order | None = None  # None: the same as `order`
    backfill: int = NO_BACKFILL
    depth: int = NO_LIMIT  # candidates a pass looks at
    rule: int = PACK
    rule_option: int = NO_LIMIT
    dispatch: int = REORDER
    seed: int = 0
    keys: int = NOT_PREEMPTIVE  # what a preemptive policy sorts by
    levels: Levels | None = None  # with BY_LEVEL

    @property
    def orders(self) -> tuple[Order, ...]:
        return (self.order,) if self.backfill_order is None else (self.order, self.backfill_order)

    @property
    def dynamic(self) -> bool:
        """Whether queues must be scanned: trees need scores that never change, and do not count jobs."""
        if self.keys != NOT_PREEMPTIVE:
            return False
        return self.depth != NO_LIMIT or any(order.fixed is None for order in self.orders)
