"""Nodes as users write them: a number, a name, the name of a group of nodes, or a pattern such as `c20-*`."""

from __future__ import annotations

from fnmatch import fnmatchcase

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError, did_you_mean

WILD = "*?["  # characters of patterns


def group_of(node_name: str) -> str:
    """The name of the group that a node belongs to: node names are <group>-<number of the group>-<number>."""
    return node_name.rsplit("-", 2)[0]


def entry_of(node_name: str) -> str:
    """Group and number of the group: nodes of one name that differ are told apart by it."""
    return node_name.rpartition("-")[0]


def matching_nodes(cluster: Cluster, entry: str) -> list[int]:
    """The nodes with this name or group, or else those of a numbered group or of a pattern; none if there are none."""
    names = cluster.node_names
    found = [n for n, name in enumerate(names) if entry in (name, group_of(name))]
    found = found or [n for n, name in enumerate(names) if entry == entry_of(name)]
    if not found and any(c in entry for c in WILD):
        found = [n for n, name in enumerate(names) if fnmatchcase(name, entry)]
    return found


def find_nodes(cluster: Cluster, entry: int | str, what: str) -> list[int]:
    """The nodes that an entry names, at least one. Errors begin with `what`, for example "outage"."""
    if isinstance(entry, int):
        if not 0 <= entry < cluster.num_nodes:
            hint = f"nodes are numbered 0 to {cluster.num_nodes - 1}"
            raise InputError(f"{what} names node {entry}, but {cluster.name} has {cluster.num_nodes} nodes", hint=hint)
        return [entry]
    names, found = cluster.node_names, matching_nodes(cluster, entry)
    if not found:
        groups = dict.fromkeys(map(group_of, names))
        near = did_you_mean(entry, [*groups, *names])
        raise InputError(
            f"{what} names node {entry!r}, which {cluster.name} does not have",
            hint=f"{near}node names are {names[0]}, …; groups: {', '.join(groups)}; a pattern such as {next(iter(groups))}-* is many nodes",
        )
    return found
