"""Write workloads as SWF, Parquet and generic CSV. Anything that a format cannot store is reported.

Parquet and CSV store everything, including name and epoch, and the generic readers read them back. SWF stores times, sizes, requests,
waits, and users, groups and names as numbers. Files are written under a temporary name and renamed, and compressed if the name ends in
`.gz`.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.runs import replacing
from queuewise.workload.frames import frame_of_workload
from queuewise.workload.jobs import ANY_PARTITION, UNKNOWN, Workload
from queuewise.workload.loaded import ClusterFacts

if TYPE_CHECKING:
    pass

MISSING = -1  # unknown value in SWF
MOST_DIGITS = 18  # of numbers in SWF
_KIB_PER_MIB = 1024


def write_workload(
    workload: Workload, path: str | os.PathLike[str], *, format: str | None = None, cluster: ClusterFacts | None = None
) -> list[str]:
    """Write the jobs. The format depends on the file name unless given. Returns notes on what the format cannot store."""
    target = Path(path)
    name = format or _format_of(target)
    if name not in WRITERS:
        raise unknown_name("output format", name, WRITERS)
    content, notes = WRITERS[name](workload, cluster)
    _save(target, content)
    return notes


def _format_of(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if not suffixes:
        raise InputError(
            "the format is unclear from the file name", where=str(path), hint=f"use a name that ends in .{', .'.join(WRITERS)}"
        )
    return suffixes[-1].lstrip(".").lower()


def _save(target: Path, content: bytes) -> None:
    with replacing(target) as temporary:
        temporary.write_bytes(gzip.compress(content, compresslevel=6) if target.suffix == ".gz" else content)


def _stored(workload: Workload) -> str:
    return json.dumps({"name": workload.name, "epoch": workload.epoch})


def _parquet(workload: Workload, cluster: ClusterFacts | None) -> tuple[bytes, list[str]]:
    import io

    buffer = io.BytesIO()
    frame_of_workload(workload).write_parquet(buffer, metadata={"queuewise": _stored(workload)})
    return buffer.getvalue(), []


def _csv(workload: Workload, cluster: ClusterFacts | None) -> tuple[bytes, list[str]]:
    table = frame_of_workload(workload)
    return f"# queuewise {_stored(workload)}\n{table.write_csv()}".encode(), []


def _swf(workload: Workload, cluster: ClusterFacts | None) -> tuple[bytes, list[str]]:
    import polars as pl

    num = len(workload)
    procs = np.ceil(workload.size)
    missing = np.full(num, MISSING)
    memory = np.ceil(workload.mem_mib * float(_KIB_PER_MIB) * workload.num_tasks / procs)
    fields = [
        workload.job_id if workload.job_id.dtype.kind == "i" and (workload.job_id >= 0).all() else np.arange(1, num + 1),
        workload.submit, _or_missing(workload.recorded_wait), workload.runtime, procs, missing, missing, procs,
        _or_missing(workload.requested), np.where(workload.mem_mib > 0, memory, MISSING), missing,
        _numbers(workload.user, workload.users), _numbers(workload.group, workload.groups),
        np.where(workload.job_name >= 0, workload.job_name + 1, MISSING), _numbers(workload.partition, workload.partitions),
        missing, missing, missing,
    ]  # fmt: skip
    table = pl.DataFrame({f"field_{index}": _whole(values) for index, values in enumerate(fields, 1)})
    header = ["; Version: 2.2", f"; Computer: {cluster.name if cluster else workload.name}", f"; MaxJobs: {num}", f"; MaxRecords: {num}"]
    header += [f"; UnixStartTime: {workload.epoch:.15g}"] if workload.epoch else []
    header += [f"; MaxProcs: {_procs(cluster)}"] if cluster and _procs(cluster) else []
    body = table.write_csv(include_header=False, separator=" ")
    return ("\n".join(header) + "\n" + body).encode(), _swf_losses(workload, procs)


def _or_missing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), MISSING, values)


def _numbers(codes: NDArray[np.int32], labels: Sequence[str]) -> NDArray[np.int64]:
    """The labels if all are numbers, so that a log read from SWF keeps them; otherwise codes from 1."""
    numbers = [int(label) if label.isdecimal() and len(label) <= MOST_DIGITS and str(int(label)) == label else None for label in labels]
    values = np.array([*range(1, len(labels) + 1), MISSING] if None in numbers else [*numbers, MISSING], dtype=np.int64)
    return values[codes]  # UNKNOWN is -1: the last entry


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """Integers if all values are whole, so that they are written without a decimal point."""
    return values.astype(np.int64) if (values == np.floor(values)).all() else np.ascontiguousarray(values, dtype=np.float64)


def _procs(cluster: ClusterFacts) -> int:
    """GPUs if the cluster has any, otherwise cores; 0 if unknown."""
    gpus = sum(node.count * node.gpus for node in cluster.nodes)
    cores = sum(node.count * node.cpus for node in cluster.nodes)
    return gpus or (int(cores) if np.isfinite(cores) else 0)


def _swf_losses(workload: Workload, procs: NDArray[np.float64]) -> list[str]:
    one_core = (workload.gpu_milli == 0) & (workload.cpu_milli == 1000)
    losses = {
        "jobs are stored only as a number of processors (GPUs or cores), without their tasks": ~one_core,
        "jobs request a fraction of a processor, which was rounded up": procs != workload.size,
        "jobs are restricted to GPU kinds, which SWF cannot store": workload.kind_set != 0,
        "jobs have a QoS, which SWF cannot store": workload.qos != UNKNOWN,
        "jobs have a priority, which SWF cannot store": workload.priority != 0,
        "jobs have a deadline, which SWF cannot store": ~np.isnan(workload.deadline),
        "jobs are elastic, which SWF cannot store": workload.is_elastic,
        "jobs depend on other jobs, which is not stored": np.isin(np.arange(len(workload)), workload.dependencies.job),
        "jobs are restricted to partitions, which are stored as queue numbers": workload.partition != ANY_PARTITION,
    }
    return [f"{int(lost.sum()):,} {text}" for text, lost in losses.items() if lost.any()]


WRITERS: dict[str, Callable[[Workload, ClusterFacts | None], tuple[bytes, list[str]]]] = {"swf": _swf, "parquet": _parquet, "csv": _csv}
