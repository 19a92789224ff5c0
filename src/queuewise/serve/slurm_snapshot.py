"""A Snapshot of a Slurm cluster, and which of its waiting jobs may be steered.

What a job demands of nodes beyond sizes (types of GPUs, features, lists of nodes) becomes a partition of its own: the nodes that it may
use. A running job that holds unequal parts of nodes appears once per node. All ids are texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from queuewise.cluster.described import known_kind
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Place, RunningJob, Snapshot, WaitingJob
from queuewise.serve.slurm_records import MARK, Allocation, SlurmJob, SlurmNodeState, SlurmReservation
from queuewise.workload.jobs import WHOLE_GPU

DAY_S = 86_400.0
MOST_ARRAY_TASKS = 1000  # of one array that are looked at
REASONS = ("None", "Resources", "Priority", "ReqNodeNotAvail", "BeginTime", "Cleaning", "JobArrayTaskLimit", "NodeDown", "Nodes")
_SPLIT_FEATURES = re.compile(r"[\[\](){}*!]")
_ARRAY_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")

Predict = Callable[[SlurmJob], float | None]


@dataclass(frozen=True)
class SlurmState:
    """What was read at one instant. `left_alone` has the waiting jobs that are not ours to steer, with the reason."""

    snapshot: Snapshot
    jobs: Mapping[str, SlurmJob]  # by the ids of the snapshot
    left_alone: Mapping[str, str]
    nodes: Sequence[SlurmNodeState]


def take_snapshot(
    jobs: Sequence[SlurmJob],
    nodes: Sequence[SlurmNodeState],
    now: float,
    *,
    partitions: Collection[str] = (),
    predict: Predict | None = None,
    reservations: Sequence[SlurmReservation] = (),
    promised: Mapping[str, Mapping[str, int]] | None = None,
) -> SlurmState:
    """The cluster at a Unix time. `partitions` are those whose jobs may be steered, all if there are none.

    `promised` jobs have been told to start: node -> tasks. They count as running there.
    """
    names = {node.name: at for at, node in enumerate(nodes)}
    reserved = [one for one in reservations if one.end > now]
    nodes = [replace(node, usable=False) if _is_reserved(node, reserved, now, now) else node for node in nodes]
    waiting: dict[str, tuple[SlurmJob, tuple[int, ...]]] = {}
    left_alone: dict[str, str] = {}
    for job in jobs:
        if job.state != "PENDING":
            continue
        allowed = tuple(
            at for at, node in enumerate(nodes) if _may_use(job, node) and not _is_reserved(node, reserved, now, now + job.limit_s)
        )
        problem = why_left_alone(job, partitions) or ("" if allowed else "no node may take it")
        for one in _tasks_of(job, _running_tasks(job, jobs)):
            if problem:
                left_alone[one] = problem
            else:
                waiting[one] = job, allowed
    running = [job for job in jobs if job.state in ("RUNNING", "COMPLETING", "SUSPENDED") and job.allocations]
    epoch = math.floor(min([now, *(job.submit for job, _ in waiting.values()), *(job.submit for job in running)]) / DAY_S) * DAY_S
    clock = now - epoch
    told = {job_id: waiting.pop(job_id) for job_id in promised or {} if job_id in waiting}
    labels = _labels(waiting, nodes)
    queue = [_waiting(job_id, job, labels[job_id], nodes, allowed, epoch, clock, predict) for job_id, (job, allowed) in waiting.items()]
    queue.sort(key=lambda one: one.job.submit)
    runs = [one for job in sorted(running, key=lambda job: job.start) for one in _running(job, names, nodes, epoch, clock, predict)]
    for job_id, (job, allowed) in told.items():
        runs += _promised(job_id, job, (promised or {})[job_id], allowed, runs, names, nodes, epoch, clock)
    extra: dict[int, list[str]] = {}
    for job_id, (_, allowed) in waiting.items():
        for at in allowed:
            extra.setdefault(at, []).append(labels[job_id])
    records = tuple(_node(at, node, runs, extra.get(at, ())) for at, node in enumerate(nodes))
    snapshot = Snapshot(now=clock, queue=tuple(queue), running=tuple(runs), nodes=records, epoch=epoch)
    by_id = {job_id: job for job_id, (job, _) in waiting.items()} | {job.job_id: job for job in running}
    return SlurmState(snapshot, by_id, left_alone, nodes)


def why_left_alone(job: SlurmJob, partitions: Collection[str] = ()) -> str:
    """Why a waiting job is not ours to steer; empty if it is."""
    ours = set(job.partition.split(",")) & set(partitions)
    checks = (
        (bool(partitions) and not ours, f"partition {job.partition} is not steered"),
        (job.priority == 0 or job.reason.startswith("JobHeld"), "it is held by its user or an administrator"),
        (bool(job.dependency) and "unfulfilled" in job.dependency, "it depends on other jobs"),
        (job.reason.startswith("Dependency"), "it depends on other jobs"),
        (bool(job.reservation), f"it belongs to reservation {job.reservation}"),
        (job.is_het, "it is a part of a heterogeneous job"),
        (bool(_SPLIT_FEATURES.search(job.features)), f"its features {job.features} are not understood"),
        (job.reason == "BeginTime" and not job.comment.startswith(MARK), "its user has set a begin time"),
        (re.split("[,_]", job.reason)[0] not in REASONS, f"Slurm says {job.reason}"),
    )
    return next((reason for applies, reason in checks if applies), "")


def _may_use(job: SlurmJob, node: SlurmNodeState) -> bool:
    if not set(job.partition.split(",")) & set(node.partitions) or node.name in job.excluded:
        return False
    if job.required and node.name not in job.required:
        return False
    kind = job.gpus_per_node.kind or job.gpus_per_job.kind or job.gpus_per_task.kind
    if kind and kind != node.gpu_kind:
        return False
    wanted = [part.split("&") for part in job.features.split("|")] if job.features else [[]]
    return any(all(name.strip() in node.features for name in part) for part in wanted)


# --- waiting jobs


def _running_tasks(job: SlurmJob, jobs: Sequence[SlurmJob]) -> int:
    if not job.array_text:
        return 0
    return sum(other.state == "RUNNING" and other.job_id.startswith(f"{job.job_id}_") for other in jobs)


def _tasks_of(job: SlurmJob, running: int) -> list[str]:
    """The ids of the tasks of an array that may start now, or of the job itself."""
    if not job.array_text:
        return [job.job_id]
    listed, _, most = job.array_text.partition("%")
    numbers: list[int] = []
    for first, last, step in _ARRAY_PART.findall(listed):
        numbers += range(int(first), int(last or first) + 1, int(step or 1))
    room = max(int(most) - running, 0) if most.isdecimal() and int(most) else MOST_ARRAY_TASKS
    return [f"{job.job_id}_{number}" for number in numbers[: min(room, MOST_ARRAY_TASKS)]]


def _labels(waiting: Mapping[str, tuple[SlurmJob, tuple[int, ...]]], nodes: Sequence[SlurmNodeState]) -> dict[str, str]:
    """A name for the set of nodes that each job may use: that of its partition if it may use all of it."""
    whole: dict[str, tuple[int, ...]] = {}
    numbers: dict[tuple[int, ...], int] = {}
    labels = {}
    for job_id, (job, allowed) in waiting.items():
        if job.partition not in whole:
            whole[job.partition] = tuple(at for at, node in enumerate(nodes) if job.partition in node.partitions)
        if allowed == whole[job.partition]:
            labels[job_id] = job.partition
        else:
            labels[job_id] = f"nodes-{numbers.setdefault(allowed, len(numbers))}"
    return labels


def _waiting(
    job_id: str,
    job: SlurmJob,
    label: str,
    nodes: Sequence[SlurmNodeState],
    allowed: Sequence[int],
    epoch: float,
    clock: float,
    predict: Predict | None,
) -> WaitingJob:
    tasks, cores, gpus, memory = demand_of(job, [nodes[at] for at in allowed])
    return WaitingJob(_record(job_id, job, tasks, (gpus, cores, memory), label, epoch, clock, predict))


def demand_of(job: SlurmJob, allowed: Sequence[SlurmNodeState]) -> tuple[int, int, int, int]:
    """Tasks, and cores, GPUs and MiB of each. A job that names numbers of nodes or GPUs of nodes has one task per node."""
    if job.exclusive:
        return job.nodes, max(node.cores for node in allowed), max(node.gpus for node in allowed), 0
    if job.gpus_per_task.count:
        memory = job.mem_per_core * job.cores_per_task or job.mem_per_node * job.nodes // job.tasks
        return job.tasks, job.cores_per_task, job.gpus_per_task.count, memory
    gpus = job.gpus_per_node.count or -(-job.gpus_per_job.count // job.nodes)
    if not gpus and job.most_nodes == 0 and job.tasks > 1:
        memory = job.mem_per_core * job.cores_per_task or -(-job.mem_per_node * job.nodes // job.tasks)
        return job.tasks, job.cores_per_task, 0, memory
    cores = -(-job.cores // job.nodes)
    return job.nodes, cores, gpus, job.mem_per_node or job.mem_per_core * cores


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


def _running(
    job: SlurmJob, names: Mapping[str, int], nodes: Sequence[SlurmNodeState], epoch: float, clock: float, predict: Predict | None
) -> list[RunningJob]:
    """The job, or one per node if it holds unequal parts."""
    held = [one for one in job.allocations if one.node in names]
    parts = {(one.cores, one.mem_mib, len(one.gpus)) for one in held}
    groups = [held] if len(parts) == 1 else [[one] for one in held]
    return [_one_running(job, group, len(groups) > 1, names, epoch, clock, predict) for group in groups if group]


def _promised(
    job_id: str,
    job: SlurmJob,
    where: Mapping[str, int],
    allowed: Sequence[int],
    runs: Sequence[RunningJob],
    names: Mapping[str, int],
    nodes: Sequence[SlurmNodeState],
    epoch: float,
    clock: float,
) -> list[RunningJob]:
    """A job that was told to start counts as running. Which GPUs it gets is Slurm's to say: any that are free."""
    tasks, cores, gpus, memory = demand_of(job, [nodes[at] for at in allowed])
    places = []
    for name, number in where.items():
        if name not in names or not nodes[names[name]].usable:
            return []
        at = names[name]
        taken = {gpu for one in runs for place in one.places if place.node == at for gpu in place.gpus} | set(nodes[at].used_gpus)
        free = [gpu for gpu in range(nodes[at].gpus) if gpu not in taken]
        if len(free) < gpus * number:
            return []
        places.append(Place(at, number, tuple(free[: gpus * number])))
    if sum(where.values()) != tasks:
        return []
    record = _record(job_id, job, tasks, (gpus, cores, memory), None, epoch, clock, None)
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
    end = max(start + job.limit_s, clock)
    places = tuple(Place(names[one.node], 1, one.gpus) for one in held)
    return RunningJob(record, start, start, end, places, first_start=start)


