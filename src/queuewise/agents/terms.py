"""What the reward of an episode is made of, term by term, told of a few environments: enough for a log, and it costs next to nothing."""

from __future__ import annotations

import numpy as np

from queuewise.envs.batch import EnvBatch
from queuewise.envs.rewards import TERMS
from queuewise.sim.core.tables import F64, I64

WATCHED = 4  # environments


class TermSums:
    """Sums of weight × term over the episodes that the first environments of a batch play."""

    def __init__(self, batch: EnvBatch) -> None:
        self._batch = batch
        self._terms = list(dict.fromkeys(term.name for term in batch.settings.reward))
        self._places = np.array([list(TERMS).index(name) for name in self._terms], np.int64)
        self._watched = range(min(WATCHED, batch.size) if len(self._terms) > 1 else 0)  # one term alone is the return
        self._sums = np.zeros((len(self._watched), len(self._terms)))
        self._live: list[tuple[F64, F64]] = [(np.zeros(0), np.zeros(0))] * len(self._watched)  # terms of the step, weights of the episode
        self._whole = np.zeros(len(self._watched), np.bool_)  # watched from the episode's beginning on

    def begin(self, envs: I64) -> None:
        """These environments stand at the beginning of an episode."""
        for e in envs[envs < len(self._watched)].tolist():
            self._live[e] = self._batch.episode_state(e).term, self._batch.episode(e).task.weight[self._places]
            self._sums[e] = 0.0
            self._whole[e] = True

    def forget(self) -> None:
        """What is being played was not watched from its beginning."""
        self._whole[:] = False

    def add(self) -> None:
        """After every step."""
        for e in self._watched:
            if self._whole[e]:
                term, weight = self._live[e]
                self._sums[e] += term[self._places] * weight

    def of(self, e: int) -> dict[str, float]:
        """Sums of env e's episode, by `reward_NAME`; empty if it was not watched."""
        if e >= len(self._watched) or not self._whole[e]:
            return {}
        return {f"reward_{name}": float(value) for name, value in zip(self._terms, self._sums[e], strict=True)}
