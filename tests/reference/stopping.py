"""What stopping and restarting costs ("Stopping and restarting" of the normative page)."""

from __future__ import annotations

import math

from queuewise.cluster.conditions import Preemption
from reference.state import Job


def overhead(job: Job, nodes: set[int], costs: Preemption) -> float:
    """Seconds from the start of a run on these nodes until it begins to work."""
    if job.last_nodes is None:
        return 0.0
    checkpoint = costs.checkpoint_s + costs.checkpoint_per_gpu_s * job.size if job.saved else 0.0
    restart = costs.restart_s + costs.restart_per_gpu_s * job.size
    transfer = 0.0 if nodes == job.last_nodes else costs.transfer_s + costs.transfer_per_gpu_s * job.size
    factor = max(costs.kind_factor.get(job.machine.kind[n] or "", 1.0) for n in nodes)
    return (checkpoint + restart + transfer) * factor


def kept(worked: float, costs: Preemption, *, saved: bool) -> float:
    """How much of what a run has worked is not lost when it is stopped."""
    every = costs.checkpoint_every_s
    if saved or every == 0:
        return worked
    return 0.0 if every == math.inf else math.floor(worked / every) * every


def stop(job: Job, now: float, costs: Preemption, *, saved: bool) -> float:
    """Write down that the present run ends here unfinished; what it has worked is returned."""
    run = job.stay
    worked = max(now - run.begin, 0.0)
    done = kept(worked, costs, saved=saved) / run.factor
    job.rem = max(job.rem - done, 0.0)
    job.est = max(job.est - done, 0.0)
    job.worked += worked
    job.saved = saved
    job.stops += 1
    return worked
