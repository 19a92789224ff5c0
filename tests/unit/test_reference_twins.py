"""Every registered rule has a twin in the reference and is drawn by the differential tests.

The reference shares no code with the engine, so that a rule is written twice, from docs/simulator.md. A rule without a twin fails here,
with the place where the twin belongs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import strategies
from queuewise.policies import backfill, ordering, parse_policy, placing, preemptive
from reference import backfill as reference_backfill
from reference import fairness as reference_fairness
from reference import orders as reference_orders
from reference import placement as reference_placement
from reference import preemption as reference_preemption
from reference import slurm as reference_slurm
from reference.policy_names import Policy


@dataclass(frozen=True)
class Registry:
    """One kind of rule: the names of the engine, those of the reference, and where a twin is added."""

    kind: str
    names: Collection[str]
    twins: Collection[str]
    add_at: str


REGISTRIES = (
    Registry(
        "order",
        ordering.ORDERS,
        (*reference_orders.SCORES, *reference_fairness.FAIR_ORDERS),
        "SCORES in tests/reference/orders.py, or FAIR_ORDERS and Owners.scores in tests/reference/fairness.py",
    ),
    Registry("backfill", backfill.BACKFILLS, (*reference_backfill.RULES, reference_slurm.NAME), "RULES in tests/reference/backfill.py"),
    Registry(
        "placement",
        placing.PLACEMENTS,
        reference_placement.RULES,
        "KEYS in tests/reference/placement.py, or RULES and Placer.place_size there",
    ),
    Registry(
        "preemptive policy",
        preemptive.PREEMPTIVE,
        reference_preemption.NAMES,
        "NAMES and the class Preemptive in tests/reference/preemption.py",
    ),
)


def complaints(registry: Registry) -> list[str]:
    """What the engine and the reference do not both have."""
    missing = [
        f"{registry.kind} {name!r} has no twin in the reference\nhint: add it to {registry.add_at}, by its text in docs/simulator.md"
        for name in registry.names
        if name not in registry.twins
    ]
    return missing + [
        f"{registry.kind} {name!r} of the reference is not registered\nhint: remove it from {registry.add_at}"
        for name in registry.twins
        if name not in registry.names
    ]


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_rule_has_a_twin(registry: Registry) -> None:
    assert not complaints(registry), "\n".join(complaints(registry))


def test_a_rule_without_a_twin_is_reported_with_the_place_to_add_it() -> None:
    planted = Registry("order", (*ordering.ORDERS, "planted"), REGISTRIES[0].twins, REGISTRIES[0].add_at)
    (message,) = complaints(planted)
    assert "order 'planted' has no twin" in message
    assert "tests/reference/orders.py" in message


def drawn(strategy: st.SearchStrategy[str]) -> list[str]:
    """Many names of a strategy, the same in every run."""
    names: list[str] = []

    @settings(max_examples=2500, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(strategy)
    def collect(name: str) -> None:
        names.append(name)

    collect()
    return names


def test_every_rule_is_drawn() -> None:
    policies = [parse_policy(name) for name in drawn(strategies.policies())]
    assert {policy.order for policy in policies} == set(ordering.ORDERS)
    assert {policy.backfill_order for policy in policies} == {"", *ordering.ORDERS}
    assert {policy.backfill for policy in policies} == set(backfill.BACKFILLS) - set(strategies.MIGRATING)
    assert {policy.placement.partition(":")[0] for policy in policies} == set(placing.PLACEMENTS)


def test_every_preemptive_rule_is_drawn() -> None:
    policies = [parse_policy(name) for name in drawn(strategies.preemptive_policies())]
    assert {policy.order for policy in policies} >= set(preemptive.PREEMPTIVE)
    assert {policy.backfill for policy in policies} >= set(strategies.MIGRATING)
    assert {policy.placement.partition(":")[0] for policy in policies} == set(placing.PLACEMENTS)


NAMES = (
    "sjf+defrag", "defrag:sjf", "random", "fcfs+easy/3:saf@pack:1", "las:4@tier:balance", "drf+conservative", "saf+easy~1.5h@spread",
    "saf:predicted+easy/2:sjf:oracle~3d", "tiresias:60~20m", *ordering.ORDERS, *preemptive.PREEMPTIVE,
    *(f"fcfs+{name}" for name in backfill.BACKFILLS), *(f"fcfs@{name}" for name in placing.PLACEMENTS),
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_both_read_a_name_the_same_way(name: str) -> None:
    engine, reference = parse_policy(name), Policy.parse(name)
    with_estimates = engine.order + (f":{engine.estimates}" if engine.estimates else "")
    second = engine.backfill_order + (f":{engine.backfill_estimates}" if engine.backfill_estimates else "")
    assert reference.order == ("fcfs" if reference.preemptive else with_estimates)
    assert reference.max_wait == engine.max_wait_s
    assert reference.backfill == engine.backfill
    assert reference.second_order == (second or reference.order)
    assert reference.placement + (f":{reference.option}" if reference.option else "") == engine.placement
    assert reference.depth == (None if engine.depth == parse_policy("fcfs").depth else engine.depth)
