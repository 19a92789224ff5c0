"""The native batch in Stable-Baselines3, rewards as text and functions, and actions that are no integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.envs import QueuewiseEnv, QueuewiseVectorEnv, Term
from queuewise.envs.rewards import parse_reward
from queuewise.errors import InputError
from stand_in import busy_days, small_cluster

pytest.importorskip("stable_baselines3")
from queuewise.envs.sb3 import VecEnv

SMALL: dict[str, Any] = {
    "workload": busy_days(120, load=1.2), "cluster": small_cluster(), "episode_jobs": 20, "window": 8, "block": None,
    "estimates": "noisy:0.3",
}  # fmt: skip


def test_a_batch_is_what_the_vector_env_plays() -> None:
    envs, plain = VecEnv(3, "job", **SMALL), QueuewiseVectorEnv(3, "job", copy=True, **SMALL)
    envs.seed(5)
    np.testing.assert_array_equal(envs.reset(), plain.reset(seed=5)[0])
    ended = 0
    for _ in range(120):
        masks = np.stack(envs.env_method("action_masks"))
        np.testing.assert_array_equal(masks, plain.action_masks())
        actions = masks.argmax(axis=1)
        observation, rewards, dones, infos = envs.step(actions)
        expected, paid, terminated, truncated, info = plain.step(actions)
        np.testing.assert_array_equal(observation, expected)
        np.testing.assert_allclose(rewards, paid, rtol=1e-6)
        np.testing.assert_array_equal(dones, terminated | truncated)
        for e in np.flatnonzero(dones):
            ended += 1
            np.testing.assert_array_equal(infos[e]["terminal_observation"], info["final_obs"][e])
            assert infos[e]["episode"]["l"] == infos[e]["tally"]["steps"]
            assert infos[e]["episode"]["r"] == pytest.approx(infos[e]["tally"]["return"], rel=1e-5)
    assert ended
    envs.close()


def test_maskable_ppo_learns_on_a_batch() -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    envs = VecEnv(4, "job", **SMALL)
    model = sb3_contrib.MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu")
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(128)
    assert any((p != q).any() for p, q in zip(model.policy.parameters(), before, strict=True))
    envs.close()


def test_rewards_are_read_from_text() -> None:
    assert parse_reward("bounded_slowdown/jobs") == (Term(name="bounded_slowdown", per=("jobs",)),)
    assert parse_reward("wait/jobs/time_scale - 1e-3*energy + utilisation/span") == (
        Term(name="wait", per=("jobs", "time_scale")),
        Term(name="energy", weight=-1e-3),
        Term(name="utilisation", per=("span",)),
    )
    for text, problem in {
        "wate": "did you mean 'wait'",
        "wait/job": "did you mean 'jobs'",
        "x*wait": "'x' is no number",
        "": "no terms",
    }.items():
        with pytest.raises(InputError, match=problem):
            parse_reward(text)


def play(env: QueuewiseEnv) -> list[float]:
    _, info = env.reset(seed=2)
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step(int(info["action_mask"].argmax()))
        rewards.append(reward)
        if terminated or truncated:
            return rewards


def test_text_and_function_pay_what_they_say() -> None:
    by_terms = play(QueuewiseEnv("job", **SMALL, reward=(Term(name="wait", weight=0.5), Term(name="utilisation"))))
    assert play(QueuewiseEnv("job", **SMALL, reward="0.5*wait + utilisation")) == by_terms
    by_function = play(QueuewiseEnv("job", **SMALL, reward=lambda terms: 0.5 * terms["wait"] + terms["utilisation"]))
    np.testing.assert_allclose(by_function, by_terms, rtol=1e-5)
    with pytest.raises(InputError, match="cannot call a function"):
        QueuewiseVectorEnv(2, "job", **SMALL, reward=lambda terms: 0.0)


@pytest.mark.parametrize("action", [1.0, 0.5, np.float32(1), True, "1", None])
def test_actions_that_are_no_integers_are_refused(action: Any) -> None:
    env = QueuewiseEnv("job", **SMALL)
    env.reset(seed=1)
    with pytest.raises(InputError, match="not an integer"):
        env.step(action)
    envs = QueuewiseVectorEnv(1, "job", **SMALL)
    envs.reset(seed=1)
    with pytest.raises(InputError, match="give integers of shape"):
        envs.step(np.array([action]))
