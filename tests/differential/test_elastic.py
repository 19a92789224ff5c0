"""Elastic jobs under every policy that takes them: engine and reference make identical schedules, and the work is conserved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_possible, assert_same_schedule, replay
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture, stretchable
from queuewise.cluster.conditions import Conditions, Power
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload
from queuewise.workload.speedup import speed
from strategies import BACKFILLS, DISPATCHES, PLACEMENTS, SCALINGS, Case, caps, elastic, policies, powers, reserved_cases, troubled_cases

often = tries(150)


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_orders_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    orders = ("fcfs", "sjf", "saf", "hrrn", "fairshare", "drf")
    for case, order in mixed(f"{backfill} {dispatch}", (gangs(), mixture(), crowd(3, 25)), orders):
        assert_same_schedule(stretchable(case, 1), f"{order}+{backfill}", dispatch)


@pytest.mark.parametrize(
    ("policy", "placement"),
    mixed("elastic placements", [*(f"fcfs+{backfill}" for backfill in BACKFILLS), "sjf+easy/3:saf"], list(PLACEMENTS)),
)
def test_placements_on_fixed_workloads(policy: str, placement: str) -> None:
    for case in (gangs(), mixture(), crowd(4, 25)):
        assert_same_schedule(stretchable(case, 2), f"{policy}@{placement}")


@often
@given(troubled_cases(), st.data(), st.lists(policies(), min_size=2, max_size=2), st.sampled_from(DISPATCHES))
def test_any_policy_among_outages(pair: tuple[Case, Conditions], data: st.DataObject, names: list[str], dispatch: str) -> None:
    case = data.draw(elastic(pair[0]))
    for policy in names:
        assert_same_schedule(case, policy, dispatch, pair[1])


@tries(100)
@given(reserved_cases(), st.data(), policies(), st.sampled_from(DISPATCHES))
def test_any_policy_with_reservations_sleep_or_a_cap(
    pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str
) -> None:
    case = data.draw(elastic(pair[0]))
    power: Power = data.draw(st.one_of(st.just(Power()), caps(case.cluster) if case.cluster.num_gpus else powers()))
    assert_same_schedule(case, policy, dispatch, pair[1].model_copy(update={"power": power}))


@often
@given(troubled_cases(), st.data(), policies().filter(lambda name: "easy-strict" not in name), st.sampled_from(DISPATCHES))
def test_nothing_impossible_happens_and_nothing_is_lost(
    pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str
) -> None:
    case, conditions = data.draw(elastic(pair[0])), pair[1]
    assert_possible(case, replay(case, policy, conditions, dispatch), policy, conditions)


@pytest.mark.parametrize("policy", ["fcfs", "sjf+easy", "fcfs+conservative"])
def test_work_along_the_curve_is_conserved(policy: str) -> None:
    """Time on the machine × speed with the tasks it had = runtime × speed with the tasks it was submitted with."""
    rng = np.random.default_rng(3)
    num = 200
    tasks = rng.integers(1, 9, num).astype(np.int32)
    workload = Workload(
        np.sort(rng.uniform(0, 2000, num)), rng.exponential(60, num), tasks, np.full(num, 1000, np.int32),
        min_tasks=np.maximum(tasks // 2, 1), max_tasks=tasks * 3, scaling=rng.integers(0, len(SCALINGS), num).astype(np.int32),
        scalings=SCALINGS,
    )  # fmt: skip
    found = simulate(workload, build("flat", [NodeGroup(8, gpus=4, kind="T4")]), policy, estimates="oracle")
    held = np.bincount(found.piece_job, weights=found.piece_tasks, minlength=num).astype(np.int64)
    assert ((held >= workload.min_tasks) & (held <= workload.max_tasks)).all()
    assert len(set((held - tasks).tolist())) > 5
    for number, curve in enumerate(SCALINGS):
        own = workload.scaling == number
        done = (found.end - found.start)[own] * speed(curve, held[own])
        np.testing.assert_allclose(done, workload.runtime[own] * speed(curve, tasks[own].astype(np.int64)), rtol=1e-9)
