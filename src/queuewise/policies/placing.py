"""Placement rules by name: where a job goes."""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.errors import InputError, unknown_name
from queuewise.policies.milp.terms import parse_objective
from queuewise.sim import placement
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.placement.tiers import BALANCE, DEFRAGMENT, LOWEST
from queuewise.workload.plain_numbers import whole_number


@dataclass(frozen=True)
class PlacementRule:
    code: int
    summary: str
    options: str = ""  # what may follow a colon


PLACEMENTS: dict[str, PlacementRule] = {
    "first": PlacementRule(placement.FIRST, "the lowest node that fits (LSF's default)"),
    "pack": PlacementRule(
        placement.PACK, "the node with the least left over; pack:K allows at most K nodes more than the fewest possible", "K"
    ),
    "best": PlacementRule(placement.PACK, "another name of pack", "K"),
    "spread": PlacementRule(placement.SPREAD, "the least loaded node, task by task"),
    "random": PlacementRule(placement.RANDOM, "any node that fits"),
    "fastest": PlacementRule(placement.FASTEST, "the fastest GPU kind, packed"),
    "cheapest": PlacementRule(
        placement.CHEAPEST, "the GPU kind that uses the least energy for the whole job, packed; the fastest ones if no kind alone has room"
    ),
    "tier": PlacementRule(
        placement.TIER, "fewest nodes, one more only if that does not fragment (RLTune); tier:balance evens the load", "balance"
    ),
    "tier1": PlacementRule(placement.TIER, "fewest nodes, of these the lexicographically least (RLTune's default)"),
    "fgd": PlacementRule(placement.FGD, "least growth of fragmentation (Weng et al., ATC 2023)"),
}


# Rules that a solver outside the engine carries out. tests/property/test_milp.py compares them with all possible placements.
SOLVED_PLACEMENTS: dict[str, PlacementRule] = {
    "milp": PlacementRule(
        placement.BY_SOLVER,
        "exact: fewest nodes, then fewest partly used ones, then the fullest; milp:TERMS:K minimises other terms, for K jobs together",
        "TERMS:K",
    ),
}


def parse_placement(text: str) -> tuple[int, int]:
    """`rule[:option]` as (code, option)."""
    name, colon, option = text.partition(":")
    if name in SOLVED_PLACEMENTS:
        parse_objective(text.removeprefix(name))
        return SOLVED_PLACEMENTS[name].code, NO_LIMIT
    if name not in PLACEMENTS:
        raise unknown_name("placement", name, (*PLACEMENTS, *SOLVED_PLACEMENTS))
    rule = PLACEMENTS[name]
    if rule.code == placement.TIER:
        if colon and (name, option) != ("tier", "balance"):
            raise InputError(f"placement {text!r}: only tier takes an option, balance", hint="write tier, tier:balance or tier1")
        if name == "tier1":
            return placement.TIER, LOWEST
        return placement.TIER, BALANCE if colon else DEFRAGMENT
    if not colon:
        return rule.code, NO_LIMIT
    extra = whole_number(option)
    if rule.code == placement.PACK and extra is not None:
        return placement.PACK, extra
    raise InputError(
        f"placement {text!r}: {option!r} is no option of {name}",
        hint="pack:K takes a number of extra nodes, of at most nine digits, tier:balance a word",
    )
