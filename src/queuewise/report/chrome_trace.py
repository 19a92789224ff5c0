"""A replay as a trace for ui.perfetto.dev or chrome://tracing: one process per node, one thread per GPU, one slice per run of a job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import MAX_GPUS_PER_NODE, Cluster
from queuewise.report.lanes import NO_LANE_GPU, GanttBars, count_bars, make_bars
from queuewise.runs import replacing
from queuewise.sim.core.schedule import Schedule

SLOTS = 1000  # thread ids per GPU: jobs that share a GPU get separate threads, because slices of a thread must not overlap
MAX_SLICES = 1_000_000  # with more, a job has one slice per node, on the first of its GPUs there: viewers open no more
SLICES_AT_ONCE = 200_000  # are in memory as text


def write_trace(schedule: Schedule, path: Path) -> None:
    """Write `path` as gzipped JSON, which both viewers can open."""
    bars = make_bars(schedule, by_gpu=count_bars(schedule) <= MAX_SLICES)
    thread = (bars.gpu + 1) * SLOTS + bars.slot
    with replacing(path) as temporary, gzip.open(temporary, "wb", compresslevel=1) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        file.write(b",\n".join(json.dumps(event).encode() for event in _names(bars, thread, schedule.cluster)))
        for first in range(0, len(bars), SLICES_AT_ONCE):
            file.write(b",\n" + _slices(schedule, bars, thread, slice(first, first + SLICES_AT_ONCE)))
        file.write(b"]}")


def _names(bars: GanttBars, thread: NDArray[np.int64], cluster: Cluster) -> list[dict[str, Any]]:
    """Events that name nodes and lanes."""
    lanes = np.unique(bars.node * (MAX_GPUS_PER_NODE + 1) * SLOTS + thread)
    nodes, threads = np.divmod(lanes, (MAX_GPUS_PER_NODE + 1) * SLOTS)
    return [
        {"ph": "M", "name": "process_name", "pid": n, "tid": 0, "args": {"name": cluster.node_names[n]}}
        for n in dict.fromkeys(nodes.tolist())
    ] + [
        {"ph": "M", "name": "thread_name", "pid": n, "tid": t, "args": {"name": _thread_name(t)}}
        for n, t in zip(nodes.tolist(), threads.tolist(), strict=True)
    ]


def _slices(schedule: Schedule, bars: GanttBars, thread: NDArray[np.int64], rows: slice) -> bytes:
    import polars as pl

    workload, job, start = schedule.workload, bars.job[rows], bars.start[rows]
    facts = {
        "size": workload.size[job],
        "gpus_here": bars.gpus[rows],
        "first_wait_s": schedule.first_wait[job],
        "runtime_s": workload.runtime[job],
    }
    events = pl.DataFrame(
        {
            "ph": pl.repeat("X", len(job), eager=True),
            "name": pl.Series(workload.job_id[job]).cast(pl.String),
            "cat": pl.repeat(schedule.policy, len(job), eager=True),
            "pid": bars.node[rows],
            "tid": thread[rows],
            "ts": (start - float(workload.submit[0])) * 1e6,
            "dur": (bars.end[rows] - start) * 1e6,
            "args": pl.DataFrame(facts).to_struct("args"),
        }
    )
    return events.write_ndjson().rstrip("\n").replace("\n", ",\n").encode()  # names contain no line ends: JSON escapes them


def _thread_name(thread: int) -> str:
    gpu, slot = thread // SLOTS - 1, thread % SLOTS
    if gpu == NO_LANE_GPU:
        return f"cores, slot {slot}"
    return f"GPU {gpu}" if slot == 0 else f"GPU {gpu}, share {slot}"
