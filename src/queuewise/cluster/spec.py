"""A cluster: its nodes and their resources. Pure data, without the state of a running simulation.

`build` makes a cluster from groups of equal nodes, as listed in TOML files and presets. All arrays are indexed by node, in the order of the
groups: "lowest host first" means lowest index here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.gpus import GpuKind, gpu_kind
from queuewise.errors import InputError, unknown_name
from queuewise.memory import check_memory
from queuewise.workload.jobs import SEPARATOR

NO_GPU = -1  # kind of a node without GPUs
MAX_GPUS_PER_NODE = 63  # GPUs of a node are bits of one signed 64-bit word
Number = TypeVar("Number", bound=np.generic)
UNLIMITED = 1 << 40  # milli cores or MiB of a node without a stated limit: never the bottleneck
LARGEST = 1e9  # cores, GiB or watts of a node; GPUs of a virtual cluster
MOST_NODES = 10_000_000
NODE_BYTES = 400  # memory per node: 150 in this module, and what a replay adds
FACTORS = 1e-6, 1e6  # least and greatest relative speed; the greatest penalty


@dataclass(frozen=True)
class NodeGroup:
    """`count` equal nodes, as listed in a cluster file."""

    count: int
    gpus: int = 0
    kind: str = ""  # GPU kind, required when gpus > 0
    cpus: float = float("inf")  # cores; inf: unlimited, never the bottleneck
    mem_gib: float = float("inf")  # the same
    partition: str = "default"
    partitions: tuple[str, ...] = ()  # instead of `partition`, for nodes in several
    nodes_per_rack: int = 0  # 0: the whole group is in one rack
    idle_watts: float = 0.0  # of the node, without its GPUs
    core_watts: float = 0.0  # additional, per core in use
    name: str = ""  # node names are <name>-<group>-<number>

    @property
    def member_of(self) -> tuple[str, ...]:
        """The partitions that the nodes are in."""
        return self.partitions or (self.partition,)


@dataclass(frozen=True)
class Partition:
    """A set of nodes that jobs may be limited to. Nodes may be in several."""

    name: str


@dataclass(frozen=True)
class VirtualCluster:
    """A tenant (a `group` of the workload) with a share of the cluster's GPUs."""

    name: str
    guaranteed_gpus: float
    max_gpus: float = float("inf")  # guaranteed GPUs plus those it may borrow


