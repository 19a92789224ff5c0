"""Speed of PPO end to end, written to benchmarks/results/ppo.json: play and 4 epochs of learning, 64-job window, 16 nodes × 8 GPUs.

    python benchmarks/ppo.py                                       all networks, about eight minutes
    python benchmarks/ppo.py --nets mlp-64 --results /tmp          one of them, and the page stays as it is

Beside it sb3-contrib's MaskablePPO on the same batch of environments, with the same width, epochs and minibatch. The best of several
iterations counts. `python benchmarks/render_performance.py` then brings docs/performance.md up to date.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from queuewise.agents.ppo import Ppo
from queuewise.agents.train_settings import layered
from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.envs import QueuewiseVectorEnv
from queuewise.envs.env_setup import build_setup
from queuewise.runs import write_text

RESULTS = Path(__file__).resolve().parent / "results"

TASK: dict[str, Any] = {"workload": "bench", "cluster": "16x8:V100-16", "episode_jobs": 256, "window": 64, "pool": 256}
# network, width, minibatch: networks of tokens like small ones
CASES = {"mlp-64": ("mlp", 64, 8192), "mlp-256": ("mlp", 256, 8192), "kernel": ("kernel", 32, 1024), "attn-32": ("attn", 32, 512)}
EPOCHS, STEPS = 4, 128


def measure(name: str, num_envs: int, iterations: int) -> dict[str, Any]:
    """Frames a second of our PPO."""
    net, width, minibatch = CASES[name]
    ppo = {"num_envs": num_envs, "steps": STEPS, "minibatch": minibatch, "epochs": EPOCHS, "target_kl": 0}
    learner = Ppo(build_setup("job", **TASK), layered(net=net, network={"width": width}, ppo=ppo), 0)
    learner.iterate()  # begins everything
    best: dict[str, float] = {}
    for _ in range(iterations):
        began = time.perf_counter()
        figures = learner.iterate()
        rate = num_envs * STEPS / (time.perf_counter() - began)
        if rate > best.get("frames_per_s", 0.0):
            best = {"frames_per_s": rate, "play_s": figures["time/play_s"], "learn_s": figures["time/learn_s"]}
    learner.close()
    return {"program": "queuewise", "net": name, "minibatch": minibatch, "envs": num_envs, **best}


def measure_maskable(width: int, minibatch: int, num_envs: int, iterations: int) -> dict[str, Any]:
    """Frames a second of MaskablePPO with separate networks of this width (its default), on all torch threads."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """When each rollout began."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    torch.set_num_threads(2)
    clock, envs = Clock(), NativeVecEnv(num_envs)
    sizes: dict[str, Any] = {"n_steps": STEPS, "batch_size": minibatch, "n_epochs": EPOCHS, "policy_kwargs": {"net_arch": [width, width]}}
    model = MaskablePPO("MlpPolicy", envs, **sizes, seed=0, device="cpu")
    model.learn(num_envs * STEPS * (iterations + 2), callback=clock)
    rate = num_envs * STEPS / float(np.diff(clock.times)[1:].min())
    return {"program": "MaskablePPO", "net": f"mlp-{width}", "minibatch": minibatch, "envs": num_envs, "frames_per_s": rate}


class NativeVecEnv(VecEnv):
    """Our vector env as Stable-Baselines3 wants it."""

    def __init__(self, num_envs: int) -> None:
        self.envs = QueuewiseVectorEnv(num_envs, "job", **TASK)
        super().__init__(num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions = np.zeros(num_envs, np.int64)

    def reset(self) -> Any:
        return self.envs.reset(seed=0)[0]

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        rows, rewards, terminated, truncated, info = self.envs.step(self._actions)
        over = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for e in np.flatnonzero(over):
            infos[e] = {"terminal_observation": info["final_obs"][e], "TimeLimit.truncated": bool(truncated[e])}
        return rows, rewards.astype(np.float32), over, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return list(getattr(self.envs, method_name)(*args, **kwargs))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def close(self) -> None:
        self.envs.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--without-others", action="store_true", help="measure our own only")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args(arguments)
    machine = bench.describe_machine()
    rows, memory = [], {}
    for name in options.nets:
        rows.append(measure(name, options.envs, options.iterations))
        note(json.dumps(rows[-1]))
        memory[name] = peak_memory_mib()
        net, width, minibatch = CASES[name]
        if net == "mlp" and not options.without_others:
            rows.append(measure_maskable(width, minibatch, options.envs, options.iterations))
            note(json.dumps(rows[-1]))
    options.results.mkdir(parents=True, exist_ok=True)
    figures = {"machine": machine, "cases": rows, "peak_memory_mib": memory[options.nets[0]]}
    write_text(options.results / "ppo.json", json.dumps(figures, indent=1) + "\n")


def peak_memory_mib() -> float:
    """Of this process and of the largest of the workers beside it: most of theirs is common to them, so that the sum is an upper bound."""
    users = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(user).ru_maxrss for user in users) / 1024


if __name__ == "__main__":
    main()
