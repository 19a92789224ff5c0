"""Fragments by hand: which free GPU a typical task cannot use."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster.spec import NodeGroup, build
from queuewise.evaluation.fragmentation import INSTANTS, FreeState, fragmentation, fragmented_share, fragments, state_at, task_types
from queuewise.evaluation.measure import Measurement
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload


def jobs_of(gpu_milli: list[int], *, tasks: list[int] | None = None, kind_set: list[int] | None = None, cpu: int = 1000) -> Workload:
    num = len(gpu_milli)
    return Workload(
        submit=np.arange(num, dtype=np.float64),
        runtime=np.ones(num),
        num_tasks=np.array(tasks or [1] * num, dtype=np.int32),
        gpu_milli=np.array(gpu_milli, dtype=np.int32),
        cpu_milli=np.full(num, cpu, dtype=np.int32),
        kind_set=np.array(kind_set or [0] * num, dtype=np.int32),
        kind_sets=((), ("T4",)),
    )


def test_types_are_weighted_by_their_tasks() -> None:
    cluster = build("c", [NodeGroup(count=1, gpus=2, kind="T4")])
    types = task_types(jobs_of([1000, 500, 1000, 2000], tasks=[1, 4, 2, 1]), cluster)
    assert types.gpu_milli.tolist() == [500, 1000, 2000]
    assert types.weight.tolist() == [0.5, 0.375, 0.125]
    most = task_types(jobs_of([1000, 500, 1000, 2000], tasks=[1, 4, 2, 1]), cluster, most=2)
    assert most.gpu_milli.tolist() == [500, 1000]


def test_a_half_used_gpu_is_lost_to_whole_gpu_tasks_only() -> None:
    """GPUs with 400, 1000 and 1000 milli free. A 500-milli task cannot use the 400; a 2-GPU task neither; a 3-GPU task nothing at all."""
    cluster = build("c", [NodeGroup(count=1, gpus=3, kind="T4", cpus=8)])
    free = FreeState(np.array([[400, 1000, 1000]]), np.array([8000]), np.array([1 << 40]))
    for demand, lost in ((300, 0), (500, 400), (1000, 400), (2000, 400), (3000, 2400), (0, 2400)):
        assert fragments(free, cluster.node_kind, task_types(jobs_of([demand]), cluster)).tolist() == [lost], demand
    mixed = task_types(jobs_of([300, 500, 3000, 3000]), cluster)
    assert fragments(free, cluster.node_kind, mixed)[0] == pytest.approx((0 + 400 + 2 * 2400) / 4)


def test_missing_cores_and_the_wrong_kind_lose_the_whole_node() -> None:
    cluster = build("c", [NodeGroup(count=1, gpus=1, kind="T4", cpus=8), NodeGroup(count=1, gpus=1, kind="P100", cpus=8)])
    free = FreeState(np.array([[1000], [1000]]), np.array([8000, 500]), np.array([1 << 40] * 2))
    any_kind = task_types(jobs_of([1000]), cluster)
    assert fragments(free, cluster.node_kind, any_kind).tolist() == [0, 1000]  # node 1 has half a core left
    free.cpu_milli[1] = 8000
    assert fragments(free, cluster.node_kind, any_kind).tolist() == [0, 0]
    only_t4 = task_types(jobs_of([1000], kind_set=[1]), cluster)
    assert fragments(free, cluster.node_kind, only_t4).tolist() == [0, 1000]


def test_state_at_a_time(ten_jobs: Schedule) -> None:
    """At 50 s: job 0 on GPU 0 of node 0, jobs 4 and 5 share its GPU 1, job 3 has taken node 1 from job 1."""
    state = state_at(ten_jobs, 50.0)
    assert state.gpu_milli.tolist() == [[0, 0], [0, 0]]
    assert state.cpu_milli.tolist() == [1000, 2000]
    assert state.mem_mib.tolist() == [16 * 1024 - 3 * 1024, 16 * 1024 - 2 * 1024]
    assert state_at(ten_jobs, 60.0).gpu_milli.tolist() == [[0, 500], [0, 0]]


def test_share_of_the_free_gpus_that_is_lost(ten_jobs: Schedule) -> None:
    """20 tasks: 17 want a whole GPU, 2 half of one, 1 none (to it all that is free is lost)."""
    types = task_types(ten_jobs.workload, ten_jobs.cluster)

    def share(time: float) -> float | None:
        return fragmented_share(ten_jobs.cluster, state_at(ten_jobs, time), types)

    assert share(50.0) is None  # nothing is free
    assert share(60.0) == pytest.approx(17 / 20 + 1 / 20)  # half a GPU: only the halves could use it
    assert share(20.0) == pytest.approx(1 / 20)  # one whole GPU
    assert share(95.0) == pytest.approx((17 / 20 * 0.5 + 1 / 20 * 2.5) / 2.5)  # half a GPU on node 0, two whole ones on node 1
    assert share(130.0) == pytest.approx((17 / 20 * 0.5 + 1 / 20 * 3.5) / 3.5)


def test_fragmentation_of_a_replay_is_the_mean_over_its_span(counted: Measurement) -> None:
    types = task_types(counted.schedule.workload, counted.schedule.cluster)
    times = 180 * (np.arange(INSTANTS) + 0.5) / INSTANTS
    shares = [fragmented_share(counted.schedule.cluster, state_at(counted.schedule, time), types) for time in times]
    assert None in shares
    assert fragmentation(counted) == pytest.approx(np.mean([share for share in shares if share is not None]))
