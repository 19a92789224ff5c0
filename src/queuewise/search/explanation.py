"""What a rule is made of, and whom a policy serves better or worse than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuewise.evaluation.breakdown import breakdown
from queuewise.evaluation.measure import Measurement
from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.search.evolution import cost_of
from queuewise.search.stretches import Stretch, Stretches

KEYS = ("size", "user", "group", "partition")
LEAST_SHARE = 0.01  # of the jobs, for a class to be mentioned
MOST_ROWS = 4  # of a key


@dataclass(frozen=True)
class RuleTerm:
    """A number of a rule, and what the rule costs without it. Below 0: without it, the rule would be better."""

    name: str
    value: float
    added_cost: float


def ablate(
    rule: FoundRule, stretches: Stretches, drawn: Sequence[Stretch], reference: str, objective: Mapping[str, float]
) -> list[RuleTerm]:
    """The terms of a rule, the one that matters most first. Costs are means over the stretches that were drawn."""
    terms = [(name, value) for name, value in zip(NUMBERS, rule.numbers, strict=True) if value]
    rules = [rule, *(rule.without(name) for name, _ in terms)]
    costs = np.mean([cost_of(stretches.replay([*rules, reference], stretch), objective, 1) for stretch in drawn], axis=0)
    found = [RuleTerm(name, value, float(cost - costs[0])) for (name, value), cost in zip(terms, costs[1:], strict=True)]
    return sorted(found, key=lambda term: -term.added_cost)


@dataclass(frozen=True)
class Effect:
    """Mean waits of a class of jobs under two policies."""

    key: str  # of KEYS
    label: str
    jobs: int
    wait_s: float
    other_wait_s: float

    @property
    def added_s(self) -> float:
        """Seconds of waiting that all its jobs have more."""
        return self.jobs * (self.wait_s - self.other_wait_s)


def effects(measured: Measurement, other: Measurement) -> list[Effect]:
    """For each key, the classes whose waits change most, those that wait longer first."""
    found: list[Effect] = []
    for key in KEYS:
        before = {row.key: row for row in breakdown(other, key)}
        rows = [
            Effect(key, row.key, row.jobs, row.wait_mean_s, before[row.key].wait_mean_s)
            for row in breakdown(measured, key)
            if row.key in before and row.jobs >= LEAST_SHARE * len(measured.rows)
        ]
        if len(rows) > 1:
            most = sorted(rows, key=lambda row: -abs(row.added_s))[:MOST_ROWS]
            found += sorted(most, key=lambda row: -row.added_s)
    return found
