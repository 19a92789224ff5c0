"""The cluster on which a log was recorded, found in what its jobs had: node lists if the log has them, otherwise the most in use at once.

A log shows what was used, never what was there. So the result is a lower bound with guesses, and it says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.cluster_loader import from_facts
from queuewise.cluster.described import DescribedCluster, DescribedGroup, common_name, known_kind, most_gpus
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.workload.jobs import UNKNOWN, WHOLE_GPU, Workload, named_partitions
from queuewise.workload.loaded import ClusterFacts, Loaded, Recorded
from queuewise.workload.node_lists import expand_nodes

GPUS_PER_NODE = 8  # guessed where the log names no nodes and no job had more on one node
_CORES, _GPUS, _MEMORY = range(3)  # columns of amounts: milli cores, milli GPUs, MiB


def cluster_of_log(loaded: Loaded, source: str) -> tuple[Cluster, str]:
    """The cluster that the log describes, otherwise the one that its jobs had, and a remark if it is the latter.

    All commands use this if they are given no cluster. `loaded` must hold what was recorded (`ReadOptions.recorded`).
    """
    if loaded.cluster is not None:
        return from_facts(loaded.cluster), ""
    described = describe_log(loaded, source)
    return described.build(), f"no --cluster given: using what the jobs of the log had, {described.summary()} (queuewise clusters from-log)"


def describe_log(loaded: Loaded, source: str) -> DescribedCluster:
    """The cluster that the log describes, otherwise the one that its jobs had."""
    if loaded.cluster is not None:
        return _described_in(loaded.cluster)
    recorded, workload = loaded.recorded, loaded.workload
    hint = "add --cluster NAME; see queuewise clusters"
    if recorded is None:  # a model
        raise InputError(f"{source} does not describe its cluster", hint=hint)
    started = ~np.isnan(workload.recorded_wait)
    if not started.any():
        raise InputError(f"{source} neither describes its cluster nor records when its jobs started", hint=hint)
    ran = started & (workload.runtime > 0)
    if not ran.any():
        raise InputError(f"no job in {source} ran longer than 0 s", hint=hint)
    nodes = [_readable_nodes(text) for text in recorded.node_lists]
    placed = ran & np.isin(recorded.node_list, [code for code, names in enumerate(nodes) if names])
    remarks = [f"Found in {workload.name}: {int(ran.sum()):,} jobs that ran. A log shows what was used, not what was there."]
    if placed.any():
        groups = _groups_of_nodes(workload, recorded, nodes, np.flatnonzero(placed))
        remarks.append("Nodes: all that the log's node lists name. Nodes on which no job ran are missing.")
        remarks.append(
            "Cores, GPUs and memory: the most that jobs had at the same time on any node of the group, where nodes with the same "
            "partitions and similar names are taken as equal. Nodes that were never full may be larger."
        )
        if int(ran.sum()) > int(placed.sum()):
            remarks.append(f"{int(ran.sum()) - int(placed.sum()):,} jobs without a readable node list were left out.")
    else:
        groups = _groups_of_peaks(workload, recorded, ran)
        remarks.append(
            "The log names no nodes. Guessed: nodes as large as the largest task, as many as were needed for the most in use at once."
        )
    notes = "found in what the jobs of a log had; the comments of queuewise clusters from-log say what was guessed"
    return DescribedCluster(workload.name, notes, tuple(remarks), tuple(groups))


def _described_in(facts: ClusterFacts) -> DescribedCluster:
    groups = (
        DescribedGroup(node.count, node.cpus, node.gpus, node.kind, node.mem_gib, (node.partition,), node.name) for node in facts.nodes
    )
    return DescribedCluster(facts.name, facts.notes, (f"As the log or its tables describe it: {facts.notes}.",), tuple(groups))


# --- the most in use at once


def peak_use(
    owner: NDArray[np.integer], start: NDArray[np.float64], end: NDArray[np.float64], amounts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[O, R] the most that each owner (0 to O − 1, each at least once) had in use at once of the `amounts` [I, R].

    Interval i belongs to owner[i] and uses amounts[i] from start[i] until just before end[i]. Empty intervals use nothing.
    """
    owners = int(owner.max()) + 1
    lasting = end > start
    owner, start, end, amounts = owner[lasting], start[lasting], end[lasting], amounts[lasting]
    times, who, change = np.concatenate([start, end]), np.concatenate([owner, owner]), np.concatenate([amounts, -amounts])
    begins = np.repeat([True, False], len(owner))
    order = np.lexsort((begins, times, who))  # at equal times, ends come first
    used = np.cumsum(change[order], axis=0)  # an owner's changes add up to 0, so every owner begins at 0
    peaks = np.zeros((owners, amounts.shape[1]), np.int64)
    np.maximum.at(peaks, who[order], used)
    return peaks


