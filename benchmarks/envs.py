"""The default calls, and steps per second of the environments, part by part; each writes benchmarks/results/PART.json.

    python benchmarks/envs.py                        all parts, about twelve minutes
    python benchmarks/envs.py make_vec quick         some of them
    python benchmarks/envs.py --seconds 1 --runs 1 --results /tmp   quicker, to try it out

`make_vec` is `gym.make_vec("queuewise.envs:Queuewise/Job-v0", num_envs=256)` as the docs write it: actions are drawn with NumPy from the
mask, which is not measured; steps, the ends of episodes and the windows that the pool gains are. `quick` is `queuewise train --preset
quick --json` in a new process, compiled before: imitation, VAL and the rate of playing and learning alone are told apart.

`environments` are single settings: a random legal policy plays windows of 256 jobs of the model `bench` on nodes of 8 GPUs: the job
problem, a window of 64, the default observation, autoresets and the drawing of actions (compiled) included. Windows are laid out before
the clock starts. At load 0.9 few jobs wait; at load 4 the window is full most of the time. The best of several rounds counts: other
programs only ever make one slower. `python benchmarks/render_performance.py` then brings docs/performance.md up to date.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
CALL, CALL_ENVS = "queuewise.envs:Queuewise/Job-v0", 256
SHORT = ("--frames", "8192")  # enough to compile everything
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


def make_vec(options: argparse.Namespace) -> dict[str, Any]:
    """Steps per second of the vector env as the docs make it, in time spent inside `step`; the first round warms up."""
    envs: Any = gymnasium.make_vec(CALL, num_envs=CALL_ENVS)
    rng = np.random.default_rng(0)
    mask = envs.reset(seed=0)[1]["action_mask"]
    rounds = []
    for _ in range(max(options.rounds // 5, 1) + 1):
        steps, ended, spent = 0, 0, 0.0
        while spent < options.seconds / max(options.rounds // 5, 1):
            actions = np.where(mask, rng.random(mask.shape, np.float32), -1.0).argmax(1)
            began = time.perf_counter()
            _, _, terminated, truncated, info = envs.step(actions)
            spent += time.perf_counter() - began
            steps, ended, mask = steps + CALL_ENVS, ended + int((terminated | truncated).sum()), info["action_mask"]
        rounds.append((steps, ended, spent))
    envs.close()
    steps, ended, spent = np.sum(rounds[1:], axis=0)
    return {
        "envs": CALL_ENVS, "threads": os.cpu_count(), "steps_per_s": max(steps / spent for steps, _, spent in rounds[1:]),
        "mean_steps_per_s": float(steps / spent), "steps": int(steps), "episodes": int(ended),
    }  # fmt: skip


def quick(options: argparse.Namespace) -> dict[str, Any]:
    """`queuewise train --preset quick --json`, some runs: what it prints, and the seconds of the whole command."""
    runs = []
    for number in range(options.runs + 1):  # the first compiles, and is short
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "queuewise", "train", "--preset", "quick", "--json", "--out", "run"]
            began = time.perf_counter()
            done = subprocess.run([*command, *(() if number else SHORT)], check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
            seconds = time.perf_counter() - began
        if number:
            runs.append({"command_s": seconds, **json.loads(done.stdout)})
            note(json.dumps(runs[-1]))
    return {"runs": runs}


def environments(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for nodes, load, threads in CASES:
        rows.append(measure(options.envs, nodes, load, threads, options.seconds, options.rounds))
        note(json.dumps(rows[-1]))
    return {"cases": rows}


def _rate(envs: QueuewiseVectorEnv, seconds: float) -> float:
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(envs.legal_actions())
        steps += envs.num_envs
    return steps / (time.perf_counter() - began)


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {part.__name__: part for part in (make_vec, quick, environments)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--envs", type=int, default=128, help="of environments, %(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case, %(default)s")
    parser.add_argument("--rounds", type=int, default=100, help="that these seconds are divided into, %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="of quick, %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        note(f"— {name}")
        machine = bench.describe_machine()
        figures = {"machine": machine, **PARTS[name](options)}
        write_text(options.results / f"{name}.json", json.dumps(figures, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
