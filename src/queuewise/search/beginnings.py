"""Where a search begins: the rule that does best on some stretches, of those that heuristics are in the family of rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.policies.names import WISE_ORDER
from queuewise.search.evolution import SearchSettings, cost_of
from queuewise.search.stretches import Stretches

ORDERS = (  # numbers that are not 0
    {"log_runtime": 1.0, "log_width": 1.0, "age": 1.0},  # wise
    {"log_runtime": 1.0, "log_width": 1.0},  # saf
    {"log_runtime": 1.0},  # sjf
    {"log_runtime": 1.0, "log_width": 0.5},
)
FITTING_FIRST = {"log_runtime": 1.0, "log_width": 0.7, "age": 1.0, "blocked": 2.0, "blocked_share": 1.0}  # as model:generalist-hpc
MODELLED = {  # found on jobs of the lublin model (benchmarks/generalist.py)
    "log_runtime": 0.915, "log_width": 0.582, "log_runtime_squared": 0.043, "log_width_squared": -0.068, "log_runtime_log_width": -0.017,
    "share": -0.908, "share_log_runtime": 0.21, "age": 0.921, "log_age_hours": -1.395, "blocked": 0.748, "blocked_share": -0.145,
    "guard": 0.549,
}  # fmt: skip
PATIENT = {  # and some of the machine stays free for short jobs
    "log_runtime": 1.0, "log_width": 0.3, "hold_log_runtime": 0.02, "hold_age": 0.3, "blocked": 1.0, "blocked_share": 0.5, "guard": 0.5,
}  # fmt: skip
BOUNDS = ("~3d", "~7d", "")


def beginnings(estimates: str, placement: str = "") -> list[FoundRule]:
    """Rules for replays with these estimates: like heuristics, `wise` first. `placement` is what follows their names, such as `@spread`.

    With exact runtimes nothing is predicted, and jobs may be held. There a search that begins without holds hardly ever finds them, so it
    begins with them.
    """
    exact = estimates == "oracle"
    by = ("",) if exact else (WISE_ORDER[1], "")
    orders = (PATIENT, PATIENT | {"log_width": 1.0}) if exact else (*ORDERS, FITTING_FIRST, MODELLED)
    return [
        FoundRule(tuple(order.get(name, 0.0) for name in NUMBERS), known, f"{backfill}{bound}{placement}", estimates)
        for known in by
        for bound, backfill, order in product(BOUNDS, (f"+easy:sjf:{known}".rstrip(":"), "+easy"), orders)
    ]


def best_beginnings(
    stretches: Stretches, rules: Sequence[FoundRule], references: Sequence[str], settings: SearchSettings, number: int
) -> list[FoundRule]:
    """So many rules of least cost on a stretch, each with another backfill or bound."""
    stretch = stretches.draw(np.random.default_rng((settings.seed, 1)), settings.stretch_jobs)
    costs = cost_of(stretches.replay([*rules, *references], stretch), settings.objective, len(references))
    best: dict[str, FoundRule] = {}
    for place in np.argsort(costs, kind="stable"):
        best.setdefault(rules[place].scheduling, rules[place])
    return list(best.values())[:number]
