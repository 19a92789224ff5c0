"""What a policy of one's own costs, against the built-in with the same formula, in the same run.

    python benchmarks/user_policy.py                          a million jobs, about a minute; writes benchmarks/results/user_policy.json
    python benchmarks/user_policy.py --jobs 50000 --results DIR    smaller, to try it out

`replays`: seconds of the processor for a whole replay, the same schedule by both (it is checked), best of three, taken by turns. `start`:
seconds of a whole command in a new process, from a file that was just written.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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
SHORT_BURST = 500  # jobs; where scores change with time every decision scores the whole queue: longer queues would measure that alone
SOURCE = """
def sjf(job):
    return job.estimate

def wfp3(job, now):
    q = (now - job.submit) / max(job.estimate, 1.0)
    return -(q * q * q * job.width)

def first(node):
    return node.index
"""


@dataclass(frozen=True)
class Pair:
    """A built-in policy and the same with a function of one's own, {} being the file."""

    built_in: str
    own: str
    score: str
    share: float = 1.0  # of the jobs
    jobs_per_burst: int = 12_500


PAIRS = (
    Pair("sjf", "{}:sjf", "scores jobs, by the job alone"),
    Pair("wfp3", "{}:wfp3", "scores jobs, by the job and the time", jobs_per_burst=SHORT_BURST),
    Pair("fcfs+easy@first", "fcfs+easy@{}:first", "scores nodes, all of them at every placement", share=0.1),
)


def compare(jobs: int, pair: Pair, path: Path) -> dict[str, Any]:
    """Both policies by turns on the same jobs."""
    number = int(jobs * pair.share)
    workload = generate("bench", number, gpus=NODES * bench.NODE_GPUS, load=bench.LOAD, jobs_per_burst=pair.jobs_per_burst)
    cluster = load_cluster(f"{NODES}x{bench.NODE_GPUS}:V100-16")
    policies = pair.built_in, pair.own.format(path)
    seconds: dict[str, list[float]] = {policy: [] for policy in policies}
    starts = {}
    for policy in policies:  # compiles what there is to compile
        simulate(generate("bench", 100), load_cluster("4x8:V100-16"), policy)
    for _ in range(REPEATS):
        for policy in policies:
            began = time.process_time()
            starts[policy] = simulate(workload, cluster, policy).start
            seconds[policy].append(time.process_time() - began)
    if not np.array_equal(starts[policies[0]], starts[policies[1]]):
        raise SystemExit(f"{pair.own} and {pair.built_in} differ")
    built_in, own = (min(seconds[policy]) for policy in policies)
    note(f"{pair.built_in}, {number:,} jobs: {built_in:.2f} s of the processor, own {own:.2f} s, ratio {own / built_in:.2f}")
    return {"policy": pair.built_in, "score": pair.score, "jobs": number, "built_in_s": built_in, "own_s": own, "ratio": own / built_in}


def start_up(folder: Path) -> dict[str, float]:
    """From writing the file to the printed result, on a small workload, and of that what compilation took."""
    simulate(generate("bench", 100), load_cluster("4x8:V100-16"), "fcfs")  # the engine is compiled by now
    path = folder / "fresh.py"
    used_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    path.write_text(SOURCE, encoding="utf-8")
    command = [sys.executable, "-m", "queuewise", "simulate", "--workload", "bench", "--jobs", "10000", "--cluster", "16x8:V100-16"]
    done = subprocess.run([*command, "--policy", f"{path}:wfp3"], capture_output=True, text=True, check=True)
    command_s = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = used.ru_utime + used.ru_stime - used_before.ru_utime - used_before.ru_stime
    compile_s = float(done.stderr.split(":wfp3 in ")[1].split(" s")[0])
    return {"command_s": command_s, "processor_s": processor_s, "compile_s": compile_s}


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
        note(
            f"usable {start['command_s']:.1f} s ({start['processor_s']:.1f} s of the processor) after the file was written, "
            f"{start['compile_s']:.1f} s of it compilation"
        )
        replays = [compare(arguments.jobs, pair, path) for pair in PAIRS]
    write_text(
        arguments.results / "user_policy.json", json.dumps({"machine": machine, "start": start, "replays": replays}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
