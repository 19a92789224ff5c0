"""Digests of what the results of a run depend on: the jobs, the cluster, and the files behind a policy name.

They depend on contents, not on names: a log, a policy file or a model that has changed has another digest.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.policies.model_file import find_model
from queuewise.policies.names import MODEL, found_rule, parse_policy
from queuewise.policies.user_code import is_reference
from queuewise.workload.jobs import COLUMNS, Workload
from queuewise.workload.readers.source import open_bytes

DIGEST_BYTES = 12
RULE = ""  # the digest of a policy that is fully defined by its name


def digest_workload(workload: Workload) -> str:
    waits = workload.dependencies
    names = (workload.kind_sets, workload.partitions, workload.users, workload.groups, workload.qos_names, workload.scalings)
    columns = (np.asarray(getattr(workload, column)) for column in COLUMNS)
    return digest(*columns, waits.job, waits.on, waits.kind, waits.delay, _as_bytes((*names, workload.epoch)))


def digest_log(path: Path) -> str:
    """Digest of the content of a log's file, without its compression."""
    with open_bytes(path) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()  # type: ignore[arg-type]


def digest_cluster(cluster: Cluster) -> str:
    arrays = [value for field in fields(cluster) if isinstance(value := getattr(cluster, field.name), np.ndarray)]
    if (cluster.node_partitions.sum(axis=1) == 1).all():  # the index of the partition, as runs of earlier versions have it
        arrays = [value.argmax(axis=1) if value is cluster.node_partitions else value for value in arrays]
    facts = (cluster.kinds, cluster.partitions, cluster.virtual_clusters, cluster.node_penalty, cluster.rack_penalty)
    return digest(*arrays, _as_bytes(facts))


def digest_policy(policy: str) -> str:
    """Digest of the files behind a policy name: a model, parameters of Slurm, or the user's file and those that it imports."""
    if not policy.startswith(MODEL) and not is_reference(policy) and "+slurm:" not in policy:
        return RULE
    parsed = parse_policy(policy)
    rule = found_rule(policy)
    files = [find_model(parsed.model)] if parsed.model else [] if rule is None else [rule]
    files += [Path(parsed.slurm_config).expanduser()] if parsed.slurm_config else []
    files += sorted({file for own in parsed.own for file in _with_neighbours(own.file)})
    return digest(*(np.frombuffer(file.read_bytes(), np.uint8) for file in files))


def digest(*arrays: np.ndarray[Any, Any]) -> str:
    """A short digest of the values."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for array in arrays:
        if array.dtype == object:
            array = array.astype(np.str_)
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).data if array.dtype.kind != "U" else "\0".join(array.tolist()).encode())
    return state.hexdigest()


def _as_bytes(facts: object) -> np.ndarray[Any, Any]:
    return np.frombuffer(repr(facts).encode(), dtype=np.uint8)


def _with_neighbours(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """A Python file and the modules in its folder that it imports."""
    if path in seen:
        return
    yield path
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            neighbour = path.parent / f"{name}.py"
            if neighbour.is_file():
                yield from _with_neighbours(neighbour, seen | {path})
