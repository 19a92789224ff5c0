"""Steps a second of the vector env, written to benchmarks/results/environments.json.

    python benchmarks/envs.py                             all cases, about four minutes
    python benchmarks/envs.py --seconds 1 --results /tmp  quicker, to try it out

First the default call, `gym.make_vec("queuewise.envs:Queuewise/Job-v0", num_envs=256)`: actions are drawn with NumPy from the mask, which
is not measured; steps, the ends of episodes and the windows that the pool gains are.

Then the parts: a random legal policy plays windows of 256 jobs of the model `bench` on nodes of 8 GPUs: the job problem, a window of 64,
the default observation, autoresets and the drawing of actions (compiled) included. Windows are laid out before the clock starts. At load
0.9 few jobs
wait; at load 4 the window is full most of the time. The best of several rounds counts: other programs only ever make one slower.
`python benchmarks/render_performance.py` then brings docs/performance.md up to date.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
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


def measure_default(num_envs: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Steps per second of the vector env as the docs make it, in time spent inside `step`."""
    envs: Any = gymnasium.make_vec("queuewise.envs:Queuewise/Job-v0", num_envs=num_envs)
    rng = np.random.default_rng(0)
    mask = envs.reset(seed=0)[1]["action_mask"]
    best, all_steps, all_seconds, ended = 0.0, 0, 0.0, 0
    for number in range(rounds + 1):
        steps, spent = 0, 0.0
        while spent < seconds / rounds:
            draws = rng.random(mask.shape, np.float32)
            actions = np.where(mask, draws, -1.0).argmax(1)
            began = time.perf_counter()
            _, _, terminated, truncated, info = envs.step(actions)
            spent += time.perf_counter() - began
            steps += num_envs
            ended += int((terminated | truncated).sum())
            mask = info["action_mask"]
        if number:  # the first round warms up
            best, all_steps, all_seconds = max(best, steps / spent), all_steps + steps, all_seconds + spent
    envs.close()
    return {
        "envs": num_envs,
        "threads": os.cpu_count(),
        "steps_per_s": best,
        "mean_steps_per_s": all_steps / all_seconds,
        "episodes": ended,
    }


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
    default = measure_default(256, options.seconds, max(options.rounds // 5, 1))
    note(json.dumps(default))
    rows = []
    for nodes, load, threads in CASES:
        rows.append(measure(options.envs, nodes, load, threads, options.seconds, options.rounds))
        note(json.dumps(rows[-1]))
    options.results.mkdir(parents=True, exist_ok=True)
    write_text(options.results / "environments.json", json.dumps({"machine": machine, "default": default, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
