"""A snapshot as columns of numbers, for the fast pass.

What a column cannot hold (jobs that were stopped, parts of GPUs, nodes that sleep, what policies have learned) makes a snapshot not plain.
Whether what remains contradicts itself is checked by `pass_tables.fill_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from queuewise.policies.pass_tables import CLOSED, FREE_CPU, FREE_GPUS, FREE_MEM, NO_AMOUNT
from queuewise.policies.snapshot import History, JobId, NodeRecord, Progress, Snapshot
from queuewise.policies.snapshot import mask_of as bits_set
from queuewise.policies.snapshot_checks import MOST_GPUS
from queuewise.serve.job_positions import natural_key
from queuewise.sim.core.tables import F64, I64

Demand = tuple[int, int, int, int, tuple[str, ...], str | None]  # tasks, what each takes, GPU kinds and partition
JOB_COLUMNS = (
    "submit", "estimate", "num_tasks", "min_tasks", "max_tasks", "gpu_milli", "cpu_milli", "mem_mib", "priority", "requested", "deadline",
    "predicted",
)  # fmt: skip  # of `pass_tables`
MOST_MASKS = 1 << 16  # that are remembered
STATES = {"up": 0, "drained": 1, "down": 1}

FRESH = Progress()
NOTHING_LEARNED = History()


@dataclass(slots=True)
class SnapshotColumns:
    """Axes: J jobs, those that wait first; R running ones; P their pieces; N nodes. Columns as in `pass_tables`."""

    now: float
    ids: Sequence[JobId]  # [J]
    jobs: F64  # [J, …]
    demands: Sequence[Demand]  # [J]
    named: Callable[[str], list[Any]]  # [J] the values of a field
    runs: F64  # [R, …]
    pieces: I64  # [P, …]
    nodes: I64  # [N, …]

    @property
    def waiting(self) -> int:
        return len(self.ids) - len(self.runs)

    def rows(self) -> I64:
        """[J] the place of each job in a log: by submission, then by id."""
        submit = self.jobs[:, 0]
        order = np.argsort(submit, kind="stable")
        at = submit[order]
        if (at[1:] == at[:-1]).any():
            keys = [natural_key(job_id) for job_id in self.ids]
            order = np.array(sorted(range(len(keys)), key=lambda k: (submit[k], keys[k])))
        rows = np.empty(len(order), np.int64)
        rows[order] = np.arange(len(order))
        return rows


# Attributes are read in comprehensions, one by one: that takes half as long as attrgetter, or a tuple per job or node.


def columns_of(snapshot: Snapshot) -> SnapshotColumns | None:
    """The columns; None if the snapshot is not plain."""
    queue, running = snapshot.queue, snapshot.running
    records = [one.job for one in snapshot.jobs]
    ids = [job.job_id for job in records]
    if not queue or not are_ids(ids) or not _are_fresh(snapshot):
        return None
    try:
        nodes = _node_columns(snapshot.nodes)
        runs = np.array([(one.start, one.begin, one.expected_end, one.first_start) for one in running], np.float64).reshape(-1, 4)
        pieces = [(r, n, tasks, mask_of(gpus)) for r, one in enumerate(running) for n, tasks, gpus in one.places]
        numbers = [
            (
                job.submit, job.estimate, job.num_tasks, job.min_tasks, job.max_tasks, job.gpu_milli, job.cpu_milli, job.mem_mib,
                job.priority, job.requested, job.deadline, job.predicted,
            )
            for job in records
        ]  # fmt: skip
        jobs = np.array(numbers, np.float64)
        held = np.array(pieces, np.int64).reshape(-1, 4)
    except (KeyError, OverflowError, ValueError, TypeError):
        return None
    if nodes is None:
        return None
    demands = [(job.num_tasks, job.gpu_milli, job.cpu_milli, job.mem_mib, job.kinds, job.partition) for job in records]
    return SnapshotColumns(snapshot.now, ids, jobs, demands, lambda name: [getattr(job, name) for job in records], runs, held, nodes)


def _are_fresh(snapshot: Snapshot) -> bool:
    """Whether no job was ever stopped or waits for anything but its turn, and policies have learned nothing."""
    history = snapshot.history
    if any(history.memory) or replace(history, starts=0, decisions=0, memory=()) != NOTHING_LEARNED:
        return False
    if any(one.runs or (one.progress is not FRESH and one.progress != FRESH) for one in snapshot.jobs):
        return False
    return not any(
        one.awaits_others or one.committed or one.planned_places or one.first_start is not None or one.released_at is not None
        or one.promoted_at is not None or one.held_until is not None or one.planned_start is not None
        for one in snapshot.queue
    )  # fmt: skip


def _node_columns(nodes: Sequence[NodeRecord]) -> I64 | None:
    if [node.index for node in nodes] != list(range(len(nodes))):
        return None
    shared, asleep = [node.shared_gpus for node in nodes], [node.asleep for node in nodes]
    if any(shared) or any(asleep):
        return None
    for times in ([node.idle_since for node in nodes], [node.awake_at for node in nodes]):
        if times.count(None) < len(times):
            return None
    free_gpus = [node.free_gpus for node in nodes]
    amounts = [node.free_cpu_milli for node in nodes], [node.free_mem_mib for node in nodes]
    return node_columns([node.state for node in nodes], free_gpus, *amounts)


def node_columns(states: list[str], free_gpus: list[Any], free_cpu: list[int | None], free_mem: list[int | None]) -> I64:
    """[N, …] the columns. A KeyError, ValueError, OverflowError or TypeError if a value cannot be."""
    columns = np.empty((len(states), 4), np.int64)
    columns[:, CLOSED] = [STATES[state] for state in states] if states.count("up") < len(states) else 0
    try:
        columns[:, FREE_GPUS] = [_masks[gpus] for gpus in free_gpus]
    except KeyError:
        columns[:, FREE_GPUS] = [mask_of(gpus) for gpus in free_gpus]
    for at, amounts in ((FREE_CPU, free_cpu), (FREE_MEM, free_mem)):
        known: list[Any] = [NO_AMOUNT if one is None else one for one in amounts] if None in amounts else amounts
        columns[:, at] = known
    return columns


_masks: dict[tuple[int, ...], int] = {}


def mask_of(gpus: tuple[int, ...]) -> int:
    """Numbers of GPUs as bits. A ValueError if one is named twice or cannot be."""
    if gpus not in _masks:
        if len(set(gpus)) < len(gpus) or not all(0 <= gpu < MOST_GPUS for gpu in gpus):
            raise ValueError("numbers of GPUs are from 0 to 63, each once")
        if len(_masks) >= MOST_MASKS:
            _masks.clear()
        _masks[gpus] = int(bits_set(gpus))
    return _masks[gpus]


def are_ids(ids: Collection[Any]) -> bool:
    """Whether these can be the ids of one snapshot."""
    if len(set(ids)) < len(ids):
        return False
    kinds = set(map(type, ids))
    if kinds == {int}:
        return bool(min(ids) >= -(2**63) and max(ids) < 2**63)
    return kinds == {str} and "\0" not in "".join(ids)
