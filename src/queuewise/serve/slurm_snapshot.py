"""A Snapshot of a Slurm cluster, and which of its waiting jobs may be steered.

What a job demands of nodes beyond sizes (types of GPUs, features, lists of nodes) becomes a partition of its own: the nodes that it may
use. A running job that holds unequal parts of nodes appears once per node. All ids are texts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from queuewise.cluster.described import known_kind
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Place, RunningJob, Snapshot, WaitingJob
from queuewise.policies.snapshot_checks import problem_of_record
from queuewise.serve.slurm_demand import NodeDemand, demand_of, may_use, why_left_alone, why_not_placed
from queuewise.serve.slurm_records import Allocation, SlurmJob, SlurmNodeState, SlurmReservation
from queuewise.serve.snapshot_cluster import NODE_SET
from queuewise.workload.jobs import WHOLE_GPU

DAY_S = 86_400.0
MOST_ARRAY_TASKS = 1000  # of one array that are looked at
_ARRAY_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")

Predict = Callable[[SlurmJob], float | None]
Waiting = Mapping[str, tuple[SlurmJob, NodeDemand]]


@dataclass(frozen=True)
class SlurmState:
    """What was read at one instant. `left_alone` has the waiting jobs that are not ours to steer, with the reason."""

    snapshot: Snapshot
    jobs: Mapping[str, SlurmJob]  # by the ids of the snapshot
    left_alone: Mapping[str, str]
    nodes: Sequence[SlurmNodeState]
    node_sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # partitions of the snapshot that Slurm does not have


@dataclass(frozen=True)
class Manner:
    """How a cluster is looked at. `partitions` are those whose jobs may be steered, all if there are none.

    `places`: jobs are going to be placed by what is decided, so those for which that could be wrong are left alone.
    """

    partitions: Collection[str] = ()
    places: bool = False
    memory_counts: bool = False  # a job that names no memory gets all of a node's


USUAL = Manner()


def take_snapshot(
    jobs: Sequence[SlurmJob],
    nodes: Sequence[SlurmNodeState],
    now: float,
    *,
    manner: Manner = USUAL,
    predict: Predict | None = None,
    reservations: Sequence[SlurmReservation] = (),
    promised: Mapping[str, Mapping[str, int]] | None = None,
) -> SlurmState:
    """The cluster at a Unix time. `promised` jobs have been told to start: node -> tasks. They count as running there."""
    names = {node.name: at for at, node in enumerate(nodes)}
    reserved = [one for one in reservations if one.end > now]
    nodes = [replace(node, usable=False) if _is_reserved(node, reserved, now, now) else node for node in nodes]
    waiting, left_alone = _sorted_out(jobs, nodes, reserved, now, manner)
    running = [job for job in jobs if job.state in ("RUNNING", "COMPLETING") and job.allocations]
    epoch = math.floor(min([now, *(job.submit for job, _ in waiting.values()), *(job.submit for job in running)]) / DAY_S) * DAY_S
    clock = now - epoch
    told = {job_id: waiting.pop(job_id) for job_id in promised or {} if job_id in waiting}
    labels, sets = _labels(waiting, nodes)
    asked = [
        _record(job_id, job, one.tasks, (one.gpus, one.cores, one.mem_mib), labels[job_id], epoch, clock, predict)
        for job_id, (job, one) in waiting.items()
    ]
    left_alone |= {str(record.job_id): f"it {problem}" for record in asked if (problem := problem_of_record(record, clock))}
    queue = sorted((WaitingJob(record) for record in asked if record.job_id not in left_alone), key=lambda one: one.job.submit)
    runs = [one for job in sorted(running, key=lambda job: job.start) for one in _running(job, names, epoch, clock, predict)]
    promises: list[RunningJob] = []
    for job_id, (job, demand) in told.items():
        promises += _promised(job_id, job, demand, (promised or {})[job_id], (*runs, *promises), names, nodes, epoch, clock)
    members = {label: frozenset(of) for label, of in sets.items()}
    records = tuple(_node(at, node, runs, promises, [label for label, of in members.items() if at in of]) for at, node in enumerate(nodes))
    snapshot = Snapshot(now=clock, queue=tuple(queue), running=(*runs, *promises), nodes=records, epoch=epoch)
    by_id = {job_id: job for job_id, (job, _) in waiting.items() if job_id not in left_alone} | {job.job_id: job for job in running}
    return SlurmState(snapshot, by_id, left_alone, nodes, {label: tuple(nodes[at].name for at in of) for label, of in sets.items()})


def _sorted_out(
    jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNodeState], reserved: Sequence[SlurmReservation], now: float, manner: Manner
) -> tuple[dict[str, tuple[SlurmJob, NodeDemand]], dict[str, str]]:
    """The waiting jobs that are ours, with what they ask for, and why others are not."""
    waiting: dict[str, tuple[SlurmJob, NodeDemand]] = {}
    left_alone: dict[str, str] = {}
    for job in jobs:
        if job.state != "PENDING":
            continue
        allowed = [at for at, node in enumerate(nodes) if may_use(job, node) and not _is_reserved(node, reserved, now, now + job.limit_s)]
        demand = demand_of(job, nodes, allowed, memory_counts=manner.memory_counts)
        problem = why_left_alone(job, manner.partitions, now) or ("" if allowed else "no node may take it")
        problem = problem or (why_not_placed(job, demand) if manner.places else "")
        for one in tasks_of(job, _running_tasks(job, jobs)):
            if problem:
                left_alone[one] = problem
            else:
                waiting[one] = job, demand
    return waiting, left_alone


# --- waiting jobs


def _running_tasks(job: SlurmJob, jobs: Sequence[SlurmJob]) -> int:
    if not job.array_text:
        return 0
    return sum(other.state == "RUNNING" and other.job_id.startswith(f"{job.job_id}_") for other in jobs)


def tasks_of(job: SlurmJob, running: int) -> list[str]:
    """The ids of the tasks of an array that may start now, or of the job itself."""
    if not job.array_text:
        return [job.job_id]
    listed, _, most = job.array_text.partition("%")
    numbers: list[int] = []
    for first, last, step in _ARRAY_PART.findall(listed):
        numbers += range(int(first), int(last or first) + 1, int(step or 1) or 1)[:MOST_ARRAY_TASKS]
    room = max(int(most) - running, 0) if most.isdecimal() and int(most) else MOST_ARRAY_TASKS
    return [f"{job.job_id}_{number}" for number in numbers[: min(room, MOST_ARRAY_TASKS)]]


def _labels(waiting: Waiting, nodes: Sequence[SlurmNodeState]) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """A name for the set of nodes that each job may use, which is that of its partition if it may use all of it; and the other sets."""
    whole: dict[str, tuple[int, ...]] = {}
    known: dict[tuple[int, ...], str] = {}
    labels = {}
    for job_id, (job, demand) in waiting.items():
        if job.partition not in whole:
            whole[job.partition] = tuple(at for at, node in enumerate(nodes) if job.partition in node.partitions)
        if demand.allowed == whole[job.partition]:
            labels[job_id] = job.partition
            continue
        if demand.allowed not in known:
            names = ",".join(sorted(nodes[at].name for at in demand.allowed))
            known[demand.allowed] = NODE_SET + hashlib.sha256(names.encode()).hexdigest()[:12]
        labels[job_id] = known[demand.allowed]
    return labels, {label: allowed for allowed, label in known.items()}


def _record(
    job_id: str,
    job: SlurmJob,
    tasks: int,
    sizes: tuple[int, int, int],
    label: str | None,
    epoch: float,
    clock: float,
    predict: Predict | None,
) -> JobRecord:
    gpus, cores, memory = sizes
    return JobRecord(
        job_id, min(job.submit - epoch, clock), job.limit_s, tasks, tasks, tasks, WHOLE_GPU * gpus, WHOLE_GPU * cores, memory,
        priority=float(job.priority), requested=job.limit_s, partition=label, user=job.user or None,
        account=job.account or None, qos=job.qos or None,
        predicted=None if predict is None else predict(job),
    )  # fmt: skip


# --- running jobs and nodes


def _running(job: SlurmJob, names: Mapping[str, int], epoch: float, clock: float, predict: Predict | None) -> list[RunningJob]:
    """The job, or one per node if it holds unequal parts."""
    held = [one for one in job.allocations if one.node in names]
    parts = {(one.cores, one.mem_mib, len(one.gpus)) for one in held}
    groups = [held] if len(parts) == 1 else [[one] for one in held]
    return [_one_running(job, group, len(groups) > 1, names, epoch, clock, predict) for group in groups if group]


def _promised(
    job_id: str,
    job: SlurmJob,
    demand: NodeDemand,
    where: Mapping[str, int],
    runs: Sequence[RunningJob],
    names: Mapping[str, int],
    nodes: Sequence[SlurmNodeState],
    epoch: float,
    clock: float,
) -> list[RunningJob]:
    """A job that was told to start counts as running. Which GPUs it gets is Slurm's to say: any that are free."""
    gpus, places = demand.gpus, []
    for name, number in where.items():
        if name not in names or not nodes[names[name]].usable:
            return []
        at = names[name]
        taken = {gpu for one in runs for place in one.places if place.node == at for gpu in place.gpus} | set(nodes[at].used_gpus)
        free = [gpu for gpu in range(nodes[at].gpus) if gpu not in taken]
        if len(free) < gpus * number:
            return []
        places.append(Place(at, number, tuple(free[: gpus * number])))
    if sum(where.values()) != demand.tasks:
        return []
    record = _record(job_id, job, demand.tasks, (gpus, demand.cores, demand.mem_mib), None, epoch, clock, None)
    return [RunningJob(replace(record, predicted=job.limit_s), clock, clock, clock + job.limit_s, tuple(places), first_start=clock)]


