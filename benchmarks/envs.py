"""Steps a second of the vector env, written to benchmarks/results/environments.json.

    python benchmarks/envs.py                             all cases, about three minutes
    python benchmarks/envs.py --seconds 1 --results /tmp  quicker, to try it out

A random legal policy plays windows of 256 jobs of the model `bench` on nodes of 8 GPUs: the job problem, a window of 64, the default
observation, autoresets and the drawing of actions (compiled) included. Windows are laid out before the clock starts. At load 0.9 few jobs
wait; at load 4 the window is full most of the time. The best of several rounds counts: other programs only ever make one slower.
`python benchmarks/render_performance.py` then brings docs/performance.md up to date.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.envs import QueuewiseVectorEnv
from queuewise.runs import write_text

RESULTS = Path(__file__).resolve().parent / "results"
WINDOWS = 64  # different ones
JOBS = 256
WARM_UP = 500  # steps until envs are at different times of their episodes
CASES = [(16, 0.9, 1), (16, 0.9, 2), (16, 4.0, 1), (16, 4.0, 2), (64, 0.9, 1), (64, 0.9, 2)]  # nodes, load, threads


def measure(num_envs: int, nodes: int, load: float, threads: int, seconds: float, rounds: int) -> dict[str, Any]:
    cluster, size = f"{nodes}x8:V100-16", {"load": load}
    envs = QueuewiseVectorEnv(
        num_envs, "job", threads=threads, copy=False, cluster=cluster, episode_jobs=JOBS, pool=WINDOWS, model_args=size
    )
    for window in range(WINDOWS):
        envs.setup.window(window)
    envs.reset(seed=0)
    envs.legal_actions(seed=1)
    for _ in range(WARM_UP):
        envs.step(envs.legal_actions())
    waiting = np.mean([envs.batch.episode_state(e).count.waiting for e in range(num_envs)])
    best = max(_rate(envs, seconds / rounds) for _ in range(rounds))
    envs.close()
    return {
        "nodes": nodes, "load": load, "threads": threads, "envs": num_envs, "steps_per_s": best, "mean_waiting": float(waiting),
        "bytes_per_env": envs.batch.bytes_per_env(), "observation": envs.setup.layout.size,
    }  # fmt: skip


def _rate(envs: QueuewiseVectorEnv, seconds: float) -> float:
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(envs.legal_actions())
        steps += envs.num_envs
    return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=128, help="%(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case, %(default)s")
    parser.add_argument("--rounds", type=int, default=100, help="that these seconds are divided into, %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args()
    machine = bench.describe_machine()
    rows = []
    for nodes, load, threads in CASES:
        rows.append(measure(options.envs, nodes, load, threads, options.seconds, options.rounds))
        note(json.dumps(rows[-1]))
    options.results.mkdir(parents=True, exist_ok=True)
    write_text(options.results / "environments.json", json.dumps({"machine": machine, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
