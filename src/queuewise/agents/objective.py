"""What training pays: reward terms of docs/mdp.md, by the score that is to be optimised or as the user writes them.

The default rewards are dense and exact: summed over an episode they are the score itself (up to a constant factor), whatever the
lengths of the steps.
"""

from __future__ import annotations

from typing import Any

from queuewise.envs.rewards import Term
from queuewise.errors import InputError
from queuewise.evaluation.scores import parse_score

REWARD_OF: dict[str, Term] = {  # score -> the term that sums to it
    "bsld": Term(name="bounded_slowdown", per=("jobs",)),
    "slowdown": Term(name="slowdown", per=("jobs",)),
    "wait": Term(name="wait", per=("jobs",)),
    "jct": Term(name="jct", per=("jobs",)),
    "energy": Term(name="energy", weight=1 / 3.6e6),  # J -> kWh
    "fairness": Term(name="fairness"),
}
MAKESPAN = Term(name="elapsed", per=("span",))  # the work is given, so that use is highest when the end comes soonest


def reward_for(score: str) -> tuple[Term, ...]:
    """The terms whose sum over an episode is −score."""
    terms = []
    for weight, name in parse_score(score).terms:
        if name == "packed":
            raise InputError("score 'packed' has no reward: nothing ends there", hint="train for util, jct or bsld")
        term = REWARD_OF.get(name, MAKESPAN)
        terms.append(term.model_copy(update={"weight": weight * term.weight}))
    return tuple(terms)


def parse_reward(text: str) -> tuple[Term, ...]:
    """`weight*term/divisor/divisor`, joined by +: `jct/jobs + 0.1*noop_feasible`."""
    return tuple(_parse_term(part.strip(), text) for part in text.split("+"))


def _parse_term(part: str, text: str) -> Term:
    weight, star, rest = part.rpartition("*")
    name, *per = rest.split("/")
    try:
        values: dict[str, Any] = {"name": name.strip(), "weight": float(weight) if star else 1.0, "per": [p.strip() for p in per]}
        return Term.model_validate(values)
    except ValueError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"reward {text!r}: {part!r} cannot be read ({reason})", hint="write weight*term/divisor + …; see docs/mdp.md"
        ) from None
