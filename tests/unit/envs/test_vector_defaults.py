"""What `make_vec` does by default: two buffers in turn, a pool that slides, and the entry for plain envs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.envs import QueuewiseEnv, QueuewiseVectorEnv
from queuewise.envs.env_setup import build_setup
from queuewise.envs.step_entry import begin_or_step, begin_or_step_plain
from queuewise.envs.windows import POOL

SMALL: dict[str, Any] = {"cluster": "4x8:V100-16", "episode_jobs": 16, "window": 8}


@pytest.mark.parametrize("settings", [{}, {"model_args": {"load": 4.0}}, {"lookahead": "off", "scores": ("sjf",)}, {"stops": 3}])
def test_the_observation_before_is_still_there_after_a_step(settings: dict[str, Any]) -> None:
    envs, copying = (QueuewiseVectorEnv(5, "job", copy=copy, threads=1, **SMALL | settings) for copy in (False, True))
    now, expected = envs.reset(seed=2)[0], copying.reset(seed=2)[0]
    first, ended = now, 0
    for number in range(120):
        actions = copying.legal_actions(seed=number).copy()
        before, expected_before = now, expected
        now, _, terminated, truncated, _ = envs.step(actions)
        expected = copying.step(actions)[0]
        np.testing.assert_array_equal(now, expected)
        np.testing.assert_array_equal(before, expected_before)
        ended += int((terminated | truncated).sum())
    assert ended >= 5
    assert np.shares_memory(now, first)
    envs.close()
    copying.close()


def test_what_else_a_step_returns_is_not_overwritten() -> None:
    envs = QueuewiseVectorEnv(4, "job", threads=1, **SMALL)
    envs.reset(seed=0)
    returned = []
    for number in range(60):
        _, rewards, terminated, truncated, info = envs.step(envs.legal_actions(seed=number))
        parts = (rewards, terminated, truncated, info["action_mask"], info["elapsed_s"])
        returned.append((parts, [part.copy() for part in parts]))
    for parts, copies in returned:
        for part, copy in zip(parts, copies, strict=True):
            np.testing.assert_array_equal(part, copy)
    envs.close()


def test_a_refused_step_leaves_the_last_observation() -> None:
    envs = QueuewiseVectorEnv(2, "job", threads=1, **SMALL)
    now = envs.reset(seed=0)[0]
    kept = now.copy()
    for _ in range(2):
        with pytest.raises(Exception, match="outside the action space"):
            envs.step(np.array([99, 99]))
    np.testing.assert_array_equal(now, kept)
    after = envs.step(envs.legal_actions(seed=0))[0]
    np.testing.assert_array_equal(now, kept)
    assert not np.shares_memory(after, now)
    envs.close()


def test_envs_of_a_batch_play_what_single_envs_play_while_the_pool_slides() -> None:
    envs = QueuewiseVectorEnv(3, "job", **SMALL)
    envs.reset(seed=7)
    played: list[list[Any]] = [[], [], []]
    for number in range(150):
        for e in range(3):
            workload = envs.batch.episode(e).workload
            if not played[e] or played[e][-1] is not workload:
                played[e].append(workload)
        envs.step(envs.legal_actions(seed=number))
    envs.close()
    assert min(map(len, played)) >= 3
    for e, workloads in enumerate(played):
        single = QueuewiseEnv("job", **SMALL)
        for number, workload in enumerate(workloads):
            single.reset(seed=7 + e if number == 0 else None)
            np.testing.assert_array_equal(single.batch.episode(0).workload.submit, workload.submit)


def test_the_pool_slides_over_all_windows() -> None:
    source = build_setup("job", **SMALL).source
    assert source.slides
    rng = np.random.default_rng(0)
    numbers = {place: source._in_pool(place) for place in range(3 * POOL)}
    assert len(set(numbers.values())) == 3 * POOL
    for episode in (0, 5, POOL):
        pool = {numbers[place] for place in range(episode, episode + POOL)}
        drawn = {source.draw_for(episode, rng) for _ in range(2000)}
        assert drawn <= pool
        assert len(drawn) > POOL * 0.95
        assert source.newest(episode) == numbers[episode + POOL - 1]
    fixed = build_setup("job", **SMALL, pool=4).source
    assert not fixed.slides
    assert {fixed.draw_for(episode, rng) for episode in range(100)} == {0, 1, 2, 3}


def test_plain_envs_are_stepped_as_by_the_whole_entry() -> None:
    envs, others = (QueuewiseVectorEnv(5, "job", threads=1, **SMALL) for _ in range(2))
    others.batch._entry = begin_or_step
    results: list[Any] = [batch.reset(seed=4) for batch in (envs, others)]
    for number in range(150):
        np.testing.assert_array_equal(results[0][0], results[1][0])
        actions = envs.legal_actions(seed=number).copy()
        results = [batch.step(actions) for batch in (envs, others)]
        np.testing.assert_array_equal(results[0][1], results[1][1])
        np.testing.assert_array_equal(results[0][4]["action_mask"], results[1][4]["action_mask"])
    assert envs.batch._entry is begin_or_step_plain
    envs.close()
    others.close()


@pytest.mark.parametrize("settings", [{"stops": 2}, {"lookahead": "cdf"}, {"dispatch": "commit"}, {"max_wait": "1d"}])
def test_other_envs_have_the_whole_entry(settings: dict[str, Any]) -> None:
    setup = build_setup("job", **SMALL | settings)
    assert not setup.window(0).plain
    assert build_setup("job", **SMALL).window(0).plain
