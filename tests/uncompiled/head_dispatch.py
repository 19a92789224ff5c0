"""Dispatch head without the compiler: naming the first job of an order makes the schedule of that order with its backfill."""

from __future__ import annotations

import itertools

import pytest

from fixed_workloads import crowd, gangs, mixture
from head_play import HEAD_ORDERS, assert_named_alike

RESTS = (
    "+easy", "+easy~5s", "+conservative", "+easy:sjf@spread", "+greedy~7s", "+easy-strict", "+conservative:aged~9s", "+easy@tier",
    "+easy:wfp3",
)  # fmt: skip
CASES = (gangs(), mixture(), crowd(3, 20), crowd(10, 20))


@pytest.mark.parametrize("order", HEAD_ORDERS)
def test_the_order_without_the_compiler(order: str) -> None:
    number = HEAD_ORDERS.index(order)
    rests = itertools.islice(itertools.cycle(RESTS), number, None)
    for index, (case, rest) in enumerate(zip(CASES, rests, strict=False)):
        assert_named_alike(case, f"{order}{rest}", skip_forced=(number + index) % 2 == 0)
