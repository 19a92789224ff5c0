"""Resizing: what it brings, who refuses it, and that its log can be followed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.conditions import Conditions, Preemption, load_conditions
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload

CLUSTER = build("four", [NodeGroup(2, gpus=4, kind="T4")])
BOTH = Conditions(resize="both", preemption=Preemption(mode="kill", restart_s=0.5))


def jobs(num: int = 30) -> Workload:
    rng = np.random.default_rng(5)
    tasks = rng.integers(1, 4, num).astype(np.int32)
    return Workload(
        np.sort(rng.uniform(0, 60, num)), rng.exponential(8, num), tasks, np.full(num, 1000, np.int32), min_tasks=np.ones(num, np.int32),
        max_tasks=tasks * 3, scalings=("amdahl:0.1",),
    )  # fmt: skip


def test_jobs_that_are_not_elastic_are_left_alone() -> None:
    rigid = jobs().replace(min_tasks=jobs().num_tasks, max_tasks=jobs().num_tasks)
    with_it, without = (simulate(rigid, CLUSTER, "sjf+easy", conditions=conditions) for conditions in (BOTH, Conditions()))
    np.testing.assert_array_equal(with_it.end, without.end)
    assert with_it.preemptions.sum() == 0


def test_shrinking_lets_others_start_sooner() -> None:
    rigid = simulate(jobs(), CLUSTER, "fcfs", conditions=Conditions())
    found = simulate(jobs(), CLUSTER, "fcfs", conditions=Conditions(resize="shrink"))
    assert found.first_wait.mean() < rigid.first_wait.mean()
    assert found.preemptions.sum() > 0


@pytest.mark.parametrize("policy", ["fcfs", "sjf+easy"])
def test_the_log_can_be_followed(policy: str) -> None:
    whole = Simulation(jobs(), CLUSTER, policy, conditions=BOTH)
    whole.run()
    log = whole.schedule()
    assert log.preemptions.sum() > 5
    for until in (10.0, 33.0, np.inf):
        halted, followed = (Simulation(jobs(), CLUSTER, policy, conditions=BOTH) for _ in range(2))
        halted.run(until)
        followed.follow(log, until)
        assert followed.fingerprint() == halted.fingerprint()


def test_a_class_of_ones_own_decides_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    def decide(self, view):\n        return []\n")
    with pytest.raises(InputError, match="decides by itself which jobs move"):
        simulate(jobs(), CLUSTER, f"{path}:Mine", conditions=BOTH)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text('resize = "grow"\n')
    assert load_conditions(path).resize == "grow"
    path.write_text('resize = "sometimes"\n')
    with pytest.raises(InputError, match="resize"):
        load_conditions(path)
