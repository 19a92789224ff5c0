"""The engine's benchmarks, part by part; each writes benchmarks/results/PART.json.

    python benchmarks/engine.py                           all parts, some minutes
    python benchmarks/engine.py rates                     one of them
    python benchmarks/engine.py rates --jobs 50000        smaller than published, to try it out; give --results too

`python benchmarks/render_performance.py` then brings docs/performance.md and its figures up to date. `baselines` takes the SimPy
reference from tests/reference; `lublin`, `conservative`, `many`, `preemption` and `growth_of_fgd` read ../shared/traces, or where
QUEUEWISE_TRACES says.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import plain_python

from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.cluster import Cluster, load_cluster
from queuewise.cluster.spec import NodeGroup, build
from queuewise.evaluation.many import simulate_many
from queuewise.evaluation.metrics import summarise
from queuewise.policies import simulate
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.policies.simulation import Simulation
from queuewise.runs import write_text
from queuewise.sim.core.engine import compiled_replay
from queuewise.workload import load_workload
from queuewise.workload.estimates import estimate
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models import generate
from queuewise.workload.transform import rescale_load

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
NODES = 250
CLUSTER = f"{NODES}x{bench.NODE_GPUS}:V100-16"
FULL = bench.FULL_JOBS
MEMORY_FACTOR = 10  # ten times the jobs of the other parts
STARTS = 5  # processes started; the quickest counts
TIMED_ORDER = "wfp3"  # its scores change with time, so every decision looks at the whole queue
GPU_LOGS = {"venus": "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "philly": "philly/philly_jobs_2017-09_to_10.csv.gz"}  # by cluster
LOG_LOAD = 0.9  # the clusters had room to spare: the same jobs are submitted faster
NOISY = "noisy:0.5"  # estimates: half of the jobs end early
BACKLOG = 2_000  # jobs, of which most wait at a time
MIXED_NODES = ((6, 8), (8, 4), (6, 6))  # number of nodes, GPUs of each
SNAPSHOTS = 500
PREEMPTION_REPEATS = 6  # these take seconds each, in which a shared machine is seldom quiet from end to end
SCORE = "PARAMS = [1.0, 0.0]\n\ndef score(job, params):\n    return job.estimate ** params[0] * job.width ** params[1]\n"  # [1, 0] is sjf
PARAMS = [(a, b) for a in np.linspace(0.4, 1.5, 12).tolist() for b in (-0.25, 0.0, 0.5, 1.0)]
NUM_WINDOWS, WINDOW_JOBS = 15, 1024
MANY_REPEATS = 5
SHORT_REPEATS = 10  # replays of milliseconds are noisy and cheap to repeat

Figures = dict[str, Any]


def rates(jobs: int) -> Figures:
    """What `queuewise bench --compile` prints."""
    return bench.measure_all(jobs, NODES, repeats=bench.FULL_REPEATS, compile=True)


def baselines(jobs: int) -> Figures:
    """The SimPy reference and plain Python against the engine: the same jobs, the same schedule, in the same run.

    The sizes are what the baselines can do in a minute or so; on 250 nodes that leaves out EASY.
    """
    sys.path.insert(0, str(REPOSITORY / "tests"))
    import reference

    def reference_starts(workload: Workload, cluster: Cluster, policy: str, known: Floats) -> Floats:
        return reference.simulate(workload, cluster, policy, estimate=known).start

    return {
        "cases": [
            *_against("SimPy reference", reference_starts, bench.POLICIES, nodes=16, jobs=min(jobs, 2_000)),
            *_against("SimPy reference", reference_starts, ("fcfs", "sjf"), nodes=NODES, jobs=min(jobs, 5_000)),
            *_against("plain Python", plain_python.simulate, bench.POLICIES, nodes=16, jobs=min(jobs, 2_000)),
            *_against("plain Python", plain_python.simulate, ("fcfs", "sjf"), nodes=NODES, jobs=min(jobs, 20_000)),
        ]
    }


def _against(name: str, starts: Callable[..., Any], policies: Sequence[str], *, nodes: int, jobs: int) -> list[Figures]:
    workload = generate("bench", jobs, gpus=nodes * bench.NODE_GPUS, load=bench.LOAD)
    cluster = load_cluster(f"{nodes}x{bench.NODE_GPUS}:V100-16")
    known = estimate(workload, "requested", 0).values
    rows = []
    for policy in policies:
        engine = bench.replay(workload, cluster, policy, SHORT_REPEATS)
        begin = time.perf_counter()
        start = starts(workload, cluster, policy, known)
        seconds = time.perf_counter() - begin
        if not np.array_equal(start, simulate(workload, cluster, policy).start):
            raise SystemExit(f"{name} and the engine disagree on {policy}: there is nothing to compare")
        rows.append({"baseline": name, "nodes": nodes, **engine, "baseline_s": seconds, "ratio": seconds / engine["engine_s"]})
        note(f"{name}, {policy}: {jobs / seconds:,.0f} jobs/s, the engine is {rows[-1]['ratio']:,.0f} times as fast")
    return rows


def growth_by_jobs(jobs: int) -> Figures:
    """Cost of a job against the number of jobs."""
    cluster = load_cluster(CLUSTER)
    rows = []
    for share in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        workload = generate("bench", int(share * jobs), gpus=NODES * bench.NODE_GPUS, load=bench.LOAD)
        rows += [bench.replay(workload, cluster, policy, _repeats(len(workload))) for policy in bench.POLICIES]
    return {"replays": rows}


def growth_by_queue(jobs: int) -> Figures:
    """Cost of a job against the length of the queue, which the size of the bursts decides; the last point is all jobs at once."""
    cluster = load_cluster(CLUSTER)
    number = jobs // 20
    rows = []
    for burst in (100, 300, 1_000, 3_000, 10_000, number):
        workload = generate("bench", number, gpus=NODES * bench.NODE_GPUS, load=bench.LOAD, jobs_per_burst=burst)
        if burst == number:
            workload = dataclasses.replace(workload, submit=np.zeros(number))
        rows += [{"burst": burst, **bench.replay(workload, cluster, policy, _repeats(number))} for policy in bench.POLICIES]
        rows += [{"burst": burst, **bench.replay(workload, cluster, TIMED_ORDER, 1)}]
    return {"replays": rows}


def growth_of_fgd(jobs: int) -> Figures:
    """Cost of a job under the placement `fgd` on the 1,523 nodes of openb: GPU shares, up to 151 kinds of tasks, many kinds of nodes.

    The first so many pods of the log, submitted as in the log (nobody waits) and all at once (a head that asks for a busy GPU kind is
    blocked, and everybody else is tried after each start).
    """
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    log = load_workload(folder / "alibaba" / "openb_pod_list_gpuspec33.csv").workload
    cluster = load_cluster("openb")
    rows = []
    for number in (1_000, 2_000, 4_000, 8_000):
        pods = log.take(slice(0, min(number, jobs)))
        at_once = pods.replace(submit=np.zeros(len(pods)))
        for name, workload in (("as in the log", pods), ("all at once", at_once)):
            rows.append({"submitted": name, **bench.replay(workload, cluster, "fcfs+greedy@fgd", SHORT_REPEATS)})
    return {"replays": rows}


def _repeats(jobs: int) -> int:
    return SHORT_REPEATS if jobs < 100_000 else bench.FULL_REPEATS


MEMORY_PROBE = """
import json, sys
from queuewise.cli import bench
from queuewise.cluster import Cluster, load_cluster
from queuewise.workload.models import generate
jobs, nodes, policy = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
workload = generate("bench", jobs, gpus=nodes * bench.NODE_GPUS, load=bench.LOAD)
row = bench.replay(workload, load_cluster(f"{nodes}x{bench.NODE_GPUS}:V100-16"), policy, 1)
print(json.dumps({"nodes": nodes, **row, "peak_memory_mib": bench.peak_memory_mib()}))
"""


def memory(jobs: int) -> Figures:
    """Peak memory of a process that makes ten million jobs and replays them."""
    arguments = [str(MEMORY_FACTOR * jobs), str(bench.MORE_NODES * NODES), "fcfs+easy"]
    done = subprocess.run([sys.executable, "-c", MEMORY_PROBE, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def start_up(jobs: int) -> Figures:
    """Wall time of whole commands, each in a new process, with the kernel in the cache."""
    replayed = f"--workload bench --jobs 10000 --cluster {CLUSTER} --policy fcfs"
    commands = ["--help", f"simulate {replayed}"]
    return {"commands": [{"command": f"queuewise {command}", "seconds": _wall_time(command)} for command in commands]}


def _wall_time(command: str) -> float:
    seconds = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "queuewise", *command.split()], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def lublin(jobs: int) -> Figures:
    """The log on which public simulators were timed: 10,000 jobs, 256 processors, exact estimates."""
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    workload = load_workload(folder / "swf" / "lublin_256.swf.gz").workload
    cluster = load_cluster("flat:256")
    rows = []
    for policy in bench.POLICIES:
        summary = summarise(simulate(workload, cluster, policy, estimates="oracle"))
        rows.append({**bench.replay(workload, cluster, policy, SHORT_REPEATS, "oracle"), "mean_wait_s": summary["wait_s"]["mean"]})
    return {"replays": rows}


def conservative(jobs: int) -> Figures:
    """Conservative backfill, which plans all waiting jobs: long queues, estimates that are exact (plans last) and that are not."""
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    mixed = build("116 GPUs on nodes of 4, 6 and 8", [NodeGroup(count, gpus=gpus, kind="V100-16") for count, gpus in MIXED_NODES])
    small = load_cluster("4x8:V100-16")
    sacct = build("8 nodes of 64 cores and 2 GPUs", [NodeGroup(8, gpus=2, kind="V100-16", cpus=64.0)])
    venus, philly = (load_workload(folder / file).workload.take(slice(0, min(jobs, BACKLOG))) for file in GPU_LOGS.values())
    cases = [
        ("lublin_256", load_workload(folder / "swf" / "lublin_256.swf.gz").workload, load_cluster("flat:256"), ("oracle", NOISY)),
        ("venus", venus, small, ("oracle", NOISY)),
        ("philly", philly, small, ("oracle", NOISY)),
        ("venus", venus, mixed, ("oracle", NOISY)),
        ("sacct", load_workload(folder / "slurm" / "xdmod_phillips_sacct.log.gz").workload, sacct, ("oracle", "requested")),
    ]
    rows = []
    for log, workload, cluster, known in cases:
        for estimates in known:
            row = bench.replay(workload, cluster, "fcfs+conservative", bench.FULL_REPEATS, estimates)
            rows.append({"log": log, "cluster": cluster.name, "estimates": estimates, **row})
    return {"replays": rows}


def many(jobs: int) -> Figures:
    """Candidates on windows of the same log by `simulate_many`, and by a call of `simulate` for each replay."""
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    workload, cluster = load_workload(folder / "swf" / "lublin_256.swf.gz").workload, load_cluster("flat:256")
    firsts = np.linspace(0, len(workload) - WINDOW_JOBS, NUM_WINDOWS).astype(int).tolist()
    windows = [(first, WINDOW_JOBS) for first in firsts]
    parts = [workload.take(slice(first, first + WINDOW_JOBS)) for first in firsts]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "own.py"
        path.write_text(SCORE, encoding="utf-8")
        policy = f"{path}:score+easy"
        candidates = [(policy, params) for params in PARAMS]

        def together(threads: int) -> object:
            return simulate_many(workload, cluster, candidates, windows=windows, estimates="oracle", threads=threads)

        def alone() -> object:
            return [summarise(simulate(part, cluster, policy, estimates="oracle", params=PARAMS[0])) for part in parts]

        together(1)  # compiles what there is to compile
        rows = [{"threads": threads, "number": len(PARAMS) * NUM_WINDOWS, **_timed(partial(together, threads))} for threads in (1, 2)]
        one_by_one = {"number": NUM_WINDOWS, **_timed(alone)}
    for row in rows:
        note(f"{row['number']} replays on {row['threads']} threads: {row['seconds']:.2f} s, {row['cpu_s']:.2f} s of the processor")
    return {"candidates": len(PARAMS), "windows": NUM_WINDOWS, "window_jobs": WINDOW_JOBS, "replays": rows, "alone": one_by_one}


def _timed(work: Callable[[], object]) -> dict[str, float]:
    """Seconds by the clock and of the processor, each the least of some repetitions."""
    seconds, cpu_s = [], []
    for _ in range(MANY_REPEATS):
        began, cpu_began = time.perf_counter(), time.process_time()
        work()
        seconds.append(time.perf_counter() - began)
        cpu_s.append(time.process_time() - cpu_began)
    return {"seconds": min(seconds), "cpu_s": min(cpu_s)}


def preemption(jobs: int) -> Figures:
    """Preemptive policies: how fast they are replayed, and what they do to completion times on two logs of GPU clusters."""
    cluster = load_cluster(CLUSTER)
    workload = generate("bench", jobs, gpus=NODES * bench.NODE_GPUS, load=bench.LOAD)
    rows = [
        bench.replay(workload, cluster, policy, PREEMPTION_REPEATS, "oracle") for policy in ("fcfs", "sjf+greedy", *PREEMPTIVE, "defrag")
    ]
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    logs = []
    for preset, file in GPU_LOGS.items():
        cluster = load_cluster(preset)
        log = rescale_load(load_workload(folder / file).workload, LOG_LOAD, gpus=float(cluster.node_gpus.sum()))
        for policy in ("fcfs", "sjf+greedy", *PREEMPTIVE):
            schedule = simulate(log, cluster, policy, estimates="oracle")
            mean = float(schedule.jct[schedule.finished].mean())
            stops = int(schedule.preemptions.sum())
            logs.append({"log": preset, "policy": policy, "jobs": len(log), "mean_jct_s": mean, "preemptions": stops})
            note(f"{preset}, {policy}: mean completion time {mean:,.0f} s, {stops:,} preemptions")
    return {"replays": rows, "logs": logs}


def snapshots(jobs: int) -> Figures:
    """Taking a snapshot of a simulation in the midst of 5,000 jobs, and going back to it."""
    number = jobs // 200
    workload = generate("bench", number, gpus=NODES * bench.NODE_GPUS, load=bench.LOAD)
    rows = []
    for policy in ("fcfs+easy", "srtf"):
        simulation = Simulation(workload, load_cluster(CLUSTER), policy, estimates="oracle")
        simulation.run(until=float(np.median(workload.submit)))
        seconds = []
        for _ in range(SNAPSHOTS):
            begin = time.perf_counter()
            simulation.restore(simulation.remember())
            seconds.append(time.perf_counter() - begin)
        rows.append({"policy": policy, "jobs": number, "nodes": NODES, "best_s": min(seconds), "median_s": float(np.median(seconds))})
        note(f"{policy}: snapshot and restore {min(seconds) * 1e6:.0f} µs at best, {np.median(seconds) * 1e6:.0f} µs in the median")
    return {"snapshots": rows}


PARTS: dict[str, Callable[[int], Figures]] = {
    "rates": rates,
    "baselines": baselines,
    "growth_by_jobs": growth_by_jobs,
    "growth_by_queue": growth_by_queue,
    "growth_of_fgd": growth_of_fgd,
    "memory": memory,
    "start_up": start_up,
    "lublin": lublin,
    "conservative": conservative,
    "many": many,
    "preemption": preemption,
    "snapshots": snapshots,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--jobs", type=int, default=FULL, help="the size that the parts are scaled to, %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.results.mkdir(parents=True, exist_ok=True)
    compiled_replay()
    for name in options.parts or PARTS:
        note(f"— {name}")
        machine = bench.describe_machine()
        figures = {"machine": machine, **PARTS[name](options.jobs)}
        write_text(options.results / f"{name}.json", json.dumps(figures, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
