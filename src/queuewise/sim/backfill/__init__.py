"""Backfill: which jobs may start while the head of the queue waits.

`easy` makes a reservation for the head, `conservative` plans every waiting job. This file declares the codes and
columns of backfill.

Axes: Q queues, C demand classes, N nodes.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.tables import F64, I64, Table, column

# PolicyFlags.backfill
NO_BACKFILL, GREEDY, EASY, EASY_STRICT, CONSERVATIVE, DEFRAG = range(6)
PLAN_BANDS = 48  # bands of lengths in State.planned


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
    # Conservative backfill
    planned: F64 = column("plan_bands", unit="s", meaning="latest start planned in this pass, by class and band of length")
