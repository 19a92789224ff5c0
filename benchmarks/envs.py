"""Speed of the vector env: random legal policy, 64-job window, 16 nodes × 8 GPUs. `python benchmarks/envs.py --help` lists the options."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from queuewise.envs import QueuewiseVectorEnv

WINDOWS = 64


def measure(num_envs: int, threads: int, nodes: int, seconds: float, lookahead: str) -> dict[str, float]:
    """Env steps a second, autoresets and drawing of actions included."""
    envs = QueuewiseVectorEnv(
        num_envs,
        "job",
        threads=threads,
        copy=False,
        cluster=f"{nodes}x8:V100-16",
        jobs=256,
        pool=64,
        lookahead=lookahead,
        observation="flat",
    )
    for window in range(WINDOWS):  # laying out is not stepping
        envs.arena.window(window)
    envs.reset(seed=0)
    envs.step(envs.legal_actions(seed=1))  # compiles
    for _ in range(500):  # until envs are at different times of their episodes
        envs.step(envs.legal_actions())
    episodes, steps, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        _, _, terminated, _, _ = envs.step(envs.legal_actions())
        episodes += int(np.count_nonzero(terminated))
        steps += num_envs
    took = time.perf_counter() - began
    envs.close()
    return {
        "envs": num_envs, "threads": threads, "nodes": nodes, "steps_per_s": steps / took, "episodes_per_s": episodes / took,
        "bytes_per_env": envs.batch.bytes_per_env(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--lookahead", default="sorted")
    options = parser.parse_args()
    for threads in options.threads:
        print(json.dumps(measure(options.envs, threads, options.nodes, options.seconds, options.lookahead)))


if __name__ == "__main__":
    main()