def _node(at: int, node: SlurmNodeState, running: Sequence[RunningJob], labels: Collection[str]) -> NodeRecord:
    here = [(one.job, place) for one in running for place in one.places if place.node == at]
    held = {gpu for _, place in here for gpu in place.gpus}
    cores, memory = (sum(getattr(job, name) * place.tasks for job, place in here) for name in ("cpu_milli", "mem_mib"))
    free_gpus = tuple(gpu for gpu in range(node.gpus) if gpu not in held and gpu not in node.used_gpus)
    free_cpu = max(node.cores * WHOLE_GPU - max(cores, node.used_cores * WHOLE_GPU), 0)
    free_mem = max(node.mem_mib - max(memory, node.used_mem_mib), 0)
    kind = known_kind(node.gpu_kind)[0] if node.gpus else ""
    partitions = tuple(dict.fromkeys((*(node.partitions or ("none",)), *labels)))
    shape = NodeShape(
        node.name,
        node.gpus,
        kind,
        max(node.cores * WHOLE_GPU, cores),
        max(node.mem_mib, memory) if node.mem_mib else None,
        tuple(sorted(partitions)),
    )
    if not node.usable:
        return NodeRecord(at, "drained", free_cpu_milli=0, free_mem_mib=0 if node.mem_mib else None, shape=shape)
    return NodeRecord(at, "up", free_gpus, {}, free_cpu, free_mem if node.mem_mib else None, shape=shape)
