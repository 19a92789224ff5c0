"""What holds for every environment: episodes end, batches equal single envs, heuristics equal replays, and nothing hidden is seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agreement import stays
from effort import tries
from players import blocking, committing, greedy, play_episode, random_legal
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.envs import QueuewiseEnv, QueuewiseVectorEnv
from queuewise.policies import simulate
from queuewise.sim.core.schedule import DONE, REJECTED
from queuewise.workload.jobs import Workload
from reference.check import violations
from stand_in import busy_days, small_cluster
from strategies import WITHOUT_LOOPS, Case, cases, stopping_costs, worlds

quick = tries(100)
FIXED_ORDERS = ("fcfs", "lcfs", "sjf", "ljf", "smallest", "largest", "saf", "priority", "edf")
GUESSES = "noisy:1.5"
LOOKAHEADS = ("off", "per_gpu", "sorted", "cdf")


def env_of(case: Case, problem: str = "job", **arguments: Any) -> QueuewiseEnv:
    """An env that plays the case, with its estimates as requests, or with guesses."""
    workload = case.workload.replace(requested=case.estimate)
    known = {"estimates": GUESSES} if case.guessed else {}
    return QueuewiseEnv(problem, workload=[workload], cluster=case.cluster, window=20, horizon_factor=float("inf"), **known, **arguments)


def assert_same_times(env: QueuewiseEnv, case: Case, policy: str, dispatch: str = "reorder") -> None:
    played = env.schedule()
    replayed = simulate(case.workload, case.cluster, policy, dispatch=dispatch, estimates=GUESSES if case.guessed else case.estimate)
    for column in ("status", "start", "end"):
        np.testing.assert_array_equal(getattr(played, column), getattr(replayed, column), err_msg=f"{policy}: {column}")
    stays = [
        sorted(zip(s.piece_job.tolist(), s.piece_node.tolist(), s.piece_tasks.tolist(), s.piece_gpus.tolist(), strict=True))
        for s in (played, replayed)
    ]
    assert stays[0] == stays[1]


@quick
@given(cases(), st.sampled_from(FIXED_ORDERS), st.sampled_from(("first", "pack", "pack:1", "spread", "fastest", "fgd")), st.booleans())
def test_a_heuristic_through_the_env_equals_the_replay(case: Case, order: str, placement: str, skip: bool) -> None:
    env = env_of(case, placement=placement, skip_forced=skip, lookahead="off")
    env.reset()
    play_episode(env, greedy(order))
    assert_same_times(env, case, f"{order}+greedy@{placement}")
    env.reset()
    play_episode(env, blocking(order))
    assert_same_times(env, case, f"{order}@{placement}")


@quick
@given(cases(), st.sampled_from(FIXED_ORDERS), st.sampled_from(WITHOUT_LOOPS))
def test_committing_equals_the_replay_with_commit_dispatch(case: Case, order: str, backfill: str) -> None:
    env = env_of(case, dispatch="commit", backfill=backfill, window_order=order)
    assume(env.setup.window(0).episode.world.sizes.num_queues == 1)  # the env commits one job, the engine one a queue
    env.reset()
    play_episode(env, committing(order))
    assert_same_times(env, case, f"{order}+{backfill}", "commit")


def assert_expected_ends(env: QueuewiseEnv, *, guessed: bool) -> None:
    """Until when nodes are noted to be held is when the running jobs are expected to end: never in the past, if by guesses."""
    state, noted = env.batch.state(0), env.batch.episode_state(0)
    until = np.full(len(noted.node_until), -np.inf)
    for j in state.running[: state.count.running_jobs].tolist():
        assert not guessed or state.expected[j] >= state.clock.now
        pieces = slice(state.first_piece[j], state.first_piece[j] + state.num_pieces[j])
        np.maximum.at(until, state.piece_node[pieces], state.expected[j])
    np.testing.assert_array_equal(noted.node_until, until)
    if env.batch.settings.lookahead == "sorted":
        np.testing.assert_array_equal(noted.unit_sorted, np.sort(noted.unit_until))


@quick
@given(cases(), st.sampled_from(("job", "host", "joint")), st.sampled_from(LOOKAHEADS), st.integers(0, 99), st.booleans())
def test_episodes_end_with_every_job_done_or_rejected(case: Case, problem: str, lookahead: str, seed: int, skip: bool) -> None:
    env = env_of(case, problem, lookahead=lookahead, skip_forced=skip, backfill="greedy", scores=("sjf", "wfp3"), observation="flat")
    observation, _ = env.reset(seed=seed)
    assert env.observation_space.contains(observation)
    choose = random_legal(seed)
    for _ in range(10_000):
        observation, reward, terminated, truncated, info = env.step(choose(env))
        assert np.isfinite(reward)
        assert env.observation_space.contains(observation)
        assert info["action_mask"].any()
        if terminated:
            break
        assert_expected_ends(env, guessed=case.guessed)
    assert terminated
    assert not truncated
    schedule = env.schedule()
    assert set(schedule.status.tolist()) <= {DONE, REJECTED}
    assert info["metrics"]["completed"] == (schedule.status == DONE).sum()
    assert env.batch.state(0).piece_end[: env.batch.state(0).count[4]].max(initial=-np.inf) < np.inf


@quick
@given(worlds(), st.sampled_from(("job", "host", "joint")), st.sampled_from(LOOKAHEADS), st.integers(0, 99), st.booleans())
def test_episodes_end_under_every_condition(world: tuple[Case, Conditions], problem: str, lookahead: str, seed: int, skip: bool) -> None:
    """Whatever befalls nodes and jobs: observations are in bounds, and the schedule keeps the rules of docs/simulator.md.

    `violations` knows neither quotas nor dependencies; tests/differential/test_models.py compares them with the reference.
    """
    case, conditions = world
    arguments: dict[str, Any] = {"stops": 3, "most_stops": 20} if problem == "job" and conditions.preemption == Preemption() else {}
    if conditions.quotas or conditions.power.is_capped:
        arguments = {}
    env = env_of(case, problem, lookahead=lookahead, skip_forced=skip, observation="flat", conditions=conditions, **arguments)
    env.reset(seed=seed)
    choose, terminated = random_legal(seed), False
    for _ in range(10_000):
        observation, reward, terminated, truncated, info = env.step(choose(env))
        assert np.isfinite(reward)
        assert env.observation_space.contains(observation)
        assert info["action_mask"].any()
        if terminated or truncated:
            break
    assert terminated
    s = env.schedule()
    if not conditions.quotas and not conditions.dependencies:
        rules: dict[str, Any] = {"kill_at_limit": False, "policy": "preempting" if arguments else "fcfs", "conditions": conditions}
        assert violations(case.workload, case.cluster, s.start, s.end, s.status, s.preemptions, stays(s), **rules) == []


def windows() -> list[Workload]:
    return [busy_days(40, seed=seed, load=1.5) for seed in range(6)]


@quick
@given(cases(), stopping_costs(), st.sampled_from(LOOKAHEADS), st.integers(0, 99), st.booleans(), st.booleans())
def test_stopped_jobs_lose_nothing(case: Case, costs: Preemption, lookahead: str, seed: int, skip: bool, moves: bool) -> None:
    """Whatever is preempted and migrated: the schedule keeps every rule of docs/simulator.md."""
    if moves:  # which save even where a preemption kills: the check knows one kind of stop only
        costs = costs.model_copy(update={"mode": "suspend"})
    arguments: dict[str, Any] = {"stops": 3, "moves": moves, "most_stops": 20, "stopping": costs, "skip_forced": skip}
    env = env_of(case, lookahead=lookahead, observation="flat", **arguments)
    env.reset(seed=seed)
    choose = random_legal(seed)
    for _ in range(10_000):
        observation, reward, terminated, _, info = env.step(choose(env))
        assert np.isfinite(reward)
        assert env.observation_space.contains(observation)
        if terminated:
            break
        assert_expected_ends(env, guessed=case.guessed)
    assert terminated
    s = env.schedule()
    rules: dict[str, Any] = {"kill_at_limit": False, "policy": "preempting", "conditions": Conditions(preemption=costs)}
    assert violations(case.workload, case.cluster, s.start, s.end, s.status, s.preemptions, stays(s), **rules) == []
    assert info["episode_tally"]["stops"] == s.preemptions.sum() <= 20


@pytest.mark.parametrize(
    "options", [{"problem": "job"}, {"problem": "host"}, {"problem": "joint"}, {"stops": 4, "moves": True, "most_stops": 20}], ids=str
)
@pytest.mark.parametrize(("num_envs", "threads"), [(1, 1), (3, 1), (5, 2), (8, 3)])
def test_the_vector_env_plays_what_single_envs_play(options: dict[str, Any], num_envs: int, threads: int) -> None:
    arguments: dict[str, Any] = {
        **options,
        "workload": windows(),
        "cluster": small_cluster(),
        "window": 8,
        "estimates": "noisy:0.5",
        "observation": "dict",
    }
    envs = QueuewiseVectorEnv(num_envs, threads=threads, **arguments)
    singles = [QueuewiseEnv(**arguments) for _ in range(num_envs)]
    observation, info = envs.reset(seed=7)
    alone = [env.reset(seed=7 + e)[0] for e, env in enumerate(singles)]
    choose = [random_legal(e) for e in range(num_envs)]
    ended = 0
    for _ in range(150):
        for e in range(num_envs):
            for part, values in alone[e].items():
                np.testing.assert_array_equal(observation[part][e], values)
            np.testing.assert_array_equal(info["action_mask"][e], singles[e].batch.mask[0, : envs.batch.num_actions])
        actions = np.array([choose[e](env) for e, env in enumerate(singles)])
        observation, rewards, terminated, truncated, info = envs.step(actions)
        for e, env in enumerate(singles):
            alone[e], reward, ends, cut, single_info = env.step(actions[e])
            assert (reward, ends, cut) == (rewards[e], terminated[e], truncated[e])
            assert single_info["elapsed_s"] == info["elapsed_s"][e]
            if ends or cut:
                ended += 1
                for part, values in alone[e].items():
                    np.testing.assert_array_equal(info["final_obs"][e][part], values)
                assert info["final_info"]["episode_tally"]["return"][e] == single_info["episode_tally"]["return"]
                alone[e], _ = env.reset()
    assert ended > 0
    envs.close()


@quick
@given(cases(), st.sampled_from(LOOKAHEADS), st.integers(0, 99), st.floats(1.1, 50.0), st.sampled_from((0, 3)))
def test_true_runtimes_of_unfinished_jobs_are_not_seen(case: Case, lookahead: str, seed: int, factor: float, stops: int) -> None:
    """Two worlds differ only in how long the jobs that are unfinished at some moment will run: until that moment they look the same."""
    case = dataclasses.replace(case, guessed=False)  # the guesses are made from the runtimes
    env = env_of(case, lookahead=lookahead, scores=("sjf", "wfp3"), observation="flat", stops=stops, moves=stops > 0)
    env.reset()
    choose = random_legal(seed)
    seen, actions, times = [], [], []
    for _ in range(15):
        actions.append(choose(env))
        observation, _, terminated, _, _ = env.step(actions[-1])
        if terminated:
            break
        seen.append(observation)
        times.append(float(env.batch.state(0).clock.now))
    assume(seen)
    schedule = env.schedule()
    unfinished = ~(schedule.end <= times[-1])
    changed = case.workload.replace(runtime=np.where(unfinished, (case.workload.runtime + 1.0) * factor, case.workload.runtime))
    other = QueuewiseEnv(
        "job", workload=[changed.replace(requested=case.estimate)], cluster=case.cluster, window=20, horizon_factor=1e9,
        lookahead=lookahead, scores=("sjf", "wfp3"), observation="flat", stops=stops, moves=stops > 0,
    )  # fmt: skip
    other.reset()
    for action, expected in zip(actions, seen, strict=False):
        observation = other.step(action)[0]
        np.testing.assert_array_equal(observation, expected)


def test_the_oracle_does_see_them() -> None:
    """The check above has teeth: with true runtimes as estimates, longer runtimes change what is seen."""
    seen = []
    for factor in (1.0, 3.0):
        workload = windows()[0]
        env = QueuewiseEnv(
            "job", workload=[workload.replace(runtime=workload.runtime * factor)], cluster=small_cluster(), estimates="oracle"
        )
        seen.append(env.reset()[0])
    assert (seen[0] != seen[1]).any()


def jobs_of(submit: list[float], runtime: list[float], tasks: list[int]) -> Workload:
    return Workload(
        submit=np.array(submit),
        runtime=np.array(runtime),
        num_tasks=np.array(tasks, np.int32),
        gpu_milli=np.full(len(tasks), 1000, np.int32),
    )


BAD_WINDOWS = {
    "no jobs": jobs_of([], [], []),
    "one job": jobs_of([5.0], [10.0], [1]),
    "one job, too large": jobs_of([5.0], [10.0], [99]),
    "too large, then one": jobs_of([0.0, 1.0], [10.0, 10.0], [99, 1]),
    "all at time zero": jobs_of([0.0] * 6, [10.0, 5.0, 5.0, 1.0, 1.0, 9.0], [1, 4, 2, 2, 1, 4]),
    "zero length": jobs_of([0.0] * 4, [0.0] * 4, [4, 4, 1, 4]),
}


def tiny_cluster() -> Cluster:
    return build("tiny", [NodeGroup(count=2, gpus=2, kind="T4")])


@pytest.mark.parametrize("illegal", ["error", "wait"])
@pytest.mark.parametrize("problem", ["job", "host", "joint"])
@pytest.mark.parametrize("name", BAD_WINDOWS)
def test_episodes_of_odd_windows_end(name: str, problem: str, illegal: str) -> None:
    """Also for a player that always does the same thing, legal or not."""
    workload = BAD_WINDOWS[name]
    env = QueuewiseEnv(problem, workload=[workload], cluster=tiny_cluster(), window=3, illegal=illegal, backfill="greedy")
    players = [random_legal(1)]
    if illegal == "wait":
        players += [lambda env: env.action_space.nvec - 1 if env.batch.joint else env.batch.num_actions - 1]
        players += [lambda env: np.zeros(2, np.int64) if env.batch.joint else 0]
    for choose in players:
        env.reset(seed=1)
        _, steps = play_episode(env, choose)
        assert steps <= 4 * len(workload) + 1
        fits = workload.num_tasks <= 4
        np.testing.assert_array_equal(env.schedule().status, np.where(fits, DONE, REJECTED))


@quick
@given(cases(), st.integers(0, 99))
def test_steps_and_horizon_truncate(case: Case, seed: int) -> None:
    env = QueuewiseEnv("job", workload=[case.workload], cluster=case.cluster, window=20, max_steps=3)
    env.reset()
    choose = random_legal(seed)
    outcomes = []
    for _ in range(3):
        outcomes.append(env.step(choose(env))[2:4])
        if any(outcomes[-1]):
            break
    assert outcomes[-1] in ((True, False), (False, True))
    assert len(outcomes) == 3 or outcomes[-1] == (True, False)
