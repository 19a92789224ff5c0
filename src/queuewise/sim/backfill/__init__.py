"""Backfill: which jobs may start while the head of the queue waits.

`easy` makes a reservation for the head. `conservative` plans every waiting job in a `profile` of what will be free,
`start_search` finds the start of a job in it, and `pins` lets waiting jobs keep their reservations. `slurm` does as
Slurm's two scheduling loops do. This file declares the codes and columns of backfill.

Axes: Q queues, C demand classes, N nodes, P pools.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.tables import F64, I32, I64, Scalars, Table, column

# PolicyFlags.backfill
NO_BACKFILL, GREEDY, EASY, EASY_STRICT, CONSERVATIVE, DEFRAG, SLURM = range(7)
PLAN_BANDS = 96  # bands of lengths in State.planned
# State.plan_state: the next plan cannot rely on the last one; nobody finds an earlier start than in the last one; the last one stands
UNSETTLED, SETTLED, STANDING = range(3)


class SlurmLoops(Scalars, dtype=np.float64):
    """Parameters of Slurm's scheduling loops. The names in brackets are those of its SchedulerParameters."""

    backfill_interval: float  # seconds from one backfill loop to the next, at least (bf_interval)
    most_planned: float  # jobs that a backfill loop plans (bf_max_job_test)
    window: float  # seconds: later starts are not planned (bf_window)
    resolution: float  # seconds: times of a plan are multiples of it after now (bf_resolution); 0: times are not rounded
    main_depth: float  # jobs that a main loop tries (default_queue_depth)
    main_interval: float  # seconds from one main loop through all jobs to the next, at least (sched_interval)


class BackfillWorld(Table):
    slurm: SlurmLoops = column(meaning="parameters of Slurm's loops, 0 under other rules")
    class_partitions: I64 = column("classes", meaning="number of the set of partitions that the class names")
    partition_pools: I64 = column(meaning="whether a set of partitions has the nodes of a pool, at set * P + pool")
    pin_first: I64 = column(meaning="where the pieces of the job's remembered reservation lie, see pins.py")  # [J or 1]


class BackfillState(Table):
    # EASY: the reservation of each queue's head
    shadow_head: I64 = column("queues", initial=-1, meaning="job that the shadow time was computed for, -1: none")
    shadow_stamp: I64 = column("queues", initial=0, meaning="Counts.early_ends when it was computed")
    shadow_time: F64 = column("queues", initial=np.inf, unit="s", meaning="when the head is expected to fit")
    shadow_slack: I64 = column("queues", initial=0, meaning="tasks of the head's class that fit at that time, minus those of the head")
    free_times: F64 = column(
        "tracked_gpus",
        initial=-np.inf,
        unit="s",
        meaning="expected free times of each node's GPUs, ascending, -inf: free now; [g*N + node_place]",
    )
    # Conservative backfill: reservations that waiting jobs remember, see pins.py
    pin_start: F64 = column("pinned_jobs", initial=np.inf, unit="s", meaning="inf: none")
    pin_pieces: I32 = column("pinned_jobs", initial=0)
    pin_node: I32 = column("pinned_pieces", initial=0)
    pin_tasks: I32 = column("pinned_pieces", initial=0)
    pin_gpus: I64 = column("pinned_pieces", initial=0, meaning="bit mask of the node's GPUs")
    plan_state: I64 = column("queues", initial=UNSETTLED, meaning="what is known of the last plan: UNSETTLED, SETTLED or STANDING")
    # By class and band of length: what is known in this pass of the starts of the class's jobs
    planned: F64 = column("plan_bands", unit="s", meaning="latest start of a job of this band or of a lower one")
    planned_last: F64 = column("plan_bands", unit="s", meaning="latest start of a job of this band")
    planned_length: F64 = column("plan_bands", unit="s", meaning="length of that job")
