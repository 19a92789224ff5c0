"""A log, followed in an engine that has not made it, leads to the very same state; a log of something else is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Failures, Outage, Preemption
from queuewise.errors import InputError
from queuewise.evaluation.replay_files import read_schedule, write_cluster, write_replay
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

CLUSTER = load_cluster("4x8:V100-16")
TROUBLED = Conditions(preemption=Preemption(restart_s=5, quantum_s=20), failures=Failures(mtbf_h=2, mttr_h=0.2, seed=1))
KILLING = Conditions(
    preemption=Preemption(mode="kill", checkpoint_every_s=30, transfer_s=2), outages=(Outage(node=1, start=500, end=900, kind="drain"),)
)
FREE = Conditions()
POLICIES = (
    "fcfs", "sjf+easy@spread", "wfp3+easy-strict", "sjf+conservative", "fairshare+greedy", "random@random",
    "srtf", "las@spread", "tiresias:300", "gittins", "priority-preempt", "defrag:sjf",
)  # fmt: skip


def jobs(seed: int = 0) -> Workload:
    """Some of no length, many of one time, shares and gangs."""
    rng = np.random.default_rng(seed)
    num = 120
    return Workload(
        submit=np.sort(rng.uniform(0, 1500, num)).round(-1),
        runtime=np.where(rng.uniform(size=num) < 0.1, 0.0, rng.lognormal(4, 1.5, num)).round(1),
        num_tasks=rng.choice([1, 2, 4], num).astype(np.int32),
        gpu_milli=rng.choice([500, 1000, 2000, 4000], num).astype(np.int32),
        priority=rng.integers(0, 5, num).astype(np.float64),
        user=rng.integers(0, 3, num).astype(np.int32),
        users=("a", "b", "c"),
    )


def simulation(policy: str, conditions: Conditions, *, seed: int = 0) -> Simulation:
    return Simulation(jobs(seed), CLUSTER, policy, estimates="oracle", conditions=conditions)


@pytest.mark.parametrize("conditions", [FREE, TROUBLED, KILLING], ids=["free", "troubled", "killing"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_leads_to_the_same_state(policy: str, conditions: Conditions) -> None:
    original, follower = simulation(policy, conditions), simulation(policy, conditions)
    log = simulate(jobs(), CLUSTER, policy, estimates="oracle", conditions=conditions)
    assert follower.fingerprint() == original.fingerprint()
    for until in (300.0, 777.7, 1200.0, np.inf):
        before = original.fingerprint()
        original.run(until)
        assert original.fingerprint() != before
        follower.follow(log, until)
        assert follower.fingerprint() == original.fingerprint(), until


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_goes_on_where_the_log_was_left(policy: str) -> None:
    log = simulate(jobs(), CLUSTER, policy, estimates="oracle", conditions=TROUBLED)
    follower = simulation(policy, TROUBLED)
    follower.follow(log, 700.0)
    follower.run()
    for column in ("status", "start", "end", "preemptions", "piece_job", "piece_node", "piece_gpus", "piece_start", "piece_end"):
        np.testing.assert_array_equal(getattr(follower.schedule(), column), getattr(log, column), err_msg=column)


def test_what_was_written_can_be_followed(tmp_path: Path) -> None:
    original = simulation("srtf", TROUBLED)
    original.run()
    write_cluster(tmp_path, CLUSTER)
    write_replay(tmp_path / "srtf", original.schedule())
    follower = simulation("srtf", TROUBLED)
    follower.follow(read_schedule(tmp_path, tmp_path / "srtf"))
    assert follower.fingerprint() == original.fingerprint()


def other_places(log: Schedule) -> Schedule:
    return dataclasses.replace(log, piece_node=np.zeros_like(log.piece_node))


def other_ends(log: Schedule) -> Schedule:
    return dataclasses.replace(log, piece_end=log.piece_end + 1.0)


@pytest.mark.parametrize(("change", "problem"), [(other_places, "cannot start at"), (other_ends, "does not end at")])
def test_a_log_of_something_else_is_refused(change: object, problem: str) -> None:
    assert callable(change)
    log = change(simulate(jobs(), CLUSTER, "fcfs", estimates="oracle"))
    with pytest.raises(InputError, match=f"log is of another replay.*{problem}"):
        simulation("fcfs", FREE).follow(log)


def test_a_log_of_other_jobs_is_refused() -> None:
    few = Workload(submit=np.zeros(1), runtime=np.ones(1), num_tasks=np.ones(1, np.int32), gpu_milli=np.full(1, 1000, np.int32))
    with pytest.raises(InputError, match="the log is of 1 jobs, the simulation of 120"):
        simulation("fcfs", FREE).follow(simulate(few, CLUSTER, "fcfs"))
