"""The columns of a snapshot straight from the JSON of a request, as `Snapshot.to_json` writes it.

Whatever is missing, more, of another type or not plain is left to `Snapshot.from_plain`, which accepts it or says what is wrong with it.
What is accepted here has the same meaning there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from queuewise.cluster.spec import Cluster
from queuewise.errors import QueuewiseError
from queuewise.policies.snapshot import VERSION, History, JobRecord, NodeRecord, NodeShape, RunningJob, WaitingJob
from queuewise.serve.snapshot_cluster import cluster_of_shapes
from queuewise.serve.snapshot_columns import JOB_COLUMNS, SnapshotColumns, are_ids, mask_of, node_columns

LISTS = {list}
NO_MEMORY: tuple[list[Any], ...] = ([], [[]], [[], []])
TIMES: set[type] = {int, float}
WHOLE: set[type] = {int}
WHOLE_OR_NONE = {int, type(None)}
TEXT_OR_NONE: set[type] = {str, type(None)}
TIMES_OR_NONE: set[type] = {int, float, type(None)}
_KINDS: list[set[type]] = [TIMES, TIMES, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, TIMES, *3 * (TIMES_OR_NONE,)]
TYPES: dict[str, set[type]] = {
    **dict(zip(JOB_COLUMNS, _KINDS, strict=True)),
    **dict.fromkeys(("partition", "user", "account", "qos"), TEXT_OR_NONE),
}
TIMES_OF_RUNS = ("start", "begin", "expected_end", "first_start")
PARTS = {"now", "queue", "running", "nodes", "history", "epoch", "version"}


def _plain(value: Any) -> dict[str, Any]:
    """As JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(value)))
    return found


_JOB = JobRecord("", 0.0, 0.0, 1, 1, 1, 0, 1, 0, 0.0)
WAITS = _plain(WaitingJob(_JOB))
RUNS = _plain(RunningJob(_JOB, 0.0, 0.0, 0.0, (), first_start=0.0))
NODE = _plain(NodeRecord(0, "up"))
NOTHING_LEARNED = _plain(History())
NUMBER_OF_FIELDS = len(fields(JobRecord))


def columns_of_request(content: Mapping[str, Any]) -> tuple[SnapshotColumns, Cluster] | None:
    """The columns and the cluster; None if the content is not the plain one of a snapshot."""
    if content.keys() != PARTS or content["version"] != VERSION or not _are_numbers(content["now"], content["epoch"]):
        return None
    try:
        return _columns(content)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError):
        return None


def _columns(content: Mapping[str, Any]) -> tuple[SnapshotColumns, Cluster] | None:
    queue, running = content["queue"], content["running"]
    if not queue or {type(queue), type(running), type(content["nodes"])} != LISTS or not _is_nothing(content["history"]):
        return None
    if not _are_like(queue, WAITS, ("job",)) or not _are_like(running, RUNS, ("job", *TIMES_OF_RUNS, "places")):
        return None
    records = [one["job"] for one in queue] + [one["job"] for one in running]
    ids = [job["job_id"] for job in records]
    jobs = _job_columns(records)
    found = _nodes(content["nodes"])
    if jobs is None or found is None or not are_ids(ids):
        return None
    nodes, cluster = found
    runs = [tuple([one[name] for name in TIMES_OF_RUNS]) for one in running]
    pieces = [(r, n, tasks, mask_of(tuple(gpus))) for r, one in enumerate(running) for n, tasks, gpus in one["places"]]
    if not _are_numbers(*[time for run in runs for time in run]) or not {type(value) for piece in pieces for value in piece} <= WHOLE:
        return None
    demands = [
        (job["num_tasks"], job["gpu_milli"], job["cpu_milli"], job["mem_mib"], tuple(job["kinds"]), job["partition"]) for job in records
    ]
    held = np.array(pieces, np.int64).reshape(-1, 4)
    times = np.array(runs, np.float64).reshape(-1, 4)
    return SnapshotColumns(
        float(content["now"]), ids, jobs, demands, lambda name: [job[name] for job in records], times, held, nodes
    ), cluster


def _are_like(rows: Sequence[dict[str, Any]], usual: Mapping[str, Any], but_for: Sequence[str]) -> bool:
    """Whether they have exactly the usual fields and values, but for the values of some fields."""
    wanted = dict(usual)
    for row in rows:
        for name in but_for:
            wanted[name] = row[name]  # is compared at once, because it is the same object
        if row != wanted:
            return False
    return True


def _is_nothing(history: dict[str, Any]) -> bool:
    """Whether policies have learned nothing."""
    counts = history["starts"], history["decisions"]
    if not set(map(type, counts)) <= WHOLE or min(counts) < 0 or max(counts) >= 2**62 or history["memory"] not in NO_MEMORY:
        return False
    return _are_like([history], NOTHING_LEARNED, ("starts", "decisions", "memory"))


def _are_numbers(*values: Any) -> bool:
    return set(map(type, values)) <= TIMES


def _job_columns(records: Sequence[dict[str, Any]]) -> Any:
    """[J, …] as in `pass_tables`."""
    columns = [[job[name] for job in records] for name in TYPES]
    if any(not set(map(type, column)) <= kinds for column, kinds in zip(columns, TYPES.values(), strict=True)):
        return None
    kinds = [job["kinds"] for job in records]
    if not set(map(type, kinds)) <= LISTS or any(type(kind) is not str for one in kinds if one for kind in one):
        return None
    if {*map(len, records)} != {NUMBER_OF_FIELDS}:
        return None
    return np.array(columns[: len(JOB_COLUMNS)], np.float64).T.copy()


_shapes: TypeAdapter[tuple[NodeShape, ...]] = TypeAdapter(tuple[NodeShape, ...])
_latest: list[tuple[list[Any], Cluster]] = []  # the last shapes as they were sent, and their cluster


def _nodes(rows: Sequence[dict[str, Any]]) -> tuple[Any, Cluster] | None:
    """The columns of the nodes, and the cluster that they are."""
    if not _are_like(rows, NODE, ("index", "state", "free_gpus", "free_cpu_milli", "free_mem_mib", "shape")):
        return None
    if [row["index"] for row in rows] != list(range(len(rows))):
        return None
    free_cpu, free_mem = [row["free_cpu_milli"] for row in rows], [row["free_mem_mib"] for row in rows]
    free_gpus = [row["free_gpus"] for row in rows]
    if not set(map(type, free_gpus)) <= LISTS or not {*map(type, free_cpu), *map(type, free_mem)} <= WHOLE_OR_NONE:
        return None
    shapes = [row["shape"] for row in rows]
    cluster = next((cluster for known, cluster in _latest if known == shapes), None)
    if cluster is None:
        cluster = _cluster(shapes)
    return (
        None
        if cluster is None
        else (node_columns([row["state"] for row in rows], list(map(tuple, free_gpus)), free_cpu, free_mem), cluster)
    )


def _cluster(shapes: list[Any]) -> Cluster | None:
    try:
        cluster = cluster_of_shapes(_shapes.validate_python(shapes))
    except (ValidationError, QueuewiseError):
        return None
    _latest[:] = [(shapes, cluster)]
    return cluster
