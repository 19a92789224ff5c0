"""Jobs that arrive and stay: order, first failure, and the curve, by hand and against the stand-in scheduler."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure
from queuewise.evaluation.packing import OVERFILL, allocated_at_first_failure, arrive_and_stay, packing_curve
from queuewise.workload.jobs import Workload
from stand_in import busy_days, line_up, small_cluster


def gangs(tasks: list[int]) -> Workload:
    num = len(tasks)
    return Workload(
        submit=np.arange(num, dtype=np.float64) * 1000,
        runtime=np.ones(num),
        num_tasks=np.array(tasks, np.int32),
        gpu_milli=np.full(num, 1000, np.int32),
    )


def test_arrivals_one_by_one_that_never_leave() -> None:
    jobs = arrive_and_stay(gangs([1, 2, 3] * 20), small_cluster(), 0)
    assert jobs.submit.tolist() == list(range(len(jobs)))
    assert (jobs.submit[0] + jobs.runtime.min()) > jobs.submit[-1]
    assert jobs.num_tasks[:6].tolist() == [1, 2, 3, 1, 2, 3]
    shuffled = arrive_and_stay(gangs([1, 2, 3] * 20), small_cluster(), 1)
    assert shuffled.num_tasks[:60].tolist() != jobs.num_tasks[:60].tolist()
    assert sorted(shuffled.num_tasks[:60].tolist()) == sorted(jobs.num_tasks[:60].tolist())


def test_short_lists_go_on_with_drawn_jobs_until_the_cluster_is_overfull() -> None:
    jobs = arrive_and_stay(gangs([1, 2]), small_cluster(), 0)
    asked = jobs.gpus.sum()
    assert OVERFILL * 16 <= asked < OVERFILL * 16 + 2
    assert arrive_and_stay(gangs([1, 2]), small_cluster(), 0).num_tasks.tolist() == jobs.num_tasks.tolist()


def test_first_failure_and_curve_by_hand() -> None:
    """Two nodes of 2 GPUs; single GPUs arrive until all four are taken; the fifth fails. Types: one whole GPU."""
    cluster = build("two", [NodeGroup(count=2, gpus=2, kind="T4")])
    schedule = line_up(arrive_and_stay(gangs([1] * 6), cluster, 0), cluster, "line")
    assert allocated_at_first_failure(measure(schedule)) == 1.0
    curve = packing_curve(schedule)
    assert (curve.first_failure, curve.failures) == (4, 2)
    assert curve.allocated.tolist() == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert curve.arrived.tolist() == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    assert curve.fragmented.tolist() == [0.0] * 6


def test_a_whole_node_job_strands_what_is_left() -> None:
    """A 1-GPU task on a 2-GPU node leaves one GPU that half of the tasks (those of 2 GPUs) cannot use."""
    cluster = build("one", [NodeGroup(count=1, gpus=2, kind="T4")])
    demand = Workload(submit=np.arange(2.0), runtime=np.ones(2), num_tasks=np.ones(2, np.int32), gpu_milli=np.array([1000, 2000], np.int32))
    jobs = arrive_and_stay(demand, cluster, 0)
    assert jobs.gpu_milli.tolist() == [1000, 2000]
    one_gpu = line_up(gangs([1]).replace(submit=np.zeros(1)), cluster, "line")
    import dataclasses

    schedule = dataclasses.replace(
        one_gpu, workload=jobs, status=np.array([3, 1], np.int8), start=np.array([0.0, np.inf]), end=np.array([8.0, np.inf]),
        preemptions=np.zeros(2, np.int32), estimate=jobs.runtime,
    )  # fmt: skip
    curve = packing_curve(schedule)
    assert curve.fragmented.tolist() == [0.25, 0.25]  # half of one GPU of two
    assert allocated_at_first_failure(measure(schedule)) is None or curve.first_failure == 1


def test_the_curve_for_json_keeps_the_first_failure() -> None:
    cluster = small_cluster()
    schedule = line_up(arrive_and_stay(busy_days(300).take(slice(0, 300)), cluster, 2), cluster, "line")
    curve = packing_curve(schedule)
    points = curve.as_dict(points=10)
    assert curve.arrived[curve.first_failure] in points["arrived"]
    assert len(points["arrived"]) == len(points["fragmented"]) <= 12
    assert (np.diff(points["allocated"]) >= 0).all()


def test_packing_needs_gpus() -> None:
    with pytest.raises(InputError, match="needs a cluster with GPUs"):
        arrive_and_stay(gangs([1]), build("c", [NodeGroup(count=1, cpus=4)]), 0)
