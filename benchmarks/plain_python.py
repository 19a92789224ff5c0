"""The baseline: a scheduler as one would write it in an afternoon, in plain Python with lists and a heap of completions.

It takes jobs of whole GPUs that all fit the empty cluster and nodes of one speed, places with the rule `pack`, and knows the orders
fcfs and sjf, alone or with EASY backfill. The queue is a sorted list, every placement looks at every node, and EASY looks at
every job behind the head. Its schedules are those of the engine: the benchmark and a test compare them.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass, field

from queuewise.cluster import Cluster
from queuewise.workload.jobs import WHOLE_GPU, Floats, Workload

Pieces = list[tuple[int, int]]  # (node, GPUs taken there)


@dataclass(order=True)
class Job:
    rank: tuple[float, int]  # place in the order: score, then job index
    index: int = field(compare=False)
    runtime: float = field(compare=False)
    estimate: float = field(compare=False)
    tasks: int = field(compare=False)
    gpus: int = field(compare=False)  # of each task, on one node


def simulate(workload: Workload, cluster: Cluster, policy: str, estimate: Floats) -> list[float]:
    """The start of every job."""
    order, _, backfill = policy.partition("+")
    score = {"fcfs": workload.submit, "sjf": estimate}[order]
    jobs = [
        Job((float(score[j]), j), j, float(workload.runtime[j]), float(estimate[j]), int(workload.num_tasks[j]), int(gpu // WHOLE_GPU))
        for j, gpu in enumerate(workload.gpu_milli)
    ]
    return Scheduler(free=cluster.node_gpus.tolist(), easy=backfill == "easy").run(jobs, workload.submit.tolist())


@dataclass
class Scheduler:
    free: list[int]  # free GPUs of each node
    easy: bool
    now: float = 0.0
    queue: list[Job] = field(default_factory=list)  # in order
    running: dict[int, tuple[float, Pieces]] = field(default_factory=dict)  # job index -> estimated end, where
    completions: list[tuple[float, int]] = field(default_factory=list)
    start: dict[int, float] = field(default_factory=dict)

    def run(self, jobs: list[Job], submit: list[float]) -> list[float]:
        arrived = 0
        while arrived < len(jobs) or self.completions:
            next_arrival = submit[arrived] if arrived < len(jobs) else float("inf")
            self.now = min(next_arrival, self.completions[0][0] if self.completions else float("inf"))
            while self.completions and self.completions[0][0] == self.now:
                self.complete(heapq.heappop(self.completions)[1])
            while arrived < len(jobs) and submit[arrived] == self.now:
                bisect.insort(self.queue, jobs[arrived])
                arrived += 1
            self.decide()
        return [self.start[j] for j in range(len(jobs))]

    def complete(self, index: int) -> None:
        for node, gpus in self.running.pop(index)[1]:
            self.free[node] += gpus

    def decide(self) -> None:
        while self.queue and fits(self.queue[0], self.free):
            self.begin(self.queue.pop(0))
        if self.queue and self.easy:
            self.backfill(self.queue[0])

    def begin(self, job: Job) -> None:
        pieces = pack(job, self.free)
        take(pieces, self.free)
        self.start[job.index] = self.now
        self.running[job.index] = (self.now + job.estimate, pieces)
        heapq.heappush(self.completions, (self.now + job.runtime, job.index))

    def backfill(self, head: Job) -> None:
        """Again and again, start the first job that fits and leaves the head its place at the shadow time."""
        shadow, then = self.shadow(head)
        while job := next((job for job in self.queue[1:] if self.may_start(job, head, shadow, then)), None):
            if self.now + job.estimate > shadow:
                take(pack(job, self.free), then)
            self.queue.remove(job)
            self.begin(job)

    def may_start(self, job: Job, head: Job, shadow: float, then: list[int]) -> bool:
        if not fits(job, self.free):
            return False
        if self.now + job.estimate <= shadow:
            return True
        trial = then.copy()
        take(pack(job, self.free), trial)
        return fits(head, trial)

    def shadow(self, head: Job) -> tuple[float, list[int]]:
        """When the head fits if running jobs end as estimated, and what is free then."""
        ends = sorted((max(end, self.now), pieces) for end, pieces in self.running.values())
        then = self.free.copy()
        for i, (end, pieces) in enumerate(ends):
            for node, gpus in pieces:
                then[node] += gpus
            last_of_its_time = i + 1 == len(ends) or ends[i + 1][0] > end
            if last_of_its_time and fits(head, then):
                return end, then
        raise ValueError(f"job {head.index} can never run on this cluster")


def fits(job: Job, free: list[int]) -> bool:
    return sum(gpus // job.gpus for gpus in free) >= job.tasks


def pack(job: Job, free: list[int]) -> Pieces:
    """The fullest node that takes the whole rest of the job, otherwise the one that takes most of it; node by node."""
    pieces: Pieces = []
    remaining, left = job.tasks, free.copy()
    while remaining:
        slots = [gpus // job.gpus for gpus in left]
        whole = [n for n, count in enumerate(slots) if count >= remaining]
        node = min(whole, key=left.__getitem__) if whole else max(range(len(left)), key=lambda n: (slots[n], -left[n], -n))
        tasks = min(remaining, slots[node])
        pieces.append((node, tasks * job.gpus))
        left[node] -= tasks * job.gpus
        remaining -= tasks
    return pieces


def take(pieces: Pieces, free: list[int]) -> None:
    for node, gpus in pieces:
        free[node] -= gpus
