"""A bound on waiting: the engine and the independent reference agree, under every rule and dispatch, in long queues."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import assert_same_schedule
from effort import mixed
from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS, DISPATCHES, ORDERS, PREEMPTIVE, Case

ALSO = ("sjf+easy/3:saf", "fcfs+conservative/2", "largest+greedy@spread", "saf:requested+easy:sjf:oracle")


def overloaded(seed: int) -> Case:
    """Gangs on nodes of two kinds, twice as much as the machine can do, so that most jobs become overdue."""
    rng = np.random.default_rng(seed)
    num = 40
    tasks, gpus = np.array([(1, 1), (1, 2), (1, 4), (2, 2), (3, 1), (2, 4)])[rng.integers(0, 6, num)].T
    runtime = np.floor(rng.lognormal(2.5, 1.0, num))
    workload = Workload(
        submit=np.sort(np.floor(rng.uniform(0, 200, num))),
        runtime=runtime,
        num_tasks=tasks.astype(np.int32),
        gpu_milli=(gpus * 1000).astype(np.int32),
        requested=runtime * rng.choice([1.0, 2.0, 5.0], num),
    )
    groups = [NodeGroup(2, gpus=4, kind="V100-16"), NodeGroup(1, gpus=4, kind="T4")]
    cluster = build("small", groups, speeds={"T4": 0.5} if seed % 2 else None)
    estimate = runtime * rng.choice([0.5, 1.0, 3.0], num)
    return Case(workload, cluster, estimate, seed=seed, kill_at_limit=seed % 3 == 0, guessed=seed % 2 == 1)


@pytest.mark.parametrize("bound", ["~20s", "~90s"])
@pytest.mark.parametrize("rule", [*BACKFILLS, *ALSO, *PREEMPTIVE])
def test_overloaded_machines(rule: str, bound: str) -> None:
    preemptive = rule in PREEMPTIVE
    orders = [""] if preemptive or rule in ALSO else [f"{order}+" for order in ORDERS]
    for seed, order, dispatch in mixed(f"{rule} {bound}", range(6), orders, ("reorder",) if preemptive else DISPATCHES):
        name, at, placement = f"{order}{rule}".partition("@")
        assert_same_schedule(overloaded(seed), f"{name}{bound}{at}{placement}", dispatch)
