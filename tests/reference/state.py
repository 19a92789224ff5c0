"""The cluster's state, the jobs' demands, and what fits ("Nodes, jobs, fit" and "Runtime" of the normative page)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from queuewise.cluster.spec import NO_GPU, Cluster
from queuewise.workload.jobs import ANY_PARTITION, Workload
from queuewise.workload.speedup import speed

WHOLE = 1000  # milli of one GPU


@dataclass
class State:
    """What is free: per node, and per GPU of a node. A node that is down or drained is closed: it has no slots."""

    gpus: list[list[int]]  # [node][gpu] free milli
    cpu: list[int]  # [node] free milli cores
    mem: list[int]  # [node] free MiB
    closed: frozenset[int] = frozenset()  # nodes
    time: float = -math.inf  # when it is so
    drawn: int = 0  # milliwatts that what was taken draws
    task_draw: Callable[[Demand, int], int] = lambda demand, n: 0

    def copy(self) -> State:
        return replace(self, gpus=[list(node) for node in self.gpus], cpu=list(self.cpu), mem=list(self.mem))

    def at(self, time: float) -> State:
        """The same at another time."""
        return replace(self.copy(), time=time)

    def take(self, pieces: Iterable[Piece], demand: Demand) -> None:
        self._add(pieces, demand, -1)

    def give_back(self, pieces: Iterable[Piece], demand: Demand) -> None:
        self._add(pieces, demand, +1)

    def _add(self, pieces: Iterable[Piece], demand: Demand, sign: int) -> None:
        for piece in pieces:
            for g in piece.gpus:
                self.gpus[piece.node][g] += sign * min(demand.gpu, WHOLE)
            self.cpu[piece.node] += sign * piece.tasks * demand.cpu
            self.mem[piece.node] += sign * piece.tasks * demand.mem
            self.drawn -= sign * piece.tasks * self.task_draw(demand, piece.node)

    def least(self, other: State) -> State:
        """What is free in both states: the elementwise minimum (of power, too), and open only what is open in both."""
        gpus = [[min(a, b) for a, b in zip(x, y, strict=True)] for x, y in zip(self.gpus, other.gpus, strict=True)]
        cpu = [min(a, b) for a, b in zip(self.cpu, other.cpu, strict=True)]
        mem = [min(a, b) for a, b in zip(self.mem, other.mem, strict=True)]
        return State(gpus, cpu, mem, self.closed | other.closed, self.time, max(self.drawn, other.drawn), self.task_draw)

    @property
    def overdrawn(self) -> bool:
        """Whether more has been taken than there was."""
        return any(free < 0 for free in itertools.chain(self.cpu, self.mem, *self.gpus))


@dataclass(frozen=True)
class Piece:
    """Some tasks of a job on one node: all tasks of the node, or one task that shares a GPU."""

    node: int
    tasks: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Demand:
    """What one task asks for, and the nodes whose kind (and partition) it accepts."""

    gpu: int  # milli
    cpu: int  # milli cores
    mem: int  # MiB
    accepts: tuple[bool, ...]  # [node]
    bars: tuple[tuple[tuple[float, float], ...], ...] = ()  # [node] (begin, end) of when it is reserved for others; empty: never
    length: float = 0.0  # seconds that its job is taken to run, for the sake of the bars

    @property
    def is_share(self) -> bool:
        return 0 < self.gpu < WHOLE

    def slots(self, state: State, n: int) -> int:
        """How many of the tasks node n can take in this state."""
        if not self.accepts[n] or n in state.closed or self.is_barred(n, state.time):
            return 0
        limits = []
        if self.is_share:
            limits.append(sum(free // self.gpu for free in state.gpus[n]))
        elif self.gpu:
            limits.append(sum(free == WHOLE for free in state.gpus[n]) // (self.gpu // WHOLE))
        if self.cpu:
            limits.append(state.cpu[n] // self.cpu)
        if self.mem:
            limits.append(state.mem[n] // self.mem)
        return min(limits)

    def is_barred(self, n: int, start: float) -> bool:
        """Whether others have node n reserved at some time of a run that starts then."""
        return bool(self.bars) and any(b <= start < e or start < b < start + self.length for b, e in self.bars[n])

    def all_slots(self, state: State) -> list[int]:
        return [self.slots(state, n) for n in range(len(self.accepts))]


def fewest_nodes(slots: Iterable[int], num_tasks: int) -> int | None:
    """The least number of nodes whose slots add up to num_tasks, None if all together do not."""
    held = 0
    for count, free in enumerate(sorted(slots, reverse=True), start=1):
        held += free
        if held >= num_tasks:
            return count
    return None


@dataclass(frozen=True)
class Machine:
    """The cluster as plain Python lists."""

    cluster: Cluster
    kind: list[str | None]  # [node] name of the GPU kind, None without GPUs
    partitions: list[set[str]]  # [node] those it is in
    rack: list[int]  # [node]

    @classmethod
    def of(cls, cluster: Cluster) -> Machine:
        kinds = [None if k == NO_GPU else cluster.kinds[k].name for k in cluster.node_kind.tolist()]
        partitions = [{cluster.partitions[p].name for p in np.flatnonzero(row)} for row in cluster.node_partitions]
        return cls(cluster, kinds, partitions, cluster.node_rack.tolist())

    @property
    def num_nodes(self) -> int:
        return len(self.rack)

    @cached_property
    def total(self) -> State:
        """Everything there is; never changed."""
        c = self.cluster
        gpus = [[WHOLE] * count for count in c.node_gpus.tolist()]
        return State(gpus, c.node_cpu_milli.tolist(), c.node_mem_mib.tolist(), task_draw=self.task_draw)

    def empty(self) -> State:
        """A fresh state in which everything is free."""
        return self.total.copy()

    def accepted(self, kinds: tuple[str, ...], partitions: set[str] | None) -> tuple[bool, ...]:
        """[node] whether a job limited to these kinds (none named: any) and to these partitions (None: any) may use it."""
        return tuple(
            (not kinds or self.kind[n] in kinds) and (partitions is None or bool(self.partitions[n] & partitions))
            for n in range(self.num_nodes)
        )

    def kind_speed(self, n: int) -> float:
        """Relative speed of the GPUs of node n, 1.0 without GPUs."""
        kind = int(self.cluster.node_kind[n])
        return 1.0 if kind == NO_GPU else float(self.cluster.speed[kind])

    def active_gpu_watts(self, n: int) -> float:
        """What a wholly used GPU of node n draws above idle."""
        kind = int(self.cluster.node_kind[n])
        return 0.0 if kind == NO_GPU else self.cluster.kinds[kind].peak_watts - self.cluster.kinds[kind].idle_watts

    def task_draw(self, demand: Demand, n: int) -> int:
        """Milliwatts that use by one task adds on node n."""
        return math.ceil(demand.gpu * self.active_gpu_watts(n) + demand.cpu * float(self.cluster.node_core_watts[n]))


@dataclass(frozen=True)
class Run:
    """One stay of a job on the machine."""

    start: float
    begin: float  # when it begins to work: the overhead of a restart lies before
    factor: float
    pieces: list[Piece]


@dataclass(frozen=True)
class Pin:
    """The last reservation of a waiting job."""

    time: float
    pieces: list[Piece]


@dataclass
class Job:
    """One row of the workload, with everything that follows from it on the empty cluster, and how far it has come."""

    index: int
    runtime: float
    requested: float  # NaN unknown
    estimate: float
    num_tasks: int
    demand: Demand
    machine: Machine
    size: float
    rem: float  # remaining work
    est: float  # remaining estimate
    run: Run | None = None  # while running
    pin: Pin | None = None  # while waiting, under conservative backfill
    last_nodes: set[int] | None = None  # of the run before
    saved: bool = False  # whether the last stop left a checkpoint
    worked: float = 0.0  # seconds in all runs that were stopped
    stops: int = 0
    changes: int = 0  # starts, stops and ends so far
    guessed: bool = False  # the estimate is no limit
    scale: float = 1.0  # time it takes with so many tasks, relative to the number submitted
    others: tuple[Job, ...] = ()  # the same job with other numbers of tasks, if it is elastic

    @cached_property
    def sizes(self) -> list[Job]:
        """The job in every size in which it fits on the empty cluster, the greatest first."""
        return sorted((job for job in (self, *self.others) if job.fewest is not None), key=lambda job: -job.num_tasks)

    def sized(self, pieces: Iterable[Piece]) -> Job:
        """The job in the size of a placement."""
        tasks = sum(piece.tasks for piece in pieces)
        return next(job for job in self.sizes if job.num_tasks == tasks)

    @cached_property
    def caps(self) -> list[int]:
        """[node] slots on the empty cluster."""
        return self.demand.all_slots(self.machine.total)

    @cached_property
    def fewest(self) -> int | None:
        """The page's m; None if the job does not fit on the empty cluster."""
        return fewest_nodes(self.caps, self.num_tasks)

    def speed(self, n: int) -> float:
        return self.machine.kind_speed(n) if self.demand.gpu else 1.0

    def factor_on(self, nodes: set[int]) -> float:
        """How much longer than `runtime` the job takes on these nodes."""
        assert self.fewest is not None
        rack = self.machine.rack
        largest_rack = max(Counter(rack[n] for n, cap in enumerate(self.caps) if cap).values())
        penalty = 1.0
        if len(nodes) > self.fewest:
            penalty += self.machine.cluster.node_penalty
        if len({rack[n] for n in nodes}) > math.ceil(len(nodes) / largest_rack):
            penalty += self.machine.cluster.rack_penalty
        return penalty / min(self.speed(n) for n in nodes) * self.scale

    @cached_property
    def worst_factor(self) -> float:
        """What a conservative reservation assumes of any placement."""
        gang = self.num_tasks > 1
        penalty = 1.0 + self.machine.cluster.node_penalty + self.machine.cluster.rack_penalty if gang else 1.0
        return penalty / min(self.speed(n) for n, cap in enumerate(self.caps) if cap) * self.scale

    def expected_end(self, now: float) -> float:
        begin = self.stay.begin
        end = begin + self.est * self.stay.factor
        while self.guessed and end < now:
            end = begin + max(4.0 * (end - begin), 1.0)
        return max(end, now)

    @property
    def stay(self) -> Run:
        """The present run of a running job."""
        assert self.run is not None
        return self.run

    @property
    def pieces(self) -> list[Piece]:
        """Where the running job stands."""
        return self.stay.pieces

    @property
    def nodes(self) -> set[int]:
        return nodes_of(self.pieces)


