"""Preempting and migrating in the job problem, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.cluster.conditions import Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.envs import QueuewiseEnv, Term
from queuewise.envs.features import RUNNING
from queuewise.errors import InputError
from queuewise.workload.jobs import Workload

WINDOW, WAIT = 3, -1


def make(gpus: list[int], runtime: list[float], submit: list[float], nodes: int = 1, each: int = 1, **settings: Any) -> QueuewiseEnv:
    demand: dict[str, Any] = {"num_tasks": np.ones(len(gpus), np.int32), "gpu_milli": np.array(gpus, np.int32) * 1000}
    workload = Workload(submit=np.array(submit), runtime=np.array(runtime), **demand)
    chosen: dict[str, Any] = {"window": WINDOW, "stops": 2, "estimates": "oracle", "observation": "dict"}
    chosen |= {"workload": [workload], "cluster": build("test", [NodeGroup(count=nodes, gpus=each, kind="T4")])} | settings
    env = QueuewiseEnv("job", **chosen)
    env.reset()
    return env


def legal(env: QueuewiseEnv) -> list[int]:
    return np.flatnonzero(env.action_masks()).tolist()


def play(env: QueuewiseEnv, *actions: int) -> list[Any]:
    return [env.step(action if action != WAIT else env.batch.num_actions - 1) for action in actions]


def long_and_short(**settings: Any) -> QueuewiseEnv:
    """100 s on the only GPU; 10 s more are submitted at 20."""
    return make([1, 1], [100.0, 10.0], [0.0, 20.0], **settings)


@pytest.mark.parametrize(
    ("costs", "ends", "service"),
    [
        (Preemption(), 110.0, 100.0),
        (Preemption(checkpoint_s=1.0, restart_s=2.0, transfer_s=40.0, restart_per_gpu_s=3.0), 116.0, 106.0),
        (Preemption(mode="kill"), 130.0, 120.0),
        (Preemption(mode="kill", checkpoint_every_s=15.0), 115.0, 105.0),
    ],
)
def test_a_preempted_job_goes_on_later(costs: Preemption, ends: float, service: float) -> None:
    env = long_and_short(stopping=costs, reward=(Term(name="bounded_slowdown"),))
    steps = play(env, 0, WAIT, 3, 1, WAIT, 0)
    schedule = env.schedule()
    assert schedule.start.tolist() == [0.0, 20.0]
    assert schedule.end.tolist() == [ends, 30.0]
    assert schedule.preemptions.tolist() == [1, 0]
    assert [step[2] for step in steps] == [False] * 5 + [True]
    assert sum(step[1] for step in steps) == pytest.approx(-(ends / service + 1.0))
    assert steps[-1][4]["episode_tally"]["stops"] == 1.0


def test_what_is_legal_when() -> None:
    env = long_and_short()
    assert legal(env) == [0, 5]
    play(env, 0)
    assert legal(env) == [5]  # nobody waits
    play(env, WAIT)
    assert legal(env) == [3, 5]
    play(env, 3)
    assert legal(env) == [0, 1]  # there is no event to wait for
    play(env, 0)
    assert legal(env) == [5]  # a run that began at this instant is left alone


@pytest.mark.parametrize(
    ("settings", "may"), [({"stopping": Preemption(quantum_s=20.0)}, True), ({"stopping": Preemption(quantum_s=20.1)}, False)]
)
def test_a_run_is_left_its_quantum(settings: dict[str, Any], may: bool) -> None:
    env = long_and_short(**settings)
    play(env, 0, WAIT)
    assert (3 in legal(env)) is may


def test_the_number_of_stops_is_limited() -> None:
    env = make([1, 1, 1], [100.0, 10.0, 10.0], [0.0, 20.0, 25.0], most_stops=1)
    play(env, 0, WAIT, 3, 1, WAIT)
    assert env.running_jobs().tolist() == [1, -1]
    assert legal(env) == [5]


def test_the_limit_may_grow_with_the_jobs_that_have_arrived() -> None:
    env = make([1, 1, 1], [100.0, 10.0, 10.0], [0.0, 20.0, 25.0], most_stops=1, jobs_per_limit=2)
    play(env, 0, WAIT, 3, 1, WAIT)  # one stop for the first two jobs
    assert env.running_jobs().tolist() == [1, -1]
    assert legal(env) == [3, 5]  # and one for the third
    play(env, 3, 0, WAIT)
    assert legal(env) == [0, 1]
    play(env, 0, WAIT)
    assert 3 not in legal(env)


def test_a_job_that_is_in_the_way_moves_to_a_fuller_node() -> None:
    """Jobs 0 and 1 fill node 0 and job 2 half of node 1. When job 1 has ended, job 3 needs a whole node."""
    env = make([1, 1, 1, 2], [100.0, 10.0, 50.0, 5.0], [0.0, 0.0, 0.0, 12.0], nodes=2, each=2, moves=True)
    play(env, 0, 0, 0, WAIT)
    assert env.running_jobs().tolist() == [0, 2]  # the one that will run longest first
    assert legal(env) == [5, 6, 7]  # nobody waits; either may move
    play(env, WAIT)
    assert legal(env) == [3, 4, 5, 6, 7]
    play(env, 6)
    assert legal(env) == [0, 3, 5, 7]  # job 3 fits; job 2 has just been put to where it is
    play(env, 0)
    schedule = env.schedule()
    assert schedule.preemptions.tolist() == [0, 0, 1, 0]
    nodes = [(int(j), int(n)) for j, n in zip(schedule.piece_job, schedule.piece_node, strict=True)]
    assert nodes == [(0, 0), (1, 0), (2, 1), (2, 0), (3, 1)]
    assert schedule.end[2] == 50.0


def test_running_jobs_are_seen() -> None:
    env = make([1, 1], [7200.0, 10.0], [0.0, 1800.0], moves=True)
    observation = play(env, 0, WAIT)[-1][0]
    assert observation["running"].shape == (2, len(RUNNING))
    row = dict(zip(RUNNING, observation["running"][0].tolist(), strict=True))
    expected = {"shown": 1.0, "held": 1.0, "gang": np.log(2) / np.log(1025), "weight": 0.0, "ran": 1 / 3, "left": 0.6, "stopped": 0.0}
    assert row == pytest.approx(expected | {"may_stop": 1.0, "may_move": 0.0}, rel=1e-6)
    assert not observation["running"][1].any()
    observation = play(env, 3, 0)[-1][0]
    assert observation["running"][0, RUNNING.index("stopped")] == 0.5
    assert observation["running"][0, RUNNING.index("may_stop")] == 0.0


def test_the_estimate_of_a_stopped_job_is_what_is_left() -> None:
    env = make([1, 1], [7200.0, 10.0], [0.0, 1800.0])
    before = env.batch.observations[0].copy()
    observation = play(env, 0, WAIT, 3)[-1][0]
    assert env.setup.layout.parts(before)["jobs"][0, 1] == pytest.approx(np.log1p(7200) / np.log1p(30 * 86400))
    assert observation["jobs"][0, 1] == pytest.approx(np.log1p(5400) / np.log1p(30 * 86400))


def test_instants_at_which_somebody_may_be_preempted_are_not_passed_over() -> None:
    env = long_and_short(skip_forced=True)
    play(env, 0)
    assert legal(env) == [3, 5]


@pytest.mark.parametrize("settings", [{"dispatch": "commit"}, {"view": "rltune"}, {"stops": 0, "moves": True}])
def test_what_does_not_go_together_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"stops needs the job problem|moves=True"):
        long_and_short(**settings)


def test_other_problems_have_no_preemption() -> None:
    with pytest.raises(InputError, match="job problem"):
        QueuewiseEnv("host", stops=2)
