"""The columns of a simulation.

Kernels receive three tables, in this order:
- `World` w: what does not change: nodes, demand classes, jobs, the parameters of the policy.
- `Machine` m: free resources. There are two: the real machine, and a spare one (z) for simulating the future.
- `State` s: everything else that changes: queues, running jobs, the clock, the log of pieces.

This file declares the common columns. Each sub-package of `sim` declares its own columns in its `__init__.py`; `World`
and `State` combine them.

Indices: j job, n node, g GPU, c demand class, p pool, q queue, o order. Axes: J N C P Q O. GM is the largest number of
GPUs of a node.

- A *demand class* is a distinct (num_tasks, gpu, cpu, mem, kinds, partition). The hardware cannot distinguish jobs of a
  class, so whether a job fits is computed once per class, not per job. An elastic job has the class of its fewest tasks.
- A *pool* is a set of nodes that are equal in everything but their index.
- A *piece* is the part of a run that is on one node.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill, placement
from queuewise.sim.backfill import BackfillState, BackfillWorld
from queuewise.sim.conditions import ConditionsState, ConditionsWorld
from queuewise.sim.core.schedule import NEVER, PENDING
from queuewise.sim.core.table_types import KnownValues
from queuewise.sim.core.tables import F64, I8, I32, I64, Scalars, Table, column, table_reader
from queuewise.sim.placement import PlacementState, PlacementWorld
from queuewise.sim.preemption import PreemptionState, PreemptionWorld
from queuewise.sim.queue import QueueState, QueueWorld

NO_LIMIT = -1  # in PolicyFlags.placement_option, depth and power_budget: compare with ==, never with <


class Sizes(Scalars, dtype=np.int64):
    """Lengths of columns and other properties of the simulation."""

    num_jobs: int
    num_nodes: int
    num_pools: int
    num_classes: int
    num_queues: int
    num_types: int
    num_words: int
    gpu_stride: int  # GM + 1
    tree_size: int  # length of the trees of one order
    shares_gpus: int  # 1: at least one class takes shares of GPUs
    uniform_speed: int  # 1: every runtime factor is 1
    num_levels: int  # number of bounds between levels of service
    num_outages: int
    most_pieces: int  # of one run
    log_size: int  # room in the log of pieces
    outlook_row: int  # length of one order's row in State.outlook
    num_accounts: int
    num_reservation_ends: int
    num_users: int  # whose work is known to scoring functions
    num_domains: int  # of PlacementWorld.pool_domain


class PolicyFlags(Scalars, dtype=np.int64):
    """The policy and the conditions as numbers. Fields whose names read like a statement are 0 or 1."""

    dispatch: int  # queue.REORDER or COMMIT
    backfill: int  # backfill.EASY and others
    placement: int  # placement.PACK and others
    placement_option: int
    scans_queue: int  # queues are lists that are scored and scanned, not trees
    depth: int  # number of candidates that backfill considers
    second_order: int  # backfill has its own order
    seed: int
    guesses: int  # jobs that outlive their estimates are expected to go on (backfill/outlived.py)
    tracks_free_times: int  # EASY may use State.free_times
    preemption_key: int  # preemption.BY_LEVEL and others
    can_restart: int  # jobs may be stopped, or wait for nodes to wake; otherwise the columns of runs have length 1
    stop_loses_progress: int  # after a stop by the policy, only progress that was checkpointed before is kept
    requeues_failed: int  # a job hit by a failure is queued again
    promotes: int  # jobs that have waited for long return to level 0
    learns_keys: int  # keys of levels are learned from jobs that have ended, see preemption/services.py
    reads_cluster: int  # a scoring function reads State.outlook
    reads_users: int  # a scoring function reads State.users
    scores_fairly: int  # an order goes by the usage of accounts (queue/fair_orders.py)
    second_facts: int  # the second order has other estimates than the first
    bounds_waits: int  # jobs become overdue (overdue.py)
    holds: int  # a function may keep jobs from starting (holds.py)
    node_scorer: int  # address of the function behind the rule BY_SCORE
    solver: int  # address of the function behind the rule BY_SOLVER
    solver_number: int  # which solver it is to ask
    has_quotas: int
    has_dependencies: int
    nodes_sleep: int
    power_budget: int  # milliwatts that all jobs together may draw
    fit_may_return: int  # a class that does not fit may fit after others have started, because the rule then chooses other nodes
    lists_victims: int  # victims may be found in State.list_turn, see preemption/victim_lists.py
    ranks_running: int  # not all victims are found there, so running jobs are also in a heap by key
    restart_takes_time: int
    has_reservations: int  # nodes may be blocked for a class
    time_sensitive: int  # the result of a pass may differ from that of the last one only because time has passed
    room_is_not_enough: int  # a class with enough free slots may still have no placement
    resizes: int  # conditions.SHRINKS, GROWS or both
    remembers_plans: int  # waiting jobs remember their reservations, see backfill/pins.py
    plans_all: int  # and every pass must plan them all, because a place is more than a number of tasks
    counts_cores: int  # profiles count what is left of all cores, not of all GPUs, because most jobs have none
    lines_up: int  # State.line holds the waiting jobs in the order of backfill
    levels_by_time: int  # levels count seconds of running, not GPU-seconds
    external_queue: int  # the caller keeps the queue; the engine only counts its jobs
    external_places: int  # the caller chooses the nodes


class Counts(Scalars, dtype=np.int64):
    events: int
    running_jobs: int
    arrived: int
    starts: int
    pieces: int
    placed: int  # entries of State.place_*
    only_kind: int  # the placement being built uses nodes of the GPU kind of this number - 1 only; 0: of any
    pending_jobs: int
    decisions: int
    early_ends: int
    depth_job: int
    outages_seen: int
    log_full: int  # 1: the pass was interrupted because the log of pieces must grow; it must be resumed
    user_calls: int  # incremented when a user's function is called and when it returns, so it is odd while one runs
    frontier_size: int
    num_victims: int
    num_stale: int
    num_spared: int  # running jobs that are no victims in this pass only because they started at this very time
    released: int  # entries of State.released
    next_overdue: int  # no queued job with a lesser index is still to become overdue
    services: int  # known ones, in State.service
    learn_at: int = 1 << 62  # how many it takes until keys of levels are computed again


class Clock(Scalars, dtype=np.float64):
    now: float
    bound: float  # the time by which backfilled jobs must end
    depth_score: float
    outlived_at: float = -np.inf  # up to this time no running job outlives its expected end, if estimates are guesses
    wake_at: float = np.inf  # when there is a decision although nothing happens: a hold ends, or one of Slurm's loops is due
    backfilled_at: float = -np.inf  # when Slurm's backfill loop ran last
    looped_at: float = -np.inf  # when Slurm's main loop went through all jobs last
    stop_at: float = np.inf  # instants after this time are left to the next call


class World(QueueWorld, PlacementWorld, BackfillWorld, PreemptionWorld, ConditionsWorld):
    sizes: Sizes = column()
    policy: PolicyFlags = column()
    # nodes
    node_pool: I64 = column("nodes")
    node_slot: I64 = column("nodes", meaning="position of the node within its pool")
    node_place: I64 = column("nodes", meaning="position of the node in pool_nodes")
    node_gpus: I64 = column("nodes")
    node_cpu: I64 = column("nodes", unit="milli")
    node_mem: I64 = column("nodes", unit="MiB")
    node_rack: I64 = column("nodes")
    node_speed: F64 = column("nodes", meaning="speed of its GPU kind, 1.0 without GPUs")
    node_gpu_watts: F64 = column("nodes", unit="W", meaning="peak - idle of one GPU")
    node_core_watts: F64 = column("nodes", unit="W")
    node_kind: I64 = column("nodes")
    # pools
    pool_first: I64 = column("pool_bounds", meaning="offsets into pool_nodes")
    pool_nodes: I64 = column("nodes", meaning="nodes by pool, ascending index within each")
    pool_gpus: I64 = column("pools")
    pool_words: I64 = column("pools", meaning="64-bit words of a bitset over the pool's nodes")
    pool_bits: I64 = column("pools", meaning="offset of the pool's first bitset in Machine.bits")
    divide: I64 = column("gpu_slots", "gpu_slots", meaning="divide[f*(GM+1) + g] = f // g")
    # demand classes
    class_tasks: I64 = column("classes", meaning="number of tasks; of an elastic job: the fewest")
    class_span: I64 = column("classes", meaning="how many more tasks an elastic job may have: classes c+1, c+2, … have one more each")
    class_scale: F64 = column("classes", meaning="runtime with this number of tasks, relative to the number submitted")
    class_gpus: I64 = column("classes", meaning="whole GPUs per task, 0 if a task takes a share or none")
    class_milli: I64 = column("classes", unit="milli", meaning="GPU per task")
    class_cpu: I64 = column("classes", unit="milli", meaning="per task")
    class_mem: I64 = column("classes", unit="MiB", meaning="per task")
    class_primary: I64 = column("classes", meaning="placement.BY_GPU, BY_CPU or BY_MEM")
    class_queue: I64 = column("classes")
    class_by_pool: I64 = column("classes", meaning="1: only whole GPUs matter, so Machine.pool_slots shows whether it fits")
    class_min_nodes: I64 = column("classes", meaning="fewest nodes that hold the gang on the empty cluster")
    class_rack_nodes: I64 = column("classes", meaning="most allowed nodes in one rack")
    class_worst: F64 = column("classes", meaning="greatest possible runtime factor")
    class_pool_first: I64 = column("class_bounds", meaning="offsets into class_pools")
    class_pools: I64 = column(meaning="allowed pools by class")
    class_allows: I64 = column("classes", "pools", meaning="1: the class may use the pool")
    # jobs
    submit: F64 = column("jobs", unit="s")
    runtime: F64 = column("jobs", row="job", unit="s")
    estimate: F64 = column("jobs", row="job", unit="s")
    job_class: I32 = column("jobs", row="job", meaning="-1: rejected")


class Machine(Table):
    free_mask: I64 = column("nodes", meaning="bit g: GPU g is wholly free")
    free_gpus: I64 = column("nodes", meaning="wholly free GPUs")
    share_free: I64 = column("nodes", "gpu_slots", initial=0, unit="milli", meaning="free part of GPUs in shared use, 0 otherwise")
    free_milli: I64 = column("nodes", unit="milli", meaning="total free GPU capacity")
    free_cpu: I64 = column("nodes", unit="milli")
    free_mem: I64 = column("nodes", unit="MiB")
    closed: I64 = column("nodes", initial=0, meaning="1: down or drained, nothing is free, and what is given back stays unavailable")
    pool_slots: I64 = column("pools", "gpu_slots", meaning="tasks of g whole GPUs that the pool can take")
    bucket: I64 = column("pools", "gpu_slots", meaning="nodes with f wholly free GPUs")
    bits: I64 = column("pool_words", meaning="bitsets over the pool's nodes, one per number of free GPUs")
    drawn: I64 = column("one", initial=0, unit="mW", meaning="power that jobs draw, if there is a power cap")
    time: F64 = column("one", initial=-np.inf, unit="s", meaning="time of this state of the machine, if there are reservations")


class State(QueueState, PlacementState, BackfillState, PreemptionState, ConditionsState):
    clock: Clock = column(unit="s")
    count: Counts = column()
    # jobs
    start: F64 = column("jobs", row="life", initial=NEVER, unit="s", meaning="first start")
    end: F64 = column("jobs", row="life", initial=NEVER, unit="s")
    expected: F64 = column(
        "jobs", row="life", unit="s", meaning="expected end while running: start + estimate * factor, or later (outlived.py)"
    )
    first_piece: I32 = column("jobs", row="life", meaning="pieces of the current or last run")
    num_pieces: I32 = column("jobs", row="life")
    event_slot: I32 = column("jobs", row="life", initial=-1, meaning="position of the job's event in the heap, -1: none")
    running_slot: I32 = column("jobs", row="life", meaning="position in `running`")
    status: I8 = column("jobs", row="life", initial=PENDING)
    running: I32 = column("jobs", meaning="running jobs, unordered")
    # events: a heap, see events.py
    event_time: F64 = column("jobs", unit="s")
    event_code: I64 = column("jobs")
    # sorting space
    scratch: F64 = column("scratch")
    scratch_jobs: I64 = column("scratch_jobs")
    # log of pieces
    piece_job: I32 = column("log")
    piece_node: I32 = column("log")
    piece_tasks: I32 = column("log")
    piece_gpus: I64 = column("log", meaning="bit mask of the node's GPUs")
    piece_start: F64 = column("log", unit="s")
    piece_end: F64 = column("log", unit="s")


as_world = table_reader(World)
as_machine = table_reader(Machine)
as_state = table_reader(State)

# What replays without preemption, conditions, plans and shared GPUs have in common. Most replays are such, and code for
# the others takes most of the time of compilation.
PLAIN: KnownValues = {
    ("policy", "backfill"): frozenset({backfill.NO_BACKFILL, backfill.GREEDY, backfill.EASY, backfill.EASY_STRICT}),
    ("policy", "placement"): frozenset(range(placement.TIER)),  # the rules that choose node by node
    ("policy", "placement_option"): frozenset({NO_LIMIT}),
    ("policy", "power_budget"): frozenset({NO_LIMIT}),
    ("sizes", "num_accounts"): frozenset({1}),
} | {
    (column, name): frozenset({0})
    for column, names in {
        "policy": (
            "preemption_key", "can_restart", "stop_loses_progress", "promotes", "learns_keys", "reads_users",
            "scores_fairly", "holds", "node_scorer", "has_quotas", "has_dependencies", "nodes_sleep", "fit_may_return", "lists_victims",
            "restart_takes_time", "has_reservations", "room_is_not_enough", "resizes", "remembers_plans", "plans_all",
            "lines_up", "levels_by_time", "external_queue", "external_places",
        ),
        "sizes": ("shares_gpus", "num_outages", "num_reservation_ends", "num_levels"),
    }.items()
    for name in names
}  # fmt: skip
as_plain_world = table_reader(World, "Plain", PLAIN)

# The same with preemption by keys, as of srtf or las.
_OF_KEYS = ("preemption_key", "can_restart", "lists_victims", "levels_by_time", "promotes", "learns_keys", "num_levels")
PREEMPTIVE: KnownValues = {key: values for key, values in PLAIN.items() if key[1] not in _OF_KEYS} | {
    ("policy", "can_restart"): frozenset({1}),
    ("policy", "lists_victims"): frozenset({1}),
}
as_preemptive_world = table_reader(World, "Preemptive", PREEMPTIVE)
