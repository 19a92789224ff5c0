"""Workers of PPO: processes that play and compute gradients in parallel.

Each has its own environments, rollout and random stream. Weights, rollouts and gradients lie in shared memory, and the
learner adds up the gradients in the order of the workers. So a seed and a number of workers determine the result bit
for bit, whatever the timing. Threads would wait for each other at every operation: Python runs one of them at a time,
and an operation of a small network takes less time than waking a thread.

The first worker is the learner's own process. The others are forks of it, started when they are first needed: they have
everything the learner had by then, and later changes reach them through shared memory.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
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

from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import gather_rows
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.training_envs import TrainingEnvs
from queuewise.errors import InputError
from queuewise.memory import check_memory

WORTH_DIVIDING = 2048  # frames: fewer are processed in one piece
LEAST_PIECE = 256  # frames: smaller pieces waste time; only the last one may be smaller
SCALAR_BYTES = 34  # per frame of a rollout, beside observation and mask: an action, a count of jobs and six numbers
_PR_SET_PDEATHSIG = 1  # of prctl(2)
POLL_S = 1.0  # between checks whether the learner is still there


def shared(tensor: Tensor) -> Tensor:
    """A copy in memory that this process shares with its later forks."""
    result = shared_zeros(*tensor.shape, dtype=tensor.dtype)
    return result.copy_(tensor)


def shared_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    number = math.prod(shape)
    memory = mmap.mmap(-1, max(number, 1) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=number).view(shape)


def check_rollouts(steps: int, num_envs: int, shape: TaskShape) -> None:
    """Refuse rollouts that would not fit into memory."""
    need = (steps + 1) * num_envs * (4 * shape.observation_size + shape.num_actions + SCALAR_BYTES)
    what = f"rollouts of {steps:,} steps of {num_envs:,} environments"
    check_memory(what, need, hint="use a smaller --ppo.steps, --ppo.num-envs or --task.window")


class Rollout:
    """T steps of a worker's E environments. F size of an observation, A actions."""

    def __init__(self, steps: int, num_envs: int, shape: TaskShape) -> None:
        size, num_actions = shape.observation_size, shape.num_actions
        sizes = (steps, num_envs)
        self.observations = shared_zeros(steps + 1, num_envs, size)  # [T+1, E, F]
        self.masks = shared_zeros(steps + 1, num_envs, num_actions, dtype=torch.bool)  # [T+1, E, A]
        self.actions = shared_zeros(*sizes, dtype=torch.int64)  # [T, E]
        self.log_probs = shared_zeros(*sizes)
        self.rewards = shared_zeros(*sizes)
        self.discounts = shared_zeros(*sizes)  # weight of the next value
        self.values = shared_zeros(steps + 1, num_envs)  # [T+1, E]
        self.advantages = shared_zeros(*sizes)
        self.targets = shared_zeros(*sizes)  # of the critic
        self.shown = shared_zeros(steps * num_envs, dtype=torch.int16)  # jobs in the window
        self._jobs = shape.job_columns
        self._flat = self.observations[:-1].flatten(0, 1)
        self._picked = torch.zeros(0)

    def count_shown(self) -> None:
        """Count the jobs that each frame shows. Call this once all steps are played."""
        present = self._flat[:, self._jobs.start : self._jobs.stop : self._jobs.step]
        torch.sum(present, 1, dtype=torch.int16, out=self.shown)

    def by_length(self, chosen: Tensor, least_pieces: int) -> Sequence[Tensor]:
        """Divide frames into pieces, short queues first: slots that no frame of a piece uses cost nothing.

        Most queues are short and a few are very long, so each piece is half of the rest.
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
        """Observations, masks, actions, log-probabilities, advantages, targets and values of the chosen frames.

        Observations lack the slots that no chosen frame uses, and are valid until the next call.
        """
        used = min(self._jobs.start + max(int(self.shown[chosen].max()), 1) * self._jobs.step, self._jobs.stop)
        width = used + self._flat.shape[1] - self._jobs.stop
        if len(self._picked) < len(chosen) * width:
            self._picked = torch.zeros(len(chosen) * width)
        picked = self._picked[: len(chosen) * width].view(len(chosen), width)
        gather_rows(self._flat.numpy(), chosen.numpy(), used, self._jobs.stop, picked.numpy())
        columns = (self.masks[:-1], self.actions, self.log_probs, self.advantages, self.targets, self.values[:-1])
        return picked, *(column.flatten(0, 1).index_select(0, chosen) for column in columns)


class Worker:
    """Environments, network, rollout and gradients of one worker."""

    def __init__(self, envs: TrainingEnvs, network: Network, steps: int, seed: int) -> None:
        self.envs, self.network = envs, network
        self.rollout = Rollout(steps, envs.num_envs, envs.shape)
        self.random = torch.Generator().manual_seed(seed)
        self.parameters = list(network.parameters())
        self.gradients = shared_zeros(sum(parameter.numel() for parameter in self.parameters))
        pieces = torch.split(self.gradients, [parameter.numel() for parameter in self.parameters])
        self._gradients = [piece.view_as(parameter) for parameter, piece in zip(self.parameters, pieces, strict=True)]
        self.minibatches: Sequence[Tensor] = ()  # frames, in the order of this epoch

    def zero_gradients(self) -> None:
        """Set the gradients to zero and let new ones accumulate in shared memory."""
        self.gradients.zero_()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def write_state(self) -> None:
        """Write the current state to where the next rollout starts."""
        self.envs.write(self.rollout.observations[-1], self.rollout.masks[-1])


class WorkerPool:
    """The workers and their processes. Tasks are methods of `learner`."""

    def __init__(self, workers: Sequence[Worker], learner: object) -> None:
        self.workers = workers
        self._learner = learner
        self._processes: list[_WorkerProcess] = []
        weakref.finalize(self, _stop, self._processes)  # for a learner that is never closed

    def each(self, task: str, *arguments: Any) -> list[Any]:
        """Call the learner's method `task(worker, *arguments)` for every worker; return the results in their order."""
        if not self._processes:
            self._processes += [_WorkerProcess(self._learner, worker) for worker in self.workers[1:]]
        for process in self._processes:
            process.begin(task, arguments)
        try:
            first = getattr(self._learner, task)(self.workers[0], *arguments)
        except Exception:
            self.wait()
            raise
        except BaseException:  # Ctrl-C: nobody needs what the others are doing
            self.kill()
            raise
        others = self.wait()
        for failure in others:
            if isinstance(failure, BaseException):
                raise failure
        return [first, *others]

    def wait(self) -> list[Any]:
        """The results of the other processes."""
        try:
            return [process.result() for process in self._processes]
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the other processes at once."""
        for process in self._processes:
            process.kill()
        self._processes.clear()

    def add_gradients(self) -> None:
        """Replace the gradients of the first worker by the mean of all."""
        first, *others = (worker.gradients for worker in self.workers)
        for other in others:
            first += other
        first /= len(self.workers)

    def stop(self) -> None:
        """Stop the other processes. New ones, when needed, start from what this process knows about their workers."""
        _stop(self._processes)

    def close(self) -> None:
        self.stop()
        for worker in self.workers:
            worker.envs.close()


class _WorkerProcess:
    """A fork of this process that runs tasks for one worker."""

    def __init__(self, learner: object, worker: Worker) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(learner, worker, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about forks and threads: the fork uses nothing that a thread may hold
            self._process.start()
        theirs.close()

    def begin(self, task: str, arguments: tuple[Any, ...]) -> None:
        with contextlib.suppress(BrokenPipeError):  # `result` reports it
            self._pipe.send((task, arguments))

    def result(self) -> Any:
        """What the task returned, or the exception it raised."""
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return InputError(
                "a worker process has died", hint="check that there is enough memory; --resume continues from the last checkpoint"
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has already ended
            self._pipe.send(None)
        self._process.join()
        self._pipe.close()


def _stop(processes: list[_WorkerProcess]) -> None:
    for process in processes:
        process.end()
    processes.clear()


def _serve(learner: object, worker: Worker, pipe: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner decides what an interrupt means
    signal.set_wakeup_fd(-1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # however the learner ends, this process does not outlive it
    torch.set_num_threads(1)
    while True:
        while not pipe.poll(POLL_S):
            if os.getppid() != parent:
                return
        message = pipe.recv()
        if message is None:
            return
        try:
            task, arguments = message
            result = getattr(learner, task)(worker, *arguments)
        except Exception as failure:
            result = failure
        pipe.send(result)


def twin(network: Network) -> Network:
    """A copy that shares the weights (the same memory) but has its own gradients."""
    other = copy.deepcopy(network)
    for own, common in zip(other.parameters(), network.parameters(), strict=True):
        own.data = common.data
    return other
