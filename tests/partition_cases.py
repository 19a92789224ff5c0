"""Schedules on clusters with partitions that share nodes, and by Slurm's loops, made by hand. The same as in `hand_cases`."""

from __future__ import annotations

import numpy as np

from hand_cases import FOUR_CORES, HandCase, cores, tasks
from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import CONFIGS

# Nodes 0 and 1 are in a, nodes 1 and 2 in b, node 3 is in c.
OVERLAPPING = build("overlapping", [
    NodeGroup(1, gpus=1, kind="V100-16", partition="a"), NodeGroup(1, gpus=1, kind="V100-16", partitions=("a", "b")),
    NodeGroup(1, gpus=1, kind="V100-16", partition="b"), NodeGroup(1, gpus=1, kind="V100-16", partition="c"),
])  # fmt: skip


def bound(workload: Workload, *names: str) -> Workload:
    """With the partitions that each job names."""
    labels = tuple(dict.fromkeys(names))
    return workload.replace(partition=np.array([labels.index(name) for name in names], np.int32), partitions=labels)


# Job 0 is on node 1 until 10, and job 1 waits for nodes 1 and 2.
IN_PARTITIONS = bound(tasks((0, 10, 1), (0, 5, 2), (1, 20, 1), (2, 20, 1), (2, 4, 1)), "b", "b", "a", "a,b", "c")

PARTITIONS = [
    # a and b share a node and so a queue: job 1 blocks jobs 2 and 3. Partition c has its own queue.
    HandCase("partitions that share a node", "fcfs", OVERLAPPING, IN_PARTITIONS,
             [(0, 0, 10, (1,)), (1, 10, 15, (1, 2)), (2, 10, 30, (0,)), (3, 15, 35, (1,)), (4, 2, 6, (3,))]),
    # Job 2 has node 0, which does not delay job 1. Job 3 may use any node of a and b, but only node 2 is free, which job 1 needs at 10.
    *(HandCase(f"{rule} in partitions that share a node", f"fcfs+{rule}", OVERLAPPING, IN_PARTITIONS,
               [(0, 0, 10, (1,)), (1, 10, 15, (1, 2)), (2, 1, 21, (0,)), (3, 15, 35, (1,)), (4, 2, 6, (3,))])
      for rule in ("easy", "conservative")),
    # No node is in a and c, but job 1 names both: they have one queue, and job 2 waits behind it. Partition b is on its own.
    HandCase("partitions that share a job", "fcfs", build("rooms", [NodeGroup(1, gpus=1, kind="V100-16", partition=p) for p in "abc"]),
             bound(tasks((0, 10, 1), (0, 5, 2), (1, 3, 1), (1, 2, 1)), "a", "a,c", "c", "b"),
             [(0, 0, 10, (0,)), (1, 10, 15, (0, 2)), (2, 15, 18, (2,)), (3, 1, 3, (1,))]),
]  # fmt: skip

ROOMS = build("rooms", [NodeGroup(1, gpus=1, kind="V100-16", partition=p) for p in "ab"])
QUICK = f"fcfs+slurm:{CONFIGS / 'quick_loops.txt'}"  # backfill loops every 2 s, up to 12 s ahead; 3 jobs in a main loop, all every 5 s

