"""The compiled count of overtaken jobs for `fairness.unfair_starts`, in n log n instead of quadratic time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.compilation import entry


@entry
def count_overtaken(submit: NDArray[np.float64], start: NDArray[np.float64], size_rank: NDArray[np.int64]) -> int:
    """Jobs j for which some k has submit[k] > submit[j], size_rank[k] >= size_rank[j] and start[k] < start[j].

    `submit` must be ascending. The loop runs from the last submission backwards. `earliest` is a Fenwick tree over sizes, largest first,
    of the earliest start among later submissions. Jobs submitted at the same time do not overtake each other, so they are added together.
    """
    sizes = (size_rank.max() + 1) if len(submit) else 0
    earliest = np.full(sizes + 1, np.inf)
    overtaken = 0
    high = len(submit)
    while high > 0:
        low = high - 1
        while low > 0 and submit[low - 1] == submit[high - 1]:
            low -= 1
        for j in range(low, high):
            best = np.inf
            slot = sizes - size_rank[j]
            while slot > 0:
                best = min(best, earliest[slot])
                slot -= slot & -slot
            overtaken += best < start[j]
        for j in range(low, high):
            slot = sizes - size_rank[j]
            while slot <= sizes:
                earliest[slot] = min(earliest[slot], start[j])
                slot += slot & -slot
        high = low
    return overtaken
