"""Load a cluster by name: a preset, `flat:N`, `farm:N,…`, `NxM:kind`, or a TOML file.

docs/clusters.md describes the file format. Presets are files of the same format that are included in the package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from queuewise.cluster.farm import PREFIX, SHAPE, parse_farm
from queuewise.cluster.gpus import gpu_kind
from queuewise.cluster.spec import LARGEST, MOST_NODES, Cluster, NodeGroup, VirtualCluster, build, check_group
from queuewise.config import Config, line_of, read_toml, validate
from queuewise.errors import InputError, unknown_name
from queuewise.workload.loaded import ClusterFacts

SHAPES = {
    "flat:N": "one node with N cores and no GPU, for logs that count processors",
    SHAPE: "N hosts without GPUs, drawn at random within ranges of cores and GiB",
    "NxM:kind": "N nodes with M GPUs of one kind, e.g. 250x8:V100-16",
}


class NodeGroupFile(Config):
    """One [[nodes]] table: the fields of `NodeGroup`."""

    count: int = Field(ge=0, le=MOST_NODES)
    gpus: int = Field(default=0, ge=0)
    kind: str = ""
    cpus: float = Field(default=float("inf"), gt=0)
    mem_gib: float = Field(default=float("inf"), gt=0)
    partition: str = "default"
    partitions: tuple[str, ...] = ()
    nodes_per_rack: int = Field(default=0, ge=0, le=MOST_NODES)
    idle_watts: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    core_watts: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    name: str = ""


class VirtualClusterFile(Config):
    """One [[virtual_clusters]] table: the fields of `VirtualCluster`."""

    name: str
    guaranteed_gpus: float = Field(ge=0, le=LARGEST)
    max_gpus: float = Field(default=float("inf"), ge=0)

    @field_validator("max_gpus")
    @classmethod
    def _is_limited_or_not(cls, value: float) -> float:
        if LARGEST < value < float("inf"):
            raise ValueError(f"at most {LARGEST:,.0f}, or inf for no limit")
        return value


class ClusterFile(Config):
    """A whole cluster file."""

    name: str = ""  # default: the name of the file
    notes: str = ""
    node_penalty: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    rack_penalty: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    speeds: dict[str, float] = Field(default_factory=dict)
    nodes: tuple[NodeGroupFile, ...] = ()
    virtual_clusters: tuple[VirtualClusterFile, ...] = ()


def load_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """The cluster with this name (preset, `flat:N`, `NxM:kind`) or in this TOML file."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise InputError(
            f"cluster is {type(name_or_path).__name__} {name_or_path!r:.60}",
            hint="pass a name such as '4x8:V100-16' or 'flat:256', or a .toml file",
        )
    presets, name_or_path = _presets(), os.fspath(name_or_path)
    if name_or_path in presets:
        with resources.as_file(presets[name_or_path]) as path:
            return _from_file(path)
    if shape := re.fullmatch(r"flat:(\d+)", name_or_path):
        return build(name_or_path, [NodeGroup(count=1, cpus=_positive(shape[1], name_or_path), name="flat")])
    if shape := re.fullmatch(r"(\d+)x(\d+):(.+)", name_or_path):
        nodes, gpus = _positive(shape[1], name_or_path), _positive(shape[2], name_or_path)
        return build(name_or_path, [NodeGroup(count=nodes, gpus=gpus, kind=gpu_kind(shape[3]).name)])
    if name_or_path.startswith(PREFIX):
        farm = parse_farm(name_or_path)
        return farm.draw(farm.seed or 0)
    if name_or_path.endswith(".toml") or Path(name_or_path).is_file():
        return _from_file(Path(name_or_path))
    if name_or_path.isdecimal():
        hint = f"write flat:{name_or_path} for so many cores, or 32x8:A100-80 for nodes with GPUs"
        raise InputError(f"cluster {name_or_path!r} is a number", hint=hint)
    raise unknown_name("cluster", name_or_path, [*presets, *SHAPES, "a .toml file"])


def from_facts(facts: ClusterFacts) -> Cluster:
    """The cluster described in a log."""
    return build(facts.name, [NodeGroup(**asdict(group)) for group in facts.nodes], notes=facts.notes)


def preset_names() -> list[str]:
    """Names of the clusters included in the package."""
    return sorted(_presets())


def _presets() -> dict[str, Traversable]:
    folder = resources.files("queuewise.cluster") / "presets"
    return {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}


def from_tables(tables: Mapping[str, Any], source: str) -> Cluster:
    """The cluster in the tables of a cluster file, as plain data. Errors name `source`."""
    file = validate(ClusterFile, tables, source=source)
    return _build(file, file.name or source, [NodeGroup(**group.model_dump()) for group in file.nodes])


def _from_file(path: Path) -> Cluster:
    file = read_toml(path, ClusterFile)
    name = file.name or path.stem
    groups = [NodeGroup(**group.model_dump()) for group in file.nodes]
    with _errors_at(path, "nodes"):
        if not any(group.count for group in groups):
            raise InputError(f"cluster {name!r} has no nodes", hint="add a [[nodes]] table with count = 1 or more")
    for index, group in enumerate(groups):
        with _errors_at(path, "nodes", index):
            check_group(name, group)
    with _errors_at(path, "speeds"):
        return _build(file, name, groups)


def _build(file: ClusterFile, name: str, groups: Sequence[NodeGroup]) -> Cluster:
    return build(
        name,
        groups,
        speeds=file.speeds,
        virtual_clusters=[VirtualCluster(**tenant.model_dump()) for tenant in file.virtual_clusters],
        node_penalty=file.node_penalty,
        rack_penalty=file.rack_penalty,
        notes=file.notes,
    )


@contextmanager
def _errors_at(path: Path, *location: int | str) -> Iterator[None]:
    """Add this location in the file to errors raised inside the block."""
    try:
        yield
    except InputError as error:
        where = f"{path}:{line_of(path.read_text(encoding='utf-8'), location)}"
        raise InputError(error.message, where=where, hint=error.hint) from None


def _positive(digits: str, name: str) -> int:
    value = int(digits) if len(digits) <= 9 else 0
    if value < 1:
        raise InputError(f"cluster {name!r}: {digits} is not between 1 and 999999999", hint="for example flat:256 or 250x8:V100-16")
    return value
