"""The power cap under every policy that takes one: engine and reference make identical schedules."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster.conditions import Conditions, Power
from strategies import BACKFILLS, DISPATCHES, PLACEMENTS, Case, caps, policies, troubled_cases


def tight(case: Case) -> list[Conditions]:
    """Power for one job at a time, for a few, for most."""
    idle = float(case.cluster.idle_draw.sum())
    return [Conditions(power=Power(cap_watts=idle + watts)) for watts in (210.0, 480.0, 800.0)]


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_orders_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    cases, orders = (gangs(), mixture(), crowd(3, 25)), ("fcfs", "sjf", "saf", "hrrn", "power")
    for case, order, world in mixed(f"{backfill} {dispatch}", cases, orders, range(3)):
        assert_same_schedule(case, f"{order}+{backfill}", dispatch, tight(case)[world])


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", [*(f"fcfs+{backfill}" for backfill in BACKFILLS), "sjf+easy/3:saf"])
def test_every_placement_on_fixed_workloads(policy: str, placement: str) -> None:
    for case, world in mixed(f"{policy} {placement}", (gangs(), mixture(), crowd(4, 25), crowd(5, 25)), range(3)):
        assert_same_schedule(case, f"{policy}@{placement}", conditions=tight(case)[world])


@tries(250)
@given(troubled_cases(), st.data(), st.lists(policies(), min_size=2, max_size=2), st.sampled_from(DISPATCHES))
def test_any_policy_among_outages_and_sleep(pair: tuple[Case, Conditions], data: st.DataObject, names: list[str], dispatch: str) -> None:
    case, conditions = pair
    assume(case.cluster.num_gpus or case.cluster.node_core_watts.any())
    power = data.draw(caps(case.cluster))
    for policy in names:
        assert_same_schedule(case, policy, dispatch, conditions.model_copy(update={"power": power}))
