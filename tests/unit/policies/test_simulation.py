"""A simulation halted, copied, kept in a file and taken up again ends as if it had never been touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import Cluster, load_cluster
from queuewise.cluster.conditions import Conditions, Failures, Preemption
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

CLUSTER = load_cluster("4x8:V100-16")
WORLD = Conditions(preemption=Preemption(restart_s=5, quantum_s=20), failures=Failures(mtbf_h=2, mttr_h=0.2, seed=1))
POLICIES = ("fcfs+easy", "sjf+conservative", "wfp3+greedy@spread", "srtf", "las", "tiresias:300", "gittins", "defrag")


def jobs(seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    num = 150
    return Workload(
        submit=np.sort(rng.uniform(0, 2000, num)),
        runtime=rng.lognormal(4, 1.5, num),
        num_tasks=rng.choice([1, 2, 4], num).astype(np.int32),
        gpu_milli=rng.choice([500, 1000, 2000, 4000], num).astype(np.int32),
    )


def assert_same(one: Schedule, other: Schedule) -> None:
    for column in ("status", "start", "end", "preemptions", "piece_job", "piece_node", "piece_gpus", "piece_start", "piece_end"):
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column), err_msg=column)


@pytest.mark.parametrize("policy", POLICIES)
def test_halting_and_going_back_change_nothing(policy: str) -> None:
    expected = simulate(jobs(), CLUSTER, policy, estimates="oracle", conditions=WORLD)
    simulation = Simulation(jobs(), CLUSTER, policy, estimates="oracle", conditions=WORLD)
    simulation.run(until=700.0)
    assert 0 < simulation.now <= 700.0
    early = simulation.remember()
    simulation.run(until=1500.0)
    late = simulation.remember()
    assert not early.same_as(late)
    simulation.restore(early)
    assert simulation.remember().same_as(early)
    simulation.run(until=1500.0)
    assert simulation.remember().same_as(late)  # the same events lead to the same state, bit for bit
    simulation.run()
    assert_same(simulation.schedule(), expected)


@pytest.mark.parametrize("policy", ["fcfs+easy", "srtf"])
def test_a_simulation_survives_a_file(policy: str, tmp_path: Path) -> None:
    first = Simulation(jobs(), CLUSTER, policy, estimates="oracle", conditions=WORLD)
    first.run(until=900.0)
    first.save(tmp_path / "half.npz")
    first.run()
    second = Simulation(jobs(), CLUSTER, policy, estimates="oracle", conditions=WORLD)
    second.load(tmp_path / "half.npz")
    assert second.now <= 900.0
    second.run()
    assert_same(second.schedule(), first.schedule())


def other_policy() -> Simulation:
    return Simulation(jobs(), CLUSTER, "sjf+easy", estimates="oracle")


def other_jobs() -> Simulation:
    return Simulation(jobs(1), CLUSTER, "fcfs+easy", estimates="oracle")


def other_cluster() -> Simulation:
    bigger: Cluster = load_cluster("5x8:V100-16")
    return Simulation(jobs(), bigger, "fcfs+easy", estimates="oracle")


@pytest.mark.parametrize("make", [other_policy, other_jobs, other_cluster])
def test_a_file_of_something_else_is_refused(make: object, tmp_path: Path) -> None:
    assert callable(make)
    simulation = Simulation(jobs(), CLUSTER, "fcfs+easy", estimates="oracle")
    simulation.run(until=500.0)
    simulation.save(tmp_path / "s.npz")
    with pytest.raises(InputError, match="other jobs, another cluster or another policy"):
        make().load(tmp_path / "s.npz")


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    simulation = Simulation(jobs(), CLUSTER, "fcfs", estimates="oracle")
    simulation.save(tmp_path / "s.npz")
    whole = (tmp_path / "s.npz").read_bytes()
    (tmp_path / "s.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is not a saved simulation"):
        simulation.load(tmp_path / "s.npz")
    with pytest.raises(InputError, match="no such file"):
        simulation.load(tmp_path / "absent.npz")
