"""A replay as a trace for ui.perfetto.dev or chrome://tracing: one process per node, one thread per GPU, one slice per run of a job."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO

import numpy as np

from queuewise.report.lanes import NO_LANE_GPU, make_bars
from queuewise.runs import replacing
from queuewise.sim.core.schedule import Schedule

SLOTS = 1000  # thread ids per GPU: jobs that share a GPU get separate threads, because slices of a thread must not overlap


def write_trace(schedule: Schedule, path: Path) -> None:
    """Write `path` as gzipped JSON, which both viewers can open."""
    with replacing(path) as temporary, gzip.open(temporary, "wb", compresslevel=5) as file:
        _write_events(schedule, file)


def _write_events(schedule: Schedule, file: IO[bytes] | gzip.GzipFile) -> None:
    import polars as pl

    bars = make_bars(schedule)
    workload, cluster = schedule.workload, schedule.cluster
    thread = (bars.gpu + 1) * SLOTS + bars.slot
    origin = float(workload.submit[0]) if len(workload) else 0.0
    lanes = np.unique(np.column_stack((bars.node, thread)), axis=0)
    names = [
        {"ph": "M", "name": "process_name", "pid": int(n), "tid": 0, "args": {"name": cluster.node_names[n]}} for n in np.unique(bars.node)
    ] + [{"ph": "M", "name": "thread_name", "pid": int(n), "tid": int(t), "args": {"name": _thread_name(int(t))}} for n, t in lanes]
    events = pl.DataFrame(
        {
            "ph": pl.repeat("X", len(bars), eager=True),
            "name": pl.Series([str(job) for job in workload.job_id[bars.job].tolist()], dtype=pl.String),
            "cat": pl.repeat(schedule.policy, len(bars), eager=True),
            "pid": bars.node,
            "tid": thread,
            "ts": (bars.start - origin) * 1e6,
            "dur": (bars.end - bars.start) * 1e6,
            "args": pl.DataFrame(
                {
                    "size": workload.size[bars.job],
                    "first_wait_s": schedule.first_wait[bars.job],
                    "runtime_s": workload.runtime[bars.job],
                }
            ).to_struct("args"),
        }
    )
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    parts = [pl.DataFrame(names).write_ndjson()] if names else []
    parts += [events.write_ndjson()] if len(bars) else []
    file.write(",\n".join(",\n".join(part.splitlines()) for part in parts).encode())
    file.write(b"]}")


def _thread_name(thread: int) -> str:
    gpu, slot = thread // SLOTS - 1, thread % SLOTS
    if gpu == NO_LANE_GPU:
        return f"cores, slot {slot}"
    return f"GPU {gpu}" if slot == 0 else f"GPU {gpu}, share {slot}"
