"""Queuewise: replay a cluster's job log under any scheduling policy, train one that does better, and prove it.

The names below are the public interface. Each is imported on first use, which keeps `import queuewise` fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from queuewise.prefixes import register_prefix

if TYPE_CHECKING:
    from queuewise.api.calls import compare, evaluate, name_policy, report, simulate, simulate_many, train, validate
    from queuewise.api.replays import Schedules
    from queuewise.cluster import Cluster, NodeGroup, load_cluster
    from queuewise.cluster.conditions import Conditions, load_conditions
    from queuewise.errors import QueuewiseError
    from queuewise.evaluation.judging import Result
    from queuewise.evaluation.log_validation import Validation
    from queuewise.evaluation.many import ManyReplays
    from queuewise.evaluation.metrics import summarise
    from queuewise.evaluation.wait_causes import WaitCauses, wait_causes
    from queuewise.policies import policy_names
    from queuewise.policies.snapshot import Snapshot
    from queuewise.serve.live_policy import LivePolicy, load_policy
    from queuewise.sim.core.schedule import Schedule
    from queuewise.workload import ReadOptions, load_workload
    from queuewise.workload.jobs import Workload

__all__ = [
    "Cluster", "Conditions", "LivePolicy", "ManyReplays", "NodeGroup", "QueuewiseError", "ReadOptions", "Result", "Schedule",
    "Schedules", "Snapshot", "Validation", "WaitCauses", "Workload", "compare", "evaluate", "load_cluster",
    "load_conditions", "load_policy", "load_workload", "name_policy", "policy_names", "report", "simulate", "simulate_many",
    "summarise", "train", "validate", "wait_causes",
]  # fmt: skip

_HOME = {
    "Cluster": "queuewise.cluster",
    "Conditions": "queuewise.cluster.conditions",
    "LivePolicy": "queuewise.serve.live_policy",
    "ManyReplays": "queuewise.evaluation.many",
    "NodeGroup": "queuewise.cluster",
    "QueuewiseError": "queuewise.errors",
    "ReadOptions": "queuewise.workload",
    "Result": "queuewise.evaluation.judging",
    "Schedule": "queuewise.sim.core.schedule",
    "Schedules": "queuewise.api.replays",
    "Snapshot": "queuewise.policies.snapshot",
    "Validation": "queuewise.evaluation.log_validation",
    "WaitCauses": "queuewise.evaluation.wait_causes",
    "Workload": "queuewise.workload.jobs",
    "compare": "queuewise.api.calls",
    "evaluate": "queuewise.api.calls",
    "load_cluster": "queuewise.cluster",
    "load_conditions": "queuewise.cluster.conditions",
    "load_policy": "queuewise.serve.live_policy",
    "load_workload": "queuewise.workload",
    "name_policy": "queuewise.api.calls",
    "policy_names": "queuewise.policies",
    "report": "queuewise.api.calls",
    "simulate": "queuewise.api.calls",
    "simulate_many": "queuewise.api.calls",
    "summarise": "queuewise.evaluation.metrics",
    "train": "queuewise.api.calls",
    "validate": "queuewise.api.calls",
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


if "gymnasium" in sys.modules:
    import_module("queuewise.envs")  # which registers the environments