def nodes_of(pieces: Iterable[Piece]) -> set[int]:
    return {piece.node for piece in pieces}


def partitions_of(workload: Workload, j: int) -> set[str] | None:
    """The partitions that job j names, None if it may run in any."""
    p = int(workload.partition[j])
    return None if p == ANY_PARTITION else {name.strip() for name in workload.partitions[p].split(",")}


def make_jobs(workload: Workload, machine: Machine, estimate: Iterable[float], *, kill_at_limit: bool = False) -> list[Job]:
    jobs = []
    size = workload.size.tolist()
    accepted: dict[tuple[int, int], tuple[bool, ...]] = {}
    for j, expected in enumerate(estimate):
        kind_set, p = int(workload.kind_set[j]), int(workload.partition[j])
        if (kind_set, p) not in accepted:
            accepted[kind_set, p] = machine.accepted(workload.kind_sets[kind_set], partitions_of(workload, j))
        demand = Demand(int(workload.gpu_milli[j]), int(workload.cpu_milli[j]), int(workload.mem_mib[j]), accepted[kind_set, p])
        runtime, requested = float(workload.runtime[j]), float(workload.requested[j])
        work = requested if kill_at_limit and runtime > requested else runtime
        job = Job(j, runtime, requested, float(expected), int(workload.num_tasks[j]), demand, machine, size[j], work, float(expected))
        jobs.append(replace(job, others=tuple(other_sizes(workload, job))))
    return jobs


def other_sizes(workload: Workload, job: Job) -> Iterable[Job]:
    for tasks in range(int(workload.min_tasks[job.index]), int(workload.max_tasks[job.index]) + 1):
        if tasks != job.num_tasks:
            curve = workload.scalings[workload.scaling[job.index]]
            submitted, now = speed(curve, np.array([job.num_tasks, tasks])).tolist()
            yield replace(job, num_tasks=tasks, scale=submitted / now)


def queues_of_partitions(workload: Workload, machine: Machine) -> dict[str, int]:
    """The queue of each partition: its place in the cluster, or that of the first of those that share nodes or jobs with it."""
    queue = {partition.name: q for q, partition in enumerate(machine.cluster.partitions)}
    of_jobs = [partitions_of(workload, j) for j in range(len(workload))]
    groups = [*machine.partitions, *(set(queue) if names is None else names & set(queue) for names in of_jobs)]
    for _ in queue:
        for group in groups:
            for name in group:
                queue[name] = min(queue[other] for other in group)
    return queue
