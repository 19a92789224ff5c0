"""Envs that go on with the next episode in the step that ends one, and those that Python begins again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.envs import QueuewiseVectorEnv
from queuewise.errors import InputError
from queuewise.sim.core.compilation import JIT_DISABLED

SMALL: dict[str, Any] = {"cluster": "2x4:V100-16", "episode_jobs": 12, "window": 8, "pool": 5}
compiled = pytest.mark.skipif(JIT_DISABLED, reason="without the compiler Python begins all episodes")


def played(envs: QueuewiseVectorEnv, steps: int, seed: int | None) -> list[Any]:
    """What a random agent sees."""
    seen: list[Any] = [envs.reset(seed=seed)[0].copy()]
    envs.legal_actions(seed=3)
    for _ in range(steps):
        rows, rewards, terminated, truncated, info = envs.step(envs.legal_actions())
        seen += [rows.copy(), rewards, terminated, truncated, info["action_mask"], info["elapsed_s"]]
        if "final_obs" in info:
            over = info["_final_obs"]
            seen += [over, np.stack(info["final_obs"][over]), *info["final_info"]["episode_tally"].values()]
    return seen


@compiled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("problem", ["job", "host"])
def test_going_on_is_beginning_anew(problem: str, threads: int) -> None:
    going_on = QueuewiseVectorEnv(6, problem, threads=threads, **SMALL)
    begun = QueuewiseVectorEnv(6, problem, threads=threads, metrics=True, **SMALL)
    for seed in (7, None):  # the second reset goes on with the windows that would have been drawn next
        ours, theirs = played(going_on, 120, seed), played(begun, 120, seed)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    going_on.close()
    begun.close()


@compiled
def test_windows_of_all_sizes_follow_each_other() -> None:
    """A window that needs more memory than the env has is begun by Python; what is seen stays the same."""
    varied = {**SMALL, "workload": "philly", "episode_jobs": 40, "pool": 12}
    going_on, begun = QueuewiseVectorEnv(3, **varied), QueuewiseVectorEnv(3, metrics=True, **varied)
    sizes = {len(going_on.setup.window(number).block.bytes) for number in range(12)}
    assert len(sizes) > 1
    for a, b in zip(played(going_on, 600, 1), played(begun, 600, 1), strict=True):
        np.testing.assert_array_equal(a, b)


@compiled
def test_an_env_knows_which_episode_it_is_in() -> None:
    envs = QueuewiseVectorEnv(2, **SMALL)
    envs.reset(seed=0)
    before = [envs.batch.episode(e) for e in range(2)]
    ended = np.zeros(2, bool)
    while not ended.any():
        _, _, terminated, truncated, _ = envs.step(envs.legal_actions())
        ended = terminated | truncated
    e = int(np.flatnonzero(ended)[0])
    assert envs.batch.episode_state(e).count.steps == 0
    assert envs.batch.schedule(e).workload is envs.batch.episode(e).workload
    np.testing.assert_array_equal(envs.batch.episode(e).workload.submit[0], envs.batch.state(e).clock.now)
    assert envs.batch.episode(1 - e) is before[1 - e] or ended.all()


@pytest.mark.parametrize("actions", [np.zeros(3, np.int64), np.zeros((2, 2), np.int64), np.zeros(2), [0, 0.5]])
def test_actions_of_another_shape_or_sort_are_refused(actions: Any) -> None:
    envs = QueuewiseVectorEnv(2, **SMALL)
    envs.reset(seed=0)
    with pytest.raises(InputError, match=r"actions are .*"):
        envs.step(actions)


def test_a_buffer_of_a_refused_step_is_filled_by_the_next() -> None:
    envs, twin = QueuewiseVectorEnv(2, **SMALL), QueuewiseVectorEnv(2, **SMALL)
    envs.reset(seed=0)
    twin.reset(seed=0)
    out = np.zeros_like(envs.batch.observations)
    with pytest.raises(InputError, match="outside the action space"):
        envs.step(np.full(2, 99), out)
    actions = envs.legal_actions(seed=1).copy()
    np.testing.assert_array_equal(envs.step(actions, out)[0], twin.step(actions)[0])


def test_random_actions_may_be_asked_for_at_any_time() -> None:
    envs = QueuewiseVectorEnv(4, **SMALL)
    _, info = envs.reset(seed=0)
    for asked in (1, 2, 0, 1, 3, 0, 0, 2) * 5:
        for _ in range(asked):
            actions = envs.legal_actions()
            assert info["action_mask"][np.arange(4), actions].all()
        info = envs.step(envs.batch.mask.argmax(1))[4]
