"""Benchmarks of reading logs and drawing from models; each part writes benchmarks/results/PART.json.

    python benchmarks/workloads.py                        all parts, some minutes
    python benchmarks/workloads.py reading --rows 100000  one of them, smaller than published, to try it out; give --results too

`reading` makes its SWF file in a temporary folder (0.6 GB at full size) and reads HPC2N from ../shared/traces, or where QUEUEWISE_TRACES
says. Every reading and drawing is a process of its own, so that its peak memory is its own. Seconds are those of the clock, and of the
processor beside them: the first are too many where other programs run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.runs import write_text
from queuewise.workload.models import generate, model_names
from queuewise.workload.readers.swf import COLUMNS

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
FULL_ROWS = 10_000_000
DRAWN_JOBS = 1_000_000
PIECE_ROWS = 1_000_000
REPEATS = 3  # processes started; the quickest counts

Figures = dict[str, Any]

READ_PROBE = """
import json, sys, time
from queuewise.cli import bench
from queuewise.workload import load_workload
begin, busy = time.perf_counter(), time.process_time()
loaded = load_workload(sys.argv[1])
took = {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - busy}
print(json.dumps({"rows": loaded.tally.rows_read, "jobs": len(loaded.workload), **took, "peak_memory_mib": bench.peak_memory_mib()}))
"""

DRAW_PROBE = """
import json, sys, time
from queuewise.cli import bench
from queuewise.workload.models import generate
generate(sys.argv[1], 1000)
begin, busy = time.perf_counter(), time.process_time()
jobs = len(generate(sys.argv[1], int(sys.argv[2])))
took = {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - busy}
print(json.dumps({"model": sys.argv[1], "jobs": jobs, **took, "peak_memory_mib": bench.peak_memory_mib()}))
"""

INFO_PROBE = """
import resource, subprocess, sys, time, json
begin = time.perf_counter()
subprocess.run([sys.executable, "-m", "queuewise", "workload", "info", sys.argv[1], "--json"], stdout=subprocess.DEVNULL, check=True)
seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_memory_mib": used.ru_maxrss / 1024}))
"""


def reading(rows: int) -> Figures:
    """A large SWF file, and `queuewise workload info` on HPC2N as a whole command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.swf"
        write_swf(path, rows)
        large = {"file_mib": path.stat().st_size / 2**20, **_best(READ_PROBE, str(path))}
    traces = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    return {"large": large, "info": _best(INFO_PROBE, str(traces / "swf" / "HPC2N-2002-2.2-cln.swf.gz"))}


def drawing(rows: int) -> Figures:
    """A tenth as many jobs from every model."""
    return {"models": [_best(DRAW_PROBE, name, str(rows * DRAWN_JOBS // FULL_ROWS)) for name in model_names()]}


def write_swf(path: Path, rows: int) -> None:
    """Jobs of the model `lublin`, piece after piece, with the blanks and fields that archives have."""
    with path.open("wb") as file:
        file.write(b"; Version: 2.2\n; MaxProcs: 256\n")
        begin = 0.0
        for first in range(0, rows, PIECE_ROWS):
            jobs = generate("lublin", min(PIECE_ROWS, rows - first), seed=first)
            columns: dict[str, Any] = dict.fromkeys(COLUMNS, -1) | {
                "job": np.arange(first + 1, first + len(jobs) + 1), "submit": np.round(begin + jobs.submit).astype(np.int64),
                "run": np.round(jobs.runtime).astype(np.int64), "procs": jobs.num_tasks, "req_procs": jobs.num_tasks,
                "req_time": np.round(jobs.runtime * 2).astype(np.int64), "status": 1, "user": np.arange(len(jobs)) % 257,
                "group": np.arange(len(jobs)) % 31,
            }  # fmt: skip
            pl.DataFrame(columns).write_csv(file, separator=" ", include_header=False)
            begin += float(jobs.submit[-1])


def _best(probe: str, *arguments: str) -> Figures:
    runs = []
    for _ in range(REPEATS):
        done = subprocess.run([sys.executable, "-c", probe, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return dict(min(runs, key=lambda run: run["seconds"]))


PARTS: dict[str, Callable[[int], Figures]] = {"reading": reading, "drawing": drawing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=FULL_ROWS, help="rows of the large file; a tenth as many jobs are drawn, %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        note(f"— {name}")
        machine = bench.describe_machine()
        write_text(options.results / f"{name}.json", json.dumps({"machine": machine, **PARTS[name](options.rows)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
