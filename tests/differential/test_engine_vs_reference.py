"""The engine and the independent reference make identical schedules, job by job and GPU by GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload.estimates import estimate
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS, DISPATCHES, KIND_SETS, ORDERS, PLACEMENTS, Case, cases, policies


def assert_same_schedule(case: Case, policy: str, dispatch: str) -> None:
    options = {"dispatch": dispatch, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    predicted = estimate(case.workload, "predicted", case.seed).values if "qssf" in policy else None
    expected = reference.simulate(case.workload, case.cluster, policy, estimate=case.estimate, predicted=predicted, **options)
    found = simulate(case.workload, case.cluster, policy, estimates=case.estimate, **options)
    label = f"{policy} {dispatch}"
    np.testing.assert_array_equal(found.status, expected.status, err_msg=label)
    np.testing.assert_array_equal(found.start, expected.start, err_msg=label)
    np.testing.assert_array_equal(found.end, expected.end, err_msg=label)
    columns = (found.piece_job, found.piece_node, found.piece_tasks, found.piece_gpus)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == expected.pieces, label
    np.testing.assert_array_equal(found.piece_start, expected.start[found.piece_job], err_msg=label)
    np.testing.assert_array_equal(found.piece_end, expected.end[found.piece_job], err_msg=label)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases(), st.lists(policies(), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_policy_on_any_workload(case: Case, names: list[str], dispatch: str) -> None:
    for policy in names:
        assert_same_schedule(case, policy, dispatch)


# --- every combination on fixed workloads


def gangs() -> Case:
    """Whole-GPU gangs on equal nodes in racks, one queue, overdue jobs, penalties for spreading."""
    rng = np.random.default_rng(1)
    num = 16
    workload = Workload(
        submit=np.cumsum(rng.choice([0.0, 0.0, 1.0, 3.0], num)),
        runtime=rng.choice([0.0, 2.0, 5.0, 5.0, 11.0], num),
        num_tasks=rng.choice([1, 1, 2, 3, 5], num).astype(np.int32),
        gpu_milli=rng.choice([1000, 1000, 2000], num).astype(np.int32),
        priority=rng.choice([0.0, 1.0], num),
        deadline=rng.choice([np.nan, 9.0, 20.0], num),
    )
    cluster = build("gangs", [NodeGroup(3, gpus=2, kind="V100-16", nodes_per_rack=2)], node_penalty=0.5, rack_penalty=0.25)
    return Case(workload, cluster, workload.runtime * rng.choice([0.5, 1.0, 1.0, 3.0], num), seed=7, kill_at_limit=False)


def mixture() -> Case:
    """Shares, CPU-only jobs, memory, kinds of different speed and two partitions with a queue each."""
    rng = np.random.default_rng(2)
    num = 16
    gpu = rng.choice([0, 300, 500, 700, 1000], num).astype(np.int32)
    workload = Workload(
        submit=np.cumsum(rng.choice([0.0, 0.1, 1 / 3, 2.0], num)),
        runtime=rng.choice([0.1, 0.7, 3.3, 3.3, 8.0], num),
        num_tasks=rng.choice([1, 1, 2, 3], num).astype(np.int32),
        gpu_milli=gpu,
        cpu_milli=np.where(gpu == 0, 1000, rng.choice([0, 500], num)).astype(np.int32),
        mem_mib=rng.choice([0, 700], num).astype(np.int32),
        requested=rng.choice([np.nan, 1.0, 4.0], num),
        kind_set=rng.choice([0, 0, 0, 1, 2, 4], num).astype(np.int32),
        partition=rng.choice([0, 0, 1], num).astype(np.int32),
        kind_sets=KIND_SETS,
        partitions=("south", "north"),
    )
    groups = [
        NodeGroup(1, gpus=2, kind="T4", cpus=2, mem_gib=2, partition="north", core_watts=5),
        NodeGroup(1, gpus=1, kind="A100-80", cpus=2, mem_gib=2, partition="south"),
        NodeGroup(1, cpus=2, mem_gib=1, partition="south", core_watts=9),
        NodeGroup(1, gpus=2, kind="V100-16", cpus=3, mem_gib=2, partition="south"),
    ]
    cluster = build("mixture", groups, speeds={"T4": 0.5, "A100-80": 1.7})
    return Case(workload, cluster, workload.runtime.copy(), seed=11, kill_at_limit=True)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_every_combination_on_fixed_workloads(backfill: str, placement: str) -> None:
    for case, order, dispatch in itertools.product((gangs(), mixture()), ORDERS, DISPATCHES):
        assert_same_schedule(case, f"{order}+{backfill}@{placement}", dispatch)


# --- pieces of real logs

LOGS = {
    "swf/lublin_256.swf.gz": "flat:256",
    "swf/CTC-SP2.swf.gz": "flat:338",
    "philly/philly_jobs_2017-09_to_10.csv.gz": "philly",
    "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz": "helios-venus",
}
REAL_POLICIES = ("fcfs", "sjf", "f1", "wfp3+greedy", "fcfs+easy", "sjf+easy:saf@spread", "saf+easy-strict/8", "fcfs+conservative/8")
