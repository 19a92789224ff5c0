"""An independent check of finished schedules: what must hold whatever the policy was.

`violations` walks over the pieces of a schedule in time and lists everything that is impossible or lost. It trusts
nothing but the input tables and the pieces; whether the schedule is the one the policy should have made is not its
business. The policy's name says only what stopping means under it and in which order it meets the events of an instant.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions, Outage
from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload
from reference import stopping
from reference.powercap import budget, greatest_draw
from reference.quotas import Quotas
from reference.reservations import is_member
from reference.sleeping import Sleepers
from reference.state import WHOLE, Job, Machine, Piece, Run, make_jobs

PENDING, QUEUED, DONE, REJECTED, KILLED, CANCELLED, FAILED = 0, 1, 3, 4, 5, 6, 7


@dataclass(frozen=True)
class Stay:
    """Some tasks of a job on one node for some time."""

    job: int
    node: int
    tasks: int
    gpus: int  # bit mask
    start: float
    end: float


@dataclass(frozen=True)
class Life:
    """All that a schedule says of one job."""

    submit: float
    start: float
    end: float
    status: int
    stops: int
    runs: list[list[Stay]]  # by time


def violations(
    workload: Workload,
    cluster: Cluster,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    status: NDArray[np.int8],
    stops: NDArray[np.int32],
    stays: Iterable[Stay],
    *,
    kill_at_limit: bool,
    policy: str,
    conditions: Conditions | None = None,
) -> list[str]:
    """Everything wrong with a schedule, as sentences; empty if all is well."""
    conditions = conditions if conditions is not None else Conditions()
    outages = conditions.outages_on(cluster, float(workload.submit[0]), float(workload.submit[-1])) if len(workload) else ()
    jobs = make_jobs(workload, Machine.of(cluster), np.zeros(len(workload)), kill_at_limit=kill_at_limit)
    by_job: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_job[stay.job].append(stay)
    problems = [f"pieces of job {j}, which does not exist" for j in by_job if not 0 <= j < len(jobs)]
    first = float(workload.submit[0]) if len(workload) else 0.0
    most = budget(cluster, conditions.power)
    quotas = Quotas(workload, cluster, {}) if conditions.quotas else None
    rules = Rules(conditions, outages, policy, waking(by_job, jobs, Sleepers(conditions.power, cluster.num_nodes, first)))
    for j, job in enumerate(jobs):
        runs = runs_of(job, by_job.get(j, []))
        life = Life(float(workload.submit[j]), float(start[j]), float(end[j]), int(status[j]), int(stops[j]), runs)
        never = all(greatest_draw(size) > most for size in job.sizes) or (quotas is not None and quotas.never(j))
        if not never and conditions.dependencies and j in workload.dependencies.job and life.status in (PENDING, CANCELLED):
            problems += check_dependent(job, life, rules, status[workload.dependencies.on[workload.dependencies.job == j]].tolist())
        else:
            problems += check_rejected(job, life) if never else check_life(job, life, rules, kill_at_limit)
    all_stays = [stay for pieces in by_job.values() for stay in pieces]
    problems += [*check_outages(all_stays, rules), *check_capacity(jobs, cluster, all_stays)]
    return problems + list(check_power(jobs, all_stays, most))


@dataclass(frozen=True)
class Rules:
    """What befalls jobs, and what stopping means."""

    conditions: Conditions
    outages: tuple[Outage, ...]
    policy: str
    awake: dict[int, list[float]]  # [job][run] when all its nodes are awake

    def fails(self, nodes: set[int], time: float) -> bool:
        """Whether one of these nodes goes down at this time."""
        return any(o.kind == "fail" and o.start == time and o.node in nodes for o in self.outages)

    def was_closed(self, n: int, time: float) -> bool:
        """Whether an outage of the node lasts until this time, or longer."""
        return any(o.node == n and o.start < time <= o.end for o in self.outages)

    @property
    def suspends(self) -> bool:
        moves = self.policy.startswith("defrag") or self.conditions.resize != "none"  # stopped only to go on at once
        return self.conditions.preemption.mode == "suspend" or moves

    @property
    def starts_before_outages(self) -> bool:
        """Whether a job may start on a node at the time at which it closes."""
        return "easy-strict" in self.policy

    @property
    def some_node_is_lost(self) -> bool:
        return any(o.end == math.inf for o in self.outages) or any(r.until == math.inf for r in self.conditions.reservations)


def runs_of(job: Job, pieces: list[Stay]) -> list[list[Stay]]:
    """The pieces run by run. Runs of no length at one instant cannot be told apart: as many tasks as the job has make a run."""
    runs: list[list[Stay]] = []
    for _, group in itertools.groupby(sorted(pieces, key=lambda p: (p.start, p.end)), key=lambda p: (p.start, p.end)):
        run: list[Stay] = []
        for piece in group:
            run.append(piece)
            if piece.start == piece.end and not job.others and sum(p.tasks for p in run) == job.num_tasks:
                runs.append(run)
                run = []
        if run:
            runs.append(run)
    return runs


def waking(by_job: dict[int, list[Stay]], jobs: list[Job], sleepers: Sleepers) -> dict[int, list[float]]:
    """When the nodes of each run of each job are awake: all runs are told again, in the order of time."""
    events: list[tuple[float, int, int, int, list[int]]] = []
    awake: dict[int, list[float]] = {}
    for j in (j for j in by_job if 0 <= j < len(jobs)):
        runs = runs_of(jobs[j], by_job[j])
        awake[j] = [math.nan] * len(runs)
        for number, run in enumerate(runs):
            nodes, start, end = [stay.node for stay in run], run[0].start, run[0].end
            events += [(start, 1, j, number, nodes), (end, 0 if end > start else 2, j, number, nodes)]
    for time, kind, j, number, nodes in sorted(events):
        if kind == 1:
            awake[j][number] = sleepers.placed(nodes, time)
        else:
            sleepers.left(nodes, time)
    return awake


def check_rejected(job: Job, life: Life) -> Iterator[str]:
    if life.status != REJECTED:
        yield f"job {job.index} can never run but has status {life.status}"
    if life.runs or life.stops or np.isfinite(life.start) or np.isfinite(life.end):
        yield f"job {job.index} can never run but has times or pieces"


def check_dependent(job: Job, life: Life, rules: Rules, others: list[int]) -> Iterator[str]:
    """A job that never waited for a place: it was cancelled, or what it depends on, with these statuses, has not ended."""
    if life.status == PENDING and not (rules.some_node_is_lost and {PENDING, QUEUED} & set(others)):
        yield f"job {job.index} was never released, although all it depends on has ended: {others}"
    if life.runs or life.stops or np.isfinite(life.start) or np.isfinite(life.end):
        yield f"job {job.index} was never released but has times or pieces"


def check_life(job: Job, life: Life, rules: Rules, kill_at_limit: bool) -> Iterator[str]:
    j, runs = job.index, life.runs
    if life.status not in (QUEUED, FAILED, KILLED if kill_at_limit and job.runtime > job.requested else DONE):
        yield f"job {j} has status {life.status}"
    if life.status == QUEUED and not rules.some_node_is_lost:
        yield f"job {j} is still queued although all nodes come back"
    if life.status != QUEUED and not runs:
        yield f"job {j} has never run but has status {life.status}"
    began = [awake for awake, run in zip(rules.awake.get(j, []), runs, strict=True) if awake <= run[0].end]
    if life.start != (began[0] if began else math.inf) or not life.start >= life.submit:
        yield f"job {j}: submitted at {life.submit}, started at {life.start}"
    finished = life.status in (DONE, KILLED)
    if runs and life.end != (runs[-1][0].end if finished else math.inf):
        yield f"job {j} with status {life.status} ends at {life.end}, its last run at {runs[-1][0].end}"
    if life.stops != len(runs) - finished:
        yield f"job {j} has {len(runs)} runs and status {life.status} but was stopped {life.stops} times"
    for one, next_one in itertools.pairwise(runs):
        if next_one[0].start < one[0].end:
            yield f"job {j} runs twice at {next_one[0].start}"
    for run in runs:
        yield from check_pieces(job, run)
    yield from check_work(job, life, rules)


def check_pieces(job: Job, run: list[Stay]) -> Iterator[str]:
    """A run is whole, and its pieces are of the right shape and on allowed nodes."""
    j = job.index
    allowed = {size.num_tasks for size in job.sizes}
    if sum(p.tasks for p in run) not in allowed:
        yield f"job {j} has {allowed} tasks, its pieces at {run[0].start} {[p.tasks for p in run]}"
    for p in run:
        if not job.demand.accepts[p.node]:
            yield f"job {j} stands on node {p.node}, which its kinds or partition exclude"
        expected_gpus = 1 if job.demand.is_share else p.tasks * job.demand.gpu // WHOLE
        if p.gpus.bit_count() != expected_gpus or (job.demand.is_share and p.tasks != 1):
            yield f"job {j}: {p.tasks} tasks on node {p.node} use {p.gpus.bit_count()} GPUs"
    if run[0].end > run[0].start and not job.demand.is_share and len({p.node for p in run}) != len(run):
        yield f"job {j} has several pieces on one node"


def check_work(job: Job, life: Life, rules: Rules) -> Iterator[str]:
    """Every run does what the ones before have left; the last one of a finished job does all of it."""
    costs = rules.conditions.preemption
    finished = life.status in (DONE, KILLED)
    for number, pieces in enumerate(life.runs, start=1):
        nodes, start, end = {p.node for p in pieces}, pieces[0].start, pieces[0].end
        begin = rules.awake[job.index][number - 1] + stopping.overhead(job, nodes, costs)
        size = job.sized(Piece(p.node, p.tasks, ()) for p in pieces) if job.others else job
        run = Run(start, begin, size.factor_on(nodes), [])
        whole = begin + job.rem * run.factor
        if finished and number == len(life.runs):
            if end != whole:
                yield f"job {job.index}: its last run ends at {end}, its work at {whole}"
            return
        if end > whole:
            yield f"job {job.index} is stopped at {end}, after its work was done at {whole}"
        failed = rules.fails(nodes, end)
        if failed and not rules.conditions.requeue and not (life.status == FAILED and number == len(life.runs)):
            yield f"job {job.index} goes on after the failure at {end}"
        if life.status == FAILED and number == len(life.runs) and (not failed or rules.conditions.requeue):
            yield f"job {job.index} has failed at {end} for no reason"
        job.run = run
        stopping.stop(job, end, costs, saved=not failed and rules.suspends)
        job.last_nodes = nodes


def check_outages(stays: list[Stay], rules: Rules) -> Iterator[str]:
    """Nothing runs on a node that is down, nothing starts on one that is closed."""
    last = max((stay.end for stay in stays), default=-math.inf)
    for outage, stay in itertools.product([o for o in rules.outages if o.start <= last], stays):
        if stay.node != outage.node:
            continue
        if outage.kind == "fail" and stay.start < outage.end and stay.end > outage.start:
            yield f"job {stay.job} runs on node {stay.node} from {stay.start} to {stay.end}, which fails at {outage.start}"
        at_the_same_time = stay.start == outage.start and (not rules.starts_before_outages or rules.was_closed(stay.node, stay.start))
        if outage.start < stay.start < outage.end or at_the_same_time:
            yield f"job {stay.job} starts at {stay.start} on node {stay.node}, closed from {outage.start} to {outage.end}"


def reservation_violations(
    workload: Workload, cluster: Cluster, estimate: NDArray[np.float64], stays: Iterable[Stay], conditions: Conditions
) -> Iterator[str]:
    """Nobody but members starts on reserved nodes, nor so shortly before that a run would be expected to last into the reservation."""
    jobs = make_jobs(workload, Machine.of(cluster), estimate)
    all_stays = list(stays)
    for one, stay in itertools.product(conditions.held_on(cluster), all_stays):
        if stay.node not in one.nodes or is_member(workload, conditions, one, stay.job):
            continue
        run = [Piece(s.node, s.tasks, ()) for s in all_stays if (s.job, s.start, s.end) == (stay.job, stay.start, stay.end)]
        size = jobs[stay.job].sized(run) if jobs[stay.job].others else jobs[stay.job]
        length = size.estimate * size.worst_factor
        if one.start <= stay.start < one.end:
            yield f"job {stay.job} starts at {stay.start} on node {stay.node}, reserved from {one.start} to {one.end}"
        if stay.start < one.start < stay.start + length:
            yield f"job {stay.job} starts at {stay.start} on node {stay.node} for {length} s, reserved from {one.start}"


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


def check_power(jobs: list[Job], stays: list[Stay], most: float) -> Iterator[str]:
    """All running jobs together keep within the budget; at one instant what ends is gone before what starts comes."""
    drawn = 0
    lasting = [stay for stay in stays if stay.end > stay.start]
    for time, begins, stay in sorted([(s.end, 0, s) for s in lasting] + [(s.start, 1, s) for s in lasting], key=lambda event: event[:2]):
        job = jobs[stay.job]
        drawn += (1 if begins else -1) * stay.tasks * job.machine.task_draw(job.demand, stay.node)
        if begins and drawn > most:
            yield f"at {time} jobs draw {drawn} mW, more than {most}"


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
