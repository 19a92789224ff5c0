"""Orders of one's own: functions that score a job; the least score goes first.

    queuewise simulate --workload bench --jobs 20000 --cluster 16x8:V100-16 --policy examples/policies/scores.py:patient+easy --policy sjf

A function takes any of job, now, queue, cluster and state, in any order; docs/policies.md lists their fields.
"""

import math

STATE_SIZE = 2  # numbers in `state`; they are 0 when a replay begins

PATIENCE_S = 6 * 3600.0
SMOOTHING = 0.01


def shortest(job):
    """Of the job alone: asked once for every job, and as quick as a built-in order. This is `sjf`."""
    return job.estimate


def patient(job, now):
    """Small jobs first, until somebody has waited six hours: then by age."""
    if now - job.submit > PATIENCE_S:
        return job.submit - 1e12
    return area(job)


def area(job):
    """Functions of the same file may be called."""
    return job.estimate * job.width


def by_pressure(job, queue, cluster):
    """Fill the machine with narrow jobs while the queue is short; in a crowd, shortest first."""
    crowd = queue.width / max(cluster.gpus, 1.0)
    return job.width if crowd < 1.0 else math.log1p(job.estimate)


def near_the_average(job, state):
    """Jobs whose length is nearest to what has been usual, by a running average that the function keeps in `state`."""
    if state[0] == 0.0:
        state[1] = job.estimate
    state[0] += 1.0
    state[1] += SMOOTHING * (job.estimate - state[1])
    return abs(job.estimate - state[1])
