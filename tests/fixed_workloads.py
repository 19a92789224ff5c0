"""Workloads, with their clusters, that meet every rule: the same in every run."""

from __future__ import annotations

import dataclasses

import numpy as np

from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import KIND_SETS, SCALINGS, Case


def gangs() -> Case:
    """Whole-GPU gangs on equal nodes in racks, one queue, overdue jobs, penalties for spreading."""
    rng = np.random.default_rng(1)
    num = 16
    workload = Workload(
        submit=np.cumsum(rng.choice([0.0, 0.0, 1.0, 3.0], num)),
        runtime=rng.choice([0.0, 2.0, 5.0, 5.0, 11.0], num),
        num_tasks=rng.choice([1, 1, 2, 3, 5], num).astype(np.int32),
        gpu_milli=rng.choice([1000, 1000, 2000], num).astype(np.int32),
        priority=rng.choice([0.0, 1.0], num),
        deadline=rng.choice([np.nan, 9.0, 20.0], num),
    )
    cluster = build("gangs", [NodeGroup(3, gpus=2, kind="V100-16", nodes_per_rack=2)], node_penalty=0.5, rack_penalty=0.25)
    return Case(workload, cluster, workload.runtime * rng.choice([0.5, 1.0, 1.0, 3.0], num), seed=7, kill_at_limit=False)


def mixture() -> Case:
    """Shares, CPU-only jobs, memory, kinds of different speed and two partitions with a queue each."""
    rng = np.random.default_rng(2)
    num = 16
    gpu = rng.choice([0, 300, 500, 700, 1000], num).astype(np.int32)
    workload = Workload(
        submit=np.cumsum(rng.choice([0.0, 0.1, 1 / 3, 2.0], num)),
        runtime=rng.choice([0.1, 0.7, 3.3, 3.3, 8.0], num),
        num_tasks=rng.choice([1, 1, 2, 3], num).astype(np.int32),
        gpu_milli=gpu,
        cpu_milli=np.where(gpu == 0, 1000, rng.choice([0, 500], num)).astype(np.int32),
        mem_mib=rng.choice([0, 700], num).astype(np.int32),
        requested=rng.choice([np.nan, 1.0, 4.0], num),
        kind_set=rng.choice([0, 0, 0, 1, 2, 4], num).astype(np.int32),
        partition=rng.choice([0, 0, 1], num).astype(np.int32),
        kind_sets=KIND_SETS,
        partitions=("south", "north"),
    )
    groups = [
        NodeGroup(1, gpus=2, kind="T4", cpus=2, mem_gib=2, partition="north", core_watts=5),
        NodeGroup(1, gpus=1, kind="A100-80", cpus=2, mem_gib=2, partition="south"),
        NodeGroup(1, cpus=2, mem_gib=1, partition="south", core_watts=9),
        NodeGroup(1, gpus=2, kind="V100-16", cpus=3, mem_gib=2, partition="south"),
    ]
    cluster = build("mixture", groups, speeds={"T4": 0.5, "A100-80": 1.7})
    return Case(workload, cluster, workload.runtime.copy(), seed=11, kill_at_limit=True)


def crowd(seed: int, num: int = 40) -> Case:
    """Short jobs come while long ones run, of every shape, on a small mixed cluster: much to stop for.

    Odd seeds have a queue for each partition, even ones a single queue; one in three has whole seconds and so many ties.
    """
    rng = np.random.default_rng(seed)
    gpu = rng.choice([0, 300, 500, 1000, 1000, 2000, 4000], num).astype(np.int32)
    runtime = rng.choice([0.0, 0.7, 1.1, 2.0, 3.3, 9.0, 30.0, 60.0], num)
    gaps = rng.choice([0.0, 0.1, 1.0, 2.3, 3.0], num)
    workload = Workload(
        submit=np.cumsum(np.floor(gaps) if seed % 3 == 0 else gaps),
        runtime=np.ceil(runtime) if seed % 3 == 0 else runtime,
        num_tasks=rng.choice([1, 1, 1, 2, 3, 5], num).astype(np.int32),
        gpu_milli=gpu,
        cpu_milli=np.where(gpu == 0, 1000, rng.choice([0, 500], num)).astype(np.int32),
        mem_mib=rng.choice([0, 0, 700], num).astype(np.int32),
        requested=rng.choice([np.nan, 1.0, 4.0, 50.0], num),
        kind_set=rng.choice([0, 0, 0, 0, 1, 2], num).astype(np.int32),
        partition=rng.choice([0, 0, 1] if seed % 2 else [-1, -1, 0, 1], num).astype(np.int32),
        priority=rng.choice([0.0, 1.0, 2.5], num),
        kind_sets=KIND_SETS,
        partitions=("south", "north"),
    )
    groups = [
        NodeGroup(2, gpus=2, kind="T4", cpus=3, mem_gib=3, partition="north", nodes_per_rack=1),
        NodeGroup(1, gpus=4, kind="A100-80", cpus=4, mem_gib=4, partition="south"),
        NodeGroup(1, cpus=2, mem_gib=1, partition="south"),
        NodeGroup(2, gpus=4, kind="V100-16", cpus=6, mem_gib=4, partition="south", nodes_per_rack=1),
    ]
    speeds = {"T4": 0.5, "A100-80": 1.7} if seed % 4 else None
    cluster = build("crowd", groups, speeds=speeds, node_penalty=0.3, rack_penalty=0.25)
    known = workload.runtime * rng.choice([0.3, 1.0, 1.0, 3.0], num) if seed % 2 else workload.runtime.copy()
    return Case(workload, cluster, known, seed=seed, kill_at_limit=seed % 5 == 0, guessed=seed % 4 == 3)


def stretchable(case: Case, seed: int) -> Case:
    """The same with seven in ten jobs elastic, by up to three tasks fewer and four more."""
    rng = np.random.default_rng(seed)
    tasks, num = case.workload.num_tasks, len(case.workload)
    chosen = rng.random(num) < 0.7
    workload = case.workload.replace(
        min_tasks=np.where(chosen, np.maximum(tasks - rng.integers(0, 4, num), 1), tasks).astype(np.int32),
        max_tasks=np.where(chosen, tasks + rng.integers(0, 5, num), tasks).astype(np.int32),
        scaling=rng.integers(0, len(SCALINGS), num).astype(np.int32),
        scalings=SCALINGS,
    )
    return dataclasses.replace(case, workload=workload)
