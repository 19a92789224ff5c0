"""Reward terms by name, with their units. The reward of a step is Σ weight · term. docs/mdp.md gives the formulas.

`bookkeeping` and `episode_end` compute the terms in natural units and refer to them by their positions in TERMS. `per`
divides a weight by sizes of the episode.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from queuewise.config import Config
from queuewise.errors import InputError, unknown_name
from queuewise.sim.core.tables import F64

TERMS: dict[str, str] = {  # name -> unit
    "completed_work": "size·s",
    "wait": "job·s",
    "jct": "job·s",
    "slowdown": "1",
    "bounded_slowdown": "1",
    "utilisation": "s",
    "flops_utilisation": "s",
    "idle_feasible": "s",
    "noop_feasible": "share",
    "load_balance": "s",
    "fairness": "1",
    "energy": "J",
    "deadline": "jobs",
    "priority_completion": "priority",
    "remaining_work": "size·s²",
    "age": "job·s²",
    "elapsed": "s",
    "time_left": "s",
    "unfinished": "size·s",
    "started": "jobs",
    "host_use": "1",
    "host_use_squared": "1",
    "illegal": "actions",
    "relative": "1",
    "log_ratio": "1",
    "work_behind": "size·s²",
    "noop_work": "size·s",
    "undone": "size·s",
    "energy_cost": "J × price of a kWh",
}
NUM_TERMS = len(TERMS)
(COMPLETED_WORK, WAIT, JCT, SLOWDOWN, BOUNDED_SLOWDOWN, UTILISATION, FLOPS_UTILISATION, IDLE_FEASIBLE, NOOP_FEASIBLE, LOAD_BALANCE,
 FAIRNESS, ENERGY, DEADLINE, PRIORITY_COMPLETION, REMAINING_WORK, AGE, ELAPSED_TIME, TIME_LEFT, UNFINISHED, STARTED, HOST_USE,
 HOST_USE_SQUARED, ILLEGAL_ACTIONS, RELATIVE, LOG_RATIO, WORK_BEHIND, NOOP_WORK, UNDONE,
 ENERGY_COST) = range(NUM_TERMS)  # fmt: skip

AGAINST_BASELINE = ("relative", "log_ratio")  # terms that compare with Baseline.policy
Divisor = Literal["jobs", "work", "span", "horizon", "priority", "time_scale", "baseline"]
DIVISORS: dict[str, str] = {
    "jobs": "jobs of the episode that can run",
    "work": "Σ size × runtime of those jobs",
    "span": "seconds from the first submission to the horizon",
    "horizon": "seconds from the beginning of a generated workload's clock to the horizon; of a log the same as span",
    "priority": "Σ priority of those jobs",
    "time_scale": "the task's time_scale_s",
    "baseline": "the baseline's metric on the same window, at least 1 (times: 60 s)",
}


REWARD_EXAMPLE = "for example 'bounded_slowdown/jobs' or 'wait/jobs + 0.1*utilisation/span'"
_SUMMAND = re.compile(r"([+-])((?:[^+-]|(?<=[eE])[+-](?=\d))*)")  # the sign in 1e-3 is part of the number


class Term(Config):
    """One summand of the reward."""

    name: str
    weight: float = 1.0
    per: tuple[Divisor, ...] = ()

    def model_post_init(self, context: object) -> None:
        if self.name not in TERMS:
            raise unknown_name("reward term", self.name, TERMS)


def parse_reward(text: str) -> tuple[Term, ...]:
    """A reward as text: `bounded_slowdown/jobs + 0.1*utilisation/span`, a sum of [weight*]term[/divisor]…"""
    terms = []
    for sign, part in _SUMMAND.findall(text if text.lstrip()[:1] in "+-" else f"+{text}"):
        weight, times, name = part.strip().rpartition("*")
        name, *per = (piece.strip() for piece in name.split("/"))
        if not name:
            raise InputError(f"reward {text!r}: a term is missing", hint=REWARD_EXAMPLE)
        if name not in TERMS:
            raise unknown_name("reward term", name, TERMS)
        for divisor in per:
            if divisor not in DIVISORS:
                raise unknown_name("divisor in a reward", divisor, DIVISORS)
        try:
            number = float(weight) if times else 1.0
        except ValueError:
            raise InputError(f"reward {text!r}: {weight!r} is no number", hint=REWARD_EXAMPLE) from None
        terms.append(Term(name=name, weight=number if sign == "+" else -number, per=tuple(per)))
    if not terms:
        raise InputError(f"reward {text!r} has no terms", hint=REWARD_EXAMPLE)
    return tuple(terms)


def weights(terms: tuple[Term, ...], divisors: dict[str, float]) -> F64:
    """[T] reward per unit of each term in an episode of these sizes. A size of zero counts as one."""
    values = np.zeros(NUM_TERMS)
    for term in terms:
        scale = float(np.prod([divisors[name] or 1.0 for name in term.per]))
        values[list(TERMS).index(term.name)] += term.weight / scale
    return values
