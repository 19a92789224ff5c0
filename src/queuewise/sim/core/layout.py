"""Turn a cluster and a workload into arrays for kernels: pools, demand classes, queue trees and the empty machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.sim import placement, queue
from queuewise.sim.conditions.quotas import Tenants
from queuewise.sim.conditions.reserved_nodes import BlockedTimes
from queuewise.sim.core.state import Machine
from queuewise.sim.core.tables import F64, I32, I64
from queuewise.workload.jobs import ANY_PARTITION, WHOLE_GPU, Workload, constant, named_partitions
from queuewise.workload.sorting import stable_order
from queuewise.workload.speedup import speed

FAN_OUT = 16


def unique_rows(columns: Sequence[NDArray[Any]]) -> tuple[I64, I64]:
    """Number the distinct rows in ascending order: the first place of each, and the number of every row."""
    order = np.lexsort(columns[::-1])
    begins = np.zeros(len(order), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= np.diff(column[order]) != 0
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1
    return order[begins], number


@dataclass(frozen=True)
class Pools:
    """Sets of nodes that differ only in their index."""

    of_node: I64  # [N]
    slot: I64  # [N]
    first: I64  # [P+1]
    nodes: I64  # [N]
    example: I64  # [P] one node of each

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, cluster: Cluster) -> Pools:
        """The pools of a cluster. Many short replays on one cluster need them once."""
        traits = [
            cluster.node_kind, cluster.node_gpus, *cluster.node_partitions.T, cluster.node_cpu_milli, cluster.node_mem_mib,
            cluster.node_core_watts,
        ]  # fmt: skip
        example, of_node = unique_rows(traits)
        by_first_node = np.argsort(example)  # number pools by their lowest node
        of_node = np.argsort(by_first_node)[of_node]
        nodes = np.argsort(of_node, kind="stable")
        sizes = np.bincount(of_node)
        first = np.concatenate([[0], np.cumsum(sizes)])
        slot = np.empty(len(nodes), np.int64)
        slot[nodes] = np.arange(len(nodes)) - np.repeat(first[:-1], sizes)
        return cls(of_node.astype(np.int64), slot, first.astype(np.int64), nodes.astype(np.int64), example[by_first_node].astype(np.int64))

    def __len__(self) -> int:
        return len(self.example)


@dataclass(frozen=True)
class Classes:
    """The distinct demands of a workload, and what the empty cluster offers each of them."""

    of_job: I32  # [J], -1: can never run
    tasks: I64  # [C] of elastic jobs: the fewest
    base: I64  # [C] the class of an elastic job's fewest tasks; for other jobs the class itself
    submitted: I64  # [C] number of tasks that the given runtimes refer to
    scaling: I64  # [C] index into Workload.scalings
    milli: I64  # [C]
    cpu: I64  # [C]
    mem: I64  # [C]
    kind_set: I64  # [C]
    partition: I64  # [C]
    tenant: I64  # [C] virtual cluster
    membership: I64  # [C] equal numbers for members of the same reservations
    estimate: F64  # [C] estimate of every job of the class, if something is reserved for others
    allows: NDArray[np.bool_]  # [C, P]
    empty_slots: I64  # [C, P] tasks one empty node of the pool can take
    jobs: I64  # [C] number of jobs of the class, including rejected ones; elastic jobs count in the class of their fewest tasks
    feasible: NDArray[np.bool_]  # [C]

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def whole_gpus(self) -> I64:
        return np.where(self.milli >= WHOLE_GPU, self.milli // WHOLE_GPU, 0)

    @property
    def is_share(self) -> NDArray[np.bool_]:
        return (self.milli > 0) & (self.milli < WHOLE_GPU)

    @property
    def primary(self) -> I64:
        return np.where(self.milli > 0, placement.BY_GPU, np.where(self.cpu > 0, placement.BY_CPU, placement.BY_MEM)).astype(np.int64)


def _demand_keys(workload: Workload, tenant: I32, blocked: BlockedTimes) -> tuple[list[NDArray[np.int32]], I64]:
    """The demand columns, and one integer per job that is equal for equal demands."""
    elastic = workload.is_elastic
    scaling = np.where(elastic, workload.scaling, np.int32(0)) if elastic.any() else constant(0, len(workload), np.int32)
    columns = [
        workload.num_tasks, workload.min_tasks, workload.max_tasks, scaling, workload.gpu_milli, workload.cpu_milli, workload.mem_mib,
        workload.kind_set, workload.partition, tenant, blocked.membership, blocked.length,
    ]  # fmt: skip
    key = np.zeros(len(workload), np.int64)
    width = 1
    for number, column in enumerate(columns):
        if number in (1, 2) and not elastic.any():
            continue  # min_tasks and max_tasks equal num_tasks
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        if width * (high - low + 1) >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            width = int(key.max()) + 1
        key *= high - low + 1
        key += column
        key -= low
        width *= high - low + 1
    return columns, key


def _number_keys(key: I64) -> tuple[I64, I32]:
    """The first job of each distinct key, and the number of every job's key. Small key ranges need no sorting."""
    span = int(key.max()) + 1
    if span <= 1 << 22:
        example = np.full(span, -1, np.int64)
        example[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # the first job of each key is written last
        used = np.flatnonzero(example >= 0)
        number = np.zeros(span, np.int32)
        number[used] = np.arange(len(used))
        return example[used], number[key]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int32)