def _amounts(workload: Workload, rows: NDArray[np.intp], parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[I, 3] what the jobs at `rows` had, divided by `parts`, rounded up."""
    tasks = workload.num_tasks[rows].astype(np.int64)
    whole = np.stack([tasks * amount[rows] for amount in (workload.cpu_milli, workload.gpu_milli, workload.mem_mib)], axis=1)
    return -(-whole // parts[:, None])


def _interval(workload: Workload, rows: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    start = workload.submit[rows] + workload.recorded_wait[rows]
    return start, start + workload.runtime[rows]


# --- from node lists


@dataclass(frozen=True)
class _SeenNode:
    name: str
    partitions: tuple[str, ...]
    spelling: str  # of the GPU kind, empty if unknown
    peak: NDArray[np.int64]  # [3]


def _readable_nodes(text: str) -> tuple[str, ...]:
    """The nodes in a list of the log; none if the list is broken."""
    try:
        return expand_nodes(text)
    except InputError:
        return ()


def _groups_of_nodes(
    workload: Workload, recorded: Recorded, lists: Sequence[tuple[str, ...]], jobs: NDArray[np.intp]
) -> list[DescribedGroup]:
    alike: dict[tuple[tuple[str, ...], str, bool, str], list[_SeenNode]] = {}
    for node in _seen_nodes(workload, recorded, lists, jobs):
        pattern = re.sub(r"\d+", "#", node.name)
        alike.setdefault((node.partitions, pattern, bool(node.peak[_GPUS]), node.spelling), []).append(node)
    return [_group_of(nodes) for nodes in alike.values()]


def _seen_nodes(workload: Workload, recorded: Recorded, lists: Sequence[tuple[str, ...]], jobs: NDArray[np.intp]) -> list[_SeenNode]:
    """The nodes on which these jobs ran, by name. `lists` are the nodes of `recorded.node_lists`."""
    number = {name: index for index, name in enumerate(sorted({name for names in lists for name in names}))}
    members = [np.array([number[name] for name in names]) for names in lists]
    on = [members[code] for code in recorded.node_list[jobs]]
    width = np.array([len(nodes) for nodes in on])
    node, row = np.concatenate(on), np.repeat(jobs, width)
    seen, node = np.unique(node, return_inverse=True)
    peaks = peak_use(node, *_interval(workload, row), _amounts(workload, row, np.repeat(width, width)))
    partitions = _partitions(_labels(node, recorded.partition[row], recorded.partitions, len(seen)))
    kind_of = np.where([len(kinds) == 1 for kinds in workload.kind_sets], np.arange(len(workload.kind_sets)), UNKNOWN)
    single = tuple(kinds[0] if len(kinds) == 1 else "" for kinds in workload.kind_sets)
    asked = _labels(node, np.where(workload.gpu_milli[row] > 0, kind_of[workload.kind_set[row]], UNKNOWN), single, len(seen))
    given = _labels(node, recorded.gpu_kind[row], recorded.gpu_kinds, len(seen))
    names, kinds = list(number), [had or wanted for had, wanted in zip(given, asked, strict=True)]
    return [_SeenNode(names[at], partitions[i], kinds[i][0] if len(kinds[i]) == 1 else "", peaks[i]) for i, at in enumerate(seen.tolist())]


def _labels(owner: NDArray[np.integer], code: NDArray[np.integer], labels: Sequence[str], owners: int) -> list[tuple[str, ...]]:
    """The labels that each owner has, sorted."""
    found: list[set[str]] = [set() for _ in range(owners)]
    for who, what in np.unique(np.stack([owner, code]), axis=1).T.tolist():
        if what != UNKNOWN:
            found[who].add(labels[what])
    return [tuple(sorted(names)) for names in found]


def _partitions(labels: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The partitions of each node. A job that names several ran in one of them, so they count where nothing else is known."""
    found = []
    for of_node in labels:
        several = [names for names in map(named_partitions, of_node) if len(names) > 1]
        known = {name for name in of_node if named_partitions(name) == (name,)}
        found.append(tuple(sorted(known.union(*(names for names in several if not known & set(names))))))
    return found


def _group_of(nodes: Sequence[_SeenNode]) -> DescribedGroup:
    peaks = np.array([node.peak for node in nodes])
    cores, gpus_milli, mem_mib = peaks.max(axis=0).tolist()
    gpus, remark = most_gpus(-(-gpus_milli // WHOLE_GPU))
    kind, guess = known_kind(nodes[0].spelling) if gpus else ("", "")
    below = int((peaks[:, _CORES] < cores).sum())
    remarks = [text for text in (guess, remark) if text]
    if below:
        least = peaks[:, _CORES].min() / 1000
        remarks.append(f"guessed: {below} of {len(nodes)} nodes had fewer cores in use, the least {least:g}; they may be smaller")
    return DescribedGroup(
        count=len(nodes),
        cpus=-(-cores // 1000) or float("inf"),
        gpus=gpus,
        kind=kind,
        mem_gib=mem_mib / 1024 if mem_mib else float("inf"),
        partitions=nodes[0].partitions,
        name=common_name([node.name for node in nodes]),
        remarks=tuple(remarks),
    )


# --- from the most in use at once


def _groups_of_peaks(workload: Workload, recorded: Recorded, ran: NDArray[np.bool_]) -> list[DescribedGroup]:
    """One group per partition."""
    jobs = np.flatnonzero(ran)
    codes, owner = np.unique(recorded.partition[jobs], return_inverse=True)
    peaks = peak_use(owner, *_interval(workload, jobs), _amounts(workload, jobs, np.ones(len(jobs), np.int64)))
    groups = []
    for index, code in enumerate(codes.tolist()):
        partitions = named_partitions(recorded.partitions[code]) if code != UNKNOWN else ()
        mine = jobs[owner == index]
        kinds = {recorded.gpu_kinds[kind] for kind in recorded.gpu_kind[mine].tolist() if kind != UNKNOWN}
        groups.append(_group_of_peak(workload, mine, peaks[index], partitions, kinds.pop() if len(kinds) == 1 else ""))
    return groups


def _group_of_peak(
    workload: Workload, jobs: NDArray[np.intp], peak: NDArray[np.int64], partitions: tuple[str, ...], given: str
) -> DescribedGroup:
    """Nodes for these jobs, on which they had at most `peak` at once, of GPUs of the kind `given` if that is known."""
    task = np.stack([amount[jobs] for amount in (workload.cpu_milli, workload.gpu_milli, workload.mem_mib)], axis=1).astype(np.int64)
    node, remarks = task.max(axis=0), []
    if not peak[_GPUS] and node[_CORES] <= 1000:  # jobs of one-core tasks: processors of one flat machine
        node = peak.copy()
    if peak[_GPUS]:
        fitting, remark = most_gpus(max(GPUS_PER_NODE, -(-int(node[_GPUS]) // WHOLE_GPU)))
        remarks += [text for text in (f"guessed: {fitting} GPUs per node, the log does not say", remark) if text]
        with_gpus = task[task[:, _GPUS] >= WHOLE_GPU]
        filled = with_gpus * (fitting * WHOLE_GPU // with_gpus[:, _GPUS])[:, None]  # as many of these tasks as a node has GPUs for
        node = np.concatenate([task, filled]).max(axis=0)
        node[_GPUS] = fitting * WHOLE_GPU
    count = max(int((-(-peak // np.maximum(node, 1)))[node > 0].max()), _most_nodes(task, workload.num_tasks[jobs], node))
    node = np.maximum(node, -(-peak // count))
    kind, guess = known_kind(given or _only_kind(workload, jobs)) if peak[_GPUS] else ("", "")
    used = {"cores": peak[_CORES] / 1000, "GPUs": peak[_GPUS] / 1000, "GiB": peak[_MEMORY] / 1024}
    remarks.append("the most in use at once: " + ", ".join(f"{amount:,.6g} {unit}" for unit, amount in used.items() if amount))
    return DescribedGroup(
        count=count,
        cpus=-(-int(node[_CORES]) // 1000) or float("inf"),
        gpus=int(node[_GPUS]) // 1000,
        kind=kind,
        mem_gib=int(node[_MEMORY]) / 1024 if node[_MEMORY] else float("inf"),
        partitions=partitions,
        name="" if peak[_GPUS] else "node",
        remarks=(*([guess] if guess else []), *remarks),
    )


def _most_nodes(task: NDArray[np.int64], num_tasks: NDArray[np.int32], node: NDArray[np.int64]) -> int:
    """The nodes that the job needs that needs most of them, alone on the machine."""
    slots = np.where(task > 0, node // np.maximum(task, 1), np.iinfo(np.int64).max).min(axis=1)
    return int((-(-num_tasks.astype(np.int64) // np.maximum(slots, 1))).max())


def _only_kind(workload: Workload, jobs: NDArray[np.intp]) -> str:
    """The GPU kind that all jobs with one name, or an empty string."""
    kinds = {workload.kind_sets[code] for code in np.unique(workload.kind_set[jobs]).tolist()} - {()}
    return next(iter(kinds))[0] if len(kinds) == 1 and len(next(iter(kinds))) == 1 else ""
