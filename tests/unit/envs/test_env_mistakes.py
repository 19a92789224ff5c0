"""Arguments of environments that would be ignored or misunderstood are refused."""

from __future__ import annotations

from typing import Any

import pytest

from queuewise.envs.single import QueuewiseEnv
from queuewise.envs.vector import QueuewiseVectorEnv
from queuewise.errors import InputError

SMALL: dict[str, Any] = {"workload": "bursty", "cluster": "2x8:V100-16"}


@pytest.mark.parametrize("jobs", ["16", 2.5, 0, True])
def test_the_number_of_jobs_is_a_whole_number(jobs: Any) -> None:
    with pytest.raises(InputError, match="is no number of jobs") as raised:
        QueuewiseEnv("job", **SMALL, episode_jobs=jobs)
    assert "episode_jobs=256" in raised.value.hint


def test_unknown_options_of_reset_are_refused() -> None:
    with pytest.raises(InputError, match="unknown option of reset 'windw'") as raised:
        QueuewiseEnv("job", **SMALL, episode_jobs=4).reset(options={"windw": 1})
    assert "did you mean 'window'?" in raised.value.hint
    with pytest.raises(InputError, match="unknown option of reset 'foo'"):
        QueuewiseVectorEnv(2, "job", **SMALL, episode_jobs=4).reset(options={"foo": 1})


def test_unknown_settings_are_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(InputError, match="unknown setting of an environment 'episodes_jobs'") as raised:
        QueuewiseEnv("job", **SMALL, episodes_jobs=4)
    assert "did you mean 'episode_jobs'?" in raised.value.hint


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (3, "reward is int 3"),
        (None, "reward is NoneType None"),
        ("wait/jobs +", "a term is missing"),
        ("wait ++ jct", "a term is missing"),
        ("2*", "a term is missing"),
    ],
)
def test_rewards_that_are_none_are_refused(reward: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        QueuewiseEnv("job", **SMALL, episode_jobs=4, reward=reward)
    assert message in raised.value.message
    assert "'wait/jobs + 0.1*utilisation/span'" in raised.value.hint


def test_a_function_that_asks_for_an_unknown_term_learns_the_names() -> None:
    env = QueuewiseEnv("job", **SMALL, episode_jobs=4, reward=lambda terms: terms["waits"])
    env.reset(seed=0)
    with pytest.raises(InputError, match="unknown reward term 'waits'") as raised:
        env.step(int(env.action_masks().argmax()))
    assert "did you mean 'wait'?" in raised.value.hint
