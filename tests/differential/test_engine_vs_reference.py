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


# --- long queues of whole-GPU gangs: the engine's quickest paths, which remember from pass to pass what they have found


def queue_of_gangs(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    num = 120
    whole_seconds = seed % 3 > 0
    runtime = rng.lognormal(3.5, 1.2, num)
    submit = np.sort(rng.uniform(0, 1500, num))
    accuracy = rng.choice([0.5, 1.0, 1.0, 2.0, 5.0], num) if seed % 2 else np.ones(num)
    tasks, gpus = np.array([(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (3, 1), (5, 2)])[rng.integers(0, 8, num)].T
    workload = Workload(
        submit=np.floor(submit) if whole_seconds else submit,
        runtime=np.floor(runtime) if whole_seconds else runtime,
        num_tasks=tasks.astype(np.int32),
        gpu_milli=(gpus * 1000).astype(np.int32),
        kind_set=rng.choice([0, 0, 0, 1], num).astype(np.int32) if seed % 4 == 0 else None,
        kind_sets=((), ("V100-16",)),
    )
    cluster = build(
        "gangs", [NodeGroup(3, gpus=8, kind="V100-16"), NodeGroup(2, gpus=8, kind="T4")], speeds={"T4": 0.5} if seed % 5 == 0 else None
    )
    return Case(workload, cluster, workload.runtime * accuracy, seed=seed, kill_at_limit=False)


@pytest.mark.parametrize("seed", range(24))
def test_long_queues_of_gangs(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    case = queue_of_gangs(seed)
    for backfill in ("none", "greedy", "easy", "easy-strict", "easy:sjf", "easy:largest"):
        order, placement = rng.choice(["fcfs", "sjf", "saf", "lcfs", "largest", "f1"]), rng.choice(["pack", "first", "spread", "random"])
        assert_same_schedule(case, f"{order}+{backfill}@{placement}", DISPATCHES[seed % 2])


@pytest.mark.parametrize("jobs", [30, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(12))
def test_backlogs_under_conservative_backfill(seed: int, jobs: int) -> None:
    """Deep queues: planning ends early when the jobs left are too long for the gaps, and that must cost nobody a start."""
    case = queue_of_gangs(seed)
    first = case.workload.take(slice(0, jobs))
    case = dataclasses.replace(case, workload=first.replace(submit=np.floor(first.submit / 4)), estimate=case.estimate[:jobs])
    order = ("fcfs", "sjf", "largest", "wfp3")[seed % 4]
    for backfill, placement in (("conservative", "pack"), ("conservative:sjf", ("first", "spread", "random", "tier")[seed % 4])):
        assert_same_schedule(case, f"{order}+{backfill}@{placement}", DISPATCHES[seed % 2])


def test_a_job_that_overtakes_the_head_ends_its_reservation() -> None:
    submit, runtime, known, tasks, gpus = np.array(
        [
            (50698, 23421, 36000, 1, 1),
            (59340, 3515, 14400, 4, 8),
            (73422, 2028, 3600, 4, 8),
            (75253, 568, 1800, 1, 1),
            (76550, 488, 600, 1, 8),
            (76723, 2593, 5400, 1, 8),
            (77501, 12770, 57600, 1, 1),
            (79109, 2274, 10800, 1, 1),
        ],
        np.float64,
    ).T
    workload = Workload(submit=submit, runtime=runtime, num_tasks=tasks.astype(np.int32), gpu_milli=(gpus * 1000).astype(np.int32))
    assert_same_schedule(Case(workload, load_cluster("4x8:V100-16"), known, seed=0, kill_at_limit=False), "sjf+easy", "reorder")


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
