"""How many nodes does a target need? Replays of one log on clusters of different sizes, by doubling and bisection.

The answer is the smallest size that was tried and meets the target, with the next smaller one that was tried and does not. Waits usually
fall with the number of nodes, but they need not: the curve has every size that was tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from queuewise.cluster.altered import counts_cores, node_groups, nodes_in, resize_group
from queuewise.cluster.spec import MOST_NODES, Cluster
from queuewise.errors import InputError, unknown_name
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import DISTRIBUTIONS
from queuewise.evaluation.remarks import never_ran
from queuewise.policies.names import parse_bound
from queuewise.sim.core.schedule import DONE, KILLED, REJECTED, Schedule

TARGET = re.compile(r"(?P<statistic>mean|median|max|p\d{1,2}(?:\.\d{1,6})?) (?P<figure>[a-z]+(?: [a-z]+)?) ?(?P<sign><=?) ?(?P<limit>\S+)")
FIGURES = {"wait": "wait_s", "jct": "jct_s", "slowdown": "slowdown", "bounded slowdown": "bounded_slowdown", "bsld": "bounded_slowdown"}
MOST_TIMES = 64  # larger than now by at most this factor
EXAMPLE = 'for example "p90 wait < 1h", "mean wait < 30m" or "p99 bounded slowdown < 20"'


@dataclass(frozen=True)
class Target:
    """A figure of the jobs that has to stay below a limit."""

    text: str
    figure: str  # of DISTRIBUTIONS
    quantile: float | None  # None: the mean
    limit: float
    inclusive: bool = False  # <=

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.inclusive else value < self.limit

    @property
    def in_seconds(self) -> bool:
        return DISTRIBUTIONS[self.figure][1] == "s"

    def value(self, schedule: Schedule) -> float | None:
        """The figure in this schedule; None if no job has ended."""
        values = DISTRIBUTIONS[self.figure][0](measure(schedule))
        if not values.size:
            return None
        return float(values.mean() if self.quantile is None else np.quantile(values, self.quantile))


def parse_target(text: str) -> Target:
    """`p90 wait < 1h`."""
    found = TARGET.fullmatch(" ".join(text.lower().split()))  # one blank at a time: no text takes long to be refused
    if found is None:
        raise InputError(f"--target {text!r} is no target", hint=EXAMPLE)
    if found["figure"] not in FIGURES:
        raise unknown_name("figure in --target", found["figure"], FIGURES)
    figure, statistic = FIGURES[found["figure"]], found["statistic"]
    if DISTRIBUTIONS[figure][1] == "s":
        limit = parse_bound(found["limit"], f"--target {text!r}")
    else:
        try:
            limit = float(found["limit"])
        except ValueError:
            raise InputError(f"--target {text!r}: {found['limit']!r} is no number", hint=EXAMPLE) from None
    named = {"mean": None, "median": 0.5, "max": 1.0}
    quantile = named[statistic] if statistic in named else float(statistic[1:]) / 100
    if not 0 < limit < np.inf:
        raise InputError(f"--target {text!r}: the limit is no finite number above 0", hint=EXAMPLE)
    return Target(text.strip(), figure, quantile, limit, inclusive=found["sign"] == "<=")


@dataclass(frozen=True)
class SizePoint:
    """One size that was tried."""

    nodes: int
    value: float | None
    meets: bool
    rejected: int = 0  # jobs that fit on no empty cluster of this size
    never_ran: tuple[str, ...] = ()  # why jobs never ran, one line per reason

    def as_json(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "value": self.value, "meets": self.meets, "rejected": self.rejected}


@dataclass(frozen=True)
class Sizing:
    """The answer and the way to it."""

    nodes: int | None  # None: no size up to MOST_TIMES the present one meets the target
    now: int
    unit: str  # "nodes" or "cores"
    group: str
    curve: tuple[SizePoint, ...]  # ascending

    @property
    def answer(self) -> SizePoint:
        """The point of the size that meets the target, or the largest that was tried if none does."""
        return next((point for point in self.curve if point.nodes == self.nodes), self.curve[-1])

    def as_json(self) -> dict[str, Any]:
        facts = {"nodes": self.nodes, "now": self.now, "unit": self.unit, "group": self.group}
        return facts | {"curve": [point.as_json() for point in self.curve]}


def choose_group(cluster: Cluster, group: str | None) -> str:
    """The group of nodes whose number is varied."""
    groups = node_groups(cluster)
    if group is None and len(groups) > 1:
        raise InputError(f"{cluster.name} has {len(groups)} groups of nodes", hint=f"say which to vary: --group {' | '.join(groups)}")
    chosen = next(iter(groups)) if group is None else group
    nodes_in(cluster, chosen)  # report a mistake
    return chosen


def find_size(
    cluster: Cluster, target: Target, replay: Callable[[Cluster], Schedule], *, group: str | None = None,
    on_point: Callable[[SizePoint], None] = lambda point: None,
) -> Sizing:  # fmt: skip
    """The smallest number of nodes that meets the target. `replay` replays the log on a cluster of another size.

    A size at which fewer jobs end than at the largest one does not meet it: their waits would not count.
    """
    chosen = choose_group(cluster, group)
    now = round(cluster.num_cores) if counts_cores(cluster) else len(nodes_in(cluster, chosen))
    largest = now * MOST_TIMES if counts_cores(cluster) else min(now * MOST_TIMES, now + MOST_NODES - cluster.num_nodes)
    tried: dict[int, SizePoint] = {}
    ended: dict[int, int] = {}

    def attempt(size: int) -> SizePoint:
        if size not in tried:
            schedule = replay(resize_group(cluster, chosen, size))
            ended[size] = int(np.isin(schedule.status, (DONE, KILLED)).sum())
            if size == now and ended[now] < len(schedule.workload):
                attempt(largest)  # would more jobs end on more nodes?
            value, rejected = target.value(schedule), int((schedule.status == REJECTED).sum())
            meets = value is not None and target.holds(value) and ended[size] >= ended.get(largest, ended[now])
            tried[size] = SizePoint(size, value, meets, rejected, tuple(never_ran(schedule)))
            on_point(tried[size])
        return tried[size]

    low, high = _bracket(now, largest, lambda size: attempt(size).meets)
    while high is not None and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attempt(middle).meets else (middle, high)
    unit = "cores" if counts_cores(cluster) else "nodes"
    return Sizing(high, now, unit, chosen, tuple(tried[size] for size in sorted(tried)))


def _bracket(now: int, largest: int, meets: Callable[[int], bool]) -> tuple[int, int | None]:
    """A size that does not meet the target (0 if every one does) and one that does (None if none does)."""
    if meets(now):
        high = now
        while high > 1 and meets(high // 2):
            high //= 2
        return high // 2, high
    low = now
    while low < largest:
        high = min(low * 2, largest)
        if meets(high):
            return low, high
        low = high
    return low, None