SLURM_LOOPS = [
    # The backfill loop at 1 starts nothing. That at 31 finds that job 0 ends at 100, rounded down 91: job 2 would end at 81 and starts.
    HandCase("a backfill loop", "fcfs+slurm", FOUR_CORES, cores((0, 100, 3), (1, 10, 4), (2, 50, 1)),
             [(0, 0, 100, (0,)), (1, 100, 110, (0,)), (2, 31, 81, (0,))]),
    # It would end at 96: before job 0, but not before what the plan says.
    HandCase("times are rounded", "fcfs+slurm", FOUR_CORES, cores((0, 100, 3), (1, 10, 4), (2, 65, 1)),
             [(0, 0, 100, (0,)), (1, 100, 110, (0,)), (2, 110, 175, (0,))]),
    # At 31 job 2 is reserved from 91 on, on node 0, until 121, rounded up 151, and job 3 from then on: job 4 ends in time for it.
    HandCase("ends of reservations are rounded up", "fcfs+slurm", build("two", [NodeGroup(2, cpus=4)]),
             cores((0, 100, 4), (0, 1000, 3), (1, 30, 4), (1, 10, 5), (2, 100, 1)),
             [(0, 0, 100, (0,)), (1, 0, 1000, (1,)), (2, 100, 130, (0,)), (3, 131, 141, (0, 1)), (4, 31, 131, (1,))]),
    # At 3 job 1 could start at 20, after the end of the window at 15: it has no reservation, and job 2 may delay it.
    HandCase("beyond the window", QUICK, FOUR_CORES, cores((0, 20, 3), (1, 5, 4), (2, 30, 1)),
             [(0, 0, 20, (0,)), (1, 33, 38, (0,)), (2, 3, 33, (0,))]),
    # The same, but job 1 is overdue at 2 and has its reservation. There is no backfill loop between 3 and 20.
    HandCase("an overdue job beyond the window", f"{QUICK}~1s", FOUR_CORES, cores((0, 20, 3), (1, 5, 4), (2, 30, 1)),
             [(0, 0, 20, (0,)), (1, 20, 25, (0,)), (2, 25, 55, (0,))]),
    # Job 1 is blocked and withdraws nodes 1 and 2 of b. Job 2 has node 0 of a at once, job 3 finds none; c is not concerned.
    HandCase("withdrawn nodes", "fcfs+slurm", OVERLAPPING, IN_PARTITIONS,
             [(0, 0, 10, (1,)), (1, 10, 15, (1, 2)), (2, 1, 21, (0,)), (3, 15, 35, (1,)), (4, 2, 6, (3,))]),
    # Job 2 needs no GPU and could have node 1, which job 1 cannot use. But node 1 is withdrawn as well, with all of its partition.
    HandCase("withdrawn nodes that the blocked job cannot use", "fcfs+slurm",
             build("one of each", [NodeGroup(1, gpus=1, kind="V100-16"), NodeGroup(1, cpus=4)]),
             tasks((0, 10, 1), (1, 5, 1), (2, 3, 1)).replace(
                 gpu_milli=np.array([1000, 1000, 0], np.int32), cpu_milli=np.array([0, 0, 1000], np.int32)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0,)), (2, 10, 13, (1,))]),
    # Job 1 withdraws node 0, the only one in a. Job 2 names a and b, but only node 0 has a GPU: it withdraws node 1, and job 3 waits.
    HandCase("withdrawn by a job that has no node left", "fcfs+slurm",
             build("rooms", [NodeGroup(1, gpus=1, kind="V100-16", partition="a"), NodeGroup(1, cpus=4, partition="b")]),
             bound(tasks((0, 10, 1), (1, 5, 1), (2, 5, 1), (3, 3, 1)), "a", "a", "a,b", "b").replace(
                 gpu_milli=np.array([1000, 1000, 1000, 0], np.int32), cpu_milli=np.array([0, 0, 0, 1000], np.int32)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0,)), (2, 15, 20, (0,)), (3, 15, 18, (1,))]),
    # Job 2 is over before job 1 can start, but the main loop does not look; the backfill loop does, after 2 s or after 30.
    HandCase("between backfill loops", "fcfs+slurm", OVERLAPPING, bound(tasks((0, 10, 1), (0, 5, 2), (1, 3, 1)), "b", "b", "b"),
             [(0, 0, 10, (1,)), (1, 10, 15, (1, 2)), (2, 15, 18, (1,))]),
    HandCase("quick backfill loops", QUICK, OVERLAPPING, bound(tasks((0, 10, 1), (0, 5, 2), (1, 3, 1)), "b", "b", "b"),
             [(0, 0, 10, (1,)), (1, 10, 15, (1, 2)), (2, 2, 5, (2,))]),
    # Main loops try two jobs, but all of them every 3 s, here at 0, 3 and 6. So job 3 starts at 3 and job 4, which comes after that, at 6.
    HandCase("depth of the main loop", f"fcfs+slurm:{CONFIGS / 'main_loop_only.txt'}", ROOMS,
             bound(tasks((0, 100, 1), (1, 5, 1), (1, 5, 1), (2, 2, 1), (5, 4, 1)), "a", "a", "a", "b", "b"),
             [(0, 0, 100, (0,)), (1, 100, 105, (0,)), (2, 105, 110, (0,)), (3, 3, 5, (1,)), (4, 6, 10, (1,))]),
]  # fmt: skip

PARTITION_CASES = [*PARTITIONS, *SLURM_LOOPS]
