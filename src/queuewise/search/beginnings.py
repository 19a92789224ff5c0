"""Where a search begins: the rule that does best on some stretches, of those that heuristics are in the family of rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.policies.names import WISE_ORDER
from queuewise.search.evolution import SearchSettings, cost_of
from queuewise.search.stretches import Stretches

STRETCHES = 12  # of the comparison
ORDERS = (  # numbers that are not 0
    {"log_runtime": 1.0, "log_width": 1.0, "age": 1.0},  # wise
    {"log_runtime": 1.0, "log_width": 1.0},  # saf
    {"log_runtime": 1.0},  # sjf
    {"log_runtime": 1.0, "log_width": 0.5},
)


def beginnings(estimates: str) -> list[FoundRule]:
    """Rules like heuristics, `wise` first, for replays with these estimates. Where they are exact, nothing is predicted."""
    by = ("",) if estimates == "oracle" else (WISE_ORDER[1], "")
    return [
        FoundRule(tuple(order.get(name, 0.0) for name in NUMBERS), known, f"{backfill}{bound}", estimates)
        for known in by
        for bound, backfill, order in product(("~3d", ""), (f"+easy:sjf:{known}".rstrip(":"), "+easy"), ORDERS)
    ]


def best_beginning(stretches: Stretches, rules: Sequence[FoundRule], reference: FoundRule | str, settings: SearchSettings) -> FoundRule:
    """The rule of least cost on stretches that no generation is sure to use."""
    firsts = stretches.draw(np.random.default_rng((settings.seed, 1)), STRETCHES, settings.stretch_jobs)
    costs = cost_of(stretches.replay([*rules, reference], firsts, settings.stretch_jobs), settings.objective)
    return rules[int(np.argmin(costs))]
