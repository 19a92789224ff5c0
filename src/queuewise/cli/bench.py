"""`queuewise bench`: the speed of the engine on this machine. `benchmarks/` uses the measuring functions, too."""

from __future__ import annotations

import json as json_text
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from queuewise.cluster import Cluster
    from queuewise.workload.jobs import Workload

POLICIES = ("fcfs", "sjf", "fcfs+easy")
NODE_GPUS = 8
LOAD = 0.9
MORE_NODES = 10  # the second cluster is this many times as large, under the same load
FULL_JOBS, FULL_REPEATS = 1_000_000, 3
QUICK_JOBS, QUICK_REPEATS = 50_000, 1


@dataclass(frozen=True)
class Bench:
    """Measure the engine on this machine: start-up time, jobs per second, memory. Takes about a minute."""

    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Jobs per replay. Default: 1,000,000, or 50,000 with --quick."""
    nodes: Annotated[int, tyro.conf.arg(metavar="N")] = 250
    """Nodes with 8 GPUs each. A cluster ten times as large is measured, too."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use fewer jobs and one run per replay instead of the best of three: faster, but noisier."""
    compile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also measure how long the engine takes to compile, with an empty cache. Takes a minute or more."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: an object with machine, kernel, workload, replays, cost_of_more_nodes and peak_memory_mib."""

    def run(self) -> None:
        from queuewise.errors import InputError

        jobs = (QUICK_JOBS if self.quick else FULL_JOBS) if self.jobs is None else self.jobs
        for option, value in (("--jobs", jobs), ("--nodes", self.nodes)):
            if value < 1:
                raise InputError(f"{option} {value} leaves nothing to measure", hint="use 1 or more")
        figures = measure_all(jobs, self.nodes, repeats=QUICK_REPEATS if self.quick else FULL_REPEATS, compile=self.compile)
        if self.json:
            print(json_text.dumps(figures, indent=2, allow_nan=False))
        else:
            _print(figures)


def measure_all(jobs: int, nodes: int, *, repeats: int, compile: bool) -> dict[str, Any]:
    """Everything the command prints, as one JSON object."""
    from queuewise.cli.console import announce_compilation, note
    from queuewise.sim.core.engine import compiled_replay

    machine = describe_machine()  # first, so that the load average shows other programs
    announce_compilation()
    compiled_replay()
    kernel = time_kernel()
    if compile:
        note("compiling the engine with an empty cache …")
        with tempfile.TemporaryDirectory() as empty:
            kernel["compile_s"] = time_kernel(cache=empty)["load_s"]
    replays = [row for count in (nodes, MORE_NODES * nodes) for row in replay_cluster(jobs, count, repeats)]
    few, many = replays[: len(POLICIES)], replays[len(POLICIES) :]
    return {
        "machine": machine,
        "kernel": kernel,
        "workload": {"model": "bench", "jobs": jobs, "load": LOAD, "estimates": "requested", "repeats": repeats},
        "replays": replays,
        "cost_of_more_nodes": {row["policy"]: more["engine_s"] / row["engine_s"] for row, more in zip(few, many, strict=True)},
        "peak_memory_mib": peak_memory_mib(),
    }


def describe_machine() -> dict[str, Any]:
    import numba
    import numpy as np

    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],  # above 0: other programs were running
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def _cpu_name() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


KERNEL_PROBE = """
import json, time
begin = time.perf_counter()
from queuewise.sim.core.engine import compiled_replay
imported = time.perf_counter()
compiled_replay()
print(json.dumps({"import_s": imported - begin, "load_s": time.perf_counter() - imported}))
"""


def time_kernel(cache: str | None = None) -> dict[str, float]:
    """Seconds a new process takes to import the engine and to load it from the cache, or to compile it if the cache is empty."""
    environment = {**os.environ, "QUEUEWISE_CACHE_DIR": cache} if cache else None
    done = subprocess.run([sys.executable, "-c", KERNEL_PROBE], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return dict(json_text.loads(done.stdout))


def replay_cluster(jobs: int, nodes: int, repeats: int) -> list[dict[str, Any]]:
    """Replay the benchmark workload, sized for a cluster of `nodes` nodes, under each policy."""
    from queuewise.cluster import load_cluster
    from queuewise.workload.models import generate

    workload = generate("bench", jobs, gpus=nodes * NODE_GPUS, load=LOAD)
    cluster = load_cluster(f"{nodes}x{NODE_GPUS}:V100-16")
    return [{"nodes": nodes, **replay(workload, cluster, policy, repeats)} for policy in POLICIES]


def replay(workload: Workload, cluster: Cluster, policy: str, repeats: int, estimates: str = "requested") -> dict[str, Any]:
    """The best of `repeats` replays: seconds in the engine, and of the whole call including estimates and ranks."""
    from queuewise.cli.console import note
    from queuewise.evaluation.measure import measure
    from queuewise.evaluation.timeline import queue_length_max
    from queuewise.policies import simulate

    engine_s, call_s = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        schedule = simulate(workload, cluster, policy, estimates=estimates)
        call_s.append(time.perf_counter() - begin)
        engine_s.append(schedule.engine_s)
    row = {
        "policy": policy,
        "jobs": len(workload),
        "engine_s": min(engine_s),
        "jobs_per_s": len(workload) / min(engine_s),
        "call_s": min(call_s),
        "max_queue": queue_length_max(measure(schedule)),
    }
    note(f"{len(workload):,} jobs on {cluster.name}, {policy}: {row['jobs_per_s']:,.0f} jobs/s")
    return row


def peak_memory_mib() -> float:
    """Peak memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage would include the peak of the parent process
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 / (1024 if sys.platform == "darwin" else 1)  # macOS counts bytes, others KiB


def _print(figures: dict[str, Any]) -> None:
    from queuewise.cli.console import note, print_table
    from queuewise.report.readable import figure

    machine, kernel, workload = figures["machine"], figures["kernel"], figures["workload"]
    facts = [["CPU", f"{machine['cpu']}, {machine['cores']} cores, load average {machine['load_average']:.1f} at the start"]]
    facts += [["versions", f"Python {machine['python']}, Numba {machine['numba']}, NumPy {machine['numpy']}, {machine['system']}"]]
    facts += [["start-up", f"import {kernel['import_s']:.2f} s, load the engine from the cache {kernel['load_s']:.2f} s"]]
    if "compile_s" in kernel:
        facts += [["compilation", f"{kernel['compile_s']:.0f} s, once"]]
    facts += [["peak memory", f"{figures['peak_memory_mib']:,.0f} MiB"]]
    print_table(["this machine", ""], facts, left=2)
    rows = [
        [
            row["policy"],
            figure(row["nodes"]),
            figure(row["jobs_per_s"]),
            figure(row["engine_s"], 2),
            figure(row["call_s"], 2),
            figure(row["max_queue"]),
        ]
        for row in figures["replays"]
    ]
    title = (
        f"{workload['jobs']:,} jobs of the model bench, load {workload['load']}, {NODE_GPUS} GPUs per node, best of {workload['repeats']}"
    )
    print_table(["policy", "nodes", "jobs/s", "engine s", "call s", "longest queue"], rows, title=title)
    costs = ", ".join(f"{policy} {ratio:.2f}×" for policy, ratio in figures["cost_of_more_nodes"].items())
    note(f"time relative to the smaller cluster, with {MORE_NODES} times the nodes: {costs}")
