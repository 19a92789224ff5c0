"""Processes of PPO's workers: what they share, and what happens when one fails or dies."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from typing import Any

import pytest
import torch

from agents_setup import small_settings
from queuewise.agents.ppo import Ppo
from queuewise.agents.scenario import load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.workers import Rollout, Worker, WorkerPool, check_rollouts, shared
from queuewise.envs.features import ObservationLayout
from queuewise.errors import InputError


def learner(workers: int) -> Ppo:
    settings = small_settings(ppo={"workers": workers})
    return Ppo(load_scenario(settings).task_setup("train"), settings, 3)


class Answers:
    """A learner whose workers tell about themselves."""

    def __init__(self) -> None:
        self.common = shared(torch.zeros(2, 3))
        self.pool = WorkerPool([self._worker(number) for number in range(3)], self)

    def _worker(self, number: int) -> Any:
        worker = object.__new__(Worker)
        worker.minibatches = [torch.tensor(number)]
        worker.envs = self  # type: ignore[assignment]
        return worker

    def close(self) -> None:
        """As a stage does."""

    def write(self, worker: Worker, value: float) -> tuple[int, int]:
        number = int(worker.minibatches[0])
        self.common[:, number] = value + number
        return number, os.getpid()

    def fail(self, worker: Worker) -> None:
        if int(worker.minibatches[0]) == 2:
            raise InputError("no such thing", hint="none")


def test_workers_are_processes_with_common_memory() -> None:
    answers = Answers()
    told = answers.pool.each("write", 5.0)
    assert [number for number, _ in told] == [0, 1, 2]
    assert len({process for _, process in told}) == 3
    assert told[0][1] == os.getpid()
    assert answers.common.tolist() == [[5.0, 6.0, 7.0]] * 2
    assert [process for _, process in answers.pool.each("write", 0.0)] == [process for _, process in told]  # they stay
    answers.pool.close()
    assert not {process for _, process in told[1:]} & {child.pid for child in multiprocessing.active_children()}


def test_what_goes_wrong_in_a_process_is_told() -> None:
    answers = Answers()
    with pytest.raises(InputError, match="no such thing"):
        answers.pool.each("fail")
    assert [number for number, _ in answers.pool.each("write", 1.0)] == [0, 1, 2]  # and they go on
    os.kill(answers.pool.each("write", 1.0)[1][1], signal.SIGKILL)
    with pytest.raises(InputError, match="worker process has died"):
        answers.pool.each("write", 2.0)
    answers.pool.close()


def test_a_learner_that_nobody_closed_leaves_no_process() -> None:
    before = set(multiprocessing.active_children())  # of learners of other tests
    ppo = learner(2)
    ppo.iterate()
    (worker,) = set(multiprocessing.active_children()) - before
    del ppo
    gc.collect()
    assert worker not in multiprocessing.active_children()


def test_frames_are_gathered_without_empty_slots() -> None:
    ppo = learner(1)
    ppo.iterate()
    rollout: Rollout = ppo.pool.workers[0].rollout
    columns, rows = ppo.pool.workers[0].envs.shape.job_columns, rollout.observations[:-1].flatten(0, 1)
    chosen = rollout.shown.argsort()[: rollout.frames // 2]
    slots = max(int(rollout.shown[chosen].max()), 1)
    assert slots < len(columns)
    cut = columns.start + slots * columns.step
    expected = torch.cat([rows[chosen, :cut], rows[chosen, columns.stop :]], 1)
    assert torch.equal(rollout.rows(chosen)[0], expected)
    assert not rows[chosen, cut : columns.stop].any()


def test_rollouts_that_would_not_fit_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = TaskShape("job", ObservationLayout(8, 4, 4))
    held = sum(tensor.nbytes for tensor in vars(Rollout(5, 3, shape)).values() if isinstance(tensor, torch.Tensor) and tensor.numel())
    held -= Rollout(5, 3, shape).observations[:-1].nbytes  # a view of the observations
    monkeypatch.setattr("queuewise.memory.memory_limit", lambda: held)
    check_rollouts(4, 3, shape)
    with pytest.raises(InputError, match="rollouts of 6 steps of 3 environments would need about"):
        check_rollouts(6, 3, shape)
