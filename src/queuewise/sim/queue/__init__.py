"""The queue: which jobs wait, in which order, and which of them is first among those that may start.

`selection` finds the first job in order, and `overdue` the one that has waited too long. `scoring` and `fair_orders`
compute the scores of orders that change with time. `holds` keeps jobs from starting for now. `user_work` counts what
users have had lately. `account_tree` holds users and accounts as arrays for fair orders. This file declares the codes
and columns of the queue.

Axes: J jobs, C demand classes, Q queues, O orders (1, or 2 if backfill has its own order), A accounts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.tables import F64, I32, I64, Scalars, Table, column

# PolicyFlags.dispatch: sort the queue again at every decision, or commit to the chosen job until it starts
REORDER, COMMIT = range(2)
# World.scored_by: a score that never changes, a compiled function, or the usage of the jobs' owners (fair_orders.py)
FIXED, FUNCTION, FAIRSHARE, FAIRTREE, MULTIFACTOR, DRF = range(6)
MAX_LEVELS = 8  # of a queue tree, which has fan-out 16
PARAMS_SIZE = 256  # most parameters of a scoring function
# First entries of a row of State.outlook. Then follow the numbers that the order's function keeps between calls.
NODES, GPUS, FREE_GPUS, CORES, FREE_CORES, MEM_MIB, FREE_MEM_MIB, RUNNING_NOW, OUTLOOK_SIZE = range(9)

# Rows of State.users: what a user has had so far. Work is decayed as of a time; the rate is that of the user's running jobs.
USER_JOBS, USER_RATE, USER_WORK, USER_TIME, USER_SIZE = range(5)
HALF_LIFE_S = 86_400.0  # of a user's recent work

Records = NDArray[np.void]  # of FACTS
# What a scoring function may know about a job. The true runtime is not part of it.
FACTS = np.dtype(
    [
        ("submit", np.float64),  # seconds
        ("estimate", np.float64),  # seconds
        ("predicted", np.float64),  # seconds, from the history of finished jobs
        ("width", np.float64),  # GPUs, or cores of a job without GPUs (n in the literature)
        ("num_tasks", np.float64),
        ("gpus", np.float64),
        ("cpus", np.float64),
        ("mem_mib", np.float64),
        ("priority", np.float64),
        ("deadline", np.float64),  # seconds, inf if none
        ("watts", np.float64),  # active watts of one GPU of the cheapest kind the job may use, 1 without GPUs
        ("user", np.int64),
        ("group", np.int64),
        ("index", np.int64),
        ("predicted_low", np.float64),  # seconds: one job in ten is shorter
        ("predicted_high", np.float64),  # seconds: one job in ten is longer
        ("user_mean", np.float64),  # seconds: of the user's last runs that were known when the job was submitted
        ("user_spread", np.float64),  # seconds: standard deviation of these
        ("user_gap", np.float64),  # seconds since the user's last submission, inf for the first
    ],
    align=True,
)


class FairShare(Scalars, dtype=np.float64):
    """Parameters of fair orders. A total is inf if the resource does not count."""

    decay_rate: float
    age_weight: float
    max_age: float
    fairshare_weight: float
    first_user: float  # nodes of the account tree from this one on are users
    classic_factor: float  # 1: the fair-share factor of multifactor is the classic one, 0: that of the Fair Tree
    gpu_total: float
    cpu_total: float
    mem_total: float


class QueueWorld(Table):
    wait_bound: F64 = column("one", unit="s", meaning="a job that has waited so long is overdue (overdue.py); inf: no bound")
    # Trees of static orders, see selection.py
    rank: I32 = column(meaning="position of job j in order o, at o*J + j")  # [O*J or 1]
    leaf: I32 = column(meaning="leaf of job j in the tree of its class")  # [O*J or 1]
    leaf_job: I32 = column(meaning="job at a leaf, at o*J + class_first[c] + leaf")  # [O*J or 1]
    class_first: I64 = column("class_bounds", meaning="first leaf of each class, counted over all classes")
    tree_levels: I64 = column("classes", meaning="levels of the tree of the class")
    tree_level: I64 = column("classes", "max_levels", meaning="offset of each level in State.tree, leaves first (order o: + o * tree_size)")
    # Scores of orders that change with time
    facts: Records = column(dtype=FACTS, meaning="what a scoring function may know about a job")  # [J or 1]
    second_facts: Records = column(dtype=FACTS, meaning="the same for the second order, if it has other estimates")  # [J or 1]
    fixed_score: F64 = column(meaning="scores that never change; NaN: call the function. Under BY_FIXED: ranks of keys")  # [O*J, J or 1]
    scored_by: I64 = column(meaning="how each order scores")  # [O+1]
    params: F64 = column("params", meaning="parameters of the scoring function of the first order")
    second_params: F64 = column("params", meaning="parameters of the scoring function of the second order")
    # Accounts of fair orders, see account_tree.py; one unused account otherwise
    owner: I32 = column(meaning="leaf of the account tree")  # [J or 1]
    account_parent: I64 = column("accounts")
    account_fraction: F64 = column("accounts")
    account_share: F64 = column("accounts")
    child_first: I64 = column("account_bounds", meaning="first entry of each account in State.children")
    fairness: FairShare = column(meaning="parameters of fair orders")


class QueueState(Table):
    tree: F64 = column("tree", initial=np.inf, unit="s", meaning="trees of least estimates, of all orders and classes")
    head_leaf: I64 = column("orders", "classes", initial=-1, meaning="first queued job of each class, -1: to be found")
    head_rank: I64 = column("orders", "classes", initial=0, meaning="rank of that job")
    class_pending: I64 = column("classes", initial=0, meaning="queued jobs of each class")
    active: I64 = column("classes", initial=0, meaning="classes with queued jobs, in one region per queue")
    active_slot: I64 = column("classes", initial=0, meaning="position of a class in `active`")
    queue_first: I64 = column("queue_bounds", meaning="region of `active` that belongs to each queue")
    queue_active: I64 = column("queues", initial=0, meaning="classes in the region of each queue")
    head: I64 = column("queues", initial=-1, meaning="job known to be blocked at the front (commit: the committed job), -1: none")
    dirty: I64 = column("queues", initial=0, meaning="1: something was released or the head may have changed, so a full pass is due")
    oldest: I64 = column("queues", initial=0, meaning="no queued job of the queue has a lesser index")
    newcomer: I64 = column("queues", initial=-1, meaning="the one job that arrived behind the head since the last pass, -1: none")
    stretch: F64 = column("classes", initial=0.0, meaning="which jobs of a class may start now, see selection.py")
    # Orders that change with time: a plain list that is scored and scanned
    pending: I32 = column("scanned_jobs", meaning="queued jobs, unordered")
    pending_slot: I32 = column("scanned_jobs", meaning="position of a job in `pending`")
    score: F64 = column("scanned_jobs", meaning="score by the first order, by position in `pending`")
    second_score: F64 = column("scanned_jobs", meaning="score by the second order")
    hold_until: F64 = column("held_jobs", initial=-np.inf, unit="s", meaning="may not start before; inf: at this decision (holds.py)")
    hold: F64 = column("held_jobs", meaning="answers of the function that holds jobs, by position in `pending`")
    users: F64 = column(initial=0.0, meaning="what each user has had (user_work.py), USER_SIZE numbers each")
    # Static orders under conservative backfill, see line.py
    line: I32 = column("lined_jobs", meaning="queued jobs of all queues in the order of backfill")
    outlook: F64 = column(meaning="facts about the cluster for scoring functions, then numbers they keep; one row per order")
    # Accounts, see fair_orders.py
    usage: F64 = column("accounts", initial=0.0, unit="GPU milli × s", meaning="decayed usage as of usage_time")
    usage_rate: I64 = column("accounts", initial=0, unit="GPU milli", meaning="GPU milli held by running jobs")
    usage_time: F64 = column("accounts", unit="s", meaning="when `usage` was last updated")
    effective: F64 = column("accounts", initial=0.0, meaning="effective usage, valid for decision number effective_at")
    effective_at: I64 = column("accounts", initial=-1, meaning="number of a decision")
    children: I64 = column("accounts", meaning="children of accounts, as last sorted for the Fair Tree; the last entry is unused")
    fair_rank: I64 = column("accounts", initial=0, meaning="rank of a user in the Fair Tree, as of the last scoring")
    held: I64 = column("accounts", "resources", initial=0, meaning="GPU milli, CPU milli and MiB of running jobs, per leaf")
