"""Gymnasium environments on the engine: `gym.make("queuewise.envs:Queuewise/Job-v0")`, and `Host-v0` and `Joint-v0`.

`gym.make_vec` uses the native vector env. Importing this package imports Gymnasium and registers the environments, but
does not load the engine: the names below are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

if TYPE_CHECKING:
    from queuewise.envs.presets import PRESETS
    from queuewise.envs.rewards import Term
    from queuewise.envs.single import QueuewiseEnv
    from queuewise.envs.task_settings import Baseline, TaskSettings
    from queuewise.envs.vector import QueuewiseVectorEnv

__all__ = ["PRESETS", "Baseline", "QueuewiseEnv", "QueuewiseVectorEnv", "TaskSettings", "Term", "register_envs"]

_HOME = {
    "PRESETS": "presets",
    "Baseline": "task_settings",
    "QueuewiseEnv": "single",
    "QueuewiseVectorEnv": "vector",
    "TaskSettings": "task_settings",
    "Term": "rewards",
}
IDS = {"Queuewise/Job-v0": "job", "Queuewise/Host-v0": "host", "Queuewise/Joint-v0": "joint"}


def register_envs() -> None:
    """Register the environments with Gymnasium. A second call has no effect."""
    for name, problem in IDS.items():
        if name not in registry:
            register(
                name,
                entry_point="queuewise.envs.single:QueuewiseEnv",
                vector_entry_point="queuewise.envs.vector:QueuewiseVectorEnv",
                kwargs={"problem": problem},
            )


register_envs()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'queuewise.envs' has no attribute {name!r}")
    return getattr(import_module(f"queuewise.envs.{_HOME[name]}"), name)
