"""Small settings and environments that train in a moment."""

from __future__ import annotations

from typing import Any

from queuewise.agents.train_settings import TrainSettings, layered
from queuewise.envs.env_setup import EnvSetup, build_setup


def small_settings(**changes: Any) -> TrainSettings:
    tables = {
        "ppo": {"num_envs": 4, "steps": 16, "minibatch": 32, "epochs": 2, "target_kl": 0} | changes.pop("ppo", {}),
        "network": {"width": 16} | changes.pop("network", {}),
        "task": {"window": 8} | changes.pop("task", {}),
    }
    return layered(**{"episode_jobs": 30, "frames": 256, "val_windows": 2, "report_windows": 2, "logs": (), **tables, **changes})


def small_setup(problem: str = "job", **changes: Any) -> EnvSetup:
    arguments: dict[str, Any] = {
        "workload": "bursty",
        "cluster": "2x4:V100-16",
        "episode_jobs": 30,
        "window": 8,
        "estimates": "oracle",
        "model_args": {"max_gpus": 4},
    }
    return build_setup(problem, **arguments | changes)
