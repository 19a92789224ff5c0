"""A Snapshot of an LSF cluster: slots are cores. Which waiting jobs may be steered, and the commands that steer them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Place, RunningJob, Snapshot, WaitingJob
from queuewise.policies.snapshot_checks import LARGEST, problem_of_record
from queuewise.serve.live_policy import RankedStart
from queuewise.serve.lsf_records import GRACE, GRACE_S, HELD, MARK, RUNNING, WAITING, LsfHost, LsfJob, LsfQueue
from queuewise.workload.jobs import WHOLE_GPU

DAY_S = 86_400.0
NO_LIMIT_S = 365 * DAY_S
PLACED = f"{MARK}-placed"  # description of jobs whose list of hosts is ours
RELEASED = f"{MARK}-released"  # description of jobs that are LSF's again


Predict = Callable[[LsfJob, float], float]  # the runtime of a job with this limit, in seconds


@dataclass(frozen=True)
class LsfState:
    snapshot: Snapshot
    jobs: Mapping[str, LsfJob]
    left_alone: Mapping[str, str]


def take_lsf_snapshot(
    jobs: Sequence[LsfJob],
    hosts: Sequence[LsfHost],
    now: float,
    *,
    queues: Mapping[str, LsfQueue] | Collection[str] = (),
    held: bool = False,
    predict: Predict | None = None,
) -> LsfState:
    """The cluster at a Unix time. `queues` are those whose jobs may be steered, all if there are none.

    With `held`, jobs are going to be placed: only those that the esub has marked are ours, and none that asks for certain hosts.
    """
    names = {host.name: at for at, host in enumerate(hosts)}
    usable = {name: _hosts_of(queue, hosts) for name, queue in queues.items()} if isinstance(queues, Mapping) else {}
    waiting = [job for job in jobs if job.state in (*WAITING, *HELD)]
    problems = {job.job_id: _why_left_alone(job, queues, usable, now, held) for job in waiting}
    ours = [job for job in waiting if not problems[job.job_id]]
    running = [job for job in jobs if job.state in RUNNING and any(host in names for host in job.hosts)]
    epoch = math.floor(min([now, *(job.submit for job in (*ours, *running))]) / DAY_S) * DAY_S
    clock = now - epoch
    records = [(job, _record(job, job.job_id, _demand(job), epoch, clock, predict)) for job in sorted(ours, key=lambda job: job.submit)]
    problems |= {job.job_id: f"it {problem}" for job, record in records if (problem := problem_of_record(record, clock))}
    records = [(job, record) for job, record in records if not problems[job.job_id]]
    queue = tuple(WaitingJob(replace(record, partition=job.queue if usable else None)) for job, record in records)
    runs = tuple(part for job in running for part in _running(job, names, epoch, clock, predict))
    nodes = tuple(_node(at, host, runs, [name for name, of in usable.items() if of and host.name in of]) for at, host in enumerate(hosts))
    left_alone = {job_id: problem for job_id, problem in problems.items() if problem}
    return LsfState(Snapshot(clock, queue, runs, nodes, epoch=epoch), {job.job_id: job for job, _ in records}, left_alone)


def _hosts_of(queue: LsfQueue, hosts: Sequence[LsfHost]) -> set[str] | None:
    """The hosts that a queue may use. None: they are named in a way that is not understood, for example by groups."""
    listed = [part.split("+")[0] for part in queue.hosts.replace("/", " ").split()]
    every = {host.name for host in hosts}
    return every if listed in (["all"], ["all", "hosts", "used", "by", "the", "system"]) else set(listed) if set(listed) <= every else None


def _why_left_alone(job: LsfJob, queues: Collection[str], usable: Mapping[str, set[str] | None], now: float, held: bool) -> str:
    checks = (
        (bool(queues) and job.queue not in queues, f"queue {job.queue} is not steered"),
        (usable.get(job.queue, set()) is None, f"the hosts of queue {job.queue} are not understood"),
        (job.state in HELD, "it is held by its user or an administrator"),
        (job.dependency not in ("", "-"), "it depends on other jobs"),
        (bool(job.reservation), f"it belongs to reservation {job.reservation}"),
        (job.begins_later(now), "its user has set a begin time"),
        (held and not job.is_marked, "it was not held back at its submission"),
        (held and job.exclusive, "it asks for hosts of its own"),
        (held and bool(job.asked_hosts), f"it asks for hosts {job.asked_hosts}"),
        (held and not _is_understood(job.resreq), f"its request {job.resreq} is not understood"),
    )
    return next((reason for applies, reason in checks if applies), "")


def _is_understood(resreq: str) -> bool:
    """Whether a resource requirement is one that every job has, or only says how much memory is used or that hosts are alike."""
    plain = re.sub(r"order\[[^]]*\]|rusage\[mem=[\d.]+[KMGT]?B?\]|same\[(?:type|model)\]", "", resreq)
    plain = re.sub(r"select\[\s*\(?\s*type\s*==\s*(?:local|any)\s*\)?\s*\]", "", plain)
    return not plain.strip()


def _demand(job: LsfJob) -> tuple[int, int, int, int]:
    """Tasks, and GPUs, cores and MiB of each: GPUs go with the slots if they divide them, else the job has one task."""
    if not job.gpus:
        return job.slots, 0, 1, job.mem_mib // job.slots
    tasks = math.gcd(job.gpus, job.slots)
    return tasks, job.gpus // tasks, job.slots // tasks, job.mem_mib // tasks


def _record(job: LsfJob, job_id: str, demand: tuple[int, int, int, int], epoch: float, clock: float, predict: Predict | None) -> JobRecord:
    tasks, gpus, cores, memory = demand
    limit = NO_LIMIT_S if job.limit_s is None else job.limit_s
    return JobRecord(
        job_id, min(job.submit - epoch, clock), limit, tasks, tasks, tasks, WHOLE_GPU * gpus, WHOLE_GPU * cores, memory,
        priority=job.priority, requested=job.limit_s, user=job.user or None, account=job.project or None,
        predicted=None if predict is None else predict(job, limit),
    )  # fmt: skip


def _running(job: LsfJob, names: Mapping[str, int], epoch: float, clock: float, predict: Predict | None) -> list[RunningJob]:
    """The job on each of its hosts: it may hold unequal parts."""
    start = min(max(job.submit if job.start is None else job.start, job.submit) - epoch, clock)
    limit = NO_LIMIT_S if job.limit_s is None else job.limit_s
    parts = []
    for host, slots in job.hosts.items():
        if host in names:
            gpus = job.gpus_on.get(host, ())
            job_id = job.job_id if len(job.hosts) == 1 else f"{job.job_id}@{host}"
            memory = min(job.mem_mib * slots // max(job.slots, 1), LARGEST)  # it runs, whatever its limit says
            record = _record(job, job_id, (1, len(gpus), slots, memory), epoch, clock, predict)
            parts.append(RunningJob(record, start, start, max(start + limit, clock), (Place(names[host], 1, gpus),), first_start=start))
    return parts


def _node(at: int, host: LsfHost, running: Sequence[RunningJob], queues: Sequence[str] = ()) -> NodeRecord:
    here = [(one.job, place) for one in running for place in one.places if place.node == at]
    held = {gpu for _, place in here for gpu in place.gpus}
    cores, memory = sum(job.cpu_milli for job, _ in here), sum(job.mem_mib for job, _ in here)
    has_cores = max(host.slots * WHOLE_GPU, cores)
    has_gpus = max([host.gpus, *(gpu + 1 for gpu in held)])
    has_memory = max(host.mem_mib, memory) if host.mem_mib else None
    shape = NodeShape(host.name, has_gpus, "MISC" if has_gpus else "", has_cores, has_memory, tuple(sorted(queues)) or ("none",))
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
    return [("bmod", "-m", " ".join(start.nodes), "-Jd", PLACED, "-bn", job.job_id)]


def keep_command(job: LsfJob, until: float) -> tuple[str, ...]:
    """Let a job wait for us until a Unix time: somebody has looked at it."""
    return ("bmod", "-b", f"{datetime.fromtimestamp(until):%Y:%m:%d:%H:%M}", job.job_id)


def give_back_commands(job: LsfJob) -> list[tuple[str, ...]]:
    """Let a job be LSF's alone, also one that is suspended or was put on a host."""
    resume = [("bresume", job.job_id)] if job.state in HELD else []
    return [("bmod", *(("-mn",) if job.description == PLACED else ()), "-bn", "-Jd", RELEASED, job.job_id), *resume]


