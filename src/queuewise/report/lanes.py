"""Bars and lanes of a Gantt chart: every run of a job on a GPU (or on a node, if it uses no GPU) is a bar on a lane.

A lane is one GPU of one node. Jobs that share a GPU or use only cores overlap in time, so each gets the lowest free *slot* of its GPU or
node.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import MAX_GPUS_PER_NODE
from queuewise.evaluation.measure import last_event
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import WHOLE_GPU

NO_LANE_GPU = -1  # gpu of a bar that uses only cores


@dataclass(frozen=True, eq=False)
class GanttBars:
    """Bars, sorted by node, GPU, slot and start. A job that is still running at the end of the replay is drawn up to that time."""

    job: NDArray[np.int64]  # [B]
    node: NDArray[np.int64]  # [B]
    gpu: NDArray[np.int64]  # [B] NO_LANE_GPU for cores
    gpus: NDArray[np.int64]  # [B] how many GPUs of the node the bar stands for; 0 for cores
    slot: NDArray[np.int64]  # [B]
    start: NDArray[np.float64]  # [B]
    end: NDArray[np.float64]  # [B]

    def __len__(self) -> int:
        return len(self.job)


def count_bars(schedule: Schedule) -> int:
    """The number of bars that `make_bars` would return."""
    return int(np.maximum(np.bitwise_count(schedule.piece_gpus), 1).sum())


def make_bars(schedule: Schedule, *, by_gpu: bool = True) -> GanttBars:
    """The bars of a schedule. Unless `by_gpu`, a piece is one bar, on the lane of the first of its GPUs."""
    masks = schedule.piece_gpus
    piece, gpu = _pieces_by_gpu(masks) if by_gpu else (np.arange(len(masks)), _first_gpu(masks))
    gpus = (gpu != NO_LANE_GPU).astype(np.int64) if by_gpu else np.bitwise_count(masks).astype(np.int64)
    job, node = schedule.piece_job[piece].astype(np.int64), schedule.piece_node[piece].astype(np.int64)
    start = schedule.piece_start[piece]
    end = np.minimum(schedule.piece_end[piece], max(last_event(schedule), 0.0) if len(piece) else 0.0)
    shares = (gpu == NO_LANE_GPU) | (schedule.workload.gpu_milli[job] < WHOLE_GPU)
    slot = np.zeros(len(piece), dtype=np.int64)
    slot[shares] = _free_slots(node[shares] * (MAX_GPUS_PER_NODE + 1) + gpu[shares] + 1, start[shares], end[shares])
    order = np.lexsort((start, slot, gpu, node))
    return GanttBars(job[order], node[order], gpu[order], gpus[order], slot[order], start[order], end[order])


def _pieces_by_gpu(masks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each piece once per GPU that it uses, or once with NO_LANE_GPU if it uses none."""
    pieces, gpus = [np.flatnonzero(masks == 0)], [np.full(int((masks == 0).sum()), NO_LANE_GPU)]
    for gpu in range(int(masks.max(initial=0)).bit_length()):
        users = np.flatnonzero((masks >> gpu) & 1)
        pieces.append(users)
        gpus.append(np.full(len(users), gpu))
    return np.concatenate(pieces), np.concatenate(gpus).astype(np.int64)


def _first_gpu(masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """[pieces] the lowest GPU of each piece, or NO_LANE_GPU."""
    lowest = np.bitwise_count((masks & -masks) - 1).astype(np.int64)
    return np.where(masks == 0, NO_LANE_GPU, lowest)


def _free_slots(place: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.int64]:
    """For every bar, the lowest slot of its place that is free from start to end."""
    slots = np.zeros(len(place), dtype=np.int64)
    busy: list[tuple[float, int]] = []  # (end, slot) of the bars of the current place
    free: list[int] = []
    used, current = 0, None
    order = np.lexsort((end, start, place))
    for row, where, begins, ends in zip(order.tolist(), place[order].tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        if where != current:
            busy, free, used, current = [], [], 0, where
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            slot = heapq.heappop(free)
        else:
            slot, used = used, used + 1
        slots[row] = slot
        heapq.heappush(busy, (ends, slot))
    return slots
