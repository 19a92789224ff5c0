"""Dispatch head: what naming a job does at one instant, what holding does, who may be named, and which settings are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from players import play_episode, random_legal
from queuewise.cluster.spec import NodeGroup, build
from queuewise.envs import Baseline, QueuewiseEnv, QueuewiseVectorEnv, Term
from queuewise.envs.env_setup import build_setup
from queuewise.errors import InputError
from queuewise.sim.core.schedule import DONE
from queuewise.workload.jobs import Workload

FOUR = build("four", [NodeGroup(1, cpus=4)])
HOLD = -1


def jobs(*rows: tuple[float, float, int]) -> Workload:
    """Of submission, runtime and cores."""
    submit, runtime, cores = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(
        submit.astype(np.float64), runtime.astype(np.float64), cores.astype(np.int32), cpu_milli=np.full(len(rows), 1000, np.int32)
    )


def env_of(workload: Workload, **settings: Any) -> QueuewiseEnv:
    task: dict[str, Any] = {"dispatch": "head", "window": 8, "estimates": "oracle"} | settings
    env = QueuewiseEnv("job", workload=[workload], cluster=FOUR, never_cut=True, **task)
    env.reset(seed=0)
    return env


def play_script(env: QueuewiseEnv, *names: int) -> list[float]:
    """Name these jobs one after the other, or hold; then the first that is legal. Returns the starts."""
    over = False
    for j in names:
        assert not over
        slot = env.batch.num_actions - 1 if j == HOLD else env.window_jobs().tolist().index(j)
        over = env.step(slot)[2]
    while not over:
        over = env.step(int(np.flatnonzero(env.action_masks())[0]))[2]
    starts: list[float] = env.schedule().start.tolist()
    return starts


# Job 0 has 3 of 4 cores until 10. Job 1 needs all, job 2 ends at 9 and job 3 at 21, both on the core that is free.
WAITING = jobs((0, 10, 3), (1, 5, 4), (1, 8, 1), (1, 20, 1))


def test_a_head_that_does_not_fit_has_a_reservation_and_others_are_filled_in() -> None:
    env = env_of(WAITING)
    assert play_script(env, 0, 1) == [0, 10, 1, 15]


def test_the_head_is_named_again_at_every_event() -> None:
    """At 9, when job 2 has ended, job 3 takes the core although job 1 was the head before."""
    assert play_script(env_of(WAITING), 0, 1, 3) == [0, 29, 1, 9]


def test_a_job_that_fits_starts_and_the_agent_is_asked_again_at_once() -> None:
    env = env_of(WAITING)
    env.step(0)
    env.step(env.window_jobs().tolist().index(3))
    assert env.schedule().start[3] == 1
    assert float(env.batch.state(0).clock.now) == 1
    assert env.action_masks()[:-1].sum() == 2


def test_holding_leaves_the_queue_without_a_head_until_the_next_event() -> None:
    """Nothing starts at 1, not even what fits."""
    env = env_of(WAITING)
    assert play_script(env, 0, HOLD, 2, 3) == [0, 30, 10, 10]


def test_holding_is_illegal_if_nothing_lies_ahead() -> None:
    env = env_of(jobs((0, 10, 3)))
    assert env.action_masks().tolist() == [True] + [False] * 8


def test_candidates_go_by_the_order_of_backfill() -> None:
    """Both end before job 1 may start. By default the order is that of the window."""
    workload = jobs((0, 10, 3), (1, 5, 4), (1, 4, 1), (1, 3, 1))
    assert play_script(env_of(workload), 0, 1)[2:] == [1, 5]
    assert play_script(env_of(workload, backfill="easy:sjf"), 0, 1)[2:] == [4, 1]
    assert play_script(env_of(workload, backfill="greedy:aged"), 0, 1)[2:] == [4, 1]


def test_an_overdue_job_is_the_head_whoever_is_named() -> None:
    """Job 1 is overdue at 4: job 3 can no longer take the core at 9, before it."""
    env = env_of(WAITING, max_wait="3s")
    assert play_script(env, 0, 1) == [0, 10, 1, 15]
    env = env_of(WAITING, max_wait="3s")
    assert play_script(env, 0, HOLD) == [0, 10, 15, 15]  # at 4, job 2 would end at 12: the core stays free


def test_forced_instants_are_those_at_which_no_job_fits() -> None:
    workload = jobs((0, 10, 4), (1, 5, 4), (2, 5, 1), (3, 5, 1))
    times = []
    for skip in (False, True):
        env, over, seen = env_of(workload, skip_forced=skip), False, list[float]()
        while not over:
            seen.append(float(env.batch.state(0).clock.now))
            over = env.step(int(np.flatnonzero(env.action_masks())[0]))[2]
        times.append(sorted(set(seen)))
    assert times == [[0, 1, 2, 3, 10, 15], [0, 10, 15]]


def test_queues_are_asked_one_after_the_other() -> None:
    cluster = build("rooms", [NodeGroup(1, cpus=1, partition=p) for p in "ab"])
    workload = jobs((0, 10, 1), (0, 10, 1), (1, 5, 1), (1, 5, 1)).replace(partition=np.array([0, 1, 0, 1], np.int32), partitions=("a", "b"))
    env = QueuewiseEnv("job", workload=[workload], cluster=cluster, dispatch="head", window=4, estimates="oracle")
    env.reset(seed=0)
    shown = []
    for _ in range(4):
        shown.append(env.window_jobs()[np.flatnonzero(env.action_masks()[:-1])].tolist())
        env.step(env.batch.num_actions - 1 if len(shown) == 3 else int(np.flatnonzero(env.action_masks())[0]))
    assert shown == [[0], [1], [2], [3]]  # job 2 is held at 1, and the other queue still has its turn


def test_random_agents_finish_every_job() -> None:
    for backfill in ("easy", "conservative", "greedy:wfp3", "easy-strict"):
        env = QueuewiseEnv(
            "job", dispatch="head", backfill=backfill, workload="bursty", cluster="2x4:V100-16", episode_jobs=60, window=16, never_cut=True
        )
        env.reset(seed=3)
        play_episode(env, random_legal(1))
        assert (env.schedule().status == DONE).all()


def test_the_vector_environment_plays_what_single_ones_play() -> None:
    task: dict[str, Any] = {"dispatch": "head", "backfill": "easy:aged", "episode_jobs": 40, "window": 16, "max_wait": "1h"}
    envs = QueuewiseVectorEnv(3, problem="job", threads=1, **task)
    singles = [QueuewiseEnv("job", **task) for _ in range(3)]
    seen, info = envs.reset(seed=5)
    for e, env in enumerate(singles):
        np.testing.assert_array_equal(env.reset(seed=5 + e)[0], seen[e])
    for _ in range(40):
        actions = [int(np.flatnonzero(mask)[-1]) for mask in info["action_mask"]]
        seen, rewards, *_, info = envs.step(np.array(actions))
        for e, env in enumerate(singles):
            row, reward, *_ = env.step(actions[e])
            np.testing.assert_array_equal(row, seen[e])
            assert reward == rewards[e]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backfill": "none"}, "has to be filled in"),
        ({"backfill": "defrag"}, "has to be filled in"),
        ({"backfill": "easy/3"}, "no limit on the depth"),
        ({"backfill": "easy:fairshare"}, "by usage"),
        ({"backfill": "slurm"}, "no loops of their own"),
        ({"backfill": "eazy"}, "unknown backfill"),
        ({"max_wait": "soon"}, "is not a time"),
        ({"problem": "host"}, "does not support dispatch='head'"),
        ({"stops": 2}, "stops needs"),
        ({"window_order": "aged"}, "changes with time"),
        ({"reward": (Term(name="log_ratio"),)}, "needs a baseline"),
        ({"reward": (Term(name="wait", per=("baseline",)),)}, "needs a baseline"),
        ({"reward": (Term(name="log_ratio"),), "baseline": Baseline(metric="utilisation")}, "cannot go by utilisation"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    task: dict[str, Any] = {"problem": "job", "dispatch": "head", "workload": [WAITING], "cluster": FOUR} | settings
    with pytest.raises(InputError, match=message):
        build_setup(**task)


def test_the_log_ratio_is_paid_at_the_end() -> None:
    """fcfs+easy has waits of 0, 9, 0 and 14 s, so bounded slowdowns of 1, 1.4, 1 and 1.7."""
    base = (1 + 1.4 + 1 + 1.7) / 4
    ratio = env_of(WAITING, reward=(Term(name="log_ratio"),), baseline=Baseline(policy="fcfs+easy"))
    total, over = 0.0, False
    for action in (0, HOLD, 1, 1):  # as above: starts at 0, 30, 10, 10
        _, reward, over, _, _ = ratio.step(action % ratio.batch.num_actions)
        total += reward
    while not over:
        _, reward, over, _, _ = ratio.step(int(np.flatnonzero(ratio.action_masks())[0]))
        total += reward
    assert ratio.schedule().start.tolist() == [0, 30, 10, 10]
    own = (1 + 3.4 + 1.7 + 29 / 20) / 4
    assert total == pytest.approx(np.log(base / own))
    shared = env_of(WAITING, reward=(Term(name="bounded_slowdown", per=("jobs", "baseline")),), baseline=Baseline(policy="fcfs+easy"))
    assert play_episode(shared, lambda env: int(np.flatnonzero(env.action_masks())[0]))[0] == pytest.approx(-1.0)


def test_observations_can_show_other_estimates_than_reservations_go_by() -> None:
    workload = jobs((0, 10, 3), (0, 50, 1)).replace(requested=np.array([100.0, 200.0]))
    shown = [env_of(workload, estimates="requested", shown_estimates=by).batch.observations.copy() for by in (None, "requested", "oracle")]
    exact = env_of(workload, estimates="oracle").batch.observations
    np.testing.assert_array_equal(shown[0], shown[1])
    np.testing.assert_array_equal(shown[2], exact)
    assert (shown[0] != exact).any()
