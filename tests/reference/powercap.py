"""What jobs may draw together ("Power cap" of the normative page)."""

from __future__ import annotations

import math

from queuewise.cluster.conditions import Power
from queuewise.cluster.spec import Cluster
from reference.state import Job


def budget(cluster: Cluster, power: Power) -> float:
    """The milliwatts that jobs may draw beyond what the idle cluster does."""
    if power.cap_watts == math.inf:
        return math.inf
    per_gpu = [cluster.kinds[k].idle_watts if k >= 0 else 0.0 for k in cluster.node_kind.tolist()]
    nodes = zip(cluster.node_idle_watts.tolist(), cluster.node_gpus.tolist(), per_gpu, strict=True)
    idle: float = sum(node + gpus * gpu for node, gpus, gpu in nodes)
    return math.floor((power.cap_watts - idle) * 1000)


def greatest_draw(job: Job) -> int:
    """Of the job alone, where its tasks draw the most."""
    left, most = job.num_tasks, 0
    for draw, cap in sorted(((job.machine.task_draw(job.demand, n), cap) for n, cap in enumerate(job.caps)), reverse=True):
        most += draw * min(left, cap)
        left -= min(left, cap)
    return most
