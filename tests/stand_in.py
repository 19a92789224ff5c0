"""A scheduler simple enough to trust, for tests of what comes after the engine: one line, served in order, lowest GPU first.

`line_up` has the signature of `queuewise.policies.simulate`. The policy's name is `line` or `line-D`: every job then starts D seconds
later than it could. Jobs of more GPUs than the cluster has are rejected. Every task must want exactly one whole GPU.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.sim.core.schedule import DONE, NEVER, REJECTED, Schedule
from queuewise.workload.jobs import Workload


def line_up(workload: Workload, cluster: Cluster, policy: str, **rules: Any) -> Schedule:
    delay = float(policy.partition("-")[2] or 0)
    homes = [(n, g) for n in range(cluster.num_nodes) for g in range(int(cluster.node_gpus[n]))]
    free = [(-np.inf, gpu) for gpu in range(len(homes))]  # (since when, GPU)
    start, end = np.full(len(workload), NEVER), np.full(len(workload), NEVER)
    status = np.full(len(workload), REJECTED, dtype=np.int8)
    pieces: list[tuple[int, int, int, int, float, float]] = []
    head = -np.inf  # nobody starts before the one in front
    for j in range(len(workload)):
        if workload.num_tasks[j] > len(homes):
            continue
        taken = [heapq.heappop(free) for _ in range(workload.num_tasks[j])]
        head = max(head, float(workload.submit[j]) + delay, *(since for since, _ in taken))
        start[j], end[j], status[j] = head, head + workload.runtime[j], DONE
        masks: dict[int, int] = {}
        for _, gpu in taken:
            heapq.heappush(free, (float(end[j]), gpu))
            node, bit = homes[gpu]
            masks[node] = masks.get(node, 0) | 1 << bit
        pieces += [(j, node, mask.bit_count(), mask, float(start[j]), float(end[j])) for node, mask in sorted(masks.items())]
    jobs, nodes, tasks, gpus, begin, stop = np.array(pieces).reshape(-1, 6).T
    return Schedule(
        workload, cluster, policy, rules.get("dispatch", "reorder"), rules.get("estimates", "oracle"), rules.get("seed", 0),
        workload.runtime, status, start, end, np.zeros(len(workload), np.int32), jobs.astype(np.int32), nodes.astype(np.int32),
        tasks.astype(np.int32), gpus.astype(np.int64), begin, stop, 0.01, len(workload),
    )  # fmt: skip


def busy_days(num_jobs: int, *, num_gpus: int = 16, seed: int = 1, load: float = 0.85) -> Workload:
    """Jobs of 1 to 8 GPUs, lognormal runtimes, users, groups and priorities, on a cluster of `num_gpus`."""
    rng = np.random.default_rng(seed)
    num_tasks = rng.choice([1, 1, 1, 2, 4, 8], num_jobs).astype(np.int32)
    runtime = np.round(np.minimum(rng.lognormal(6.5, 1.4, num_jobs), 50_000)) + 1
    span = float(num_tasks @ runtime) / (num_gpus * load)
    return Workload.sorted(
        submit=np.round(rng.uniform(0, span, num_jobs)),
        runtime=runtime,
        num_tasks=num_tasks,
        gpu_milli=np.full(num_jobs, 1000, np.int32),
        cpu_milli=np.full(num_jobs, 1000, np.int32),
        user=rng.zipf(1.6, num_jobs).clip(1, 40).astype(np.int32) - 1,
        users=tuple(f"user{u}" for u in range(40)),
        group=rng.integers(0, 3, num_jobs).astype(np.int32),
        groups=("vision", "speech", "robots"),
        priority=rng.integers(0, 3, num_jobs).astype(np.float64),
        name="busy-days",
        epoch=1_600_000_000.0,
    )


def small_cluster(num_nodes: int = 2) -> Cluster:
    """`num_nodes` × 8 V100 with cores and watts."""
    group = NodeGroup(count=num_nodes, gpus=8, kind="V100-16", cpus=64, mem_gib=256, idle_watts=200.0, core_watts=3.0, name="v")
    return build(f"{num_nodes}-nodes", [group])
