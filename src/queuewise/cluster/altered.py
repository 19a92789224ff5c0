"""The same cluster with more, fewer or other nodes: what `--add-nodes`, `--drain` and `queuewise size` replay on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from queuewise.cluster.conditions import Conditions, Outage
from queuewise.cluster.node_selection import entry_of, find_nodes, group_of, matching_nodes
from queuewise.cluster.spec import UNLIMITED, Cluster, check_count
from queuewise.errors import InputError, unknown_name
from queuewise.workload.plain_numbers import whole_number

PER_NODE = (
    "node_kind", "node_gpus", "node_cpu_milli", "node_mem_mib", "node_rack", "node_partitions", "node_idle_watts", "node_core_watts",
)  # fmt: skip


def node_groups(cluster: Cluster) -> dict[str, list[int]]:
    """The nodes of each group, by its name. Where groups of one name differ, as those of a log may, their numbers follow: cpn-0, cpn-1."""
    entries: dict[str, list[int]] = {}
    for n, name in enumerate(cluster.node_names):
        entries.setdefault(entry_of(name), []).append(n)
    names = [group_of(cluster.node_names[nodes[0]]) for nodes in entries.values()]
    return {entry if names.count(name) > 1 else name: nodes for name, (entry, nodes) in zip(names, entries.items(), strict=True)}


def nodes_in(cluster: Cluster, group: str) -> list[int]:
    """The nodes of a group, which are alike."""
    groups = node_groups(cluster)
    if group in groups:
        return groups[group]
    kinds = [f"{name} ({_describe(cluster, nodes)})" for name, nodes in groups.items() if name.rpartition("-")[0] == group]
    if kinds:
        raise InputError(f"the nodes of {group} differ", hint=f"one of {', '.join(kinds)}")
    raise unknown_name(f"group of nodes of {cluster.name}", group, groups)


def _describe(cluster: Cluster, nodes: Sequence[int]) -> str:
    cores, gpus = int(cluster.node_cpu_milli[nodes[0]]), int(cluster.node_gpus[nodes[0]])
    parts = [f"{len(nodes):,} {'node' if len(nodes) == 1 else 'nodes'}"]
    parts += [f"{cores / 1000:g} cores each"] if cores != UNLIMITED else []
    return ", ".join([*parts, f"{gpus} GPUs each"] if gpus else parts)


def parse_added(text: str) -> tuple[int, str]:
    """`4:c24` as a number of nodes and the group they are like."""
    count, colon, group = text.partition(":")
    number = whole_number(count)
    if not (colon and group and number and number < 10**6):
        raise InputError(f"--add-nodes {text!r} is not N:GROUP", hint="for example 4:c24: four more nodes like those of the group c24")
    return number, group


def add_nodes(cluster: Cluster, count: int, group: str) -> Cluster:
    """The cluster with `count` more nodes like those of a group. They come last, so all other nodes keep their numbers."""
    alike = nodes_in(cluster, group)
    check_count(cluster.name, cluster.num_nodes + count)
    like = alike[-1]
    columns: dict[str, Any] = {}
    for name in PER_NODE:
        values = getattr(cluster, name)
        columns[name] = np.concatenate([values, np.repeat(values[like : like + 1], count, axis=0)])
    columns["node_rack"][cluster.num_nodes :] = _racks(cluster, alike, count)
    prefix = cluster.node_names[like].rsplit("-", 1)[0]
    names = tuple(f"{prefix}-{k}" for k in range(len(alike), len(alike) + count))
    return replace(cluster, **columns, node_names=(*cluster.node_names, *names), name=f"{cluster.name} with {count:,} more {group}")


def _racks(cluster: Cluster, nodes: Sequence[int], count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Racks of added nodes: that of the group if it has one, otherwise new ones of its size."""
    racks, sizes = np.unique(cluster.node_rack[nodes], return_counts=True)
    if len(racks) == 1:
        return np.full(count, racks[0], np.int64)
    return int(cluster.node_rack.max()) + 1 + np.arange(count, dtype=np.int64) // int(sizes.max())


def resize_group(cluster: Cluster, group: str, count: int) -> Cluster:
    """The cluster with so many nodes in a group; nodes are taken away from its end. A single node without GPUs changes its cores."""
    if counts_cores(cluster):
        return replace(cluster, node_cpu_milli=np.array([count * 1000], np.int64), name=f"{cluster.name} with {count:,} cores")
    nodes = nodes_in(cluster, group)
    if count >= len(nodes):
        return add_nodes(cluster, count - len(nodes), group) if count > len(nodes) else cluster
    kept = np.ones(cluster.num_nodes, dtype=bool)
    kept[nodes[count:]] = False
    columns = {name: getattr(cluster, name)[kept] for name in PER_NODE}
    return replace(cluster, **columns, node_names=tuple(name for name, stays in zip(cluster.node_names, kept, strict=True) if stays))


def counts_cores(cluster: Cluster) -> bool:
    """Whether the cluster is one pool of processors, such as flat:256, so that its size is its number of cores."""
    return cluster.num_nodes == 1 and cluster.num_gpus == 0 and int(cluster.node_cpu_milli[0]) != UNLIMITED


def drain_nodes(conditions: Conditions, cluster: Cluster, patterns: Sequence[str], first: float) -> Conditions:
    """The conditions with these nodes drained from time `first` on: nothing starts there."""
    for pattern in patterns:
        find_nodes(cluster, pattern, "--drain")  # report a mistake before a replay
    drained = (Outage(node=pattern, start=first, end=float("inf"), kind="drain") for pattern in patterns)
    return conditions.model_copy(update={"outages": (*conditions.outages, *drained)})


def fit_conditions(conditions: Conditions, before: Cluster, after: Cluster) -> Conditions:
    """The conditions of a cluster for one of another size: without the nodes that it does not have. Numbers keep their nodes."""

    def present(entry: int | str, what: str) -> list[int | str]:
        names = {before.node_names[n] for n in find_nodes(before, entry, what)}
        if isinstance(entry, int):
            return [after.node_names.index(name) for name in names & set(after.node_names)]
        return [entry] if matching_nodes(after, entry) else []

    outages = [outage.model_copy(update={"node": node}) for outage in conditions.outages for node in present(outage.node, "an outage")]
    maintenance = []
    for window in conditions.maintenance:
        if nodes := [node for entry in window.nodes for node in present(entry, "maintenance")]:
            maintenance.append(window.model_copy(update={"nodes": tuple(nodes)}))
    reservations = []
    for one in conditions.reservations:
        one.nodes_on(before)  # report a mistake
        nodes = [node for entry in one.nodes for node in present(entry, one.title)]
        if nodes or not one.nodes:
            reservations.append(one.model_copy(update={"nodes": tuple(nodes)}).at_most_on(after))
    held = tuple(one for one in reservations if one is not None)
    return conditions.model_copy(update={"outages": tuple(outages), "maintenance": tuple(maintenance), "reservations": held})
