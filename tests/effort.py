"""How much is tried: enough to notice a mistake in every run, all of it with `--slow`, little with `--fast`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings

thorough = False  # with --slow; set by conftest.py before any test is imported
hasty = False  # with --fast; the same


def tries(number: int) -> settings:
    """Of a property of whole simulations: so many examples with `--slow`, a quarter of them otherwise, 25 at least; 10 with `--fast`."""
    most = number if thorough else 10 if hasty else max(25, number // 4)
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def seeds(number: int) -> range:
    """Of fixed random cases: so many with `--slow`, a quarter of them otherwise, three at least."""
    return range(number if thorough else min(number, max(3, number // 4)))


def some(values: Sequence[Any], number: int) -> list[Any]:
    """All values with `--slow`, otherwise so many of them, evenly spread."""
    return list(values) if thorough else [values[i * len(values) // number] for i in range(min(number, len(values)))]


def mixed(key: str, *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All combinations with `--slow`. Otherwise as many as the longest axis has values, each value of each axis among them.

    Tests with different keys mix differently, so that together they meet most pairs.
    """
    every = list(itertools.product(*axes))
    number = max(len(axis) for axis in axes)
    if thorough or number >= len(every):
        return every
    shuffler = random.Random(key)
    columns = []
    for axis in axes:
        values = list(itertools.islice(itertools.cycle(axis), number))
        shuffler.shuffle(values)
        columns.append(values)
    return list(zip(*columns, strict=True))
