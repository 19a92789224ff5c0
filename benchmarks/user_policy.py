"""What a policy of one's own costs, against the built-in with the same formula, in the same run.

    python benchmarks/user_policy.py                          a million jobs, some minutes; writes benchmarks/results/user_policy.json
    python benchmarks/user_policy.py --jobs 50000 --results DIR    smaller, to try it out

`replays`: the same schedule by both (it is checked), best of three, taken by turns so that other programs disturb both alike. `start`:
seconds of a whole command in a new process, from a file that was just written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.cluster import load_cluster
from queuewise.policies import simulate
from queuewise.runs import write_text
from queuewise.workload.models import generate

RESULTS = Path(__file__).resolve().parent / "results"
NODES = 250
REPEATS = 3
TIMED_LOAD = 0.5  # where scores change with time every decision scores the whole queue; at full load that is a benchmark of long queues
SOURCE = """
def sjf(job):
    return job.estimate

def wfp3(job, now):
    q = (now - job.submit) / max(job.estimate, 1.0)
    return -(q * q * q * job.width)

def first(node):
    return node.index
"""
PAIRS = (("sjf", "{}:sjf", bench.LOAD), ("wfp3", "{}:wfp3", TIMED_LOAD), ("fcfs+easy@first", "fcfs+easy@{}:first", bench.LOAD))


def compare(jobs: int, built_in: str, own: str, load: float) -> dict[str, Any]:
    """Both policies by turns on the same jobs."""
    workload = generate("bench", jobs, gpus=NODES * bench.NODE_GPUS, load=load)
    cluster = load_cluster(f"{NODES}x{bench.NODE_GPUS}:V100-16")
    seconds: dict[str, list[float]] = {built_in: [], own: []}
    starts = {}
    for _ in range(REPEATS):
        for policy in (built_in, own):
            schedule = simulate(workload, cluster, policy)
            seconds[policy].append(schedule.engine_s)
            starts[policy] = schedule.start
    if not np.array_equal(starts[built_in], starts[own]):
        raise SystemExit(f"{own} and {built_in} differ")
    ratio = min(seconds[own]) / min(seconds[built_in])
    note(f"{built_in}: {min(seconds[built_in]):.2f} s, own {min(seconds[own]):.2f} s, ratio {ratio:.2f}")
    return {
        "policy": built_in,
        "jobs": jobs,
        "load": load,
        "built_in_s": min(seconds[built_in]),
        "own_s": min(seconds[own]),
        "ratio": ratio,
    }


def start_up(folder: Path) -> dict[str, float]:
    """From writing the file to the printed result, on a small workload, and of that what compilation took."""
    simulate(generate("bench", 100), load_cluster("4x8:V100-16"), "fcfs")  # the engine is compiled by now
    path = folder / "fresh.py"
    began = time.perf_counter()
    path.write_text(SOURCE, encoding="utf-8")
    command = [sys.executable, "-m", "queuewise", "simulate", "--workload", "bench", "--jobs", "10000", "--cluster", "16x8:V100-16"]
    done = subprocess.run([*command, "--policy", f"{path}:wfp3"], capture_output=True, text=True, check=True)
    return {"command_s": time.perf_counter() - began, "compile_s": float(done.stderr.split(":wfp3 in ")[1].split(" s")[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=bench.FULL_JOBS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    machine = bench.describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.py"
        path.write_text(SOURCE, encoding="utf-8")
        start = start_up(Path(folder))
        note(f"usable {start['command_s']:.1f} s after the file was written, {start['compile_s']:.1f} s of it compilation")
        replays = [compare(arguments.jobs, built_in, own.format(path), load) for built_in, own, load in PAIRS]
    write_text(
        arguments.results / "user_policy.json", json.dumps({"machine": machine, "start": start, "replays": replays}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
