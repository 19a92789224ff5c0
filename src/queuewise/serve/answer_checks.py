"""Whether an answer can be carried out: what a policy decided is checked against the snapshot before anybody acts on it."""

from __future__ import annotations

from queuewise.policies.snapshot import Snapshot
from queuewise.serve.live_policy import Decided
from queuewise.workload.jobs import WHOLE_GPU, named_partitions


def problem_of(decided: Decided, snapshot: Snapshot) -> str:
    """What is wrong with the answer; empty if nothing is. Answers that stop jobs are checked only for their jobs."""
    waiting = {one.job.job_id: one.job for one in snapshot.queue}
    running = {one.job.job_id for one in snapshot.running}
    if strangers := [job_id for job_id in decided.stops if job_id not in running]:
        return f"it stops job {strangers[0]}, which does not run"
    gpus = {node.index: set(node.free_gpus) for node in snapshot.nodes}
    shared = {(node.index, gpu): free for node in snapshot.nodes for gpu, free in node.shared_gpus.items()}
    cores = {node.index: node.free_cpu_milli for node in snapshot.nodes}
    memory = {node.index: node.free_mem_mib for node in snapshot.nodes}
    seen = set()
    for start in decided.starts:
        job = waiting.get(start.job_id)
        if job is None or start.job_id in seen:
            if start.job_id in decided.stops:
                continue
            return f"it starts job {start.job_id}, which does not wait"
        seen.add(start.job_id)
        if not job.min_tasks <= sum(place.tasks for place in start.places) <= job.max_tasks:
            return f"it places job {start.job_id} with a wrong number of tasks"
        if decided.stops:
            continue  # what stopped jobs leave is not in the snapshot
        for n, tasks, numbers in start.places:
            if not 0 <= n < len(snapshot.nodes) or snapshot.nodes[n].state != "up":
                return f"it places job {start.job_id} on node {n}, which is not up"
            shape = snapshot.nodes[n].shape
            if job.partition is not None and shape is not None and not set(named_partitions(job.partition)) & set(shape.partitions):
                return f"it places job {start.job_id} on node {n}, which is not in {job.partition}"
            if not _took_gpus(job.gpu_milli, n, numbers, gpus, shared):
                return f"it gives job {start.job_id} GPUs of node {n} that are not free"
            for free, need in ((cores, job.cpu_milli), (memory, job.mem_mib)):
                left = free[n]
                if left is not None:
                    free[n] = left - tasks * need
                    if left < tasks * need:
                        return f"it places job {start.job_id} on node {n}, which has no room"
    return ""


def _took_gpus(milli: int, n: int, numbers: tuple[int, ...], free: dict[int, set[int]], shared: dict[tuple[int, int], int]) -> bool:
    """Take GPUs; returns whether they were free."""
    for gpu in numbers:
        if milli >= WHOLE_GPU:
            if gpu not in free[n]:
                return False
            free[n].remove(gpu)
            continue
        if gpu in free[n]:
            free[n].remove(gpu)
            shared[n, gpu] = WHOLE_GPU
        if shared.get((n, gpu), 0) < milli:
            return False
        shared[n, gpu] -= milli
    return True
