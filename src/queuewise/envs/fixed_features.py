"""Features that never change in an episode: of jobs, of hosts, and the scores of heuristics."""

from __future__ import annotations

from typing import Any

import numpy as np

from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.envs.features import LONGEST_S, NUM_JOB_FIXED
from queuewise.envs.task_settings import TaskSettings
from queuewise.envs.windows import known_runtimes
from queuewise.errors import InputError
from queuewise.evaluation import utilisation
from queuewise.policies.known import Jobs
from queuewise.policies.names import split_estimates
from queuewise.policies.ordering import order_rule
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.facts import job_facts
from queuewise.sim.core.state import World
from queuewise.sim.core.tables import F32, F64
from queuewise.sim.queue import FACTS
from queuewise.workload.history import NO_HISTORY
from queuewise.workload.jobs import Workload

MANY_TASKS = 1024.0  # this many tasks are shown as 1


def scores_of_orders(workload: Workload, cluster: Cluster, settings: TaskSettings, estimate: F64, seed: int) -> tuple[F64, Any, Any]:
    """Scores of the heuristics that are features: numbers for fixed orders, facts about jobs for live orders."""
    number = len(workload)
    orders = [split_estimates(name) for name in settings.scores]
    rules = [order_rule(name) for name, _ in orders]
    if unfit := [name for (name, _), rule in zip(orders, rules, strict=True) if rule.fair]:
        raise InputError(f"the score {unfit[0]!r} depends on the usage of users and cannot be a feature", hint="choose another order")
    fixed = np.zeros((len(rules), number))
    kinds = np.array([-1 if rule.fixed is not None else rule.live for rule in rules] or [-1], np.int64)
    live = (kinds >= 0).any() and number > 0
    facts: Any = np.zeros(len(rules) * number if live else 1, FACTS)
    for row, ((_, by), rule) in enumerate(zip(orders, rules, strict=True)):
        known = known_runtimes(workload, cluster, by, seed).values if by else estimate
        if rule.fixed is not None:
            history = {"predicted": known_runtimes(workload, cluster, "predicted", seed).values} if rule.uses_predictions else NO_HISTORY
            fixed[row] = rule.fixed(Jobs.of(workload, known, history=history))
        elif live:
            job_facts(workload, known, NO_HISTORY, np.ones(number), rows=facts[row * number :])
    return _at_least_one(fixed.ravel()), kinds, facts.view(np.recarray) if JIT_DISABLED else facts


def _at_least_one(column: Any) -> F64:
    """The column as a contiguous float64 array of length one or more."""
    return np.ascontiguousarray(column, np.float64) if len(column) else np.zeros(1)


def _share(values: Any, most: float) -> F64:
    return np.minimum(np.asarray(values, np.float64) / most, 1.0) if most > 0 else np.zeros(len(values))


def _limited_max(amounts: Any) -> float:
    limited = amounts[amounts != UNLIMITED]
    return float(limited.max(initial=0))


def job_tokens(workload: Workload, cluster: Cluster, estimate: F64, world: World) -> F32:
    """[J*S] features of every job that never change."""
    num = len(workload)
    if num == 0:
        return np.zeros(NUM_JOB_FIXED, np.float32)
    pools = np.bincount(world.node_pool)
    allowed = world.class_allows.reshape(-1, len(pools)) @ pools / cluster.num_nodes
    total = float(cluster.num_gpus or (cluster.num_cores if cluster.num_cores < np.inf else 0) or cluster.num_nodes)
    features = {
        "present": np.ones(num),
        "estimate": _share(np.log1p(estimate), float(np.log1p(LONGEST_S))),
        "size": _share(workload.size, total),
        "tasks": _share(np.log1p(workload.num_tasks), float(np.log1p(MANY_TASKS))),
        "gpu": _share(workload.gpu_milli, float(cluster.node_gpus.max()) * 1000.0),
        "cpu": _share(workload.cpu_milli, _limited_max(cluster.node_cpu_milli)),
        "mem": _share(workload.mem_mib, _limited_max(cluster.node_mem_mib)),
        "priority": workload.priority / (np.abs(workload.priority) + 1.0),
        "allowed": np.where(world.job_class >= 0, allowed[world.job_class], 0.0),
    }
    return np.ascontiguousarray(np.column_stack(list(features.values())), np.float32).ravel()


def host_tokens(cluster: Cluster) -> F32:
    """[N*S] features of every node that never change."""
    features = {
        "host_present": np.ones(cluster.num_nodes),
        "gpu_total": _share(cluster.node_gpus, float(cluster.node_gpus.max())),
        "cores_norm": np.where(
            cluster.node_cpu_milli == UNLIMITED, 0.0, _share(cluster.node_cpu_milli, _limited_max(cluster.node_cpu_milli))
        ),
        "mem_norm": np.where(cluster.node_mem_mib == UNLIMITED, 0.0, _share(cluster.node_mem_mib, _limited_max(cluster.node_mem_mib))),
        "kind": (cluster.node_kind + 1) / max(len(cluster.kinds), 1),
        "speed": utilisation.per_node(cluster, list(cluster.speed)) / max(float(cluster.speed.max(initial=0.0)), 1e-9),
    }
    return np.ascontiguousarray(np.column_stack(list(features.values())), np.float32).ravel()