def classify(workload: Workload, cluster: Cluster, pools: Pools, tenants: Tenants, blocked: BlockedTimes) -> Classes:
    columns, key = _demand_keys(workload, tenants.of_job, blocked)
    first, of_job = _number_keys(key)
    sizes = columns[2][first] - columns[1][first] + 1  # an elastic job has consecutive classes, one per number of tasks
    base = np.cumsum(sizes) - sizes
    if len(base) < sizes.sum():
        first, of_job = np.repeat(first, sizes), base[of_job].astype(np.int32)
    submitted, least, _, scaling, milli, cpu, mem, kind_set, partition, tenant, membership, length = (
        column[first].astype(np.int64) for column in columns
    )
    base = np.repeat(base, sizes)
    tasks = least + np.arange(len(first)) - base
    node = pools.example
    allows = _allowed(workload, cluster, pools, kind_set, partition)
    slots = np.full((len(first), len(pools)), UNLIMITED, np.int64)
    whole = np.where(milli >= WHOLE_GPU, milli // WHOLE_GPU, 0)
    share = (milli > 0) & (milli < WHOLE_GPU)
    for amount, have in ((whole, cluster.node_gpus), (cpu, cluster.node_cpu_milli), (mem, cluster.node_mem_mib)):
        asks = amount > 0
        slots[asks] = np.minimum(slots[asks], have[node][None, :] // amount[asks][:, None])
    slots[share] = np.minimum(slots[share], cluster.node_gpus[node][None, :] * (WHOLE_GPU // milli[share])[:, None])
    slots[~allows] = 0
    pool_sizes = np.diff(pools.first)
    feasible = (np.minimum(slots, tasks[:, None]) * pool_sizes).sum(axis=1) >= tasks
    feasible &= tasks * milli <= tenants.most[tenant]
    jobs = np.bincount(of_job, minlength=len(first)).astype(np.int64)
    of_job = np.where(feasible[of_job], of_job, np.int32(-1)) if not feasible.all() else of_job
    return Classes(
        of_job, tasks, base, submitted, scaling, milli, cpu, mem, kind_set, partition, tenant, membership, blocked.estimates[length],
        allows & (slots > 0), slots, jobs, feasible,
    )  # fmt: skip


def _allowed(workload: Workload, cluster: Cluster, pools: Pools, kind_set: I64, partition: I64) -> NDArray[np.bool_]:
    """[C, P] whether kind and partitions let the class use the pool."""
    kind_names = [kind.name for kind in cluster.kinds]
    node_kind = cluster.node_kind[pools.example]
    by_set = np.ones((len(workload.kind_sets), len(pools)), bool)
    for index, names in enumerate(workload.kind_sets):
        if names:
            wanted = [kind_names.index(name) for name in names if name in kind_names]
            by_set[index] = np.isin(node_kind, wanted)
    allows: NDArray[np.bool_] = by_set[kind_set]
    for number, name in enumerate(workload.partitions):
        allows[partition == number] &= cluster.nodes_in(named_partitions(name))[pools.example]
    return allows


def number_queues(classes: Classes, workload: Workload, cluster: Cluster, pools: Pools) -> I64:
    """[C] the queue of each class: one per partition in the cluster's order, but one for all that share nodes or jobs."""
    if len(cluster.partitions) == 1 or (classes.partition == ANY_PARTITION).any():
        return np.zeros(len(classes), np.int64)
    place = {partition.name: p for p, partition in enumerate(cluster.partitions)}
    named = [[place[name] for name in named_partitions(label) if name in place] for label in workload.partitions]
    first = list(range(len(place)))  # the first partition of the queue that each partition is in
    by_nodes = [np.flatnonzero(row).tolist() for row in cluster.node_partitions[pools.example]]
    for members in (*by_nodes, *(named[p] for p in np.unique(classes.partition))):
        joined = {first[p] for p in members}
        if len(joined) > 1:
            first = [min(joined) if p in joined else p for p in first]
    queue_of = np.unique(first, return_inverse=True)[1]
    return np.array([queue_of[members[0]] if members else 0 for members in named], np.int64)[classes.partition]


def partition_columns(classes: Classes, workload: Workload, cluster: Cluster, pools: Pools, *, one_queue: bool) -> dict[str, I64]:
    """The queue of each class, the number of the set of partitions that it names, and the pools of each set. The last set is any."""
    sets = [cluster.nodes_in(named_partitions(name))[pools.example] for name in workload.partitions]
    return {
        "class_queue": np.zeros(len(classes), np.int64) if one_queue else number_queues(classes, workload, cluster, pools),
        "class_partitions": np.where(classes.partition == ANY_PARTITION, len(sets), classes.partition),
        "partition_pools": np.concatenate([*sets, np.ones(len(pools), bool)]).astype(np.int64),
    }


def pool_domains(cluster: Cluster, pools: Pools) -> I64:
    """[P] the partition of each pool, if no node is in two of them; otherwise 0."""
    inside = cluster.node_partitions[pools.example]
    return np.where((inside.sum(axis=1) == 1).all(), inside.argmax(axis=1), 0).astype(np.int64)


def within_one_domain(classes: Classes, pools: Pools, domain: I64) -> Classes:
    """Reject jobs that no domain can hold alone."""
    room = np.minimum(classes.empty_slots, classes.tasks[:, None]) * np.diff(pools.first)
    most = np.max([room[:, domain == d].sum(axis=1) for d in range(int(domain.max()) + 1)], axis=0)
    feasible = classes.feasible & (most >= classes.tasks)
    if feasible.all():
        return classes
    of_job = np.where((classes.of_job >= 0) & feasible[classes.of_job], classes.of_job, np.int32(-1)).astype(np.int32)
    return replace(classes, feasible=feasible, of_job=of_job)


def fewest_nodes(classes: Classes, pools: Pools) -> I64:
    """[C] nodes that a gang needs on the empty cluster, if the nodes with the most room are filled first."""
    sizes = np.diff(pools.first)
    fewest = np.ones(len(classes), np.int64)
    for c in np.flatnonzero(classes.feasible & (classes.empty_slots.max(axis=1) < classes.tasks)):
        left, used = int(classes.tasks[c]), 0
        for p in np.argsort(-classes.empty_slots[c]):
            room = int(classes.empty_slots[c, p])
            take = min(int(sizes[p]), -(-left // room))
            used, left = used + take, left - take * room
            if left <= 0:
                break
        fewest[c] = used
    return fewest


def pieces_of(classes: Classes, pools: Pools) -> I64:
    """[C] the most pieces that a gang of the class can have."""
    nodes: I64 = classes.allows.astype(np.int64) @ np.diff(pools.first)
    return np.where(classes.is_share, classes.tasks, np.minimum(classes.tasks, nodes))


def spans(classes: Classes) -> I64:
    """[C] how many tasks an elastic job may have beyond its fewest on the empty cluster, 0 for all other classes."""
    sizes = np.bincount(classes.base, weights=classes.feasible, minlength=len(classes)).astype(np.int64)
    return np.where(classes.base == np.arange(len(classes)), np.maximum(sizes - 1, 0), 0)


def time_scales(classes: Classes, workload: Workload) -> F64:
    """[C] runtime with the number of tasks of the class, relative to the number submitted."""
    scale = np.ones(len(classes))
    for number, curve in enumerate(workload.scalings):
        elastic = (classes.scaling == number) & (classes.tasks != classes.submitted)
        if elastic.any():
            scale[elastic] = speed(curve, classes.submitted[elastic]) / speed(curve, classes.tasks[elastic])
    return scale


def nodes_in_a_rack(classes: Classes, cluster: Cluster, pools: Pools) -> I64:
    """[C] the most allowed nodes that one rack holds."""
    racks = int(cluster.node_rack.max()) + 1
    counts = np.zeros((len(pools), racks), np.int64)
    np.add.at(counts, (pools.of_node, cluster.node_rack), 1)
    return np.maximum((classes.allows.astype(np.int64) @ counts).max(axis=1), 1)


def worst_factor(classes: Classes, cluster: Cluster, pools: Pools) -> F64:
    """[C] the greatest runtime factor that a gang can have."""
    speed = node_speed(cluster)[pools.example]
    slowest = np.where(classes.allows, speed[None, :], np.inf).min(axis=1)
    slowest = np.where((classes.milli > 0) & np.isfinite(slowest), slowest, 1.0)
    penalty = np.where(classes.tasks > 1, 1.0 + cluster.node_penalty + cluster.rack_penalty, 1.0)
    return penalty / slowest


def node_speed(cluster: Cluster) -> F64:
    return np.where(cluster.node_kind >= 0, np.append(cluster.speed, 1.0)[cluster.node_kind], 1.0)


def answered_by_pool(classes: Classes, cluster: Cluster, pools: Pools) -> NDArray[np.bool_]:
    """[C] True if only wholly free GPUs decide where the class fits."""
    if classes.is_share.any():
        return np.zeros(len(classes), bool)
    answer: NDArray[np.bool_] = classes.milli > 0
    for amount, have in ((classes.cpu, cluster.node_cpu_milli), (classes.mem, cluster.node_mem_mib)):
        open_ended = (~classes.allows | (have[pools.example] == UNLIMITED)[None, :]).all(axis=1)
        answer &= (amount == 0) | open_ended
    return answer


@dataclass(frozen=True)
class Trees:
    """The position of the queue tree of each class, which is the same for every order."""

    class_first: I64  # [C+1]
    levels: I64  # [C]
    level: I64  # [C * queue.MAX_LEVELS]
    size: int

    @classmethod
    def of(cls, classes: Classes) -> Trees:
        counts = np.bincount(classes.of_job[classes.of_job >= 0], minlength=len(classes)).astype(np.int64)
        levels = np.zeros(len(counts), np.int64)
        level = np.zeros((len(counts), queue.MAX_LEVELS), np.int64)
        size = 0
        for c, count in enumerate(counts):
            width = int(count)
            while True:
                level[c, levels[c]] = size
                levels[c] += 1
                padded = -(-max(width, 1) // FAN_OUT) * FAN_OUT
                size += padded
                if padded == FAN_OUT:
                    break
                width = padded // FAN_OUT
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), levels, level.ravel(), size)


def order_jobs(classes: Classes, trees: Trees, score: F64) -> tuple[I32, I32, I32]:
    """Rank of every job by (score, index), its leaf, and the job at each leaf."""
    num_jobs = len(score)
    rank = np.empty(num_jobs, np.int32)
    by_rank = stable_order(score).astype(np.int32)
    rank[by_rank] = np.arange(num_jobs, dtype=np.int32)
    number = classes.of_job[by_rank]
    # Few classes: 16-bit numbers make the stable sort a radix sort. Rejected jobs (-1) go last and have no leaf.
    keys = np.where(number < 0, len(classes), number)
    keys = keys.astype(np.uint16) if len(classes) < 1 << 16 else keys
    leaf_job = by_rank[np.argsort(keys, kind="stable")]
    leaf = np.empty(num_jobs, np.int32)
    leaf[leaf_job] = np.arange(num_jobs, dtype=np.int32) - np.append(trees.class_first[:-1], 0)[classes.of_job[leaf_job]].astype(np.int32)
    return rank, leaf, leaf_job


def empty_machine(cluster: Cluster, pools: Pools, pool_words: I64, pool_bits: I64) -> Machine:
    """The machine with all nodes free."""
    stride = int(cluster.node_gpus.max()) + 1
    gpus = cluster.node_gpus
    pool_gpus = gpus[pools.example]
    sizes = np.diff(pools.first)
    bucket = np.zeros((len(pools), stride), np.int64)
    bucket[np.arange(len(pools)), pool_gpus] = sizes
    slots = np.zeros((len(pools), stride), np.int64)
    slots[:, 1:] = sizes[:, None] * (pool_gpus[:, None] // np.arange(1, stride)[None, :])
    bits = np.zeros(int((pool_words * stride).sum()), np.uint64)
    for p in range(len(pools)):
        base = int(pool_bits[p] + pool_gpus[p] * pool_words[p])
        full, rest = divmod(int(sizes[p]), 64)
        bits[base : base + full] = np.uint64(0xFFFFFFFFFFFFFFFF)
        if rest:
            bits[base + full] = np.uint64((1 << rest) - 1)
    lengths = {"nodes": len(gpus), "gpu_slots": stride, "pools": len(pools), "pool_words": len(bits), "one": 1}
    return Machine.allocate(
        lengths,
        free_mask=((np.uint64(1) << gpus.astype(np.uint64)) - np.uint64(1)).view(np.int64),
        free_gpus=gpus.copy(),
        free_milli=gpus * WHOLE_GPU,
        free_cpu=cluster.node_cpu_milli.copy(),
        free_mem=cluster.node_mem_mib.copy(),
        pool_slots=slots.ravel(),
        bucket=bucket.ravel(),
        bits=bits.view(np.int64),
    )
