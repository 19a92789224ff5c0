"""Why a job waits: who is ahead, what it lacks, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from queuewise.cluster.gpus import gpu_kind
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.snapshot import JobId, JobRecord, NodeRecord, Snapshot, WaitingJob
from queuewise.serve.forecast import Forecast
from queuewise.serve.snapshot_cluster import NODE_SET
from queuewise.workload.jobs import WHOLE_GPU, named_partitions

MOST_NAMED = 20  # jobs ahead that are listed


class Started(Protocol):
    @property
    def job_id(self) -> JobId: ...

    @property
    def nodes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Explanation:
    job_id: JobId
    reason: str  # one sentence
    starts_now: bool
    nodes: tuple[str, ...]  # where, if it starts now
    jobs_ahead: int
    ahead: tuple[JobId, ...]  # the first of them
    expected_start: float | None  # seconds on the snapshot's clock; None: never
    fitting_nodes: int  # nodes that could take a task of it now
    usable_nodes: int  # nodes that could take one if they were empty
    hints: tuple[str, ...]  # what would help

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def explain_wait(snapshot: Snapshot, cluster: Cluster, job: JobId, starts: Sequence[Started], forecast: Forecast) -> Explanation:
    """Explain the wait of one job, given what the policy would start now and the expected starts of all."""
    waiting = next((one for one in snapshot.queue if one.job.job_id == job), None)
    if waiting is None:
        state = "runs already" if any(one.job.job_id == job for one in snapshot.running) else "is not in the snapshot"
        raise InputError(f"job {job} {state}", where="snapshot", hint="explain is for waiting jobs")
    chosen = next((start for start in starts if start.job_id == job), None)
    ahead = forecast.order[: forecast.order.index(job)]
    fitting = [node for node in snapshot.nodes if _fits_now(waiting.job, node, cluster)]
    usable = [node for node in snapshot.nodes if node.state == "up" and _may_use(waiting.job, node.index, cluster)]
    return Explanation(
        job_id=job,
        reason=_reason(waiting, chosen, sum(_slots(waiting.job, node) for node in fitting), len(usable), len(ahead), snapshot.now),
        starts_now=chosen is not None,
        nodes=() if chosen is None else chosen.nodes,
        jobs_ahead=len(ahead),
        ahead=ahead[:MOST_NAMED],
        expected_start=forecast.starts[job],
        fitting_nodes=len(fitting),
        usable_nodes=len(usable),
        hints=_hints(waiting.job, chosen, fitting, cluster, snapshot),
    )


def _reason(waiting: WaitingJob, chosen: Started | None, slots: int, usable: int, ahead: int, now: float) -> str:
    job = waiting.job
    if chosen is not None:
        return f"it starts now on {', '.join(chosen.nodes)}"
    if waiting.awaits_others or waiting.released_at is not None:
        return "it waits for other jobs that it depends on"
    if waiting.held_until is not None and waiting.held_until > now:
        return "the policy holds it back"
    if not usable:
        return "no node that is up could ever take it"
    if slots < job.num_tasks:
        return f"{job.num_tasks} tasks of {_size(job)} need room, and there is room for {slots} now"
    return f"it would fit now, but what is free is kept for {ahead} jobs ahead of it"


def _size(job: JobRecord) -> str:
    parts = [f"{job.gpu_milli / WHOLE_GPU:g} GPUs"] if job.gpu_milli else []
    parts += [f"{job.cpu_milli / 1000:g} cores"] if job.cpu_milli else []
    return " and ".join([*parts, *([f"{job.mem_mib:,} MiB"] if job.mem_mib else [])])


def _hints(job: JobRecord, chosen: Started | None, fitting: Sequence[NodeRecord], cluster: Cluster, snapshot: Snapshot) -> tuple[str, ...]:
    if chosen is not None:
        return ()
    hints = []
    anywhere = [n for n in snapshot.nodes if n.state == "up" and _has_room(job, n)]
    if len(anywhere) > len(fitting):
        other = sorted(
            {name for n in anywhere if n not in fitting for name in _partitions(n.index, cluster) if not name.startswith(NODE_SET)}
        )
        where = f", or for {', '.join(other)}," if other else ""
        hints.append(f"other nodes have room: a request without a kind of GPU, features or a list of nodes{where} could use them")
    if job.requested is not None and job.predicted is not None and job.predicted < job.requested / 2:
        hints.append(f"jobs like it run about {job.predicted:.0f} s: a limit below {job.requested:.0f} s lets it fill gaps")
    return tuple(hints)


def _partitions(n: int, cluster: Cluster) -> list[str]:
    return [one.name for one, inside in zip(cluster.partitions, cluster.node_partitions[n], strict=True) if inside]


def _may_use(job: JobRecord, n: int, cluster: Cluster) -> bool:
    """Whether partition, kind and size of an empty node would do."""
    if job.partition is not None and not set(named_partitions(job.partition)) & set(_partitions(n, cluster)):
        return False
    if job.kinds and (not cluster.node_gpus[n] or cluster.kinds[cluster.node_kind[n]].name not in {gpu_kind(k).name for k in job.kinds}):
        return False
    has = cluster.node_gpus[n] * WHOLE_GPU, cluster.node_cpu_milli[n], cluster.node_mem_mib[n]
    return bool(job.gpu_milli <= has[0] and job.cpu_milli <= has[1] and job.mem_mib <= has[2])


def _fits_now(job: JobRecord, node: NodeRecord, cluster: Cluster) -> bool:
    return node.state == "up" and _may_use(job, node.index, cluster) and _has_room(job, node)


def _has_room(job: JobRecord, node: NodeRecord) -> bool:
    return _slots(job, node) > 0


def _slots(job: JobRecord, node: NodeRecord) -> int:
    """Tasks that what is free would take."""
    limits = []
    if 0 < job.gpu_milli < WHOLE_GPU:
        limits.append(
            sum(WHOLE_GPU // job.gpu_milli for _ in node.free_gpus) + sum(free // job.gpu_milli for free in node.shared_gpus.values())
        )
    elif job.gpu_milli:
        limits.append(len(node.free_gpus) * WHOLE_GPU // job.gpu_milli)
    if job.cpu_milli and node.free_cpu_milli is not None:
        limits.append(node.free_cpu_milli // job.cpu_milli)
    if job.mem_mib and node.free_mem_mib is not None:
        limits.append(node.free_mem_mib // job.mem_mib)
    return min(limits, default=job.num_tasks)
