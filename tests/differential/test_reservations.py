"""Reservations under every policy that takes them: engine and reference make identical schedules, which keep what is reserved."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_possible, assert_same_schedule, replay, stays
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster.conditions import Conditions, Power
from queuewise.cluster.reservations import Reservation
from queuewise.workload.jobs import ANY_PARTITION
from reference.check import reservation_violations
from strategies import ACCOUNTS, BACKFILLS, DISPATCHES, PLACEMENTS, USERS, Case, caps, policies, powers, reserved_cases

often = tries(200)


def owned(case: Case, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    num = len(case.workload)
    user, group = rng.choice([-1, 0, 1, 2], num).astype(np.int32), rng.choice([-1, 0, 1], num).astype(np.int32)
    workload = case.workload.replace(user=user, users=USERS, group=group, groups=ACCOUNTS)
    return dataclasses.replace(case, workload=workload)


def worlds(case: Case) -> list[Conditions]:
    """Half of the nodes for a while, soon; all of them for one account, later; one after the other."""
    nodes, first = tuple(range(case.cluster.num_nodes)), float(case.workload.submit[0])
    half = Reservation(nodes=nodes[::2], start=first + 3, end=first + 9, users=("ann", "eve"))
    everything = Reservation(nodes=nodes, start=first + 9, duration_s=6.5, accounts=("red",))
    early = Reservation(count=2, start=first - 5, end=first + 2, users=("bob",), accounts=("blue",))
    return [Conditions(reservations=(half,)), Conditions(reservations=(early, half, everything))]


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_orders_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    cases = [owned(case, 1) for case in (gangs(), mixture(), crowd(3, 25))]
    for case, order, world in mixed(f"{backfill} {dispatch}", cases, ("fcfs", "sjf", "saf", "hrrn"), range(2)):
        assert_same_schedule(case, f"{order}+{backfill}", dispatch, worlds(case)[world])


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", [*(f"fcfs+{backfill}" for backfill in BACKFILLS), "sjf+easy/3:saf"])
def test_placements_on_fixed_workloads(policy: str, placement: str) -> None:
    cases = [owned(case, 2) for case in (gangs(), mixture(), crowd(4, 25))]
    for case, world in mixed(f"{policy} {placement}", cases, range(2)):
        assert_same_schedule(case, f"{policy}@{placement}", conditions=worlds(case)[world])


@often
@given(reserved_cases(), st.lists(policies(), min_size=2, max_size=2), st.sampled_from(DISPATCHES))
def test_any_policy_among_outages(pair: tuple[Case, Conditions], names: list[str], dispatch: str) -> None:
    case, conditions = pair
    for policy in names:
        assert_same_schedule(case, policy, dispatch, conditions)


@tries(100)
@given(reserved_cases(), st.data(), policies(), st.sampled_from(DISPATCHES))
def test_any_policy_with_sleep_or_a_cap(pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str) -> None:
    case, conditions = pair
    power: Power = data.draw(caps(case.cluster) if case.cluster.num_gpus else powers())
    assert_same_schedule(case, policy, dispatch, conditions.model_copy(update={"power": power}))


@often
@given(reserved_cases(), policies())
def test_what_is_reserved_is_kept_and_nothing_is_lost(pair: tuple[Case, Conditions], policy: str) -> None:
    case, conditions = pair
    found = replay(case, policy, conditions)
    assert list(reservation_violations(case.workload, case.cluster, case.estimate, stays(found), conditions)) == []
    assert_possible(case, found, policy, conditions)


@tries(100)
@given(reserved_cases(), policies(), st.sampled_from(DISPATCHES))
def test_members_of_all_know_of_none(pair: tuple[Case, Conditions], policy: str, dispatch: str) -> None:
    """Where everybody is a member the schedule is that without reservations, but for the decisions at their ends."""
    case, conditions = pair
    everyone = np.zeros(len(case.workload), np.int32)
    member = dataclasses.replace(case, workload=case.workload.replace(user=everyone, users=USERS))
    held = tuple(one.model_copy(update={"users": ("ann",)}) for one in conditions.reservations)
    assert_same_schedule(member, policy, dispatch, conditions.model_copy(update={"reservations": held}))
    found = replay(member, "fcfs+greedy", Conditions(reservations=held))
    without = replay(member, "fcfs+greedy", Conditions())
    np.testing.assert_array_equal(found.start, without.start)
    np.testing.assert_array_equal(found.piece_node, without.piece_node)


def test_the_fixed_cases_meet_reservations() -> None:
    """Else the tests above would test little: outsiders are kept waiting and members go ahead."""
    case = owned(crowd(2, 25), 2)
    assert (case.workload.partition == ANY_PARTITION).any()
    conditions = worlds(case)[1]
    assert (replay(case, "fcfs+easy", conditions).start != replay(case, "fcfs+easy", Conditions()).start).sum() > 10
