"""Gymnasium environments on the engine: `gym.make("queuewise:Queuewise/Job-v0")`, `Host-v0`, `Joint-v0`; `make_vec` finds the native batch.

Importing this package imports neither Gymnasium nor the engine: the names below are loaded on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module, util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuewise.envs.presets import PRESETS
    from queuewise.envs.rewards import Term
    from queuewise.envs.settings import Baseline, TaskSettings
    from queuewise.envs.single import QueuewiseEnv
    from queuewise.envs.vector import QueuewiseVectorEnv

__all__ = ["PRESETS", "Baseline", "QueuewiseEnv", "QueuewiseVectorEnv", "TaskSettings", "Term", "register_envs"]

_HOME = {
    "PRESETS": "presets",
    "Baseline": "settings",
    "QueuewiseEnv": "single",
    "QueuewiseVectorEnv": "vector",
    "TaskSettings": "settings",
    "Term": "rewards",
}
IDS = {"Queuewise/Job-v0": "job", "Queuewise/Host-v0": "host", "Queuewise/Joint-v0": "joint"}


def register_envs() -> None:
    """Tell Gymnasium of the environments; doing so twice changes nothing."""
    from gymnasium.envs.registration import register, registry

    for name, problem in IDS.items():
        if name not in registry:
            register(
                name,
                entry_point="queuewise.envs.single:QueuewiseEnv",
                vector_entry_point="queuewise.envs.vector:QueuewiseVectorEnv",
                kwargs={"problem": problem},
            )


class _RegistersAfterwards(Loader):
    """Loads Gymnasium as always, and then registers the environments."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        register_envs()


class _AwaitsGymnasium(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec("gymnasium")
        if spec is not None and spec.loader is not None:
            spec.loader = _RegistersAfterwards(spec.loader)
        return spec


def register_when_gymnasium_loads() -> None:
    """Register now if Gymnasium is loaded, otherwise when it is: `queuewise` need not load it, and the order of imports does not matter."""
    if "gymnasium" in sys.modules:
        register_envs()
    else:
        sys.meta_path.insert(0, _AwaitsGymnasium())


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'queuewise.envs' has no attribute {name!r}")
    return getattr(import_module(f"queuewise.envs.{_HOME[name]}"), name)
