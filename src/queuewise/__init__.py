"""Queuewise: replay a cluster's job log under any scheduling policy, train one that does better, and prove it.

The names below are the public interface. Each is imported on first use, which keeps `import queuewise` fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from queuewise.prefixes import register_prefix

if TYPE_CHECKING:
    from queuewise.cluster import Cluster, NodeGroup, load_cluster
    from queuewise.errors import QueuewiseError
    from queuewise.evaluation.log_validation import Validation, validate
    from queuewise.evaluation.many import ManyReplays, simulate_many
    from queuewise.evaluation.metrics import summarise
    from queuewise.evaluation.wait_causes import WaitCauses, wait_causes
    from queuewise.policies import policy_names, simulate
    from queuewise.policies.snapshot import Snapshot
    from queuewise.sim.core.schedule import Schedule
    from queuewise.workload import ReadOptions, load_workload
    from queuewise.workload.jobs import Workload

__all__ = [
    "Cluster", "ManyReplays", "NodeGroup", "QueuewiseError", "ReadOptions", "Schedule", "Snapshot", "Validation",
    "WaitCauses", "Workload", "load_cluster", "load_workload", "policy_names", "simulate", "simulate_many", "summarise", "validate",
    "wait_causes",
]  # fmt: skip

_HOME = {
    "Cluster": "queuewise.cluster",
    "ManyReplays": "queuewise.evaluation.many",
    "NodeGroup": "queuewise.cluster",
    "QueuewiseError": "queuewise.errors",
    "ReadOptions": "queuewise.workload",
    "Schedule": "queuewise.sim.core.schedule",
    "Snapshot": "queuewise.policies.snapshot",
    "Validation": "queuewise.evaluation.log_validation",
    "WaitCauses": "queuewise.evaluation.wait_causes",
    "Workload": "queuewise.workload.jobs",
    "load_cluster": "queuewise.cluster",
    "load_workload": "queuewise.workload",
    "policy_names": "queuewise.policies",
    "simulate": "queuewise.policies",
    "simulate_many": "queuewise.evaluation.many",
    "summarise": "queuewise.evaluation.metrics",
    "validate": "queuewise.evaluation.log_validation",
    "wait_causes": "queuewise.evaluation.wait_causes",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("queuewise")
    if name not in _HOME:
        raise AttributeError(f"module 'queuewise' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _model_policies() -> ModuleType:
    from queuewise.agents import model_policies

    return model_policies


def _planned_policies() -> ModuleType:
    from queuewise.policies.planning import planned_policies

    return planned_policies


register_prefix("model", _model_policies)
for _planner in ("plan", "portfolio", "recent", "milp"):
    register_prefix(_planner, _planned_policies)


def _register_envs() -> None:
    import_module("queuewise.envs").register_envs()


class _RegisteringLoader(Loader):
    """Loads Gymnasium as usual, then registers our environments with it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _register_envs()


class _GymnasiumFinder(MetaPathFinder):
    """Registers the environments when Gymnasium is imported after Queuewise, without importing it here."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec("gymnasium")
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)
        return spec


if "gymnasium" in sys.modules:
    _register_envs()
else:
    sys.meta_path.insert(0, _GymnasiumFinder())
