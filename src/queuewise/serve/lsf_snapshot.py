"""A Snapshot of an LSF cluster: slots are cores. Which waiting jobs may be steered, and the commands that steer them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Place, RunningJob, Snapshot, WaitingJob
from queuewise.serve.live_policy import RankedStart
from queuewise.serve.lsf_records import HELD, RUNNING, WAITING, LsfHost, LsfJob
from queuewise.workload.jobs import WHOLE_GPU

DAY_S = 86_400.0
NO_LIMIT_S = 365 * DAY_S


@dataclass(frozen=True)
class LsfState:
    snapshot: Snapshot
    jobs: Mapping[str, LsfJob]
    left_alone: Mapping[str, str]


def take_lsf_snapshot(
    jobs: Sequence[LsfJob], hosts: Sequence[LsfHost], now: float, *, queues: Collection[str] = (), held: bool = False
) -> LsfState:
    """The cluster at a Unix time. `queues` are those whose jobs may be steered, all if there are none.

    With `held`, jobs that wait suspended (PSUSP) are ours to start: the esub has held them.
    """
    names = {host.name: at for at, host in enumerate(hosts)}
    states = HELD if held else WAITING
    waiting = [job for job in jobs if job.state in (*WAITING, *HELD)]
    problems = {job.job_id: _why_left_alone(job, queues, states) for job in waiting}
    ours = [job for job in waiting if not problems[job.job_id]]
    running = [job for job in jobs if job.state in RUNNING and any(host in names for host in job.hosts)]
    epoch = math.floor(min([now, *(job.submit for job in (*ours, *running))]) / DAY_S) * DAY_S
    clock = now - epoch
    queue = tuple(WaitingJob(_record(job, job.job_id, _demand(job), epoch, clock)) for job in sorted(ours, key=lambda job: job.submit))
    runs = tuple(part for job in running for part in _running(job, names, epoch, clock))
    nodes = tuple(_node(at, host, runs) for at, host in enumerate(hosts))
    left_alone = {job_id: problem for job_id, problem in problems.items() if problem}
    return LsfState(Snapshot(clock, queue, runs, nodes, epoch=epoch), {job.job_id: job for job in ours}, left_alone)


def _why_left_alone(job: LsfJob, queues: Collection[str], states: Collection[str]) -> str:
    if queues and job.queue not in queues:
        return f"queue {job.queue} is not steered"
    if job.state not in states:
        return "it is held by its user or an administrator" if job.state in HELD else "it was not held at its submission"
    return "it depends on other jobs" if job.dependency not in ("", "-") else ""


def _demand(job: LsfJob) -> tuple[int, int, int, int]:
    """Tasks, and GPUs, cores and MiB of each: a job with GPUs has a task per GPU, one without a task per slot."""
    tasks = max(job.gpus, 1) if job.gpus else job.slots
    return tasks, 1 if job.gpus else 0, -(-job.slots // tasks), job.mem_mib // tasks


def _record(job: LsfJob, job_id: str, demand: tuple[int, int, int, int], epoch: float, clock: float) -> JobRecord:
    tasks, gpus, cores, memory = demand
    limit = NO_LIMIT_S if job.limit_s is None else job.limit_s
    return JobRecord(
        job_id, min(job.submit - epoch, clock), limit, tasks, tasks, tasks, WHOLE_GPU * gpus, WHOLE_GPU * cores, memory,
        priority=job.priority, requested=job.limit_s, user=job.user or None, account=job.project or None,
    )  # fmt: skip


def _running(job: LsfJob, names: Mapping[str, int], epoch: float, clock: float) -> list[RunningJob]:
    """The job on each of its hosts: it may hold unequal parts."""
    start = min(max(job.submit if job.start is None else job.start, job.submit) - epoch, clock)
    limit = NO_LIMIT_S if job.limit_s is None else job.limit_s
    parts = []
    for host, slots in job.hosts.items():
        if host in names:
            gpus = job.gpus_on.get(host, ())
            job_id = job.job_id if len(job.hosts) == 1 else f"{job.job_id}@{host}"
            record = _record(job, job_id, (1, len(gpus), slots, job.mem_mib * slots // max(job.slots, 1)), epoch, clock)
            parts.append(RunningJob(record, start, start, max(start + limit, clock), (Place(names[host], 1, gpus),), first_start=start))
    return parts


def _node(at: int, host: LsfHost, running: Sequence[RunningJob]) -> NodeRecord:
    here = [(one.job, place) for one in running for place in one.places if place.node == at]
    held = {gpu for _, place in here for gpu in place.gpus}
    cores, memory = sum(job.cpu_milli for job, _ in here), sum(job.mem_mib for job, _ in here)
    has_cores = max(host.slots * WHOLE_GPU, cores)
    has_gpus = max([host.gpus, *(gpu + 1 for gpu in held)])
    has_memory = max(host.mem_mib, memory) if host.mem_mib else None
    shape = NodeShape(host.name, has_gpus, "MISC" if has_gpus else "", has_cores, has_memory)
    if not host.is_open:
        return NodeRecord(at, "drained", free_cpu_milli=0, free_mem_mib=None if has_memory is None else 0, shape=shape)
    free_gpus = [gpu for gpu in range(has_gpus) if gpu not in held]
    lost = max(host.used_gpus - len(held), 0)  # in use by jobs that do not say which
    free_cpu = max(has_cores - max(cores, host.used_slots * WHOLE_GPU), 0)
    free = tuple(free_gpus[: len(free_gpus) - lost]) if lost else tuple(free_gpus)
    return NodeRecord(at, "up", free, {}, free_cpu, None if has_memory is None else has_memory - memory, shape=shape)


# --- steering


def brun_command(start: RankedStart, job: LsfJob, slots_per_task: int) -> tuple[str, ...]:
    """Start a held or waiting job now, on these hosts (for administrators)."""
    names = dict(zip(dict.fromkeys(place.node for place in start.places), start.nodes, strict=True))
    slots: dict[str, int] = {}
    for place in start.places:
        slots[names[place.node]] = slots.get(names[place.node], 0) + place.tasks * slots_per_task
    return ("brun", "-m", " ".join(f"{host}#{number}" if number > 1 else host for host, number in slots.items()), job.job_id)


def resume_commands(start: RankedStart, job: LsfJob) -> list[tuple[str, ...]]:
    """The same without the rights of an administrator: name the hosts, then let LSF start it."""
    return [("bmod", "-m", " ".join(start.nodes), job.job_id), ("bresume", job.job_id)]


def order_commands(order: Sequence[str]) -> list[tuple[str, ...]]:
    """Bring waiting jobs into an order, the first first."""
    return [("btop", job_id, str(position)) for position, job_id in enumerate(order, 1)]


ESUB = """#!/bin/sh
# Holds new jobs for the agent; jobs that ask for a reservation, or to be held, are left as they are.
[ -n "$LSB_SUB_PARM_FILE" ] || exit 0
. "$LSB_SUB_PARM_FILE"
[ -n "$LSB_SUB_RSV_ID" ] || [ "$LSB_SUB_HOLD" = Y ] || echo 'LSB_SUB_HOLD=Y' >> "$LSB_SUB_MODIFY_FILE"
exit 0
"""


def host_features(snapshot: Snapshot, slots: int, gpus: int, memory_mib: int) -> list[list[float]]:
    """[hosts, 4] what the published plugin sees of every host: parts of slots, GPUs and memory that are free, and whether the job fits."""
    rows = []
    for node in snapshot.nodes:
        shape: Any = node.shape
        cores, memory = (node.free_cpu_milli or 0) / WHOLE_GPU, node.free_mem_mib
        fits = node.state == "up" and cores >= slots and len(node.free_gpus) >= gpus and (memory is None or memory >= memory_mib)
        rows.append(
            [
                cores * WHOLE_GPU / max(shape.cpu_milli or 1, 1),
                len(node.free_gpus) / max(shape.gpus, 1),
                1.0 if memory is None or not shape.mem_mib else memory / shape.mem_mib,
                float(fits),
            ]
        )
    return rows
