"""A cluster as found in a log or in the output of Slurm, with remarks on what was guessed, and as a commented TOML file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from queuewise.cluster.cluster_loader import from_tables
from queuewise.cluster.gpus import gpu_kind
from queuewise.cluster.spec import MAX_GPUS_PER_NODE, Cluster
from queuewise.config import to_toml
from queuewise.errors import InputError

UNKNOWN_KIND = "MISC"  # stands for GPUs whose model is not known
_COMMENT_WIDTH = 118


@dataclass(frozen=True)
class DescribedGroup:
    """Equal nodes. An empty tuple of partitions means that none is known; unknown sizes are inf."""

    count: int
    cpus: float
    gpus: int = 0
    kind: str = ""
    mem_gib: float = float("inf")
    partitions: tuple[str, ...] = ()
    name: str = ""
    remarks: tuple[str, ...] = ()

    def table(self) -> dict[str, Any]:
        """The [[nodes]] table of a cluster file."""
        sizes: dict[str, Any] = {"count": self.count}
        if self.gpus:
            sizes |= {"gpus": self.gpus, "kind": self.kind}
        sizes |= {key: _plain(size) for key, size in (("cpus", self.cpus), ("mem_gib", self.mem_gib)) if 0 < size < float("inf")}
        if len(self.partitions) == 1:
            sizes["partition"] = self.partitions[0]
        elif self.partitions:
            sizes["partitions"] = list(self.partitions)
        return sizes | ({"name": self.name} if self.name else {})


@dataclass(frozen=True)
class DescribedCluster:
    name: str
    notes: str
    remarks: tuple[str, ...]  # where the figures come from and what was guessed
    groups: tuple[DescribedGroup, ...]

    def toml(self) -> str:
        """A cluster file, with the remarks as comments."""
        blocks = [_comments(self.remarks), to_toml({"name": self.name, "notes": self.notes})]
        blocks += [_comments(group.remarks) + to_toml({"nodes": [group.table()]}) for group in self.groups]
        return "\n".join(blocks)

    def build(self) -> Cluster:
        return from_tables({"name": self.name, "notes": self.notes, "nodes": [group.table() for group in self.groups]}, self.name)

    def summary(self) -> str:
        """Its size in a few words: 46 nodes, 380 cores, 2 GPUs, 3 partitions."""
        cores = sum(group.count * group.cpus for group in self.groups)
        counts = {
            "node": sum(group.count for group in self.groups),
            "core": round(cores) if cores < float("inf") else 0,
            "GPU": sum(group.count * group.gpus for group in self.groups),
            "partition": len({name for group in self.groups for name in group.partitions}),
        }
        return ", ".join(f"{count:,} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)


def known_kind(spelling: str) -> tuple[str, str]:
    """The catalogue's name of a GPU kind, or a stand-in, and a remark if it is one."""
    if not spelling:
        return UNKNOWN_KIND, f"guessed: the GPU model is not named, so kind is {UNKNOWN_KIND}; it sets the power of a GPU"
    try:
        return gpu_kind(spelling).name, ""
    except InputError:
        return UNKNOWN_KIND, f"guessed: the catalogue has no GPU {spelling!r}, so kind is {UNKNOWN_KIND}; it sets the power of a GPU"


def most_gpus(gpus: int) -> tuple[int, str]:
    """The GPUs of a node within the limit of the engine, and a remark if they exceed it."""
    if gpus <= MAX_GPUS_PER_NODE:
        return gpus, ""
    return MAX_GPUS_PER_NODE, f"a node has {gpus} GPUs, of which {MAX_GPUS_PER_NODE} are used, the most that a node can have here"


def common_name(names: Sequence[str]) -> str:
    """What the names of nodes have in common: cpn for cpn-f11-31 and cpn-f11-32; empty if they have nothing in common."""
    stems = {stem[0] for name in names if (stem := re.match(r"[A-Za-z_]+", name))}
    return stems.pop() if len(stems) == 1 else ""


def _plain(size: float) -> float | int:
    return int(size) if size == int(size) else size


def _comments(remarks: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for remark in remarks for line in textwrap.wrap(remark, _COMMENT_WIDTH))
