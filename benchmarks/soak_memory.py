"""Memory over many resets and replays in one process.

It is flat if, after the first tenth of the work, a line through all samples rises by no more than MOST_RISE_MIB, and no sample is more than
MOST_GROWTH_MIB above the first.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MOST_GROWTH_MIB, MOST_RISE_MIB = 24.0, 8.0  # of memory that is called flat: of any sample, and of a line through all of them
SAMPLED_EVERY_S, PRINTED_EVERY_S = 0.2, 10.0  # of CPU
KNOWN_WINDOWS, NEW_WINDOW_EVERY = 256, 20  # of resets; to lay out a window takes 50 times as long as to begin one again


def soak_resets(times: int) -> dict[str, Any]:
    """Resets of an environment, most of them to windows that it has seen, some to new ones; and resets of a vector of them by itself."""
    import gymnasium as gym

    from queuewise.envs.vector import QueuewiseVectorEnv

    arguments: dict[str, Any] = {"workload": "bursty", "cluster": "2x2:V100-16", "episode_jobs": 2, "window": 4}
    env = gym.make("queuewise:Queuewise/Job-v0", **arguments)
    envs = QueuewiseVectorEnv(64, "job", threads=1, pool=KNOWN_WINDOWS, **arguments)
    envs.reset(seed=0)

    def reset(number: int) -> int:
        _, info = env.reset(seed=number if number % NEW_WINDOW_EVERY == 0 else number % KNOWN_WINDOWS)
        env.step(int(np.flatnonzero(info["action_mask"])[0]))
        if number % 4:
            return 1
        _, _, terminated, truncated, _ = envs.step(envs.legal_actions())
        return 1 + int((terminated | truncated).sum())

    return watch_memory("resets", times, reset)


def soak_simulations(times: int) -> dict[str, Any]:
    """Replays with policies and seeds in turn."""
    from queuewise import load_cluster, simulate
    from queuewise.workload.models import generate

    cluster = load_cluster("2x4:V100-16")
    policies = ("fcfs+easy", "sjf+conservative", "tiresias", "multifactor@spread", "wfp3+greedy", "random")

    def replay(number: int) -> int:
        simulate(generate("bursty", 100, seed=number % 1000), cluster, policies[number % len(policies)], seed=number)
        return 1

    return watch_memory("simulations", times, replay)


def watch_memory(what: str, times: int, work: Callable[[int], int]) -> dict[str, Any]:
    """Work until so many things are done (`work` returns how many it did), and print the memory on the way."""
    samples: list[tuple[float, float]] = []  # things done, MiB
    done, calls, begin, printed = 0, 0, time.process_time(), -math.inf
    while done < times:
        done += work(calls)
        calls += 1
        spent = time.process_time() - begin
        if spent < len(samples) * SAMPLED_EVERY_S and done < times:
            continue
        samples.append((done, memory_mib()))
        if spent - printed > PRINTED_EVERY_S or done >= times:
            printed = spent
            print(f"{done:9,d} {what}: {samples[-1][1]:.1f} MiB, {spent:.0f} s of CPU", flush=True)
    rise, highest = growth(samples)
    print(f"memory after the first tenth of {done:,} {what}: a line through {len(samples):,} samples rises by {rise:+.1f} MiB "
          f"(limit {MOST_RISE_MIB:g}), the highest is {highest:+.1f} MiB (limit {MOST_GROWTH_MIB:g})")  # fmt: skip
    return {
        "times": done,
        "cpu_s": round(spent),
        "memory_mib": round(samples[-1][1], 1),
        "rise_mib": round(rise, 1),
        "highest_mib": round(highest, 1),
        "flat": rise <= MOST_RISE_MIB and highest <= MOST_GROWTH_MIB,
    }


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """MiB by which a line through the samples rises, and by which the highest is above the first, without the first tenth of the work."""
    done, sizes = np.array(samples).T
    counted = done >= done[-1] / 10
    slope = np.polyfit(done[counted], sizes[counted], 1)[0] if counted.sum() > 1 else 0.0
    return float(slope * np.ptp(done[counted])), float(sizes[counted].max() - sizes[counted][0])
