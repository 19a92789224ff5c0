"""Workers of PPO: processes that play and differentiate side by side, each with environments, buffers and a random stream of its own.

All share the weights, the rollouts and the gradients, which the learner adds up in the order of the workers. So a seed and a number of
workers determine the result to the bit, whatever the processes do. Processes, because threads would wait for each other at every
operation: Python runs one of them at a time, and an operation of a small network takes less time than it takes to wake a thread.

The first worker is the learner's own process. The others are forks of it, made when they are first needed: they have all that the
learner had by then, and see later what lies in shared memory.
"""

from __future__ import annotations

import contextlib
import copy
import math
import mmap
import multiprocessing
import os
import signal
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from queuewise.agents.networks.base import Network
from queuewise.agents.rows import gather_rows
from queuewise.agents.spec import Spec
from queuewise.agents.stage import Stage
from queuewise.errors import InputError

WORTH_DIVIDING = 2048  # frames: fewer are differentiated all at once
LEAST_PIECE = 256  # frames: with fewer a core is not kept busy, so that only the last piece, the rest, may have them
PATIENCE_S = 1.0  # between looks whether the learner is still there


def shared(tensor: Tensor) -> Tensor:
    """A copy in memory that stays common to this process and its later forks."""
    result = shared_zeros(*tensor.shape, dtype=tensor.dtype)
    return result.copy_(tensor)


def shared_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    number = math.prod(shape)
    memory = mmap.mmap(-1, max(number, 1) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=number).view(shape)


