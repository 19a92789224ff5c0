"""Workers of PPO: threads that play and differentiate side by side, each with environments, buffers and a random stream of its own.

All share the weights; each has gradients of its own, which the learner adds up in the order of the workers. So a seed and a number of
workers determine the result to the bit, whatever the threads do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from queuewise.agents.networks.base import Network
from queuewise.agents.stage import Stage
from queuewise.envs.features import NUM_GLOBAL, Layout

Result = TypeVar("Result")


class Rollout:
    """What a worker played: T steps of E environments. F size of an observation, A actions."""

    def __init__(self, steps: int, num_envs: int, size: int, num_actions: int) -> None:
        shape = (steps, num_envs)
        self.observations = torch.zeros(steps + 1, num_envs, size)  # [T+1, E, F]
        self.masks = torch.zeros(steps + 1, num_envs, num_actions, dtype=torch.bool)  # [T+1, E, A]
        self.actions = torch.zeros(shape, dtype=torch.int64)  # [T, E]
        self.log_probs = torch.zeros(shape)
        self.rewards = torch.zeros(shape)
        self.discounts = torch.zeros(shape)  # what the next value counts
        self.values = torch.zeros(steps + 1, num_envs)  # [T+1, E]
        self.advantages = torch.zeros(shape)
        self.targets = torch.zeros(shape)  # of the critic
        self.tallies: list[dict[str, float]] = []
        self.shown = torch.zeros(steps * num_envs, dtype=torch.int16)  # jobs in the window
        self._picked = torch.zeros(0, size)

    def count_shown(self, layout: Layout) -> None:
        """To be called when all is played."""
        window, features = layout.shapes["jobs"]
        first = NUM_GLOBAL + layout.units
        present = self.observations[:-1].flatten(0, 1)[:, first : first + window * features : features]
        torch.sum(present, 1, dtype=torch.int16, out=self.shown)

    def by_length(self, chosen: Tensor, pieces: int) -> Sequence[Tensor]:
        """The frames in so many equal pieces, those with short queues first: a network leaves out slots that no frame of a piece uses."""
        if pieces == 1:
            return [chosen]
        return chosen[self.shown[chosen].argsort(stable=True)].chunk(pieces)

    @property
    def frames(self) -> int:
        return self.actions.numel()

    def rows(self, chosen: Tensor) -> tuple[Tensor, ...]:
        """Observations (until the next call), masks, actions, log probabilities, advantages, targets and values of these frames."""
        if len(self._picked) < len(chosen):
            self._picked = torch.zeros(len(chosen), self.observations.shape[2])
        picked = self._picked[: len(chosen)]
        torch.index_select(self.observations[:-1].flatten(0, 1), 0, chosen, out=picked)
        columns = (self.masks[:-1], self.actions, self.log_probs, self.advantages, self.targets, self.values[:-1])
        return picked, *(column.flatten(0, 1).index_select(0, chosen) for column in columns)


class Worker:
    def __init__(self, stage: Stage, network: Network, steps: int, seed: int) -> None:
        self.stage, self.network = stage, network
        self.rollout = Rollout(steps, stage.num_envs, stage.spec.observation_size, stage.spec.num_actions)
        self.random = torch.Generator().manual_seed(seed)
        self.parameters = list(network.parameters())

    def look(self) -> None:
        """Put the present state where the next rollout begins from."""
        self.stage.write(self.rollout.observations[-1], self.rollout.masks[-1])


class Crew:
    """The workers, and the threads they run on: the first on the caller's own."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers
        others = len(workers) - 1
        self._pool = ThreadPoolExecutor(others, initializer=torch.set_num_threads, initargs=(1,)) if others else None

    def each(self, work: Callable[[Worker], Result]) -> list[Result]:
        """The results in the order of the workers."""
        futures = [self._pool.submit(work, worker) for worker in self.workers[1:]] if self._pool else []
        first = work(self.workers[0])
        return [first, *(future.result() for future in futures)]

    def add_gradients(self) -> None:
        """The mean of the workers' gradients, into those of the first."""
        for shared, *others in zip(*(worker.parameters for worker in self.workers), strict=True):
            if shared.grad is not None:
                for other in others:
                    shared.grad += other.grad
                shared.grad /= len(self.workers)

    def forget_gradients(self) -> None:
        for worker in self.workers:
            for parameter in worker.parameters:
                parameter.grad = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for worker in self.workers:
            worker.stage.close()


def twin(network: Network) -> Network:
    """A network with the same weights (the same memory) and gradients of its own."""
    other = copy.deepcopy(network)
    for own, shared in zip(other.parameters(), network.parameters(), strict=True):
        own.data = shared.data
    return other
