"""The compiled one-machine schedule that `bounds` uses."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.compilation import entry


@entry
def serve(
    submit: NDArray[np.float64], work: NDArray[np.float64], key: NDArray[np.float64], by_remaining: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """End and mean busy time of every job on one preemptive machine of speed 1 that always runs the job with the smallest key.

    `submit` must be ascending. With `by_remaining`, the key of a job is its remaining work (then `key` must be `work`). The mean busy time
    is the average of the times at which the job runs. Jobs without work end when submitted.
    """
    num = len(submit)
    end, mean_busy = submit.copy(), submit.copy()
    left, moment = work.copy(), np.zeros(num)
    queue = [(0.0, -1)]
    queue.pop()
    now = -np.inf
    j = 0
    while j < num or len(queue) > 0:
        if len(queue) == 0:
            now = max(now, submit[j])
        while j < num and submit[j] <= now:
            if work[j] > 0:
                heapq.heappush(queue, (key[j], j))
            j += 1
        if len(queue) == 0:
            continue
        _, k = heapq.heappop(queue)
        stop = now + left[k]
        if j < num and submit[j] < stop:
            stop = submit[j]
            served = stop - now
            left[k] -= served
            moment[k] += served * (now + stop) / 2
            heapq.heappush(queue, (left[k] if by_remaining else key[k], k))
        else:
            moment[k] += left[k] * (now + stop) / 2
            end[k] = stop
            mean_busy[k] = moment[k] / work[k]
        now = stop
    return end, mean_busy
