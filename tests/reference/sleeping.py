"""Nodes that sleep and wake ("Energy" of the normative page)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from queuewise.cluster.conditions import Power


class Sleepers:
    """All nodes of a cluster, told of every placement and every leaving in the order of time."""

    def __init__(self, power: Power, num_nodes: int, first: float) -> None:
        self.power = power
        self.since = [first] * num_nodes  # idle since then, if nobody is there
        self.awake = [-math.inf] * num_nodes
        self.pieces: Counter[int] = Counter()
        self.sleeps: list[tuple[int, float, float]] = []  # node, from, to: those that are over

    def asleep(self, n: int, now: float) -> bool:
        return not self.pieces[n] and now > self.since[n] + self.power.sleep_after_s

    def placed(self, nodes: Iterable[int], now: float) -> float:
        """A run with one piece for each of these (a node may occur several times) is placed; when all of them are awake."""
        held = list(nodes)
        for n in set(held):
            if self.asleep(n, now):
                self.sleeps.append((n, self.since[n] + self.power.sleep_after_s, now))
                self.awake[n] = now + self.power.wake_s
        self.pieces.update(held)
        return max(now, *(self.awake[n] for n in held))

    def left(self, nodes: Iterable[int], now: float) -> None:
        held = list(nodes)
        self.pieces.subtract(held)
        for n in set(held):
            if not self.pieces[n]:
                self.since[n] = max(now, self.awake[n])

    def all_sleeps(self) -> list[tuple[int, float, float]]:
        """By node and time, with those that nobody has ended."""
        last = [(n, since + self.power.sleep_after_s, math.inf) for n, since in enumerate(self.since) if not self.pieces[n]]
        return sorted(self.sleeps + last)
