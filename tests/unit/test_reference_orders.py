"""Orders of the reference simulator against scores worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from reference.orders import Facts, in_order, mix
from reference.state import Machine, make_jobs


def test_mix_is_splitmix64() -> None:
    # The first outputs of the published generator (Steele, Lea, Flood 2014) from seed 0: mix(0), mix(0 + golden gamma), ...
    gamma = 0x9E3779B97F4A7C15
    assert [mix(0), mix(gamma)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


ORDER_CASES = {
    # Four jobs queued at 100: (submit, estimate, GPUs) = (10, 50, 4), (20, 5, 1), (30, 50, 2), (40, 0.5, 8); waits 90 80 70 60.
    "fcfs": [0, 1, 2, 3],
    "lcfs": [3, 2, 1, 0],
    "sjf": [3, 1, 0, 2],  # 50 5 50 0.5, tie by index
    "ljf": [0, 2, 1, 3],
    "smallest": [1, 2, 0, 3],
    "largest": [3, 0, 2, 1],
    "saf": [3, 1, 2, 0],  # 200 5 100 4
    "laf": [0, 2, 1, 3],
    "sexp": [3, 0, 2, 1],  # 140/4=35, 85, 60, 7.6
    "lexp": [1, 2, 0, 3],
    "srf": [3, 1, 0, 2],  # 12.5 5 25 0.06
    "lrf": [2, 0, 1, 3],
    "hrrn": [3, 1, 0, 2],  # 2.8 17 2.4 61 (r1 = 1 for the last)
    "wfp3": [3, 1, 0, 2],  # 1.8³·4=23.3, 16³=4096, 1.4³·2=5.5, 60³·8
    "unicep": [1, 3, 2, 0],  # 90/(2·50)=0.9, 80/~0, 70/(1·50)=1.4, 60/(3·1)=20
    "f1": [0, 1, 2, 3],  # 870·log10(s) 870 1132 1285 1394; log10(50)=1.7 times n adds 6.8 0.7 3.4 0
    "f3": [0, 1, 2, 3],
    "power": [3, 1, 2, 0],  # all one kind: as saf
    "priority": [2, 3, 0, 1],  # priorities 1 0 7 7
    "edf": [1, 3, 0, 2],  # deadlines none 50 none 60
    "qssf": [0, 3, 1, 2],  # predicted 1 90 90 10, times n: 4 90 180 80
}


@pytest.mark.parametrize("order", ORDER_CASES)
def test_orders_by_hand(order: str) -> None:
    workload = Workload(
        submit=np.array([10.0, 20, 30, 40]), runtime=np.ones(4), num_tasks=np.array([4, 1, 2, 8], np.int32),
        gpu_milli=np.full(4, 1000, np.int32), priority=np.array([1.0, 0, 7, 7]), deadline=np.array([np.nan, 50, np.nan, 60]),
    )  # fmt: skip
    cluster = build("test", [NodeGroup(1, gpus=8, kind="V100-16")])
    queued = make_jobs(workload, Machine.of(cluster), [50, 5, 50, 0.5])
    facts = Facts(workload, queued, np.array([1.0, 90, 90, 10]), seed=0)
    assert in_order(order, facts, {0, 1, 2, 3}, 100.0) == ORDER_CASES[order]
