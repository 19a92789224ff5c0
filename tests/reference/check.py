"""An independent check of finished schedules: what must hold whatever the policy was.

`violations` walks over the pieces of a schedule in time and lists everything that is impossible or lost. It trusts
nothing but the input tables and the pieces; whether the schedule is the one the policy should have made is not its business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload
from reference.state import WHOLE, Job, Machine, make_jobs

DONE, REJECTED, KILLED = 3, 4, 5


@dataclass(frozen=True)
class Stay:
    """Some tasks of a job on one node for some time."""

    job: int
    node: int
    tasks: int
    gpus: int  # bit mask
    start: float
    end: float


def violations(
    workload: Workload,
    cluster: Cluster,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    status: NDArray[np.int8],
    stays: Iterable[Stay],
    *,
    kill_at_limit: bool,
) -> list[str]:
    """Everything wrong with a schedule without preemption, as sentences; empty if all is well."""
    jobs = make_jobs(workload, Machine.of(cluster), np.zeros(len(workload)))
    by_job: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_job[stay.job].append(stay)
    problems = [f"pieces of job {j}, which does not exist" for j in by_job if not 0 <= j < len(jobs)]
    for j, job in enumerate(jobs):
        pieces, begin, finish, state = by_job.get(j, []), float(start[j]), float(end[j]), int(status[j])
        if job.fewest is None:
            problems += check_rejected(job, pieces, begin, finish, state)
        else:
            problems += check_finished(job, pieces, begin, finish, state, float(workload.submit[j]), kill_at_limit)
    return problems + list(check_capacity(jobs, cluster, [stay for pieces in by_job.values() for stay in pieces]))


def check_rejected(job: Job, pieces: list[Stay], start: float, end: float, status: int) -> Iterator[str]:
    if status != REJECTED:
        yield f"job {job.index} can never run but has status {status}"
    if pieces or np.isfinite(start) or np.isfinite(end):
        yield f"job {job.index} can never run but has times or pieces"


def check_finished(job: Job, pieces: list[Stay], start: float, end: float, status: int, submit: float, kill: bool) -> Iterator[str]:
    j = job.index
    killed = kill and job.runtime > job.requested
    if status != (KILLED if killed else DONE):
        yield f"job {j} has status {status}"
    if not start >= submit:
        yield f"job {j} starts at {start}, before its submission at {submit}"
    if sum(p.tasks for p in pieces) != job.num_tasks:
        yield f"job {j} has {job.num_tasks} tasks, its pieces {[p.tasks for p in pieces]}"
        return
    if any(p.start != start or p.end != end for p in pieces):
        yield f"job {j}: its pieces do not start and end together"
    for p in pieces:
        if not job.demand.accepts[p.node]:
            yield f"job {j} stands on node {p.node}, which its kinds or partition exclude"
        expected_gpus = 1 if job.demand.is_share else p.tasks * job.demand.gpu // WHOLE
        if p.gpus.bit_count() != expected_gpus or (job.demand.is_share and p.tasks != 1):
            yield f"job {j}: {p.tasks} tasks on node {p.node} use {p.gpus.bit_count()} GPUs"
    if not job.demand.is_share and len({p.node for p in pieces}) != len(pieces):
        yield f"job {j} has several pieces on one node"
    length = (job.requested if killed else job.runtime) * job.factor_on({p.node for p in pieces})
    if end != start + length:
        yield f"job {j} runs from {start} to {end}, its work takes {length}"


def check_capacity(jobs: list[Job], cluster: Cluster, stays: list[Stay]) -> Iterator[str]:
    """Sweep over time, node by node; at one instant what ends is gone before what starts comes."""
    by_node: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_node[stay.node].append(stay)
    for n, here in by_node.items():
        lasting = [stay for stay in here if stay.end > stay.start]
        events = [(s.end, 0, s) for s in lasting] + [(s.start, 1, s) for s in lasting]
        # A zero-length stay must at least have room among what was there before and is there after.
        for instant in [stay for stay in here if stay.end == stay.start]:
            around = [s for s in lasting if s.start < instant.start < s.end]
            if overfull := over_capacity(jobs, cluster, n, [*around, instant]):
                yield f"node {n} at {instant.start}: zero-length job {instant.job} exceeds {overfull}"
        present: set[int] = set()
        for time, begins, stay in sorted(events, key=lambda event: event[:2]):
            (present.add if begins else present.remove)(id(stay))
            if begins and (overfull := over_capacity(jobs, cluster, n, [s for s in lasting if id(s) in present])):
                yield f"node {n} at {time}: job {stay.job} exceeds {overfull}"


def over_capacity(jobs: list[Job], cluster: Cluster, n: int, present: list[Stay]) -> str:
    """The resource of node n that these stays together exceed, or nothing."""
    if sum(s.tasks * jobs[s.job].demand.cpu for s in present) > cluster.node_cpu_milli[n]:
        return "the CPU"
    if sum(s.tasks * jobs[s.job].demand.mem for s in present) > cluster.node_mem_mib[n]:
        return "the memory"
    used: dict[int, int] = defaultdict(int)
    for s in present:
        for g in range(s.gpus.bit_length()):
            if s.gpus >> g & 1:
                used[g] += min(jobs[s.job].demand.gpu, WHOLE)
    for g, milli in used.items():
        if g >= cluster.node_gpus[n]:
            return f"its GPUs (there is no GPU {g})"
        if milli > WHOLE:
            return f"GPU {g}"
    return ""