@dataclass(frozen=True, eq=False)
class Cluster:
    name: str
    kinds: tuple[GpuKind, ...]  # K kinds present
    speed: NDArray[np.float64]  # [K] relative to the reference kind
    node_kind: NDArray[np.int64]  # [N] index into kinds, NO_GPU
    node_gpus: NDArray[np.int64]  # [N]
    node_cpu_milli: NDArray[np.int64]  # [N]
    node_mem_mib: NDArray[np.int64]  # [N]
    node_rack: NDArray[np.int64]  # [N]
    node_partitions: NDArray[np.bool_]  # [N, number of partitions] which of them the node is in
    node_idle_watts: NDArray[np.float64]  # [N] without GPUs
    node_core_watts: NDArray[np.float64]  # [N]
    node_names: tuple[str, ...]
    partitions: tuple[Partition, ...]
    virtual_clusters: tuple[VirtualCluster, ...] = ()
    node_penalty: float = 0.0  # added to the runtime factor if a gang uses more nodes than necessary
    rack_penalty: float = 0.0  # the same for racks
    notes: str = ""

    def __repr__(self) -> str:
        cores = "unlimited" if self.num_cores == float("inf") else f"{self.num_cores:,.0f}"
        return f"Cluster({self.name}: {self.num_nodes:,} nodes, {self.num_gpus:,} GPUs, {cores} cores)"

    @property
    def num_nodes(self) -> int:
        return len(self.node_gpus)

    @property
    def num_gpus(self) -> int:
        return int(self.node_gpus.sum())

    def nodes_in(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """[N] whether the node is in one of these partitions. A name that the cluster does not have is that of no node."""
        wanted = set(names)
        chosen = [p for p, partition in enumerate(self.partitions) if partition.name in wanted]
        inside: NDArray[np.bool_] = np.asarray(self.node_partitions[:, chosen].any(axis=1))
        return inside

    @property
    def idle_draw(self) -> NDArray[np.float64]:
        """[N] watts of each node with its GPUs, awake and idle."""
        per_gpu = np.array([kind.idle_watts for kind in self.kinds] + [0.0])[self.node_kind]  # NO_GPU is the last
        draw: NDArray[np.float64] = self.node_idle_watts + self.node_gpus * per_gpu
        return draw

    @property
    def num_cores(self) -> float:
        """Cores of all nodes; inf if a node has no limit."""
        return float("inf") if (self.node_cpu_milli == UNLIMITED).any() else float(self.node_cpu_milli.sum()) / 1000

    @property
    def mem_gib(self) -> float:
        """Memory of all nodes; inf if a node has no limit."""
        return float("inf") if (self.node_mem_mib == UNLIMITED).any() else float(self.node_mem_mib.sum()) / 1024


def build(
    name: str,
    groups: Sequence[NodeGroup],
    *,
    speeds: dict[str, float] | None = None,
    virtual_clusters: Sequence[VirtualCluster] = (),
    node_penalty: float = 0.0,
    rack_penalty: float = 0.0,
    notes: str = "",
) -> Cluster:
    """A cluster with these groups of nodes, in order. `speeds` maps kind names to relative speeds (default: 1.0)."""
    if sum(group.count for group in groups) == 0:
        raise InputError(f"cluster {name!r} has no nodes", hint="add at least one node group with count >= 1")
    for group in groups:
        check_group(name, group)
    check_count(name, sum(group.count for group in groups))
    if not (0 <= node_penalty <= FACTORS[1] and 0 <= rack_penalty <= FACTORS[1]):
        raise InputError(
            f"cluster {name!r}: penalties must be between 0 and {FACTORS[1]:,.0f}",
            hint="for example 0.1, with which a spread gang runs 10 % longer",
        )
    if speeds and not all(FACTORS[0] <= speed <= FACTORS[1] for speed in speeds.values()):
        raise InputError(
            f"cluster {name!r}: speeds must be positive numbers from {FACTORS[0]:f} to {FACTORS[1]:,.0f}",
            hint="the speed of the reference kind is 1.0",
        )
    kind_names = list(dict.fromkeys(gpu_kind(group.kind).name for group in groups if group.gpus and group.count))
    speed_of = {gpu_kind(kind).name: speed for kind, speed in (speeds or {}).items()}
    unknown_speeds = set(speed_of) - set(kind_names)
    if unknown_speeds:
        raise unknown_name("GPU kind in speeds", min(unknown_speeds), kind_names)
    partitions = list(dict.fromkeys(name for group in groups if group.count for name in group.member_of))
    counts = [group.count for group in groups]

    def per_node(values: Sequence[float], dtype: type[Number]) -> NDArray[Number]:
        return np.repeat(np.asarray(values, dtype=dtype), counts)

    return Cluster(
        name=name,
        kinds=tuple(gpu_kind(kind) for kind in kind_names),
        speed=np.array([speed_of.get(kind, 1.0) for kind in kind_names], dtype=np.float64),
        node_kind=per_node([kind_names.index(gpu_kind(g.kind).name) if g.gpus and g.count else NO_GPU for g in groups], np.int64),
        node_gpus=per_node([g.gpus for g in groups], np.int64),
        node_cpu_milli=per_node([_amount(g.cpus, 1000) for g in groups], np.int64),
        node_mem_mib=per_node([_amount(g.mem_gib, 1024) for g in groups], np.int64),
        node_rack=_racks(groups),
        node_partitions=np.repeat([[name in g.member_of for name in partitions] for g in groups], counts, axis=0),
        node_idle_watts=per_node([g.idle_watts for g in groups], np.float64),
        node_core_watts=per_node([g.core_watts for g in groups], np.float64),
        node_names=tuple(f"{g.name or g.kind or 'node'}-{i}-{k}" for i, g in enumerate(groups) for k in range(g.count)),
        partitions=tuple(Partition(p) for p in partitions),
        virtual_clusters=tuple(virtual_clusters),
        node_penalty=node_penalty,
        rack_penalty=rack_penalty,
        notes=notes,
    )


def check_count(name: str, nodes: int) -> None:
    hint = "describe many small nodes as fewer large ones"
    check_memory(f"cluster {name!r}: {nodes:,} nodes", nodes * NODE_BYTES, hint=hint)
    if nodes > MOST_NODES:
        raise InputError(f"cluster {name!r} has {nodes:,} nodes, but at most {MOST_NODES:,} are supported", hint=hint)


def _amount(value: float, per_unit: int) -> int:
    return UNLIMITED if value == float("inf") else round(value * per_unit)


def check_group(cluster: str, group: NodeGroup) -> None:
    """Raise an error for an invalid group."""
    where = f"cluster {cluster!r}, node group {group.name or group.kind or 'without a name'!r}"
    sizes = (group.count, group.gpus, group.cpus, group.mem_gib, group.nodes_per_rack, group.idle_watts, group.core_watts)
    if not all(size >= 0 for size in sizes):
        raise InputError(f"{where}: a count, size or power is negative or not a number", hint="use 0 or more")
    if any(LARGEST < amount < float("inf") for amount in (group.cpus, group.mem_gib, group.idle_watts, group.core_watts)):
        raise InputError(f"{where}: more than {LARGEST:,.0f} cores, GiB or watts", hint="cpus = inf and mem_gib = inf mean no limit")
    if group.partitions and group.partition != "default":
        raise InputError(f"{where}: both partition and partitions are given", hint=f"write partitions = {list(group.partitions)} alone")
    if wrong := [name for name in group.member_of if not name.strip() or SEPARATOR in name]:
        raise InputError(f"{where}: {wrong[0]!r} is no name of a partition", hint='partitions = ["a", "b"] are two, without commas inside')
    if group.gpus > MAX_GPUS_PER_NODE:
        raise InputError(f"{where}: {group.gpus} GPUs per node are too many", hint=f"at most {MAX_GPUS_PER_NODE} are supported")
    if group.gpus and not group.kind:
        raise InputError(f"{where}: nodes with GPUs need a kind", hint='for example kind = "V100-16"')
    if group.gpus:
        gpu_kind(group.kind)
    elif not (0 < group.cpus < float("inf") or 0 < group.mem_gib < float("inf")):
        raise InputError(f"{where}: the nodes have no resources", hint="add gpus and kind, or cpus, or mem_gib")


def _racks(groups: Sequence[NodeGroup]) -> NDArray[np.int64]:
    racks: list[NDArray[np.int64]] = []
    next_rack = 0
    for group in groups:
        local = np.arange(group.count) // (group.nodes_per_rack or max(group.count, 1))
        racks.append(local.astype(np.int64) + next_rack)
        next_rack += int(local[-1]) + 1 if group.count else 0
    return np.concatenate(racks)
