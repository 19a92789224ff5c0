"""The engine and the independent reference make identical schedules, job by job and GPU by GPU."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
from queuewise.cluster import load_cluster
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload import load_workload
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


# --- 2,000-job pieces of real logs, on clusters of a size that makes them queue

PROCESSOR_LOGS = [("swf/lublin_256.swf.gz", "flat:256"), ("swf/HPC2N-2002-2.2-cln.swf.gz", "flat:240")]
GPU_LOGS = [
    ("philly/philly_jobs_2017-09_to_10.csv.gz", "34x8:P100"),
    ("helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "26x8:V100-16"),
    ("rltune/synthetic_trace.csv", "rltune-alibaba"),
    ("alibaba/openb_pod_list_gpuspec33.csv", "openb"),
]
QUICK_POLICIES = ("sjf", "f1+greedy", "wfp3", "fcfs+easy")
ALL_POLICIES = (
    *QUICK_POLICIES,
    "saf+easy:sjf@spread",
    "unicep+easy-strict/8@random",
    "fcfs+conservative/4",
    "hrrn+greedy@tier",
    "sjf@pack:0",
)
OPENB_STEP = 50  # every 50th node: 31 nodes of all models


def piece_of_log(traces: Path, log: str, cluster_name: str) -> Case:
    workload = load_workload(traces / log).workload.take(slice(0, 2000))
    known = np.where(np.isnan(workload.requested), workload.runtime, workload.requested)
    cluster = load_cluster(cluster_name)
    return Case(workload, thin(cluster, OPENB_STEP) if cluster_name == "openb" else cluster, known, seed=3, kill_at_limit=False)


def thin(cluster: Cluster, step: int) -> Cluster:
    """Every step-th node of a cluster."""
    names = [field.name for field in dataclasses.fields(cluster)]
    columns = [name for name in names if name.startswith("node_") and not name.endswith("_penalty")]
    return dataclasses.replace(cluster, **{name: getattr(cluster, name)[::step] for name in columns})


@pytest.mark.parametrize(("log", "cluster"), PROCESSOR_LOGS)
def test_processor_logs(traces: Path, log: str, cluster: str) -> None:
    case = piece_of_log(traces, log, cluster)
    for policy in QUICK_POLICIES:
        assert_same_schedule(case, policy, "reorder")


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize(("log", "cluster"), PROCESSOR_LOGS + GPU_LOGS)
def test_all_logs(traces: Path, log: str, cluster: str, policy: str, dispatch: str) -> None:
    assert_same_schedule(piece_of_log(traces, log, cluster), policy, dispatch)
