"""Virtual clusters: what they have for certain, what they may borrow, and which quotas are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, VirtualCluster, build
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.sim.core.schedule import DONE, REJECTED, Schedule
from queuewise.workload.jobs import Workload

QUOTAS = Conditions(quotas=True)
FOUR_GPUS = build("four", [NodeGroup(1, gpus=4, kind="V100-16")])


def replay(
    jobs: list[tuple[float, float, int, str]],
    tenants: tuple[VirtualCluster, ...],
    policy: str = "fcfs+greedy",
    dispatch: str = "reorder",
) -> Schedule:
    """Jobs as (submission, runtime, GPUs, virtual cluster)."""
    submit, runtime, gpus, groups = zip(*jobs, strict=True)
    names = tuple(dict.fromkeys(groups))
    workload = Workload(
        submit=np.array(submit, np.float64),
        runtime=np.array(runtime, np.float64),
        num_tasks=np.array(gpus, np.int32),
        gpu_milli=np.full(len(jobs), 1000, np.int32),
        group=np.array([names.index(name) for name in groups], np.int32),
        groups=names,
    )
    cluster = replace(FOUR_GPUS, virtual_clusters=tenants)
    return simulate(workload, cluster, policy, estimates="oracle", dispatch=dispatch, conditions=QUOTAS)


HALVES = (VirtualCluster("a", 2), VirtualCluster("b", 2))


def test_a_maximum_holds_while_gpus_are_idle() -> None:
    schedule = replay([(0, 10, 1, "a")] * 4, (VirtualCluster("a", 1, 2),))
    assert schedule.start.tolist() == [0, 0, 10, 10]


def test_what_nobody_needs_may_be_borrowed() -> None:
    assert replay([(0, 10, 1, "a")] * 4, HALVES).start.tolist() == [0, 0, 0, 0]


def test_those_within_their_guarantee_go_before_those_who_borrow() -> None:
    jobs: list[tuple[float, float, int, str]] = [(0, 10, 4, "b"), *[(1, 10, 1, "a")] * 4, *[(2, 10, 1, "b")] * 2]
    assert replay(jobs, HALVES).start.tolist() == [0, 10, 10, 20, 20, 10, 10]


@pytest.mark.parametrize("dispatch", ["reorder", "commit"])
def test_a_job_over_the_maximum_blocks_nobody(dispatch: str) -> None:
    jobs: list[tuple[float, float, int, str]] = [(0, 10, 2, "a"), (1, 10, 2, "a"), (2, 10, 2, "b")]
    tenants = (VirtualCluster("a", 2, 3), VirtualCluster("b", 2))
    assert replay(jobs, tenants, "fcfs", dispatch).start.tolist() == [0, 10, 2]


def test_what_can_never_be_allowed_is_rejected() -> None:
    schedule = replay([(0, 10, 3, "a"), (0, 10, 2, "a")], (VirtualCluster("a", 1, 2),))
    assert schedule.status.tolist() == [REJECTED, DONE]


def test_no_virtual_cluster_ever_holds_more_than_its_maximum() -> None:
    rng = np.random.default_rng(3)
    jobs = [(float(t), float(rng.integers(1, 30)), int(rng.integers(1, 3)), str(rng.choice(["a", "b"]))) for t in range(80)]
    for policy in ("fcfs", "sjf+easy", "fcfs+conservative", "drf+greedy"):
        schedule = replay(jobs, (VirtualCluster("a", 1, 2), VirtualCluster("b", 2, 3)), policy)
        assert schedule.finished.all()
        for time in schedule.start:
            for group, most in ((0, 2), (1, 3)):
                runs = (schedule.start <= time) & (time < schedule.end) & (schedule.workload.group == group)
                assert schedule.workload.gpus[runs].sum() <= most


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ((VirtualCluster("a", 3), VirtualCluster("b", 2)), r"guaranteed 5 GPUs, but cluster 'four' has only 4"),
        ((VirtualCluster("a", 3, 2),), "guaranteed 3 GPUs but may have at most 2"),
        ((VirtualCluster("a", 1), VirtualCluster("a", 1)), "2 virtual clusters 'a'"),
        ((VirtualCluster("elsewhere", 1),), "no job belongs to a virtual cluster of 'four': elsewhere"),
        ((), "has no virtual clusters"),
    ],
)
def test_quotas_that_cannot_be(tenants: tuple[VirtualCluster, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay([(0, 1, 1, "a")], tenants)


@pytest.mark.parametrize("policy", ["srtf", "defrag", "fcfs+easy/3"])
def test_policies_that_know_no_quotas_say_so(policy: str) -> None:
    with pytest.raises(InputError, match="quotas are for policies that do not preempt"):
        replay([(0, 1, 1, "a")], HALVES, policy)
