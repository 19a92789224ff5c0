"""Placements of one's own: functions that score a node for a job; the least score is filled first.

    queuewise simulate --workload bench --jobs 20000 --cluster 16x8:V100-16 --policy fcfs+easy@examples/policies/placements.py:tightest

A function takes `node`, `job` (what the job asks for) or both; docs/policies.md lists their fields. Only nodes with room for a task are
scored; the best one gets as many tasks as it can take, then the others are scored again for the rest.
"""


def lowest(node):
    """The first node that has room: `first`."""
    return node.index


def tightest(node, job):
    """Keep whole nodes free: the node that is left with the least."""
    return node.free_gpus - min(node.slots, job.remaining) * job.gpus


def fast_for_wide(node, job):
    """Gangs to fast GPUs, single tasks to slow ones; of equals the tightest."""
    return (-node.speed if job.num_tasks > 1 else node.speed) * 1000.0 + node.free_gpus


def by_memory(node):
    """Best fit by memory, for hosts that run out of it before they run out of cores."""
    return node.free_mem_mib
