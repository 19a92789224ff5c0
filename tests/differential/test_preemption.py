"""Preemptive policies: the engine and the reference make identical schedules, run by run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import PERFECT, assert_same_schedule
from effort import mixed, tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.sim.core import initial
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate
from strategies import PLACEMENTS, PREEMPTIVE, Case, preemptive_policies, stopping_costs, troubled_cases

COSTLY = Conditions(
    preemption=Preemption(
        quantum_s=2.0,
        checkpoint_s=0.5,
        checkpoint_per_gpu_s=0.1,
        restart_s=1.0,
        restart_per_gpu_s=0.3,
        transfer_s=0.7,
        transfer_per_gpu_s=0.2,
        kind_factor={"T4": 2.0, "V100-16": 0.5},
    )
)
KILLING = Conditions(preemption=Preemption(mode="kill", checkpoint_every_s=1.5, restart_s=1.0, checkpoint_s=100.0, transfer_s=0.3))
LOSING = Conditions(preemption=Preemption(mode="kill", quantum_s=3.0))
WORLDS = (PERFECT, COSTLY, KILLING, LOSING)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_every_combination_on_fixed_workloads(policy: str, placement: str) -> None:
    for case, conditions in mixed(f"{policy} {placement}", (gangs(), mixture(), crowd(1), crowd(2)), WORLDS):
        assert_same_schedule(case, f"{policy}@{placement}", conditions=conditions)


@tries(300)
@given(troubled_cases(), st.lists(preemptive_policies(), min_size=3, max_size=3))
def test_any_policy_on_any_workload(pair: tuple[Case, Conditions], policies: list[str]) -> None:
    case, conditions = pair
    for policy in policies:
        assert_same_schedule(case, policy, conditions=conditions)


@tries(60)
@given(st.integers(0, 10_000), preemptive_policies(), stopping_costs())
def test_any_policy_in_a_crowd(seed: int, policy: str, costs: Preemption) -> None:
    assert_same_schedule(crowd(seed), policy, conditions=Conditions(preemption=costs))


@pytest.mark.parametrize("policy", ["defrag", "defrag:sjf@spread", "defrag@first", "defrag@random", "srtf@spread", "las:60@random"])
def test_many_nodes(policy: str) -> None:
    """More nodes in use than `defrag` tries, and long gangs beside short jobs."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        num = 150
        tasks, gpus = np.array([(1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 4), (6, 1)])[rng.integers(0, 8, num)].T
        workload = Workload(
            submit=np.sort(rng.uniform(0, 1200, num)).round(),
            runtime=rng.lognormal(4.0, 1.2, num).round(),
            num_tasks=tasks.astype(np.int32),
            gpu_milli=(gpus * 1000).astype(np.int32),
        )
        cluster = build("many", [NodeGroup(12, gpus=8, kind="V100-16")])
        case = Case(workload, cluster, workload.runtime, seed=seed, kill_at_limit=False)
        for conditions in (PERFECT, COSTLY):
            assert_same_schedule(case, policy, conditions=conditions)


@tries(40)
@given(st.integers(0, 10_000), st.sampled_from(("gittins", "gittins:1", "gittins:7@spread", "gittins:0.3@first")), stopping_costs())
def test_gittins_learns_several_times(seed: int, policy: str, costs: Preemption) -> None:
    """About 160 jobs that end with some service, so keys are computed four times."""
    assert_same_schedule(crowd(seed, 200), policy, conditions=Conditions(preemption=costs))


def test_gittins_learns_on_whole_gpus() -> None:
    """Where victims are read off lists of whole GPUs, which learning must renew."""
    rng = np.random.default_rng(3)
    num = 300
    workload = Workload(
        submit=np.sort(rng.uniform(0, 4000, num)).round(),
        runtime=rng.choice([5.0, 5.0, 5.0, 120.0, 130.0, 600.0], num),
        num_tasks=rng.choice([1, 1, 2, 4, 12], num).astype(np.int32),
        gpu_milli=rng.choice([1000, 2000, 4000], num).astype(np.int32),
    )
    for cluster in (load_cluster("4x8:V100-16"), load_cluster("6x8:V100-16")):
        for policy in ("gittins:10", "gittins:10@spread", "gittins"):
            assert_same_schedule(Case(workload, cluster, workload.runtime, seed=0, kill_at_limit=False), policy)


@pytest.mark.parametrize("policy", ["srtf", "las:60", "tiresias:600"])
def test_a_log_that_fills_changes_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one run a job the engine stops in the midst of passes, and goes on with a longer log."""
    cluster = load_cluster("4x8:V100-16")
    workload = generate("bench", 2000, gpus=32, load=1.1)
    roomy = simulate(workload, cluster, policy, estimates="oracle")
    monkeypatch.setattr(initial, "RUNS_OF_PREEMPTED", 1)
    tight = simulate(workload, cluster, policy, estimates="oracle")
    assert len(tight.piece_job) > 1.5 * workload.num_tasks.sum()
    for column in ("piece_job", "piece_node", "piece_gpus", "piece_start", "piece_end"):
        np.testing.assert_array_equal(getattr(tight, column), getattr(roomy, column))
