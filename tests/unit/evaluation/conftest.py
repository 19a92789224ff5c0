"""A ten-job replay small enough to work out every metric by hand, with every kind of job: see the table in `ten_jobs`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.evaluation.measure import Measurement, measure
from queuewise.sim.core.schedule import DONE, NEVER, REJECTED, RUNNING, Schedule
from queuewise.workload.jobs import Workload


@pytest.fixture
def two_nodes() -> Cluster:
    """Node 0 has 2 GPUs of 15.7 TFLOPS and 30 to 300 W, node 1 has 2 of 8.1 TFLOPS and 10 to 70 W, whatever the catalogue says of their
    kinds; each node has 4 cores and 16 GiB, draws 100 W idle and 10 W a core."""
    each: dict[str, Any] = {"count": 1, "gpus": 2, "cpus": 4, "mem_gib": 16, "idle_watts": 100.0, "core_watts": 10.0}
    cluster = build("two", [NodeGroup(**each, kind="V100-16"), NodeGroup(**each, kind="T4")])
    v100 = dataclasses.replace(cluster.kinds[0], fp32_tflops=15.7, idle_watts=30.0, peak_watts=300.0)
    t4 = dataclasses.replace(cluster.kinds[1], fp32_tflops=8.1, idle_watts=10.0, peak_watts=70.0)
    return dataclasses.replace(cluster, kinds=(v100, t4))


@pytest.fixture
def ten_jobs(two_nodes: Cluster) -> Schedule:
    """
    job submit  asks            runs                                   user note
    0    0      1 GPU           0–100 on node 0 GPU 0                  a
    1    0      2 × 1 GPU       0–50 on node 1                         b
    2    10     1 GPU           10–15 on node 0 GPU 1                  a    shorter than the 10 s bound
    3    20     2 × 1 GPU       50–90 on node 1                        b    waits 30; deadline 80 missed
    4    30     half a GPU      45–145 on node 0 GPU 1                 c    waits 15, overtaken by job 5
    5    40     half a GPU      40–60 on node 0 GPU 1                  c    deadline 100 met
    6    50     1 GPU           100–120 on node 0, 150–180 on node 1   a    waits 50, preempted and moved
    7    60     2 cores         60–60 on node 0                        a    no runtime
    8    70     8 × 1 GPU       never                                  b    rejected; deadline 500 missed
    9    80     2 × 1 GPU       180–? on node 1                        b    still running
    """
    num = 10
    deadline = np.full(num, np.nan)
    deadline[[3, 5, 8]] = 80.0, 100.0, 500.0
    workload = Workload(
        submit=np.arange(num) * 10.0 - 10.0 * (np.arange(num) > 0),
        runtime=np.array([100, 50, 5, 40, 100, 20, 50, 0, 10, 500], dtype=np.float64),
        num_tasks=np.array([1, 2, 1, 2, 1, 1, 1, 1, 8, 2], dtype=np.int32),
        gpu_milli=np.array([1000, 1000, 1000, 1000, 500, 500, 1000, 0, 1000, 1000], dtype=np.int32),
        cpu_milli=np.array([1000] * 7 + [2000, 1000, 1000], dtype=np.int32),
        mem_mib=np.array([1024] * 7 + [0, 1024, 1024], dtype=np.int32),
        user=np.array([0, 1, 0, 1, 2, 2, 0, 0, 1, 1], dtype=np.int32),
        users=("a", "b", "c"),
        priority=np.array([1, 1, 2, 2, 1, 1, 2, 2, 1, 1], dtype=np.float64),
        deadline=deadline,
        name="ten",
    )
    #        job node tasks GPUs  start end
    pieces = [
        (0, 0, 1, 0b01, 0, 100), (1, 1, 2, 0b11, 0, 50), (2, 0, 1, 0b10, 10, 15), (3, 1, 2, 0b11, 50, 90), (4, 0, 1, 0b10, 45, 145),
        (5, 0, 1, 0b10, 40, 60), (6, 0, 1, 0b01, 100, 120), (6, 1, 1, 0b01, 150, 180), (7, 0, 1, 0, 60, 60), (9, 1, 2, 0b11, 180, NEVER),
    ]  # fmt: skip
    job, node, tasks, gpus, start, end = (np.array(column) for column in zip(*pieces, strict=True))
    return Schedule(
        workload=workload,
        cluster=two_nodes,
        policy="by-hand",
        dispatch="reorder",
        estimates="oracle",
        seed=0,
        estimate=workload.runtime,
        status=np.array([DONE] * 8 + [REJECTED, RUNNING], dtype=np.int8),
        start=np.array([0, 0, 10, 50, 45, 40, 100, 60, NEVER, 180]),
        end=np.array([100, 50, 15, 90, 145, 60, 180, 60, NEVER, NEVER]),
        preemptions=np.array([0, 0, 0, 0, 0, 0, 1, 0, 0, 0], dtype=np.int32),
        piece_job=job.astype(np.int32),
        piece_node=node.astype(np.int32),
        piece_tasks=tasks.astype(np.int32),
        piece_gpus=gpus.astype(np.int64),
        piece_start=start.astype(np.float64),
        piece_end=end.astype(np.float64),
        engine_s=0.5,
        decisions=20,
    )


@pytest.fixture
def counted(ten_jobs: Schedule) -> Measurement:
    return measure(ten_jobs)


@pytest.fixture
def nothing_ran(ten_jobs: Schedule) -> Schedule:
    """The same jobs, all rejected."""
    none = np.full(10, NEVER)
    empty = {
        name: getattr(ten_jobs, name)[:0] for name in ("piece_job", "piece_node", "piece_tasks", "piece_gpus", "piece_start", "piece_end")
    }
    status = np.full(10, REJECTED, dtype=np.int8)
    return dataclasses.replace(ten_jobs, status=status, start=none, end=none, preemptions=np.zeros(10, dtype=np.int32), **empty)
