"""Queuewise: replay a cluster's job log under any scheduling policy, train one that does better, and prove it.

The names below are the public interface. They are imported on first use, so that `import queuewise` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from queuewise.envs import register_when_gymnasium_loads

if TYPE_CHECKING:
    from queuewise.cluster import Cluster, NodeGroup, load_cluster
    from queuewise.errors import QueuewiseError
    from queuewise.evaluation.metrics import summarise
    from queuewise.policies import policy_names, simulate
    from queuewise.sim.schedule import Schedule
    from queuewise.workload import load_workload
    from queuewise.workload.jobs import Workload

__all__ = [
    "Cluster", "NodeGroup", "QueuewiseError", "Schedule", "Workload",
    "load_cluster", "load_workload", "policy_names", "simulate", "summarise",
]  # fmt: skip

_HOME = {
    "Cluster": "queuewise.cluster",
    "NodeGroup": "queuewise.cluster",
    "QueuewiseError": "queuewise.errors",
    "Schedule": "queuewise.sim.schedule",
    "Workload": "queuewise.workload.jobs",
    "load_cluster": "queuewise.cluster",
    "load_workload": "queuewise.workload",
    "policy_names": "queuewise.policies",
    "simulate": "queuewise.policies",
    "summarise": "queuewise.evaluation.metrics",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("queuewise")
    if name not in _HOME:
        raise AttributeError(f"module 'queuewise' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


register_when_gymnasium_loads()
