"""The queue of a static order against a plain set: the first job in order, of all and of those that a reservation lets start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.cluster.spec import NodeGroup, build
from queuewise.sim.queue.selection import ANY_LENGTH, FORBIDDEN, PRIMARY, SECONDARY, dequeue, enqueue, first_in_order, shortest_queued
from queuewise.workload.jobs import Workload
from uncompiled.simulation import Simulation, laid_out

POLICY = "sjf+easy:largest"  # two static orders: by estimate, and by falling size
LEVELS = (1, 15, 16, 17, 40, 257, 300)  # numbers of jobs of one class: trees of one, two and three levels


class Queue:
    """The kernels and the model side by side. Jobs of two partitions wait in two queues."""

    def __init__(self, num: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        sizes = np.array([1, 1, 1, 2, 3], np.int32) if seed % 2 else np.ones(1, np.int32)
        self.workload = Workload(
            np.zeros(num), np.ones(num), self.rng.choice(sizes, num), np.full(num, 1000, np.int32),
            partition=self.rng.integers(0, 2, num).astype(np.int32) if seed % 3 == 0 else np.zeros(num, np.int32),
            partitions=("north", "south"),
        )  # fmt: skip
        groups = [NodeGroup(1, gpus=4, kind="T4", partition=name) for name in ("north", "south")]
        self.estimate = self.rng.choice([0.0, 1.0, 2.0, 2.0, 5.0, 1e6], num) + (self.rng.random(num) if seed % 5 == 0 else 0.0)
        self.simulation: Simulation = laid_out(self.workload, build("two", groups), POLICY, self.estimate)
        self.queued: set[int] = set()

    @property
    def classes(self) -> list[int]:
        return sorted(set(self.simulation.world.job_class.tolist()))

    def change(self) -> None:
        w, s = self.simulation.world, self.simulation.state
        j = int(self.rng.integers(len(self.workload)))
        if j in self.queued:
            self.queued.remove(j)
            dequeue(w, s, j)
        else:
            self.queued.add(j)
            enqueue(w, s, j)

    def limit(self) -> tuple[float, float]:
        """Let classes fit or not, and some only for so long. Returns the time and the bound."""
        now, bound = float(self.rng.choice([0.0, 10.0])), float(self.rng.choice([10.0, 12.0, 15.5, 1e9]))
        self.simulation.set_time(now, bound)
        for c in self.classes:
            self.simulation.state.stretch[c] = self.rng.choice([FORBIDDEN, ANY_LENGTH, 1.0, 2.0])
        return now, bound

    def expected(self, q: int, order: int, may_start: set[int]) -> int:
        score = self.estimate if order == PRIMARY else -self.workload.size
        own = [j for j in self.queued & may_start if self.workload.partition[j] == q]
        return min(own, key=lambda j: (score[j], j), default=-1)

    def check(self) -> None:
        w, s = self.simulation.world, self.simulation.state
        now, bound = self.limit()
        stretch = {j: float(s.stretch[w.job_class[j]]) for j in self.queued}
        short = {
            j for j in self.queued if stretch[j] == ANY_LENGTH or (stretch[j] != FORBIDDEN and now + self.estimate[j] * stretch[j] <= bound)
        }
        for q in range(len(s.queue_active)):
            for order in (PRIMARY, SECONDARY):
                assert first_in_order(w, s, q, order, False) == self.expected(q, order, self.queued)
                assert first_in_order(w, s, q, order, True) == self.expected(q, order, short)
        for c in self.classes:
            waiting = [self.estimate[j] for j in self.queued if w.job_class[j] == c]
            assert shortest_queued(w, s, c) == min(waiting, default=np.inf)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LEVELS), st.integers(0, 10_000))
def test_the_first_in_order_is_that_of_the_model(num: int, seed: int) -> None:
    queue = Queue(num, seed)
    with np.errstate(invalid="ignore"):  # as in compiled code: inf * 0 is not a number, so that empty leaves never pass
        queue.check()
        for _ in range(60):
            queue.change()
            queue.check()


@pytest.mark.parametrize("num", LEVELS)
def test_filling_and_emptying(num: int) -> None:
    """All jobs enter; then the first in order leaves, again and again, as in a replay."""
    queue = Queue(num, seed=1)
    w, s = queue.simulation.world, queue.simulation.state
    for j in range(num):
        queue.queued.add(j)
        enqueue(w, s, j)
    order = sorted(range(num), key=lambda j: (queue.estimate[j], j))
    with np.errstate(invalid="ignore"):
        for left in range(num):
            first = first_in_order(w, s, 0, PRIMARY, False)
            assert first == order[left]
            dequeue(w, s, first)
            queue.queued.remove(first)
            if left % 16 == 0:
                queue.check()
    assert first_in_order(w, s, 0, PRIMARY, False) == -1
