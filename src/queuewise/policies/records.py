"""The read-only records that a user's functions get, the same in compiled code and in plain Python.

`Job` is a job of the queue, `Queue` all waiting jobs, `ClusterRecord` (parameter `cluster`) the machine as a whole, and
`UserRecord` (parameter `user`) what the job's user has. A function that places jobs gets a `Node` and the `Demand` of
the job. No record holds the true runtime. Every field has a default, so tests can write `Job(estimate=60)`.
docs/policies.md describes the same fields.
"""

from __future__ import annotations

from typing import NamedTuple

INF = float("inf")


class Job(NamedTuple):
    submit: float = 0.0  # seconds on the log's clock
    estimate: float = 0.0  # seconds: what is known about the runtime (--estimates)
    predicted: float = 0.0  # seconds: predicted from jobs that had finished before
    width: float = 1.0  # GPUs, or cores of a job without GPUs
    num_tasks: float = 1.0  # equal tasks that start together
    gpus: float = 0.0  # of the whole job
    cpus: float = 0.0  # cores of the whole job
    mem_mib: float = 0.0  # memory of the whole job
    priority: float = 0.0  # the log's; higher is more urgent
    deadline: float = INF  # seconds on the log's clock, inf without one
    watts: float = 1.0  # peak − idle of one GPU of the cheapest kind it may use, 1 without GPUs
    user: int = -1  # number of the user, −1 unknown
    group: int = -1  # number of the account or virtual cluster, −1 unknown
    index: int = 0  # type: ignore[assignment]  # position in the log, by submission; hides tuple.index
    predicted_low: float = 0.0  # seconds: one job in ten is shorter
    predicted_high: float = 0.0  # seconds: one job in ten is longer
    user_mean: float = 0.0  # seconds: of the user's last five runs that were known at submission
    user_spread: float = 0.0  # seconds: standard deviation of these
    user_gap: float = INF  # seconds since the user's last submission


class Queue(NamedTuple):
    length: int = 1  # waiting jobs
    width: float = 1.0  # Σ width
    work: float = 0.0  # Σ width × estimate
    oldest_submit: float = 0.0  # submission time of the job that has waited longest


class ClusterRecord(NamedTuple):
    nodes: float = 1.0
    gpus: float = 0.0
    free_gpus: float = 0.0  # partly used ones count with their free share
    cores: float = INF  # inf if a node does not limit its cores
    free_cores: float = INF
    mem_mib: float = INF  # inf if a node does not limit its memory
    free_mem_mib: float = INF
    running_jobs: float = 0.0
    utilisation: float = 0.0  # used share of the GPUs, or of the cores without GPUs, or of the memory


class UserRecord(NamedTuple):
    running_jobs: float = 0.0  # of the job's user, now
    running_width: float = 0.0  # Σ width of these
    recent_work: float = 0.0  # width × seconds so far, halved every day


class Node(NamedTuple):
    index: int = 0  # type: ignore[assignment]  # hides tuple.index
    gpus: float = 0.0
    free_gpus: float = 0.0  # partly used ones count with their free share
    whole_gpus: float = 0.0  # wholly free
    cores: float = INF  # inf if the cluster does not limit them
    free_cores: float = INF
    mem_mib: float = INF  # inf if the cluster does not limit it
    free_mem_mib: float = INF
    slots: float = 1.0  # tasks of the job that it can take now, at least 1
    kind: int = -1  # position of its GPU kind in the cluster's list of kinds, −1 without GPUs
    speed: float = 1.0  # of its GPU kind
    watts: float = 0.0  # peak − idle of one GPU
    core_watts: float = 0.0  # of one core in use
    rack: int = 0
    asleep: float = 0.0  # 1 if it must wake up first (conditions, sleep_after_s)


class Demand(NamedTuple):
    num_tasks: float = 1.0  # of the whole job
    remaining: float = 1.0  # tasks that have no node yet
    gpus: float = 0.0  # of one task
    cpus: float = 0.0  # cores of one task
    mem_mib: float = 0.0  # of one task
