"""Action spaces whose `sample()` draws only legal actions.

Everything else is inherited from Gymnasium's spaces. A copy (by `copy`, `pickle`, or a vector wrapper) is a plain
Gymnasium space. The first sample after `seed()` is also legal in the first state of an episode, because checkers seed
the space, sample, and only then reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class LegalDiscrete(spaces.Discrete):
    """The integers 0 … n − 1.

    `legal()` returns the mask of those that are legal now; `first` are legal in every first state.
    """

    def __init__(self, n: int, legal: Callable[[], Mask], first: tuple[int, ...]) -> None:
        super().__init__(n)
        self._legal, self._first, self._fresh = legal, first, False

    def seed(self, seed: int | None = None) -> int:
        self._fresh = seed is not None
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        if mask is None and probability is None:
            mask = self._legal().astype(np.int8)
            if self._fresh:
                mask = _narrowed(mask, self._first)
            self._fresh = False
        return super().sample(mask, probability)

    def __deepcopy__(self, memo: Any) -> spaces.Discrete:
        return spaces.Discrete(int(self.n))

    def __reduce__(self) -> Any:
        return spaces.Discrete, (int(self.n),)


class LegalPairs(spaces.MultiDiscrete):
    """A job (or waiting) and a host. `legal()` returns the mask of jobs, followed by the hosts of each job."""

    def __init__(self, jobs: int, hosts: int, legal: Callable[[], Mask]) -> None:
        super().__init__([jobs, hosts])
        self._legal, self._fresh = legal, False

    def seed(self, seed: Any = None) -> Any:
        self._fresh = seed is not None
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.int64]:
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        jobs, hosts = (int(n) for n in self.nvec)
        legal = self._legal()
        options = legal[:jobs].astype(np.int8)
        if self._fresh:
            options = _narrowed(options, (jobs - 1,))
        self._fresh = False
        job = int(self.np_random.choice(np.flatnonzero(options)))
        pairs = legal[jobs + job * hosts : jobs + (job + 1) * hosts] if job < jobs - 1 else np.ones(1, np.bool_)
        return np.array([job, self.np_random.choice(np.flatnonzero(pairs))], np.int64)

    def __deepcopy__(self, memo: Any) -> spaces.MultiDiscrete:
        return spaces.MultiDiscrete(self.nvec)

    def __reduce__(self) -> Any:
        return spaces.MultiDiscrete, (self.nvec,)


def _narrowed(mask: NDArray[np.int8], actions: tuple[int, ...]) -> NDArray[np.int8]:
    """The mask limited to these actions, or the whole mask if none of them is legal."""
    narrow = np.zeros_like(mask)
    narrow[list(actions)] = mask[list(actions)]
    return narrow if narrow.any() else mask