def _is_reserved(node: SlurmNodeState, reservations: Sequence[SlurmReservation], start: float, end: float) -> bool:
    """Whether a reservation holds the node at some time between these."""
    return any(node.name in one.nodes and one.start <= end and start < one.end for one in reservations)


def _one_running(
    job: SlurmJob, held: Sequence[Allocation], split: bool, names: Mapping[str, int], epoch: float, clock: float, predict: Predict | None
) -> RunningJob:
    first = held[0]
    start = min(max(job.start, job.submit) - epoch, clock)
    job_id = f"{job.job_id}@{first.node}" if split else job.job_id
    record = _record(job_id, job, len(held), (len(first.gpus), first.cores, first.mem_mib), None, epoch, clock, predict)
    end = clock if job.state == "COMPLETING" else max(start + job.limit_s, clock)
    places = tuple(Place(names[one.node], 1, one.gpus) for one in held)
    return RunningJob(record, start, start, end, places, first_start=start)


def _node(
    at: int, node: SlurmNodeState, running: Sequence[RunningJob], promised: Sequence[RunningJob], labels: Collection[str]
) -> NodeRecord:
    held, more = _taken(at, running), _taken(at, promised)
    cores, memory = held.cores + more.cores, held.mem_mib + more.mem_mib
    free_gpus = tuple(gpu for gpu in range(node.gpus) if gpu not in {*held.gpus, *more.gpus, *node.used_gpus})
    free_cpu = max(node.cores * WHOLE_GPU - max(held.cores, node.used_cores * WHOLE_GPU) - more.cores, 0)
    free_mem = max(node.mem_mib - max(held.mem_mib, node.used_mem_mib) - more.mem_mib, 0)
    kind = known_kind(node.gpu_kind)[0] if node.gpus else ""
    partitions = tuple(sorted({*(node.partitions or ("none",)), *labels}))
    mem_mib = max(node.mem_mib, memory) if node.mem_mib else None
    shape = NodeShape(node.name, node.gpus, kind, max(node.cores * WHOLE_GPU, cores), mem_mib, partitions)
    if not node.usable:
        return NodeRecord(at, "drained", free_cpu_milli=0, free_mem_mib=0 if node.mem_mib else None, shape=shape)
    return NodeRecord(at, "up", free_gpus, {}, free_cpu, free_mem if node.mem_mib else None, shape=shape)


def _taken(at: int, runs: Sequence[RunningJob]) -> Allocation:
    """What jobs hold of a node; cores are in thousandths."""
    here = [(one.job, place) for one in runs for place in one.places if place.node == at]
    cores, memory = (sum(getattr(job, name) * place.tasks for job, place in here) for name in ("cpu_milli", "mem_mib"))
    return Allocation("", cores, memory, tuple(gpu for _, place in here for gpu in place.gpus))
