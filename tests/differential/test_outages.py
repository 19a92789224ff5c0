"""Outages under every kind of policy: the engine and the reference make identical schedules, run by run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_possible, assert_same_schedule, replay
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster.conditions import Conditions, Failures, Maintenance, Outage, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS, DISPATCHES, ORDERS, PLACEMENTS, PREEMPTIVE, Case, policies, troubled_cases

COSTS = Preemption(mode="kill", quantum_s=1.0, checkpoint_s=9.0, restart_s=0.5, transfer_per_gpu_s=0.3, checkpoint_every_s=1.0)


def random_outages(case: Case, seed: int) -> tuple[Outage, ...]:
    """Every node closes now and then; many at whole seconds, some one after the other or during each other, few for ever."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(case.cluster.num_nodes):
        time = float(case.workload.submit[0]) + float(rng.choice([0.0, 1.0, 3.0, 4.4]))
        for _ in range(rng.integers(0, 5)):
            end = time + float(rng.choice([1.0, 2.5, 6.0, 20.0, np.inf], p=[0.3, 0.2, 0.3, 0.15, 0.05]))
            found.append(Outage(node=n, start=time, end=end, kind="fail" if rng.integers(0, 3) else "drain"))
            time = float(rng.choice([time, end])) + float(rng.choice([0.0, 3.0, 7.0, 12.0]))
            if time == np.inf:
                break
    return tuple(found)


def worlds(case: Case) -> list[Conditions]:
    return [
        Conditions(outages=random_outages(case, seed=7)),
        Conditions(outages=random_outages(case, seed=0), preemption=COSTS),
        Conditions(outages=random_outages(case, seed=9), requeue=False),
    ]


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_every_order_on_fixed_workloads(backfill: str, dispatch: str) -> None:
    for case, order, world in mixed(f"{backfill} {dispatch}", (gangs(), mixture(), crowd(3, 25)), ORDERS, range(3)):
        assert_same_schedule(case, f"{order}+{backfill}", dispatch, worlds(case)[world])


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", [*(f"fcfs+{backfill}" for backfill in BACKFILLS), "sjf+easy/3:saf", *PREEMPTIVE])
def test_every_placement_on_fixed_workloads(policy: str, placement: str) -> None:
    for case, world in mixed(f"{policy} {placement}", (gangs(), mixture(), crowd(4, 25)), range(3)):
        assert_same_schedule(case, f"{policy}@{placement}", conditions=worlds(case)[world])


@tries(300)
@given(troubled_cases(), st.lists(policies(), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_policy_on_any_workload(pair: tuple[Case, Conditions], names: list[str], dispatch: str) -> None:
    case, conditions = pair
    for policy in names:
        assert_same_schedule(case, policy, dispatch, conditions)


@tries(60)
@given(st.integers(0, 10_000), policies(), st.sampled_from(DISPATCHES), st.booleans())
def test_any_policy_in_a_crowd(seed: int, policy: str, dispatch: str, requeue: bool) -> None:
    case = crowd(seed, 30)
    conditions = Conditions(outages=random_outages(case, seed), requeue=requeue, preemption=COSTS if seed % 2 else Preemption())
    assert_same_schedule(case, policy, dispatch, conditions)


POLICIES = ("fcfs", "sjf+easy", "fcfs+conservative", "fcfs+easy-strict", "srtf", "tiresias:7200", "defrag")
HOUR = 3600.0


def hours_of_work(num: int) -> Case:
    """Whole-GPU gangs on nodes of two kinds, in long queues if there are many."""
    rng = np.random.default_rng(5)
    tasks, gpus = np.array([(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 1), (5, 2)])[rng.integers(0, 7, num)].T
    workload = Workload(
        submit=np.sort(rng.uniform(0, 20 * HOUR, num)),
        runtime=rng.lognormal(8.0, 1.0, num),
        num_tasks=tasks.astype(np.int32),
        gpu_milli=(gpus * 1000).astype(np.int32),
    )
    cluster = build("failing", [NodeGroup(3, gpus=8, kind="V100-16"), NodeGroup(2, gpus=8, kind="T4")], speeds={"T4": 0.5})
    return Case(workload, cluster, workload.runtime * rng.choice([0.5, 1.0, 3.0], num), seed=0, kill_at_limit=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_random_failures(policy: str) -> None:
    """Nodes fail every ten hours."""
    costs = Preemption(restart_s=60.0, checkpoint_s=20.0, checkpoint_every_s=1800.0, quantum_s=600.0)
    for seed in range(3):
        conditions = Conditions(failures=Failures(mtbf_h=10, mttr_h=1, seed=seed), preemption=costs)
        assert_same_schedule(hours_of_work(80), policy, conditions=conditions)


@pytest.mark.parametrize("seed", range(40))
def test_random_failures_during_maintenance_and_outages(seed: int) -> None:
    """Failures before, within and after a drain, a maintenance window with notice and one without: all three together hold for any seed."""
    case = hours_of_work(25)
    conditions = Conditions(
        failures=Failures(mtbf_h=6, mttr_h=2, seed=seed),
        maintenance=(
            Maintenance(nodes=(0, 1, 3), start=10 * HOUR, end=14 * HOUR, notice_s=6 * HOUR),
            Maintenance(nodes=(4,), start=3 * HOUR, end=5 * HOUR),
        ),
        outages=(Outage(node=0, start=9 * HOUR, end=11 * HOUR), Outage(node=2, start=2 * HOUR, end=8 * HOUR, kind="drain")),
        preemption=Preemption(restart_s=60.0, checkpoint_every_s=1800.0),
    )
    policy = POLICIES[seed % len(POLICIES)]
    assert_same_schedule(case, policy, conditions=conditions)
    assert_possible(case, replay(case, policy, conditions), policy, conditions)
