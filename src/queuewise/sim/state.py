"""The arrays a simulation lives in.

Three structures, passed to every kernel in this order:
- `World` w: what does not change: nodes, demand classes, jobs, the policy's numbers.
- `Machine` m: what is free. There are two, the real one and a scratch one in which the future is tried out.
- `State` s: everything else that changes: queues, running jobs, clock, the log of pieces.

Indices: j job, n node, g GPU, c demand class, p pool, q queue, o order. Sizes J N C P Q; GM is the most GPUs a node has.
A *demand class* is a distinct (num_tasks, gpu, cpu, mem, kinds, partition): jobs of a class are interchangeable to the
hardware, so "does it fit" is asked once per class and never per job. An elastic job is of the class of its fewest tasks.
A *pool* is a set of nodes equal in everything but their index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.tables import addresses_of, table

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
F64 = NDArray[np.float64]
Records = NDArray[np.void]  # FACTS
NodeRecords = NDArray[np.void]  # NODE_FACTS

# Primary resource of a class: what placement rules measure nodes by.
BY_GPU, BY_CPU, BY_MEM = range(3)

# Fixed entries of World.policy
(
    DISPATCH, BACKFILL, RULE, RULE_OPTION, DYNAMIC, DEPTH, SECOND_ORDER, SEED, TRACK_FREE_TIMES, KEYS, RESTARTS, KILLS, REQUEUES, PROMOTES,
    LOOKS_AROUND, NODE_SCORER, QUOTAS, DEPENDENCIES, SLEEPS, POWER_BUDGET, FICKLE,
    CUTS, RANKED, COSTLY, RESERVES, RESTLESS, PICKY, RESIZES, TIMED, UNQUEUED, PINS, POLICY_SIZE,
) = range(32)  # fmt: skip
#   RESTARTS: jobs may be stopped, or wait for nodes to wake (otherwise State.remaining and its kin are not there).
#   SLEEPS: idle nodes fall asleep. POWER_BUDGET: milliwatts that jobs may draw together, NO_LIMIT without a cap.
#   FICKLE: what does not fit may fit once more is taken, since the rule then goes elsewhere. KILLS: a policy's stop keeps checkpoints only.
#   REQUEUES: a job hit by a failure is queued again. PROMOTES: waiting lowers a job's level to 0 in the end.
#   DYNAMIC: queues are lists that are scored and scanned, not trees. TRACK_FREE_TIMES: EASY may use State.free_times.
#   LOOKS_AROUND: a scoring function reads State.outlook. NODE_SCORER: address of the function behind the rule BY_SCORE.
#   CUTS: victims may be read off State.cut_turn (cuts.py). RANKED: not all of them, so running jobs stand in a heap by key (keys.py).
#   COSTLY: a restart may take time.
#   RESERVES: nodes may be barred for a class (bars.py). PICKY: room alone is not enough for the rule.
#   RESTLESS: a pass may end otherwise than the last one only because the clock has moved.
#   TIMED: levels go by seconds of a run, not by GPU-seconds.
#   UNQUEUED: whoever starts the jobs keeps their queue too, so the engine only counts them.
#   PINS: waiting jobs remember their reservations (pins.py).
#   RESIZES: whether running elastic jobs change their size, SHRINKS or GROWS or both (resize.py).
REORDER, COMMIT = range(2)
SHRINKS, GROWS = 1, 2
NO_BACKFILL, GREEDY, EASY, EASY_STRICT, CONSERVATIVE, DEFRAG = range(6)
NOT_PREEMPTIVE, BY_REMAINING, BY_FIXED, BY_LEVEL = range(4)  # KEYS: what a preemptive policy sorts by
FIRST, PACK, SPREAD, RANDOM, FASTEST, CHEAPEST, TIER, FGD, BY_SCORE = range(9)
# Entries of World.sizes
NUM_JOBS, NUM_NODES, NUM_POOLS, NUM_CLASSES, NUM_QUEUES, NUM_TYPES, NUM_WORDS, GPU_STRIDE, TREE_SIZE, SHARES, UNIFORM = range(11)
NUM_LEVELS, NUM_OUTAGES, MOST_PIECES, LOG_SIZE, OUTLOOK_ROW, NUM_ACCOUNTS, NUM_LIFTS, SIZES = range(11, 19)
#   NUM_LEVELS: bounds between levels. MOST_PIECES: of one run. LOG_SIZE: room in the log of pieces.
#   GPU_STRIDE: GM + 1. TREE_SIZE: length of one order's trees. SHARES: 1 if a class takes shares of GPUs. UNIFORM: 1 if all factors are 1.
#   OUTLOOK_ROW: length of one order's row of State.outlook. NUM_LIFTS: times at which reservations end.
# World.scored_by: a score that never changes, a compiled function, or what owners have had (fairness.py)
FIXED, FUNCTION, FAIRSHARE, MULTIFACTOR, DRF = range(5)
# Entries of World.fairness; totals are inf where a resource does not count
FADING, AGE_WEIGHT, MAX_AGE, FAIRSHARE_WEIGHT, GPU_TOTAL, CPU_TOTAL, MEM_TOTAL, FAIRNESS_SIZE = range(8)
# First entries of a row of State.outlook; after them comes what the order's function keeps between calls
NODES, GPUS, FREE_GPUS, CORES, FREE_CORES, MEM_MIB, FREE_MEM_MIB, RUNNING_NOW, OUTLOOK_SIZE = range(9)
PARAMS_SIZE = 8
# Entries of World.costs
QUANTUM, CHECKPOINT, CHECKPOINT_PER_GPU, RESTART, RESTART_PER_GPU, TRANSFER, TRANSFER_PER_GPU, CHECKPOINT_EVERY = range(8)
SLEEP_AFTER, WAKE, COSTS_SIZE = range(8, 11)
# World.outage_kind
REPAIRED, FAILED_NODE, DRAINED, LIFTED = range(4)  # LIFTED: a reservation has ended
PLAN_BANDS = 48  # bands of lengths in State.planned
MAX_LEVELS = 8  # of a queue tree; fan-out 16
NO_LIMIT = -1  # RULE_OPTION of `pack` without a limit on extra nodes; DEPTH, POWER_BUDGET without a limit

# Entries of State.count (int64 scalars)
(
    EVENTS, RUNNING_JOBS, ARRIVED, STARTS, PIECES, PLACED, PENDING_JOBS, DECISIONS, EARLY_ENDS, DEPTH_JOB, OUTAGES_SEEN, LOG_FULL,
    USER_CALLS, FRONTIER, VICTIMS, STALE, COUNT_SIZE,
) = range(17)  # fmt: skip
#   LOG_FULL: the pass was left because the log of pieces must grow; it is to be taken up again.
#   USER_CALLS goes up by one when a policy's own function is entered and when it returns, so it is odd while one runs.
# Entries of State.clock (float64 scalars)
NOW, BOUND, DEPTH_SCORE, STOP_AT, CLOCK_SIZE = range(5)
#   STOP_AT: instants after this time are left for another call.

# What a scoring function may know of a job. Nothing here tells the true runtime.
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
        ("watts", np.float64),  # active watts of one GPU of the cheapest kind it may use, 1 without GPUs
        ("user", np.int64),
        ("group", np.int64),
        ("index", np.int64),
    ],
    align=True,
)

# What a function that scores nodes may know of one. What is free is brought up to date for the nodes in question before each call.
NODE_FACTS = np.dtype(
    [
        ("index", np.int64),
        ("gpus", np.float64),
        ("free_gpus", np.float64),  # partly used ones count for what is left of them
        ("whole_gpus", np.float64),  # wholly free
        ("cores", np.float64),  # inf: not modelled, never the bottleneck
        ("free_cores", np.float64),
        ("mem_mib", np.float64),  # inf: the same
        ("free_mem_mib", np.float64),
        ("slots", np.float64),  # tasks of the job in question that it can take now
        ("kind", np.int64),  # position of the GPU kind in the cluster's list of kinds, -1 without GPUs
        ("speed", np.float64),  # of its GPU kind, 1.0 without GPUs
        ("watts", np.float64),  # peak - idle of one GPU
        ("core_watts", np.float64),
        ("rack", np.int64),
        ("asleep", np.float64),  # 1: it must wake first, 0: it is awake or waking
    ],
    align=True,
)
# Entries of State.demand: the job in question, for such a function
NUM_TASKS, REMAINING, TASK_GPUS, TASK_CPUS, TASK_MEM_MIB, DEMAND_SIZE = range(6)


# Columns of jobs that are read together lie together, in rows.
JOB_ROW = np.dtype([("runtime", np.float64), ("estimate", np.float64), ("job_class", np.int32)], align=True)  # of World
LIFE_ROW = np.dtype(  # of State
    [
        ("start", np.float64),
        ("end", np.float64),
        ("expected", np.float64),
        ("first_piece", np.int32),
        ("num_pieces", np.int32),
        ("event_slot", np.int32),
        ("running_slot", np.int32),
        ("status", np.int8),
    ],
    align=True,
)
RUN_ROW = np.dtype(  # of State, where jobs may be stopped
    [
        ("remaining", np.float64),
        ("remaining_estimate", np.float64),
        ("begin", np.float64),
        ("factor", np.float64),
        ("attained", np.float64),
        ("worked", np.float64),
        ("level", np.int32),
        ("stops", np.int32),
        ("saved", np.int8),
    ],
    align=True,
)


class World(NamedTuple):
    sizes: I64  # [SIZES]
    # nodes
    node_pool: I64  # [N]
    node_slot: I64  # [N] position of the node within its pool
    node_place: I64  # [N] position of the node in pool_nodes
    node_gpus: I64  # [N]
    node_cpu: I64  # [N] milli
    node_mem: I64  # [N] MiB
    node_rack: I64  # [N]
    node_speed: F64  # [N] of its GPU kind, 1.0 without GPUs
    node_gpu_watts: F64  # [N] peak - idle of one GPU
    node_core_watts: F64  # [N]
    node_kind: I64  # [N]
    pool_first: I64  # [P+1] offsets into pool_nodes
    pool_nodes: I64  # [N] nodes by pool, ascending index within each
    pool_gpus: I64  # [P]
    pool_words: I64  # [P] 64-bit words a bitset over the pool's nodes takes
    pool_bits: I64  # [P] offset of the pool's first bitset in Machine.bits
    penalty: F64  # [2] added to the factor for more nodes, for more racks than needed
    divide: I64  # [(GM+1)*(GM+1)] divide[f*(GM+1)+g] = f // g
    # demand classes
    class_tasks: I64  # [C] of an elastic job: the fewest
    class_span: I64  # [C] how many more an elastic job may have: classes c+1, c+2, … are the same with one task more each
    class_scale: F64  # [C] runtime with so many tasks, relative to that with the number submitted
    class_gpus: I64  # [C] whole GPUs a task, 0 if it takes a share or none
    class_milli: I64  # [C] GPU milli a task
    class_cpu: I64  # [C]
    class_mem: I64  # [C]
    class_primary: I64  # [C]
    class_queue: I64  # [C]
    class_by_pool: I64  # [C] 1: only whole GPUs matter, so the pool index answers
    class_min_nodes: I64  # [C] fewest nodes on the empty cluster
    class_rack_nodes: I64  # [C] most allowed nodes in one rack
    class_worst: F64  # [C] longest runtime factor it can meet
    class_pool_first: I64  # [C+1] offsets into class_pools
    class_pools: I64  # allowed pools by class
    class_allows: I64  # [C*P] 1: the class may use the pool
    task_draw: I64  # [C*P] milliwatts that use by one task adds
    # jobs
    submit: F64  # [J]
    runtime: F64  # [J]
    estimate: F64  # [J]
    job_class: I32  # [J], -1: rejected
    pin_first: I64  # [J or 1] where the pieces of the job's pin lie: see pins.py
    # queue index of each order o (static orders only): see queue.py
    rank: I32  # [O*J] place of job j in order o at o*J + j
    leaf: I32  # [O*J] leaf of job j in its class's tree
    leaf_job: I32  # [O*J] job at leaf, by class: o*J + class_first[c] + leaf
    class_first: I64  # [C+1]
    tree_levels: I64  # [C] levels of the class's tree
    tree_level: I64  # [C*MAX_LEVELS] offset in State.tree of each level, leaves first (of order o: + o * tree_size)
    # scores (dynamic queues only)
    facts: Records  # [J] what a scoring function may know of a job
    fixed_score: F64  # [O*J] scores of orders that never change; NaN: ask the order's function. BY_FIXED [J]: ranks of keys
    scored_by: I64  # [2] of each order
    params: F64  # [PARAMS_SIZE] numbers for the scoring function of the first order
    second_params: F64  # [PARAMS_SIZE] and of the second
    # accounts (fair orders; otherwise one that nobody asks for): see accounts.py
    owner: I32  # [J or 1] leaf of the account tree
    account_parent: I64  # [A]
    account_fraction: F64  # [A]
    account_share: F64  # [A]
    fairness: F64  # [FAIRNESS_SIZE]
    # virtual clusters: see tenants.py
    class_tenant: I64  # [C]
    tenant_guaranteed: I64  # [V] GPU milli
    tenant_most: I64  # [V] GPU milli
    # reservations: see bars.py
    class_crowd: I64  # [C] jobs that are members of the same reservations
    class_length: F64  # [C] seconds a run takes at worst, as far as is known
    bar_first: I64  # [V*N+1] offsets into bar_start: of crowd v and node n at v*N + n
    bar_start: F64  # times when others have the node reserved
    bar_end: F64
    lift_time: F64  # [NUM_LIFTS] when reservations end, ascending
    # dependencies (otherwise empty): see dependencies.py
    next_first: I64  # [J+1 or 1] offsets into next_job
    next_job: I64  # [D] who waits for the job
    next_kind: I8  # [D]
    next_delay: F64  # [D]
    ends_well: I8  # [J or 1] 0: killed at its limit
    # fgd
    type_gpu: I64  # [T] task types: milli
    type_cpu: I64  # [T]
    type_mem: I64  # [T]
    type_kinds: I64  # [T] bit mask of allowed kinds
    type_weight: I64  # [T] tasks of the type in the workload
    policy: I64  # [POLICY_SIZE]
    # stopping and restarting
    costs: F64  # [COSTS_SIZE]
    node_cost: F64  # [N] factor of the costs on the node
    width: F64  # [J or 1] the job's size
    level_bound: F64  # [NUM_LEVELS] attained service at which a level ends
    level_key: F64  # [NUM_LEVELS+1] by rank: only their order matters
    outage_time: F64  # [NUM_OUTAGES] in the order of events
    outage_node: I64
    outage_kind: I64


class Machine(NamedTuple):
    free_mask: I64  # [N] bit g: GPU g is wholly free
    free_gpus: I64  # [N] wholly free GPUs
    share_free: I64  # [N*(GM+1)] free milli of GPUs in shared use, 0 otherwise
    free_milli: I64  # [N] free GPU milli in all
    free_cpu: I64  # [N]
    free_mem: I64  # [N]
    closed: I64  # [N] 1: down or drained: nothing is free there, and nothing that is given back becomes so
    pool_slots: I64  # [P*(GM+1)] tasks of g whole GPUs that the pool can take
    bucket: I64  # [P*(GM+1)] nodes with f wholly free GPUs
    bits: I64  # bitsets over the pool's nodes, one for each f
    drawn: I64  # [1] milliwatts that use adds (with a power cap)
    time: F64  # [1] when it is so (with reservations)


class State(NamedTuple):
    clock: F64  # [CLOCK_SIZE]
    count: I64  # type: ignore[assignment]  # [COUNT_SIZE]; hides tuple.count, which nobody calls
    # jobs
    status: I8  # [J]
    start: F64  # [J] first start
    end: F64  # [J]
    expected: F64  # [J] expected end while running: last start + estimate * factor
    first_piece: I32  # [J] pieces of the current or last run
    num_pieces: I32  # [J]
    # runs of jobs that may be stopped, [J or 1]
    remaining: F64  # reference seconds of work left when the run began, or now if it waits
    remaining_estimate: F64
    begin: F64  # when the run begins to work
    factor: F64  # of the run
    attained: F64  # service at the run's start, for levels
    worked: F64  # seconds worked in earlier runs
    level: I32
    stops: I32
    saved: I8  # 1: the last stop took a checkpoint
    # events: a heap, see events.py
    event_time: F64
    event_code: I64
    event_slot: I32  # [J] heap position of the job's event, -1 none
    # queue
    tree: F64  # min-estimate trees of all orders and classes
    head_leaf: I64  # [O*C] first queued job of each class, -1 to be found
    head_rank: I64  # [O*C] and its rank
    class_pending: I64  # [C]
    active: I64  # [C] classes with pending jobs, compact per queue region
    active_slot: I64  # [C]
    queue_first: I64  # [Q+1] region of `active` of each queue
    queue_active: I64  # [Q]
    head: I64  # [Q] job known to be blocked at the front (commit: the committed job), -1 none
    dirty: I64  # [Q] 1: something was released, or the head may be another: make a full pass
    newcomer: I64  # [Q] the one job that arrived behind the head since the last pass, -1 none
    pending: I32  # [J or 1] queued jobs, unordered (dynamic orders only)
    pending_slot: I32  # [J or 1]
    outlook: F64  # [O*OUTLOOK_ROW] what an order's function may know of the cluster, then what it keeps between calls
    score: F64  # [J or 1] by position in `pending`
    second_score: F64  # [J or 1]
    heap_job: I64  # [2J or 1] heaps of preemptive policies: see keys.py
    heap_key: F64
    heap_slot: I32  # [J or 1]
    aside: I64  # [C] 1: the class's first job was tried in this pass and cannot start
    room: I64  # [C*N or 1] [c*N + node_place]: see room.py
    room_slots: I64  # [C]
    room_key: F64  # [C]
    victim_key: F64  # [J+1 or 2] running jobs that may be stopped: see victims.py
    victim_job: I64  # [J or 1]
    gain: I64  # [N] GPUs that would become free, 0 between uses
    taken: I64  # [J or 1] jobs taken off the machine to see what then fits
    frontier: I64  # [J or 1] slots of the heap of running jobs that are still to be looked at
    # nodes that sleep, [N or 1]: see sleeping.py
    idle_since: F64  # inf while something is placed there
    awake_at: F64  # when it was or will be awake after its last sleep
    node_pieces: I64  # pieces of running jobs
    # GPUs of each node by who would have to go first, [GM*N or 1]: see cuts.py
    gpu_job: I32  # [N*(GM+1) or 1] who runs, or ran last, on each GPU
    gpu_turn: F64  # [N*(GM+1) or 1] and when it would have to go
    cut_turn: F64  # [i*N + node_place]
    cut_job: I32
    stale: I8  # [N or 1] 1: the node's list is not up to date
    stale_nodes: I64  # [N or 1] the STALE nodes of which that is so
    # accounts: see fairness.py
    usage: F64  # [A] decayed milli-GPU-seconds as of usage_time
    usage_rate: I64  # [A] milli GPUs of running jobs
    usage_time: F64  # [A]
    effective: F64  # [A] effective usage, good for the decision with this number:
    effective_at: I64  # [A]
    held: I64  # [A*3] GPU milli, CPU milli and MiB of running jobs, of leaves
    # dependencies, [J or 1]
    unmet: I32  # things the job waits for
    ready: F64  # when the last one of those that have happened counts
    standby: I8  # 1: it has arrived and waits
    doomed: I8  # 1: it waits in vain
    fallen: I64  # jobs being cancelled
    tenant_used: I64  # [V] GPU milli of running jobs (with quotas)
    stretch: F64  # [C] which jobs of a class may start now: see queue.py
    running: I32  # [R] running jobs, unordered
    running_slot: I32  # [J]
    # reservation of each queue's head (EASY): see reserve.py
    shadow_head: I64  # [Q] job the shadow time was computed for, -1 none
    shadow_stamp: I64  # [Q] EARLY_ENDS when it was computed
    shadow_time: F64  # [Q]
    shadow_slack: I64  # [Q] tasks of the head's class that fit at the shadow time beyond what it needs
    free_times: F64  # [GM*N] expected free times of each node's GPUs, ascending, -inf = free now; [g*N + node_place]
    planned: F64  # [C*PLAN_BANDS or 1] latest start planned in this pass, by class and band of length (conservative)
    # reservations that waiting jobs remember, [J or 1]: see pins.py
    pin_start: F64  # inf: none
    pin_pieces: I32
    pin_node: I32  # [pieces of all jobs at most, or 1]
    pin_tasks: I32
    pin_gpus: I64
    plan_stamp: I64  # [Q] EARLY_ENDS when the queue was last planned, -1: that plan is not to be relied on
    scratch: F64  # sorting space
    scratch_jobs: I64  # [J or R]
    scratch_nodes: I64  # [N]
    node_facts: NodeRecords  # [N or 1] for the rule BY_SCORE
    node_score: F64  # [N or 1]
    demand: F64  # [DEMAND_SIZE]
    # placement being built
    place_node: I64
    place_tasks: I64
    place_gpus: I64
    # log of pieces
    piece_job: I32
    piece_node: I32
    piece_tasks: I32
    piece_gpus: I64
    piece_start: F64
    piece_end: F64


_DTYPES = {"I64": np.int64, "I32": np.int32, "I8": np.int8, "F64": np.float64, "Records": FACTS, "NodeRecords": NODE_FACTS}


def _column_dtypes(fields: type[NamedTuple]) -> dict[str, Any]:
    return {name: _DTYPES[alias.__forward_arg__] for name, alias in fields.__annotations__.items()}


_ROWS = (JOB_ROW, LIFE_ROW, RUN_ROW)
as_world = table(World, _column_dtypes(World), _ROWS)
as_machine = table(Machine, _column_dtypes(Machine), _ROWS)
as_state = table(State, _column_dtypes(State), _ROWS)


def handle(arrays: World | Machine | State) -> Any:
    """What a compiled entry is given in place of the structure; the structure must outlive the call."""
    return addresses_of(arrays, _column_dtypes(type(arrays)), _ROWS)
