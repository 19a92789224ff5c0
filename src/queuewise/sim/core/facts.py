"""What scoring functions may know about jobs (`queue.FACTS`) and nodes (`placement.NODE_FACTS`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.sim.core import layout
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.layout import Classes, Pools
from queuewise.sim.core.tables import F64
from queuewise.sim.placement import NODE_FACTS, NodeRecords
from queuewise.sim.queue import FACTS, Records
from queuewise.workload.dependencies import NO_DEPENDENCIES
from queuewise.workload.history import HISTORY, History
from queuewise.workload.jobs import Workload

FACTS_BLOCK = 8192  # jobs


def job_facts(workload: Workload, estimate: F64, history: History, watts: F64, *, first: int = 0, rows: Records | None = None) -> Records:
    """[J] what a scoring function may know about each job, written into `rows` if given.

    `first` is the index of the first job.
    """
    unknown = {"user_spread": 0.0, "user_gap": np.inf}  # and the estimate for columns of seconds that nobody asked for
    facts = np.zeros(len(workload), FACTS) if rows is None else rows[: len(workload)]
    columns: dict[str, Any] = {
        "submit": workload.submit, "estimate": estimate, **{name: history.get(name, unknown.get(name, estimate)) for name in HISTORY},
        "width": workload.size, "num_tasks": workload.num_tasks, "gpus": workload.gpus, "cpus": workload.cores,
        "mem_mib": workload.mem_mib * workload.num_tasks.astype(np.float64), "priority": workload.priority,
        "deadline": np.where(np.isnan(workload.deadline), np.inf, workload.deadline), "watts": watts,
        "user": workload.user, "group": workload.group, "index": history.get("index", np.arange(first, first + len(workload))),
    }  # fmt: skip
    for name, column in columns.items():
        facts[name] = column
    return facts.view(np.recarray) if JIT_DISABLED else facts  # plain Python can read job.submit only from record arrays


def fact_blocks(workload: Workload, estimate: F64, history: History, watts: F64, own_estimate: F64 | None) -> Iterator[Records]:
    """The same, in blocks of jobs that fit into the processor's cache. The next block overwrites the last one."""
    estimate = estimate if own_estimate is None else own_estimate
    jobs = workload.replace(dependencies=NO_DEPENDENCIES)
    rows = np.zeros(min(FACTS_BLOCK, len(jobs)), FACTS)
    for first in range(0, len(jobs), FACTS_BLOCK):
        part = slice(first, first + FACTS_BLOCK)
        known = {name: column[part] for name, column in history.items()}
        yield job_facts(jobs.take(part), estimate[part], known, watts[part], first=first, rows=rows)


def cheapest_watts(workload: Workload, cluster: Cluster, pools: Pools, classes: Classes) -> F64:
    """[J] active watts of one GPU of the cheapest kind that the job may use, 1 for jobs without GPUs."""
    per_pool = np.array([kind.peak_watts - kind.idle_watts for kind in cluster.kinds] + [0.0])[cluster.node_kind[pools.example]]
    per_class = np.where(classes.allows, per_pool[None, :], np.inf).min(axis=1)
    per_class = np.where(np.isfinite(per_class) & (classes.milli > 0), per_class, 1.0)
    return per_class[classes.of_job]


def node_facts(cluster: Cluster) -> NodeRecords:
    """[N] what a function that scores nodes may know. Free amounts are filled in before each call."""
    facts = np.zeros(cluster.num_nodes, NODE_FACTS)
    gpu_watts = np.array([kind.peak_watts - kind.idle_watts for kind in cluster.kinds] + [0.0])
    columns: dict[str, NDArray[Any]] = {
        "index": np.arange(cluster.num_nodes), "gpus": cluster.node_gpus,
        "cores": np.where(cluster.node_cpu_milli == UNLIMITED, np.inf, cluster.node_cpu_milli / 1000),
        "mem_mib": np.where(cluster.node_mem_mib == UNLIMITED, np.inf, cluster.node_mem_mib), "kind": cluster.node_kind,
        "speed": layout.node_speed(cluster), "watts": gpu_watts[cluster.node_kind], "core_watts": cluster.node_core_watts,
        "rack": cluster.node_rack,
    }  # fmt: skip
    for name, column in columns.items():
        facts[name] = column
    return facts.view(np.recarray) if JIT_DISABLED else facts