class Rollout:
    """What a worker played: T steps of E environments. F size of an observation, A actions."""

    def __init__(self, steps: int, num_envs: int, spec: Spec) -> None:
        size, num_actions = spec.observation_size, spec.num_actions
        shape = (steps, num_envs)
        self.observations = shared_zeros(steps + 1, num_envs, size)  # [T+1, E, F]
        self.masks = shared_zeros(steps + 1, num_envs, num_actions, dtype=torch.bool)  # [T+1, E, A]
        self.actions = shared_zeros(*shape, dtype=torch.int64)  # [T, E]
        self.log_probs = shared_zeros(*shape)
        self.rewards = shared_zeros(*shape)
        self.discounts = shared_zeros(*shape)  # what the next value counts
        self.values = shared_zeros(steps + 1, num_envs)  # [T+1, E]
        self.advantages = shared_zeros(*shape)
        self.targets = shared_zeros(*shape)  # of the critic
        self.shown = shared_zeros(steps * num_envs, dtype=torch.int16)  # jobs in the window
        self._jobs = spec.job_columns
        self._flat = self.observations[:-1].flatten(0, 1)
        self._picked = torch.zeros(0)

    def count_shown(self) -> None:
        """To be called when all is played."""
        present = self._flat[:, self._jobs.start : self._jobs.stop : self._jobs.step]
        torch.sum(present, 1, dtype=torch.int16, out=self.shown)

    def by_length(self, chosen: Tensor, least_pieces: int) -> Sequence[Tensor]:
        """The frames in pieces, those with short queues first: slots that no frame of a piece uses are left out of the work.

        Most queues are short and a few are very long, so each piece is half of what is left.
        """
        if least_pieces == 1 and len(chosen) < WORTH_DIVIDING:
            return [chosen]
        most, left, sizes = -(-len(chosen) // least_pieces), len(chosen), list[int]()
        while left > 0:
            sizes.append(min(most, max(left // 2, LEAST_PIECE), left))
            left -= sizes[-1]
        return torch.split(chosen[self.shown[chosen].argsort(stable=True)], sizes)

    @property
    def frames(self) -> int:
        return self.actions.numel()

    def rows(self, chosen: Tensor) -> tuple[Tensor, ...]:
        """Observations (as far as there are jobs; until the next call), masks, actions, log probabilities, advantages, targets, values."""
        used = self._jobs.start + max(int(self.shown[chosen].max()), 1) * self._jobs.step
        width = used + self._flat.shape[1] - self._jobs.stop
        if len(self._picked) < len(chosen) * width:
            self._picked = torch.zeros(len(chosen) * width)
        picked = self._picked[: len(chosen) * width].view(len(chosen), width)
        gather_rows(self._flat.numpy(), chosen.numpy(), used, self._jobs.stop, picked.numpy())
        columns = (self.masks[:-1], self.actions, self.log_probs, self.advantages, self.targets, self.values[:-1])
        return picked, *(column.flatten(0, 1).index_select(0, chosen) for column in columns)


class Worker:
    def __init__(self, stage: Stage, network: Network, steps: int, seed: int) -> None:
        self.stage, self.network = stage, network
        self.rollout = Rollout(steps, stage.num_envs, stage.spec)
        self.random = torch.Generator().manual_seed(seed)
        self.parameters = list(network.parameters())
        self.gradients = shared_zeros(sum(parameter.numel() for parameter in self.parameters))
        pieces = torch.split(self.gradients, [parameter.numel() for parameter in self.parameters])
        self._gradients = [piece.view_as(parameter) for parameter, piece in zip(self.parameters, pieces, strict=True)]
        self.minibatches: Sequence[Tensor] = ()  # frames, in the order of this epoch

    def forget_gradients(self) -> None:
        """Gradients are zero, and those to come are added where all processes see them."""
        self.gradients.zero_()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def look(self) -> None:
        """Put the present state where the next rollout begins from."""
        self.stage.write(self.rollout.observations[-1], self.rollout.masks[-1])


class Crew:
    """The workers, and the processes they are in. `learner` has the methods that they do."""

    def __init__(self, workers: Sequence[Worker], learner: object) -> None:
        self.workers = workers
        self._learner = learner
        self._helpers: list[_Helper] = []
        weakref.finalize(self, _dismiss, self._helpers)  # a learner that nobody closed

    def each(self, task: str, *arguments: Any) -> list[Any]:
        """Let every worker do the learner's method `task(worker, *arguments)`; the results in the order of the workers."""
        if not self._helpers:
            self._helpers += [_Helper(self._learner, worker) for worker in self.workers[1:]]
        for helper in self._helpers:
            helper.begin(task, arguments)
        try:
            first = getattr(self._learner, task)(self.workers[0], *arguments)
        finally:
            others = [helper.result() for helper in self._helpers]
        for failure in others:
            if isinstance(failure, BaseException):
                raise failure
        return [first, *others]

    def add_gradients(self) -> None:
        """The mean of the workers' gradients, into those of the first."""
        first, *others = (worker.gradients for worker in self.workers)
        for other in others:
            first += other
        first /= len(self.workers)

    def dismiss(self) -> None:
        """End the other processes. New ones, when needed, go on from what this process knows of their workers."""
        _dismiss(self._helpers)

    def close(self) -> None:
        self.dismiss()
        for worker in self.workers:
            worker.stage.close()


class _Helper:
    """A fork of this process that does what it is told for one worker."""

    def __init__(self, learner: object, worker: Worker) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(learner, worker, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the fork uses none of what threads may hold
            self._process.start()
        theirs.close()

    def begin(self, task: str, arguments: tuple[Any, ...]) -> None:
        with contextlib.suppress(BrokenPipeError):  # `result` tells
            self._pipe.send((task, arguments))

    def result(self) -> Any:
        """What the task returned, or the exception that it ended with."""
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return InputError("a worker process has died", hint="is there enough memory? --resume goes on from the last checkpoint")

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            self._pipe.send(None)
        self._process.join()
        self._pipe.close()


def _dismiss(helpers: list[_Helper]) -> None:
    for helper in helpers:
        helper.end()
    helpers.clear()


def _serve(learner: object, worker: Worker, pipe: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner decides what an interrupt means
    torch.set_num_threads(1)
    while True:
        while not pipe.poll(PATIENCE_S):
            if os.getppid() != parent:
                return
        told = pipe.recv()
        if told is None:
            return
        try:
            task, arguments = told
            result = getattr(learner, task)(worker, *arguments)
        except Exception as failure:
            result = failure
        pipe.send(result)


def twin(network: Network) -> Network:
    """A network with the same weights (the same memory) and gradients of its own."""
    other = copy.deepcopy(network)
    for own, common in zip(other.parameters(), network.parameters(), strict=True):
        own.data = common.data
    return other
