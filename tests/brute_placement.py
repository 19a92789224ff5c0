"""All placements of a few gangs on a few nodes, and the best of them by the objective of `@milp`: a twin that shares no code with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.evaluation.fragmentation import FreeState, TaskTypes, fragments, task_types
from queuewise.workload.jobs import Workload

NodeState = tuple[int, int, tuple[int, ...]]  # free cpu milli, free MiB, free milli of each GPU
Nodes = tuple[NodeState, ...]
Levels = tuple[tuple[tuple[float, str], ...], ...]


@dataclass(eq=False)
class Brute:
    """Placements on a cluster. `levels` as in the name of the policy: tuples of (weight, term)."""

    workload: Workload
    cluster: Cluster
    levels: Levels
    _fgd: dict[tuple[int, NodeState], float] = field(default_factory=dict)

    @cached_property
    def types(self) -> TaskTypes:
        return task_types(self.workload, self.cluster)

    def empty(self) -> Nodes:
        c = self.cluster
        rows = zip(c.node_cpu_milli.tolist(), c.node_mem_mib.tolist(), c.node_gpus.tolist(), strict=True)
        return tuple((cpu, mem, (1000,) * gpus) for cpu, mem, gpus in rows)

    def allowed(self, j: int, n: int) -> bool:
        kinds = self.workload.kind_sets[self.workload.kind_set[j]]
        kind = int(self.cluster.node_kind[n])
        return not kinds or (kind >= 0 and self.cluster.kinds[kind].name in kinds)

    def task_ways(self, j: int, node: NodeState) -> Iterator[NodeState]:
        """What one more task of job j can leave of a node."""
        w = self.workload
        cpu, mem, gpus = node
        milli = int(w.gpu_milli[j])
        need_cpu, need_mem = int(w.cpu_milli[j]), int(w.mem_mib[j])
        if (need_cpu and cpu < need_cpu) or (need_mem and mem < need_mem):
            return
        left = (cpu if cpu == UNLIMITED else cpu - need_cpu, mem if mem == UNLIMITED else mem - need_mem)
        if milli >= 1000:
            free = [g for g, level in enumerate(gpus) if level == 1000][: milli // 1000]
            if len(free) == milli // 1000:
                yield (*left, tuple(0 if g in free else level for g, level in enumerate(gpus)))
        elif milli > 0:
            for g, level in enumerate(gpus):
                if level >= milli:
                    yield (*left, tuple(level - milli if h == g else other for h, other in enumerate(gpus)))
        else:
            yield (*left, gpus)

    def placements(self, j: int, nodes: Nodes, first: int = 0, remaining: int | None = None) -> Iterator[tuple[Nodes, tuple[int, ...]]]:
        """Every way to place job j: the nodes after it, and which of them it uses."""
        remaining = int(self.workload.num_tasks[j]) if remaining is None else remaining
        if remaining == 0:
            yield nodes, ()
            return
        for n in range(first, len(nodes)):
            if not self.allowed(j, n):
                continue
            ways: set[NodeState] = {nodes[n]}
            for tasks in range(1, remaining + 1):
                ways = {left for way in ways for left in self.task_ways(j, way)}
                for way in ways:
                    changed = (*nodes[:n], way, *nodes[n + 1 :])
                    for rest, used in self.placements(j, changed, n + 1, remaining - tasks):
                        yield rest, (n, *used)

    def _use(self, n: int, node: NodeState) -> tuple[int, int]:
        cpu, mem, gpus = node
        if gpus:
            return sum(gpus), 1000 * len(gpus)
        if self.cluster.node_cpu_milli[n] != UNLIMITED:
            return cpu, int(self.cluster.node_cpu_milli[n])
        return mem, int(self.cluster.node_mem_mib[n])

    def _of_node(self, term: str, n: int, node: NodeState, room: tuple[int, ...]) -> float:
        free, total = self._use(n, node)
        if term == "fragments":
            return float(0 < free < total)
        if term in ("even", "full"):
            return float(round(100 * (total - free) / total) ** 2) * (1 if term == "even" else -1)
        if term == "room":
            return -float(sum(self._slots(j, node) for j in room if self.allowed(j, n)))
        key = (int(self.cluster.node_kind[n]), node)
        if key not in self._fgd:
            state = FreeState(np.array([node[2] or (0,)]), np.array([node[0]]), np.array([node[1]]))
            self._fgd[key] = float(fragments(state, self.cluster.node_kind[[n]], self.types)[0]) if node[2] else 0.0
        return self._fgd[key]

    def _slots(self, j: int, node: NodeState) -> int:
        number = 0
        ways = {node}
        while ways and number < 1000:
            ways = {min((left for way in ways for left in self.task_ways(j, way)), default=None)} - {None}  # type: ignore[assignment]
            number += bool(ways)
        return number

    def cost(self, j: int, before: Nodes, after: Nodes, used: tuple[int, ...], room: tuple[int, ...]) -> tuple[float, ...]:
        """The levels of the objective for one job."""
        return tuple(
            round(sum(weight * self._term(term, j, before, after, used, room) for weight, term in level), 6) for level in self.levels
        )

    def _term(self, term: str, j: int, before: Nodes, after: Nodes, used: tuple[int, ...], room: tuple[int, ...]) -> float:
        c, w = self.cluster, self.workload
        slowness = [1 / c.speed[c.node_kind[n]] if w.gpu_milli[j] > 0 else 1.0 for n in used]
        if term == "nodes":
            return float(len(used))
        if term == "racks":
            return float(len({int(c.node_rack[n]) for n in used}))
        if term == "slow":
            return float(max(slowness))
        if term == "energy":
            total = 0.0
            for n, slow in zip(used, slowness, strict=True):
                kind = c.kinds[c.node_kind[n]] if w.gpu_milli[j] > 0 else None
                watts = 0.0 if kind is None else w.gpu_milli[j] / 1000 * (kind.peak_watts - kind.idle_watts)
                watts += w.cpu_milli[j] / 1000 * c.node_core_watts[n]
                total += self._tasks_on(j, before[n], after[n]) * watts * slow
            return float(total)
        return sum(self._of_node(term, n, after[n], room) - self._of_node(term, n, before[n], room) for n in used)

    def _tasks_on(self, j: int, before: NodeState, after: NodeState) -> int:
        w = self.workload
        if w.gpu_milli[j] > 0:
            return (sum(before[2]) - sum(after[2])) // int(w.gpu_milli[j])
        return (before[0] - after[0]) // int(w.cpu_milli[j])

    def best(self, jobs: tuple[int, ...], nodes: Nodes, room: tuple[int, ...], *, all_may_wait: bool = False) -> tuple[float, ...]:
        """The least objective of a batch: first which jobs are placed, the earlier the better, then the levels.

        The first job is placed, unless all may wait.
        """

        @cache
        def best_from(i: int, now: Nodes) -> tuple[float, ...]:
            if i == len(jobs):
                return (0.0,) * (1 + len(self.levels))
            found = (
                []
                if i == 0 and not all_may_wait
                else [_sum((float(1 << (len(jobs) - 1 - i)), *(0.0,) * len(self.levels)), best_from(i + 1, now))]
            )
            for after, used in self.placements(jobs[i], now):
                found.append(_sum((0.0, *self.cost(jobs[i], now, after, used, room)), best_from(i + 1, after)))
            return min(found)

        return best_from(0, nodes)


def _sum(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(x + y, 6) for x, y in zip(one, other, strict=True))
