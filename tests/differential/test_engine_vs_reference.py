"""The engine and the independent reference make identical schedules, job by job and GPU by GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import mixed, seeds, tries
from fixed_workloads import gangs, mixture
from queuewise.cluster import load_cluster
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.workload import load_workload
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS, DISPATCHES, ORDERS, PLACEMENTS, Case, cases, policies


@tries(400)
@given(cases(), st.lists(policies(), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_policy_on_any_workload(case: Case, names: list[str], dispatch: str) -> None:
    for policy in names:
        assert_same_schedule(case, policy, dispatch)


@tries(100)
@given(cases(), st.lists(policies(), min_size=3, max_size=3), st.sampled_from((3599.0, 3600.0, 3601.0, 30_000.0)))
def test_any_policy_on_hours_of_work(case: Case, names: list[str], second: float) -> None:
    """The same cases with a longer second, so that waits and runtimes reach the constants of orders."""
    long = case.workload.replace(
        submit=case.workload.submit * second, runtime=case.workload.runtime * second, requested=case.workload.requested * second
    )
    for policy in names:
        assert_same_schedule(dataclasses.replace(case, workload=long, estimate=case.estimate * second), policy, "reorder")


# --- every combination on fixed workloads


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_every_combination_on_fixed_workloads(backfill: str, placement: str) -> None:
    for case, order, dispatch in mixed(f"{backfill} {placement}", (gangs(), mixture()), ORDERS, DISPATCHES):
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
        kind_set=rng.choice([0, 0, 0, 1], num).astype(np.int32) if seed % 4 == 0 else np.zeros(num, np.int32),
        kind_sets=((), ("V100-16",)),
    )
    cluster = build(
        "gangs", [NodeGroup(3, gpus=8, kind="V100-16"), NodeGroup(2, gpus=8, kind="T4")], speeds={"T4": 0.5} if seed % 5 == 0 else None
    )
    return Case(workload, cluster, workload.runtime * accuracy, seed=seed, kill_at_limit=False, guessed=seed % 4 == 1)


@pytest.mark.parametrize("seed", seeds(24))
def test_long_queues_of_gangs(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    case = queue_of_gangs(seed)
    for backfill in (*(name for name in BACKFILLS if name != "conservative"), "easy:sjf", "easy:largest"):
        order, placement = rng.choice(["fcfs", "sjf", "saf", "lcfs", "largest", "f1"]), rng.choice(["pack", "first", "spread", "random"])
        assert_same_schedule(case, f"{order}+{backfill}@{placement}", DISPATCHES[seed % 2])


@pytest.mark.parametrize("jobs", [30, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", seeds(12))
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