def order_commands(order: Sequence[str], present: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Bring waiting jobs into an order, the first first: only from the first on that is not in its place."""
    same = next((at for at, (one, other) in enumerate(zip(order, present, strict=False)) if one != other), min(len(order), len(present)))
    return [("btop", job_id, str(position)) for position, job_id in enumerate(order[same:], same + 1)]


ESUB = """#!/bin/sh
# New jobs begin {grace} s later, unless the agent starts them before: if it does not, they start by themselves. Jobs that have a begin
# time, a reservation or a description, or that are held, are left as they are.
[ -n "$LSB_SUB_PARM_FILE" ] || exit 0
. "$LSB_SUB_PARM_FILE"
[ -z "$LSB_SUB_BEGIN_TIME$LSB_SUB_RSV_ID$LSB_SUB_JOB_DESCRIPTION" ] || exit 0
[ "$LSB_SUB_HOLD" != Y ] || exit 0
echo "LSB_SUB_BEGIN_TIME=$(($(date +%s) + {grace}))" >> "$LSB_SUB_MODIFY_FILE"
echo 'LSB_SUB_JOB_DESCRIPTION="{mark}{grace}"' >> "$LSB_SUB_MODIFY_FILE"
exit 0
"""


def esub(grace_s: int = GRACE_S) -> str:
    """The program that LSF runs at every submission."""
    return ESUB.format(grace=grace_s, mark=GRACE)


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
