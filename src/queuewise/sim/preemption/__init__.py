"""Preemption: stopping jobs, what that costs, and which jobs are stopped for which.

`preemptive_pass` makes the decisions of a preemptive policy, and `keys` defines the keys it sorts by. `services` learns
keys from jobs that have ended. `victims`, `victim_lists` and `room` find the jobs to stop. `restart` tracks the runs of
jobs that may be stopped. `migration` moves jobs to make room. This file declares the codes and columns of preemption.

Axes: J jobs, N nodes, C demand classes, GM the most GPUs of a node.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.tables import F64, I8, I32, I64, Scalars, Table, column

# PolicyFlags.preemption_key: what a preemptive policy sorts by
NOT_PREEMPTIVE, BY_REMAINING, BY_FIXED, BY_LEVEL = range(4)
FIRST_COMPUTATION = 16  # services that must be known before keys of levels follow from them


class Costs(Scalars, dtype=np.float64):
    """Seconds that it costs to stop or restart a job and to wake a node."""

    quantum: float
    checkpoint: float
    checkpoint_per_gpu: float
    restart: float
    restart_per_gpu: float
    transfer: float
    transfer_per_gpu: float
    checkpoint_every: float
    sleep_after: float
    wake: float


class PreemptionWorld(Table):
    costs: Costs = column(unit="s")
    node_cost: F64 = column("nodes", meaning="factor by which costs on the node are multiplied")
    width: F64 = column("stopped_jobs", meaning="the job's size")
    level_bound: F64 = column(meaning="attained service at which a level ends")  # [num_levels or 1]


class PreemptionState(Table):
    # Runs of jobs that may be stopped
    remaining: F64 = column(
        "stoppable_jobs", row="run", unit="reference s", meaning="work left when the run began, or now if the job waits"
    )
    remaining_estimate: F64 = column("stoppable_jobs", row="run", unit="reference s", meaning="the same, by the estimate")
    begin: F64 = column("stoppable_jobs", row="run", unit="s", meaning="when the run begins to work")
    factor: F64 = column("stoppable_jobs", row="run", meaning="runtime factor of the run")
    attained: F64 = column("stoppable_jobs", row="run", meaning="service attained at the start of the run, for levels")
    worked: F64 = column("stoppable_jobs", row="run", unit="s", meaning="time worked in earlier runs")
    level: I32 = column("stoppable_jobs", row="run")
    stops: I32 = column("stoppable_jobs", row="run")
    saved: I8 = column("stoppable_jobs", row="run", meaning="1: the last stop took a checkpoint")
    # Keys of levels, see services.py
    level_key: F64 = column("level_keys", meaning="key of each level, as a rank; only the order matters")
    service: F64 = column("services", meaning="services of jobs that have ended, in any order")
    # Heaps by key: one of waiting jobs per class, and one of running jobs, see keys.py
    heap_job: I64 = column("heap_slots")
    heap_key: F64 = column("heap_slots")
    heap_slot: I32 = column("keyed_jobs")
    aside: I64 = column("classes", initial=0, meaning="1: the first job of the class was tried in this pass and cannot start")
    # Room per class, see room.py
    room: I64 = column("room", meaning="[c*N + node_place]")
    room_slots: I64 = column("classes", initial=0)
    room_key: F64 = column("classes", initial=np.inf)
    # The search for victims, see victims.py
    victim_key: F64 = column("victim_slots")
    victim_job: I64 = column("stoppable_jobs")
    gain: I64 = column("nodes", initial=0, meaning="GPUs that would become free, 0 between uses")
    taken: I64 = column("keyed_jobs", meaning="jobs taken off the machine to test what then fits")
    frontier: I64 = column("keyed_jobs", meaning="slots of the heap of running jobs that are still to be examined")
    # GPUs of each node in the order in which their jobs would be stopped, see victim_lists.py
    gpu_job: I32 = column("listed_gpu_slots", initial=-1, meaning="the job that runs, or ran last, on each GPU; [n*(GM+1) + g]")
    gpu_turn: F64 = column("listed_gpu_slots", initial=-np.inf, meaning="turn of that job: the greatest is stopped first")
    list_turn: F64 = column("listed_gpus", initial=-np.inf, meaning="turns of each node's GPUs, greatest first; [i*N + node_place]")
    list_job: I32 = column("listed_gpus", initial=-1, meaning="jobs of these GPUs")
    stale: I8 = column("listed_nodes", initial=1, meaning="1: the list of the node is out of date")
    stale_nodes: I64 = column("listed_nodes", meaning="the nodes whose lists are out of date")
