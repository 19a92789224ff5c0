"""The simulation itself: SimPy keeps the time, this module handles completions, arrivals and decisions."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import ANY_PARTITION, Workload
from reference import backfill
from reference.orders import Facts, in_order
from reference.placement import Placer, task_types
from reference.state import Job, Machine, Piece, make_jobs

DONE, REJECTED, KILLED = 3, 4, 5  # the numbers of queuewise.sim.schedule, which this must not import
BEFORE_COMPLETIONS, COMPLETION, ARRIVAL, DECISION = range(-1, 3)  # at equal times, in this order

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    start: Floats  # [J] inf if rejected
    end: Floats  # [J] inf if rejected
    status: NDArray[np.int8]  # [J]
    pieces: list[tuple[int, int, int, int]]  # (job, node, tasks, bit mask of GPUs), sorted


@dataclass(frozen=True)
class Policy:
    order: str
    backfill: str
    depth: int | None
    second_order: str
    placement: str
    option: str | None

    @classmethod
    def parse(cls, name: str) -> Policy:
        """`order[+backfill[/D][:order2]][@placement[:option]]`; the order `random` alone backfills greedily."""
        pattern = r"(\w+)(?:\+([a-z-]+)(?:/(\d+))?(?::(\w+))?)?(?:@(\w+)(?::(\w+))?)?"
        match = re.fullmatch(pattern, name)
        assert match, name
        order, rule, depth, second, placement, option = match.groups()
        default_rule = "greedy" if order == "random" else "none"
        return cls(order, rule or default_rule, int(depth) if depth else None, second or order, placement or "pack", option)


class Clock(simpy.Environment):
    """SimPy's environment, with events at exact times: `now + (time - now)` would round."""

    def call_at(self, time: float, priority: int, action: Callable[[], None]) -> None:
        event = simpy.Event(self)
        event._ok, event._value = True, None
        assert event.callbacks is not None
        event.callbacks.append(lambda _: action())
        heapq.heappush(self._queue, (time, priority, next(self._eid), event))  # type: ignore[misc]


class Simulator:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        dispatch: str,
        estimate: Floats,
        seed: int,
        kill: bool,
        predicted: Floats | None,
    ) -> None:
        self.clock = Clock()
        self.policy = Policy.parse(policy)
        self.dispatch = dispatch
        self.kill = kill
        self.workload = workload
        machine = Machine.of(cluster)
        self.jobs = make_jobs(workload, machine, estimate)
        self.facts = Facts(workload, self.jobs, predicted, seed)
        types = task_types(workload, machine) if self.policy.placement == "fgd" else []
        self.placer = Placer(machine, self.policy.placement, self.policy.option, seed, types)
        self.state = machine.empty()
        self.running: dict[int, Job] = {}
        self.queues: list[set[int]] = [set() for _ in cluster.partitions]
        self.committed: list[int | None] = [None for _ in cluster.partitions]
        self.queue_of_partition = {partition.name: q for q, partition in enumerate(cluster.partitions)}
        self.one_queue = bool((workload.partition == ANY_PARTITION).any())
        self.end = np.full(len(workload), math.inf)
        self.status = np.zeros(len(workload), dtype=np.int8)
        self.decision_due = False
        self.one_by_one = self.policy.backfill == "easy-strict"

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self) -> Result:
        for job in self.jobs:
            kind = BEFORE_COMPLETIONS if self.one_by_one else ARRIVAL
            self.clock.call_at(float(self.workload.submit[job.index]), kind, lambda job=job: self.arrive(job))  # type: ignore[misc]
        self.clock.run()
        pieces = [(job.index, p.node, p.tasks, sum(1 << g for g in p.gpus)) for job in self.jobs for p in job.pieces]
        start = np.array([job.start for job in self.jobs], dtype=np.float64)
        return Result(start, self.end, self.status, sorted(pieces))

    # --- events

    def arrive(self, job: Job) -> None:
        if job.fewest is None:
            self.status[job.index] = REJECTED
        else:
            self.queues[self.queue_of(job)].add(job.index)
        self.decide_after_events()

    def queue_of(self, job: Job) -> int:
        if self.one_queue:
            return 0
        return self.queue_of_partition[self.workload.partitions[self.workload.partition[job.index]]]

    def complete(self, job: Job, status: int) -> None:
        del self.running[job.index]
        self.state.give_back(job.pieces, job.demand)
        self.end[job.index] = self.now
        self.status[job.index] = status
        self.decide_after_events()

    def decide_after_events(self) -> None:
        """One decision per instant, after everything else that happens at it; or one after each event."""
        if self.one_by_one:
            self.decide()
        elif not self.decision_due:
            self.decision_due = True
            self.clock.call_at(self.now, DECISION, self.decide)

    def start(self, job: Job, pieces: list[Piece]) -> None:
        self.queues[self.queue_of(job)].remove(job.index)
        self.state.take(pieces, job.demand)
        job.start, job.pieces = self.now, pieces
        job.factor = job.factor_on(job.nodes)
        self.running[job.index] = job
        self.placer.starts += 1
        killed = self.kill and job.runtime > job.requested
        length = (job.requested if killed else job.runtime) * job.factor
        self.clock.call_at(self.now + length, COMPLETION, lambda: self.complete(job, KILLED if killed else DONE))

    # --- decisions

    def decide(self) -> None:
        self.decision_due = False
        for q in range(len(self.queues)):
            head = self.start_from_head(q)
            if head is not None:
                self.backfill(q, head)

    def start_from_head(self, q: int) -> Job | None:
        """Start jobs in order while they fit; the first that does not is the blocked head."""
        order = in_order(self.policy.order, self.facts, self.queues[q], self.now)
        committed = self.committed[q]
        if self.dispatch == "commit" and committed is not None:
            order.remove(committed)
            order.insert(0, committed)
        for j in order:
            pieces = self.placer.place(self.jobs[j], self.state)
            if pieces is None:
                self.committed[q] = j
                return self.jobs[j]
            self.start(self.jobs[j], pieces)
        self.committed[q] = None
        return None

    def backfill(self, q: int, head: Job) -> None:
        if self.policy.backfill == "none":
            return
        order = in_order(self.policy.second_order, self.facts, self.queues[q] - {head.index}, self.now)
        backfill.RULES[self.policy.backfill](self, head, [self.jobs[j] for j in order[: self.policy.depth]])


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str,
    *,
    dispatch: str = "reorder",
    estimate: Floats,
    seed: int = 0,
    kill_at_limit: bool = False,
    predicted: Floats | None = None,
) -> Result:
    """Replay the workload on the cluster under the named policy; `predicted` is what `qssf` goes by (the estimate by default)."""
    return Simulator(workload, cluster, policy, dispatch, estimate, seed, kill_at_limit, predicted).run()
