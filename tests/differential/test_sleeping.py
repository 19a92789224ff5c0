"""Sleeping nodes under every kind of policy: engine and reference make identical schedules, and agree on who slept when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from agreement import assert_same_schedule
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster.conditions import Conditions, Power, Preemption
from queuewise.evaluation.node_sleep import node_sleeps
from queuewise.policies import simulate
from strategies import BACKFILLS, DISPATCHES, PLACEMENTS, PREEMPTIVE, Case, policies, powers, preemptive_policies, troubled_cases

SLEEPY = (Power(sleep_after_s=0.0, wake_s=1.0), Power(sleep_after_s=1.0, wake_s=2.3), Power(sleep_after_s=3.0))
COSTS = Preemption(restart_s=0.5, transfer_s=0.3, quantum_s=1.0)


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_orders_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    axes = (gangs(), mixture(), crowd(3, 25)), ("fcfs", "sjf", "hrrn", "power"), SLEEPY
    for case, order, power in mixed(f"{backfill} {dispatch}", *axes):
        assert_same_schedule(case, f"{order}+{backfill}", dispatch, Conditions(power=power))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", [*(f"fcfs+{backfill}" for backfill in BACKFILLS), "sjf+easy/3:saf", *PREEMPTIVE])
def test_placements_on_fixed_workloads(policy: str, placement: str) -> None:
    for case, power in mixed(f"{policy} {placement}", (gangs(), mixture(), crowd(4, 25)), SLEEPY):
        assert_same_schedule(case, f"{policy}@{placement}", conditions=Conditions(power=power, preemption=COSTS))


@tries(200)
@given(troubled_cases(), powers(), policies(), preemptive_policies(), st.sampled_from(DISPATCHES))
def test_any_policy_among_outages(pair: tuple[Case, Conditions], power: Power, policy: str, preemptive: str, dispatch: str) -> None:
    case, conditions = pair[0], pair[1].model_copy(update={"power": power})
    assert_same_schedule(case, policy, dispatch, conditions)
    assert_same_schedule(case, preemptive, conditions=conditions)


@tries(150)
@given(troubled_cases(), powers(), st.one_of(policies(), preemptive_policies()))
def test_sleeps_are_told_from_the_schedule(pair: tuple[Case, Conditions], power: Power, policy: str) -> None:
    case, conditions = pair[0], pair[1].model_copy(update={"power": power})
    options: dict[str, Any] = {"seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    known = reference.simulate(case.workload, case.cluster, policy, estimate=case.estimate, guessed=case.guessed, **options)
    found = node_sleeps(simulate(case.workload, case.cluster, policy, estimates=case.known, **options))
    assert list(zip(found.node.tolist(), found.start.tolist(), found.end.tolist(), strict=True)) == known.sleeps
