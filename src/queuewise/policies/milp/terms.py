"""What `@milp` minimises: levels of weighted terms, the first level first.

`milp[:TERMS][:K]`: TERMS are names joined by `-` (one level each, in lexicographic order) or by `+` (one weighted sum), each
with a number before it that is its weight, 1 by default. K jobs of the queue are placed together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from queuewise.errors import InputError, unknown_name
from queuewise.sim.placement import node_states
from queuewise.workload.plain_numbers import whole_number

MOST_JOBS = 8  # that are placed together


@dataclass(frozen=True)
class ObjectiveTerm:
    summary: str
    of_state: int | None = None  # which of the STATE_VALUES; None: not a sum over states
    sign: float = 1.0
    is_whole: bool = True  # its values are whole numbers


TERMS: dict[str, ObjectiveTerm] = {
    "nodes": ObjectiveTerm("nodes that the job spans"),
    "racks": ObjectiveTerm("racks that the job spans"),
    "fragments": ObjectiveTerm(
        "partly used nodes: one more if an empty one is used, one less if one becomes full", node_states.PARTLY_USED
    ),
    "fgd": ObjectiveTerm(
        "free GPU milli that a task of the log cannot use (Weng et al., ATC 2023)", node_states.FRAGMENTED, is_whole=False
    ),
    "even": ObjectiveTerm("Σ of squares of the nodes' use in per cent: small if all are used alike", node_states.SQUARE_OF_USE),
    "full": ObjectiveTerm("the opposite of even: few nodes that are used much", node_states.SQUARE_OF_USE, sign=-1.0),
    "slow": ObjectiveTerm("1 ÷ speed of the slowest node of the gang", is_whole=False),
    "energy": ObjectiveTerm("watts of the tasks beyond an idle node's × 1 ÷ speed", is_whole=False),
    "room": ObjectiveTerm("− tasks of the next waiting jobs that still find room, by GPU, cores and memory", node_states.NO_ROOM),
}
DEFAULT_TERMS = "nodes-fragments-full"
HINT = f"write milp[:TERMS][:K] with terms joined by - or +, for example milp:fgd-full, milp:2nodes+fragments:4; terms: {', '.join(TERMS)}"
_PART = re.compile(r"(\d+(?:\.\d+)?)?([a-z]+)")


@dataclass(frozen=True)
class Objective:
    levels: tuple[tuple[tuple[float, str], ...], ...]  # of (weight, term)
    jobs: int = 1  # of the queue that are placed together

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for level in self.levels for _, name in level))


def parse_objective(text: str) -> Objective:
    """What follows `milp` in a name: empty, or a colon and options."""
    options = text.split(":")[1:]
    number = whole_number(options[-1]) if options else None
    if number is not None:
        options.pop()
        if not 1 <= number <= MOST_JOBS:
            raise InputError(f"placement milp: {number} jobs cannot be placed together", hint=f"give 1 to {MOST_JOBS}")
    if len(options) > 1:
        raise InputError(f"placement 'milp{text}' has more options than terms and a number of jobs", hint=HINT)
    terms = options[0] if options else DEFAULT_TERMS
    return Objective(tuple(tuple(_parse_term(part) for part in level.split("+")) for level in terms.split("-")), number or 1)


def _parse_term(text: str) -> tuple[float, str]:
    found = _PART.fullmatch(text)
    if found is None:
        raise InputError(f"placement milp: {text!r} is not a term", hint=HINT)
    if found[2] not in TERMS:
        raise unknown_name("term of milp", found[2], TERMS)
    weight = 1.0 if found[1] is None else float(found[1])
    if weight == 0.0:
        raise InputError(f"placement milp: the weight of {found[2]} is 0", hint="leave the term out")
    return weight, found[2]
