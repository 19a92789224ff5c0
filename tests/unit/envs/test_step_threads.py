"""Threads that share a batch: even if a thread comes late or not at all, the steps are the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from queuewise.envs import QueuewiseVectorEnv
from queuewise.envs.step_threads import StepThreads
from queuewise.errors import InputError
from queuewise.sim.core.compilation import JIT_DISABLED

STEPS = 60
pytestmark = pytest.mark.skipif(JIT_DISABLED, reason="without the compiler one thread steps all envs")


def threads_of(envs: QueuewiseVectorEnv) -> StepThreads:
    step_threads = envs.batch._step_threads
    assert step_threads is not None
    return step_threads


def dismiss(envs: QueuewiseVectorEnv) -> None:
    threads_of(envs).close()


def let_them_sleep(envs: QueuewiseVectorEnv) -> None:
    time.sleep(0.005)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("meanwhile", [lambda envs: None, let_them_sleep, dismiss])
def test_threads_that_are_late_or_gone_change_nothing(threads: int, meanwhile: Callable[[QueuewiseVectorEnv], None]) -> None:
    alone, together = (
        QueuewiseVectorEnv(11, "job", threads=number, episode_jobs=20, window=8, observation="flat") for number in (1, threads)
    )
    np.testing.assert_array_equal(alone.reset(seed=5)[0], together.reset(seed=5)[0])
    ended = 0
    for step in range(STEPS):
        actions = alone.legal_actions(seed=step).copy()
        expected, found = alone.step(actions), together.step(actions)
        for a, b in zip(expected[:4], found[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        ended += int((expected[2] | expected[3]).sum())
        if step % 10 == 9:
            meanwhile(together)
    assert ended > 0
    together.close()


@pytest.mark.parametrize("arguments", [{"num_envs": 0}, {"threads": 0}, {"threads": "x"}])
def test_numbers_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(arguments))} is"):
        QueuewiseVectorEnv(**{"problem": "job", "episode_jobs": 5, **arguments})


def test_random_actions_before_a_reset_are_refused() -> None:
    with pytest.raises(InputError, match="has not been reset"):
        QueuewiseVectorEnv(3, "job", episode_jobs=8).legal_actions(seed=1)
