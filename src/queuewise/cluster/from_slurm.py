"""The nodes of a Slurm cluster, from the output of `scontrol show node` or of `sinfo --json`.

Slurm 22.05 lists nodes in `sinfo --json`; newer versions list partitions with the nodes in each. Numbers may be plain or wrapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queuewise.cluster.described import DescribedCluster, DescribedGroup, common_name, known_kind, most_gpus
from queuewise.errors import InputError
from queuewise.workload.node_lists import expand_nodes
from queuewise.workload.plain_numbers import whole_number
from queuewise.workload.readers.slurm_json import unwrap
from queuewise.workload.readers.source import one_line, read_all

_WANTED = "the output of scontrol show node or of sinfo --json"
_FIELD = re.compile(r"(?:^|\s)(\w+)=(\S*)")
_GPU = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([A-Za-z][^:,(]*))?(?::(\d+))?(?:\([^)]*\))?")
_UNUSABLE = ("DOWN", "DRAIN", "FAIL", "INVAL")  # how words of states begin; POWERED_DOWN nodes are woken by Slurm


@dataclass(frozen=True)
class SlurmNode:
    name: str
    cpus: int
    mem_mib: int  # 0 or 1 if not configured
    gres: str
    partitions: tuple[str, ...]
    state: str


def describe_slurm(path: Path) -> DescribedCluster:
    """The cluster in a file with the output of Slurm. Equal nodes of the same partitions form a group."""
    text = read_all(path).decode("utf-8", errors="replace")
    nodes = _from_json(text, path) if text.lstrip().startswith("{") else _from_text(text, path)
    groups: dict[tuple[Any, ...], list[SlurmNode]] = {}
    for node in nodes:
        groups.setdefault((node.cpus, node.mem_mib, node.gres, node.partitions, common_name([node.name])), []).append(node)
    remarks = [
        f"Found in {path.name}: {len(nodes):,} nodes.",
        "cpus are Slurm's CPUs: hardware threads where ThreadsPerCore is above 1.",
    ]
    if unusable := [node.name for node in nodes if any(word.startswith(_UNUSABLE) for word in node.state.upper().split("+"))]:
        listed = ", ".join(unusable[:10]) + (", …" if len(unusable) > 10 else "")
        remarks.append(f"down or drained, and included: {listed} ({len(unusable):,} of {len(nodes):,} nodes)")
    described = tuple(_group(members) for members in groups.values())
    return DescribedCluster(path.stem, "from the output of Slurm, written by queuewise clusters from-slurm", tuple(remarks), described)


def _group(nodes: list[SlurmNode]) -> DescribedGroup:
    first = nodes[0]
    gpus, spelling, remarks = _gpus(first.gres)
    gpus, limit = most_gpus(gpus)
    kind, guess = known_kind(spelling) if gpus else ("", "")
    memory = first.mem_mib if first.mem_mib > 1 else 0
    if not memory:
        remarks.append("RealMemory is not configured, so memory is never the bottleneck")
    if not first.partitions:
        remarks.append("the nodes are in no partition; Queuewise puts them into the partition default")
    return DescribedGroup(
        count=len(nodes),
        cpus=first.cpus,
        gpus=gpus,
        kind=kind,
        mem_gib=memory / 1024 if memory else float("inf"),
        partitions=first.partitions,
        name=common_name([node.name for node in nodes]),
        remarks=tuple(text for text in (guess, limit, *remarks) if text),
    )


def _gpus(gres: str) -> tuple[int, str, list[str]]:
    """GPUs of a node, the spelling of their kind, and a remark if there are several kinds, as in `gpu:a100:8(S:0-1),gpu:t4:2`."""
    found = [(kind or "", int((count or "1")[:9])) for kind, count in _GPU.findall(gres)]  # most_gpus cuts it further
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    remarks = [f"guessed: the nodes have GPUs of several kinds ({', '.join(kinds)}), all are taken as the first"] if len(kinds) > 1 else []
    return sum(count for _, count in found), kinds[0] if kinds else "", remarks


def _counted(value: Any) -> int:
    """A whole number that a node can have of something; 0 for anything else."""
    return whole_number(str(int(value) if isinstance(value, float) and abs(value) < 1e9 else value)) or 0


# --- scontrol show node


def _from_text(text: str, path: Path) -> list[SlurmNode]:
    records = re.split(r"(?:^|\n)\s*(?=NodeName=)", text)
    nodes = [_from_record(record, path) for record in records if record.startswith("NodeName=")]
    if not nodes:
        raise InputError("no line begins with NodeName=", where=f"{path}:1", hint=f"expected {_WANTED}")
    return nodes


def _from_record(record: str, path: Path) -> SlurmNode:
    fields = dict(reversed(_FIELD.findall(record)))  # the first field with a name wins
    tres = dict(pair.partition("=")[::2] for pair in fields.get("CfgTRES", "").split(","))
    cpus = fields.get("CPUTot") or tres.get("cpu", "")
    if not _counted(cpus):
        raise InputError(f"node {fields['NodeName']!r} has no CPUTot", where=str(path), hint=f"expected {_WANTED}")
    memory, gres, partitions = (fields.get(name, "") for name in ("RealMemory", "Gres", "Partitions"))
    return SlurmNode(
        fields["NodeName"],
        _counted(cpus),
        _counted(memory),
        "" if gres == "(null)" else gres,
        tuple(sorted(name for name in partitions.split(",") if name)),
        fields.get("State", ""),
    )


# --- sinfo --json


def _from_json(text: str, path: Path) -> list[SlurmNode]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {one_line(error)}", where=str(path), hint=f"expected {_WANTED}") from None
    if isinstance(rows := document.get("nodes"), list):
        nodes = [_from_node(row) for row in rows if isinstance(row, dict)]
    elif isinstance(rows := document.get("sinfo"), list):
        nodes = _joined(node for row in rows if isinstance(row, dict) for node in _from_partition(row))
    else:
        raise InputError('the JSON has no list "nodes" or "sinfo"', where=str(path), hint=f"expected {_WANTED}")
    if not nodes:
        raise InputError("the JSON lists no node", where=str(path), hint=f"expected {_WANTED}")
    for node in nodes:
        if not node.name or node.cpus < 1:
            raise InputError(f"node {node.name!r} has no name or no CPUs", where=str(path), hint=f"expected {_WANTED}")
    return nodes


def _from_node(row: dict[str, Any]) -> SlurmNode:
    """An entry of Slurm 22.05, and of scontrol show node --json."""
    partitions = row.get("partitions")
    return SlurmNode(
        str(row.get("name") or row.get("hostname") or ""),
        _counted(unwrap(row.get("cpus"))),
        _counted(unwrap(row.get("real_memory"))),
        str(row.get("gres") or ""),
        tuple(sorted(map(str, partitions))) if isinstance(partitions, list) else (),
        f"{_words(row.get('state'))}+{_words(row.get('state_flags'))}",
    )


def _from_partition(row: dict[str, Any]) -> Iterable[SlurmNode]:
    """The nodes of an entry of newer versions: nodes in the same state, of one partition."""
    names, cpus, memory, gres, partition = (_table(row.get(key)) for key in ("nodes", "cpus", "memory", "gres", "partition"))
    listed = names.get("nodes")
    own = str(partition.get("name") or "")
    for entry in listed if isinstance(listed, list) else []:
        for name in expand_nodes(str(entry)):
            yield SlurmNode(
                name,
                _counted(unwrap(cpus.get("maximum"))),
                _counted(unwrap(memory.get("maximum"))),
                str(gres.get("total") or ""),
                (own,) if own else (),
                _words(_table(row.get("node")).get("state")),
            )


def _joined(nodes: Iterable[SlurmNode]) -> list[SlurmNode]:
    """One entry per node, with all its partitions."""
    found: dict[str, SlurmNode] = {}
    for node in nodes:
        before = found.get(node.name)
        partitions = set(node.partitions) | set(before.partitions if before else ())
        found[node.name] = replace(node, partitions=tuple(sorted(partitions)))
    return list(found.values())


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _words(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value or "")
