"""What a waiting job of Slurm asks of nodes, and why it may not be ours to steer."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from queuewise.serve.slurm_control import RELEASED, begins_later
from queuewise.serve.slurm_records import MARK, SlurmJob, SlurmNodeState

REASONS = ("None", "Resources", "Priority", "ReqNodeNotAvail", "BeginTime", "Cleaning", "JobArrayTaskLimit", "NodeDown", "Nodes")
HELD = "it is held by its user or an administrator"
DEPENDS = "it depends on other jobs"
BEGINS_LATER = "its user has set a begin time"
GIVEN_BACK = "it was given back to Slurm"
NOT_RELEASED = (HELD, DEPENDS, BEGINS_LATER, GIVEN_BACK)  # reasons for which a job that is left alone is not released either
_SPLIT_FEATURES = re.compile(r"[\[\](){}*!]")


@dataclass(frozen=True)
class NodeDemand:
    """Tasks, and what each of them takes, of which nodes (by position).

    `problem`: why places by these numbers could be wrong for Slurm. They still do for predictions.
    """

    tasks: int
    cores: int
    gpus: int
    mem_mib: int
    allowed: tuple[int, ...]
    problem: str = ""


def why_left_alone(job: SlurmJob, partitions: Collection[str], now: float) -> str:
    """Why a waiting job is not ours to steer; empty if it is."""
    steered = set(job.partition.split(",")) & set(partitions)
    strange = ",".join(request.strange for request in job.gpus if request.strange)
    checks = (
        (bool(partitions) and not steered, f"partition {job.partition} is not steered"),
        (job.priority == 0 or job.reason.startswith("JobHeld"), HELD),
        (bool(job.dependency) and "unfulfilled" in job.dependency, DEPENDS),
        (job.reason.startswith("Dependency"), DEPENDS),
        (bool(job.reservation), f"it belongs to reservation {job.reservation}"),
        (job.is_het, "it is a part of a heterogeneous job"),
        (bool(_SPLIT_FEATURES.search(job.features)), f"its features {job.features} are not understood"),
        (bool(strange), f"its request for {strange} is not understood"),
        (any(request.mixed for request in job.gpus), "it asks for GPUs of several types"),
        ((job.reason == "BeginTime" or job.eligible > now) and (begins_later(job, now) or not job.comment.startswith(MARK)), BEGINS_LATER),
        (re.split("[,_]", job.reason)[0] not in REASONS, f"Slurm says {job.reason}"),
    )
    return next((reason for applies, reason in checks if applies), "")


def why_not_placed(job: SlurmJob, demand: NodeDemand) -> str:
    """Why a job that may be steered is not ours to place."""
    return GIVEN_BACK if job.comment == RELEASED else demand.problem


def may_use(job: SlurmJob, node: SlurmNodeState) -> bool:
    if not set(job.partition.split(",")) & set(node.partitions) or node.name in job.excluded:
        return False
    if job.required and node.name not in job.required:
        return False
    kind = next((request.kind for request in job.gpus if request.kind), "")
    if kind and kind != node.gpu_kind:
        return False
    wanted = [part.split("&") for part in job.features.split("|")] if job.features else [[]]
    return any(all(name.strip() in node.features for name in part) for part in wanted)


def demand_of(job: SlurmJob, nodes: Sequence[SlurmNodeState], allowed: Sequence[int], *, memory_counts: bool = False) -> NodeDemand:
    """What a job takes of the nodes that it may use. `memory_counts`: a job that names no memory gets all of a node's."""
    if job.exclusive:
        return _whole_nodes(job, nodes, allowed)
    no_memory = memory_counts and not (job.mem_per_node or job.mem_per_core)
    if job.most_nodes or job.tasks == 1 or no_memory or job.gpus_per_node.count or job.gpus_per_job.count:
        return _per_node(job, nodes, allowed, no_memory)
    memory = job.mem_per_core * job.cores_per_task or -(-job.mem_per_node * job.nodes // job.tasks)
    return NodeDemand(job.tasks, job.cores_per_task, job.gpus_per_task.count, memory, tuple(allowed))


def _whole_nodes(job: SlurmJob, nodes: Sequence[SlurmNodeState], allowed: Sequence[int]) -> NodeDemand:
    """Nodes of one kind, the smallest of which there are enough: what is asked for must be what they have."""
    least = -(-job.cores // job.nodes), _gpus_of_node(job)
    alike: dict[tuple[int, int], list[int]] = {}
    for at in allowed:
        shape = nodes[at].cores, nodes[at].gpus
        if shape[0] >= least[0] and shape[1] >= least[1]:
            alike.setdefault(shape, []).append(at)
    enough = [shape for shape, members in alike.items() if sum(nodes[at].usable for at in members) >= job.nodes]
    enough = enough or [shape for shape, members in alike.items() if len(members) >= job.nodes]
    if enough:
        cores, gpus = min(enough, key=lambda shape: (shape[1], shape[0]))
        return NodeDemand(job.nodes, cores, gpus, 0, tuple(alike[cores, gpus]))
    cores, gpus = min((nodes[at].cores for at in allowed), default=least[0]), min((nodes[at].gpus for at in allowed), default=least[1])
    return NodeDemand(job.nodes, cores, gpus, 0, tuple(allowed), f"no kind of node has {job.nodes} that are large enough for it alone")


def _gpus_of_node(job: SlurmJob) -> int:
    return job.gpus_per_node.count or -(-(job.gpus_per_job.count or job.gpus_per_task.count * job.tasks) // job.nodes)


def _per_node(job: SlurmJob, nodes: Sequence[SlurmNodeState], allowed: Sequence[int], no_memory: bool) -> NodeDemand:
    """One part per node."""
    number, gpus, problem = job.nodes, _gpus_of_node(job), ""
    largest = max((nodes[at].gpus for at in allowed), default=0)
    if gpus > largest > 0 and job.gpus_per_job.count and job.most_nodes != job.nodes:
        number = -(-job.gpus_per_job.count // largest)
        gpus, problem = -(-job.gpus_per_job.count // number), "Slurm divides its GPUs among nodes"
    cores = -(-job.cores // number)
    threads = max((nodes[at].threads for at in allowed), default=1)
    cores = -(-cores // threads) * threads  # a core is not shared
    memory = job.mem_per_node or job.mem_per_core * cores
    if no_memory:
        sizes = {nodes[at].mem_mib for at in allowed}
        memory = min(sizes, default=0)
        problem = problem or ("" if len(sizes) < 2 else "it names no memory, and its nodes have different amounts")
    demand = NodeDemand(number, cores, gpus, memory, tuple(allowed), problem)
    if number > 1 and not problem and any(_fits_twice(demand, nodes[at]) for at in allowed):
        return replace(demand, problem="its parts must be on different nodes")
    return demand


def _fits_twice(demand: NodeDemand, node: SlurmNodeState) -> bool:
    memory = not node.mem_mib or 2 * demand.mem_mib <= node.mem_mib
    return 2 * demand.cores <= node.cores and 2 * demand.gpus <= node.gpus and memory
