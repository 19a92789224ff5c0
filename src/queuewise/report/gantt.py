"""The data of the Gantt chart: an overview, and the packed bars that the page draws when zoomed in.

The overview is a grid of lanes (or groups of adjacent lanes) × time bins with the busy share, so a page with 100,000 jobs opens as quickly
as one with ten.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.evaluation.measure import Measurement
from queuewise.evaluation.timeline import binned_mean
from queuewise.report.lanes import NO_LANE_GPU, GanttBars, make_bars

OVERVIEW_ROWS = 128
OVERVIEW_COLUMNS = 320


def gantt_data(m: Measurement) -> dict[str, Any]:
    """For JSON. Times are seconds since the first submission."""
    bars = make_bars(m.schedule)
    lane, labels = _lanes(m, bars)
    first, lanes = _merge(bars, lane)
    jobs, local = np.unique(bars.job[first], return_inverse=True)
    return {
        "policy": m.schedule.policy,
        "span": m.span,
        "lanes": labels,
        "overview": _overview(bars, lane, len(labels), m.begin, m.end),
        "bars": {
            "lane": _pack(lane[first], np.uint32),
            "lanes": _pack(lanes, np.uint16),
            "job": _pack(local.ravel(), np.uint32),
            "start": _pack(bars.start[first] - m.begin, np.float64),
            "end": _pack(bars.end[first] - m.begin, np.float64),
        },
        "jobs": {
            "id": [str(job) for job in m.schedule.workload.job_id[jobs].tolist()],
            "size": _pack(m.schedule.workload.size[jobs], np.float32),
            "first_wait": _pack(m.schedule.first_wait[jobs], np.float32),
        },
    }


def _lanes(m: Measurement, bars: GanttBars) -> tuple[NDArray[np.int64], list[str]]:
    """The lane of every bar, and the lane names: every GPU of the cluster, then the node slots for jobs that use only cores."""
    cluster = m.schedule.cluster
    first = np.concatenate(([0], np.cumsum(cluster.node_gpus)))
    labels = [f"{cluster.node_names[n]} GPU {g}" for n in range(cluster.num_nodes) for g in range(int(cluster.node_gpus[n]))]
    lane = first[bars.node] + np.maximum(bars.gpu, 0)
    on_cores = np.flatnonzero(bars.gpu == NO_LANE_GPU)
    width = int(bars.slot[on_cores].max(initial=0)) + 1
    slots, which = np.unique(bars.node[on_cores] * width + bars.slot[on_cores], return_inverse=True)
    lane[on_cores] = len(labels) + which.ravel()
    labels += [f"{cluster.node_names[slot // width]} slot {slot % width}" for slot in slots.tolist()]
    return lane, labels


def _merge(bars: GanttBars, lane: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Merge bars of a job that are on adjacent lanes at the same time: the first bar of each group, and the number of lanes."""
    order = np.lexsort((lane, bars.start, bars.job))
    job, node, start, where = bars.job[order], bars.node[order], bars.start[order], lane[order]
    follows = (job[1:] == job[:-1]) & (node[1:] == node[:-1]) & (start[1:] == start[:-1]) & (where[1:] == where[:-1] + 1)
    opens = np.flatnonzero(np.concatenate(([True], ~follows)))[: len(order)]
    return order[opens], np.diff(np.concatenate((opens, [len(order)])))


def _overview(bars: GanttBars, lane: NDArray[np.int64], num_lanes: int, begin: float, end: float) -> dict[str, Any]:
    rows = max(min(OVERVIEW_ROWS, num_lanes), 1)
    row = lane * rows // max(num_lanes, 1)
    lanes_in_row = np.bincount(np.arange(num_lanes) * rows // max(num_lanes, 1), minlength=rows)
    edges = np.linspace(begin, end, OVERVIEW_COLUMNS + 1)
    order = np.argsort(row, kind="stable")
    bounds = np.searchsorted(row[order], np.arange(rows + 1))
    busy = np.zeros((rows, OVERVIEW_COLUMNS))
    for r in range(rows):
        mine = order[bounds[r] : bounds[r + 1]]
        busy[r] = binned_mean(bars.start[mine], bars.end[mine], 1.0, edges) / max(lanes_in_row[r], 1)
    return {"rows": rows, "columns": OVERVIEW_COLUMNS, "busy": _pack((np.minimum(busy, 1.0) * 255).round().ravel(), np.uint8)}


def _pack(values: NDArray[Any], dtype: type[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()).decode("ascii")
