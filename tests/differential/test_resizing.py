"""Running elastic jobs that shrink and grow: engine and reference make identical schedules, and the work is carried exactly."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_possible, assert_same_schedule, replay, stays
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture, stretchable
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload
from queuewise.workload.speedup import speed
from strategies import BACKFILLS, DISPATCHES, PLACEMENTS, SCALINGS, Case, elastic, policies, powers, reserved_cases

often = tries(150)
COSTS = Preemption(mode="kill", restart_s=0.5, checkpoint_s=0.25, transfer_s=0.75, quantum_s=1.0)
MODES: tuple[Literal["shrink", "grow", "both"], ...] = ("shrink", "grow", "both")
modes = st.sampled_from(MODES)


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_orders_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    axes = (gangs(), mixture(), crowd(3, 20)), ("fcfs", "sjf", "hrrn", "drf"), MODES, (Preemption(), COSTS)
    for case, order, mode, costs in mixed(f"{backfill} {dispatch}", *axes):
        assert_same_schedule(stretchable(case, 1), f"{order}+{backfill}", dispatch, Conditions(resize=mode, preemption=costs))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", ["fcfs", "sjf+easy", "fcfs+conservative"])
def test_placements_on_fixed_workloads(policy: str, placement: str) -> None:
    for case in (gangs(), mixture(), crowd(4, 20)):
        assert_same_schedule(stretchable(case, 2), f"{policy}@{placement}", conditions=Conditions(resize="both"))


@often
@given(reserved_cases(), st.data(), policies(), st.sampled_from(DISPATCHES), modes)
def test_any_policy_among_outages_and_reservations(
    pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str, mode: str
) -> None:
    case = data.draw(elastic(pair[0]))
    changes: dict[str, object] = {"resize": mode}
    if data.draw(st.booleans()):
        changes["reservations"] = ()
    if data.draw(st.integers(0, 3)) == 0:
        changes["power"] = data.draw(powers())
    assert_same_schedule(case, policy, dispatch, pair[1].model_copy(update=changes))


@often
@given(reserved_cases(), st.data(), policies().filter(lambda name: "easy-strict" not in name), modes)
def test_nothing_impossible_happens_and_nothing_is_lost(pair: tuple[Case, Conditions], data: st.DataObject, policy: str, mode: str) -> None:
    case, conditions = data.draw(elastic(pair[0])), pair[1].model_copy(update={"resize": mode})
    assert_possible(case, replay(case, policy, conditions), policy, conditions)


@pytest.mark.parametrize("policy", ["fcfs", "sjf+easy", "fcfs+conservative"])
def test_work_along_the_curve_is_conserved(policy: str) -> None:
    """Σ over a job's runs of time × speed with the tasks it had then = runtime × speed with the tasks submitted; the log grows."""
    rng = np.random.default_rng(3)
    num = 150
    tasks = rng.integers(1, 9, num).astype(np.int32)
    workload = Workload(
        np.sort(rng.uniform(0, 2000, num)), rng.exponential(100, num), tasks, np.full(num, 1000, np.int32),
        min_tasks=np.maximum(tasks // 3, 1), max_tasks=tasks * 3, scaling=rng.integers(0, len(SCALINGS), num).astype(np.int32),
        scalings=SCALINGS,
    )  # fmt: skip
    cluster = build("flat", [NodeGroup(8, gpus=4, kind="T4")])
    found = simulate(workload, cluster, policy, estimates="oracle", conditions=Conditions(resize="both"))
    assert found.finished.all()
    assert found.preemptions.sum() > num
    done = np.zeros(num)
    runs: dict[tuple[int, float, float], int] = {}
    for stay in stays(found):
        key = (stay.job, stay.start, stay.end)
        runs[key] = runs.get(key, 0) + stay.tasks
    for (j, start, end), held in runs.items():
        assert workload.min_tasks[j] <= held <= workload.max_tasks[j]
        done[j] += (end - start) * speed(SCALINGS[workload.scaling[j]], np.array([held]))[0]
    submitted = [speed(SCALINGS[code], np.array([n]))[0] for code, n in zip(workload.scaling, tasks, strict=True)]
    np.testing.assert_allclose(done, workload.runtime * submitted, rtol=1e-9, atol=1e-9)
