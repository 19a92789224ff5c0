"""The columns of an environment, in addition to those of the engine.

`Task` k is read-only; there is one per episode. `EpisodeState` p changes; there is one per env. An env writes what its
agent sees to `Output`. `Frame` describes a batch to one compiled call. Kernels of this package take (w, m, s, k, p):
the engine's World, Machine and State, then Task and EpisodeState.

Axes: J jobs, N nodes, C demand classes, Q slots of the window, U units of the lookahead (GPUs, or nodes of a cluster
without GPUs), T reward terms, E envs, F features of an observation, A entries of a mask.
"""

from __future__ import annotations

import numpy as np

from queuewise.envs.features import positions
from queuewise.sim.backfill import NO_BACKFILL
from queuewise.sim.core.state import PLAIN, World
from queuewise.sim.core.table_types import KnownValues
from queuewise.sim.core.tables import F32, F64, I8, I32, I64, Scalars, Table, column, table_reader
from queuewise.sim.queue import FACTS, REORDER, Records

# TaskConfig.problem
JOB, HOST, JOINT = range(3)
# TaskConfig.dispatch; BY_ENGINE: the engine starts the jobs, in the order that a network gives
MASK, COMMIT, HEAD, BY_ENGINE = range(4)
# TaskConfig.lookahead
OFF, PER_GPU, SORTED, CDF = range(4)
TOKENS = 0  # TaskConfig.observation_view: every other number is a published view
NO_CAP = -1  # TaskConfig.max_steps without a limit
# TaskConfig.relative_to
NOTHING, WAIT_MEAN, JCT_MEAN, SLOWDOWN_MEAN, BOUNDED_SLOWDOWN_MEAN, UTILISATION_MEAN = range(6)
NOBODY = -1  # EpisodeCounts.gang while no job is being placed
TOUCHED_BITS = 32  # in one word of EpisodeState.touched
FREE = -np.inf  # in EpisodeState.unit_until and node_until: no job holds the unit or node
RESOURCES = 3  # GPU milli, CPU milli, MiB: placement.BY_GPU, BY_CPU, BY_MEM


class TaskConfig(Scalars, dtype=np.int64):
    """The settings of the task as numbers."""

    problem: int
    dispatch: int
    window: int
    host_slots: int
    lookahead: int
    units: int
    num_scores: int
    skip_forced: int
    blocking: int
    max_steps: int
    terminal: int
    relative_to: int
    resource: int  # the cluster's main resource
    num_users: int
    has_deadlines: int  # 1: at least one job has a deadline
    num_weighted: int  # entries of Task.weighted
    observation_view: int
    wait_action: int  # the last action
    stop_slots: int  # slots for running jobs
    move_slots: int  # equals stop_slots, or 0 if running jobs may not be migrated
    most_stops: int
    jobs_per_limit: int  # most_stops holds for so many jobs that have arrived; 0: for the whole episode
    one_instant: int  # 1: the episode consists of the decisions at its first instant
    has_prices: int  # 1: energy has a price
    one_event: int  # 1: each step lets one event pass, a placement as well


class Scale(Scalars, dtype=np.float64):
    """Quantities that scale others, and constants of the episode."""

    horizon: float  # when an episode is truncated
    shown_horizon: float  # the same by estimates, also where nothing is truncated; a published view shows it
    time_scale: float
    epoch: float
    decay: float
    capacity: float
    all_flops: float
    idle_watts: float
    base_value: float
    least_value: float  # logarithms of ratios take lesser values for this
    first_time: float  # of the first submission, or of the snapshot that the episode starts from
    began: float  # when the episode began, if it starts from a snapshot; otherwise -inf
    num_loaded: float


class EpisodeCounts(Scalars, dtype=np.int64):
    waiting: int
    on_machine: int
    ended: int
    own_ended: int  # of the window's own jobs
    steps: int
    illegal: int
    gang: int
    tasks_left: int
    over: int
    begun: int
    free_stamp: int  # stamp of the machine when EpisodeState.free was summed
    without_gpu: int  # running jobs that hold no GPU
    shown: int  # rows of the window in the last observation
    shown_gang: int  # 1: a gang was being placed at that time
    fitting: int  # how many of the jobs shown fit
    stops: int  # preemptions and migrations
    listed: int  # entries of stop_job
    legal: int  # legal actions (joint problem: legal first choices)
    free_units: int  # entries of unit_sorted that are FREE
    instants: int  # times at which something happened, if what fits changes with time
    stuck: int  # 1: no further event, although jobs wait
    declined: int  # 1: the step was a wait although something fitted
    pending_events: int  # one_event: events of this instant that further steps let pass
    turn: int  # dispatch head: the queue whose head is named; those before it have had their turn at this instant


class EpisodeValues(Scalars, dtype=np.float64):
    step_began: float
    queued_work: float
    running_work: float
    running_rate: float
    busy: float
    flops: float
    watts: float
    load_sum: float
    load_squares: float
    inverse: float
    bounded_inverse: float
    submit_sum: float
    usage_sum: float
    idling: float
    held: float
    wait_sum: float
    jct_sum: float
    slowdown_sum: float
    bounded_sum: float
    busy_seconds: float
    elapsed: float
    episode_return: float
    time_shown: float


class ActionSpace(Scalars, dtype=np.int64):
    actions: int
    hosts: int
    mask_width: int
    pairs: int  # 1: an action names a job and a host (joint problem)
    lenient: int  # 1: illegal actions count as waits
    draws: int  # 1: each step ends by drawing a random action for the next step
    turned: int  # 1: the last observations are in Output.before


class Task(Table):
    config: TaskConfig = column()
    scale: Scale = column()
    total: F64 = column("resources", meaning="amount of each resource in the cluster, 0 if unlimited")
    weight: F64 = column("terms", meaning="weight of each reward term, divided by the divisors in Term.per")
    weighted: I64 = column(meaning="terms whose weight is not 0")
    token: F32 = column(meaning="features of a job that never change")  # [J*S]
    host_token: F32 = column(meaning="features of a node that never change")  # [N*S]
    job_size: F64 = column("some_jobs", row="job", initial=0.0)
    job_amount: F64 = column(
        "some_jobs", row="job", initial=0.0, meaning="what the job holds of the cluster's main resource, in milli or MiB"
    )
    job_work: F64 = column("some_jobs", row="job", initial=0.0, meaning="size × true runtime; for rewards only")
    priority: F64 = column("some_jobs", row="job", initial=0.0)
    deadline: F64 = column("some_jobs", row="job", initial=np.inf, unit="s", meaning="inf: none")
    job_user: I64 = column("some_jobs", row="job", initial=0, meaning="-1: unknown")
    unit_first: I64 = column("node_bounds", meaning="first lookahead unit of each node")
    node_flops: F64 = column("nodes", meaning="of one GPU")
    node_inverse: F64 = column("nodes", "resources", meaning="1 ÷ amount of each resource in the node, 0 if it has none")
    node_amount: F64 = column("nodes", meaning="amount of the main resource in the node, 0: none or unlimited")
    score: F64 = column(meaning="scores of heuristics that never change")  # [K*J]
    score_kind: I64 = column(meaning="-1: the scores are in `score`; otherwise the code of a live order")  # [K]
    facts: Records = column(dtype=FACTS, meaning="facts about jobs that live orders score by")  # [K*J or 1]
    published: F32 = column(meaning="rows of a published view, see published.py")
    price: F64 = column("hours", initial=0.0, meaning="of a kWh, by hour of day")
    class_group: I64 = column(meaning="equal numbers for classes that may use the same nodes (view `rltune`)")  # [C or 1]


class EpisodeState(Table):
    count: EpisodeCounts = column()
    value: EpisodeValues = column()
    term: F64 = column("terms", initial=0.0, meaning="reward terms of this step, unweighted")
    free: F64 = column("resources", initial=0.0, meaning="free amount of each resource")
    waiting: I32 = column("job_slots", initial=0, meaning="queued jobs in the order of the window")
    running: I32 = column("job_slots", initial=0)
    running_end: F64 = column("job_slots", initial=0.0, unit="s", meaning="when the running jobs end, unless they are stopped before")
    running_rate: F64 = column("job_slots", initial=0.0, meaning="work per second of the running jobs")
    running_until: F64 = column("job_slots", initial=0.0, unit="s", meaning="until when the running jobs are noted to hold their nodes")
    class_stamp: I64 = column("classes", initial=0, meaning="stamp of the machine when class_live was computed")
    class_live: F32 = column("classes", "class_live", initial=0.0, meaning="features of a class: fits, ways, share_of_free")
    node_until: F64 = column("nodes", initial=FREE, unit="s", meaning="latest expected end of the jobs on the node, or FREE")
    node_load: F64 = column("nodes", initial=0.0, meaning="share of the main resource in use")
    unit_until: F64 = column("units", initial=FREE, unit="s")
    unit_sorted: F64 = column(
        "sorted_units", initial=FREE, unit="s", meaning="the times of unit_until in ascending order, if the lookahead is sorted"
    )
    touched: I64 = column("touched_words", initial=0, meaning="one bit per node, 1: more than time has changed since it was last shown")
    row_job: I32 = column("window", initial=0, meaning="the job in each row of the last observation")
    row_class: I32 = column("window", initial=0, meaning="class of that job")
    row_submit: F64 = column("window", initial=0.0, unit="s", meaning="submission of that job")
    row_user: I32 = column("window", initial=0, meaning="user of that job")
    usage: F64 = column("users", initial=0.0, meaning="Σ size × estimate of started jobs, newer ones weighted more; only ratios matter")
    user_slowdown: F64 = column("users", initial=0.0, meaning="sums of bounded slowdowns")
    user_ended: F64 = column("users", initial=0.0)
    score: F64 = column("window", initial=0.0)
    order: F64 = column("outlook", initial=0.0, meaning="parameters of a live order")
    class_pool_stamp: I64 = column("pooled_classes", initial=0, meaning="stamp of the machine when class_pool was computed (view `rltune`)")
    class_pool: F64 = column("pooled_classes", "pool_values", initial=0.0, meaning="GPUs and ways that the nodes of a class offer")
    group_demand: F64 = column("pooled_classes", initial=0.0, meaning="GPUs that the jobs shown ask for, per group of classes")
    stop_job: I32 = column("stop_slots", initial=0, meaning="the running jobs shown")
    served: F64 = column("stopped_jobs", initial=0.0, unit="s", meaning="total length of the job's earlier runs")


class Output(Table):
    observation: F32 = column()  # [F]
    mask: I8 = column(meaning="1: legal")  # [A]
    final: F32 = column(meaning="the last observation of an episode, if the env went on to its next episode in the same step")  # [F]
    before: F32 = column(meaning="the row of the other buffer, if two are written in turn")  # [F]
    job_rows: I64 = column("one", meaning="rows of the job part of `observation` that are not zero")


class Frame(Table):
    lists: I64 = column("envs", "lists", meaning="addresses of World, Machine, spare Machine, State, Task, EpisodeState, Output")
    home: I64 = column("envs", initial=0, meaning="address of the env's block")
    running_at: I64 = column("one", meaning="offset of the tokens of running jobs in an observation")
    length: I64 = column("one", meaning="number of features of an observation")
    space: ActionSpace = column()
    actions: I64 = column("envs", "choices", meaning="the action, and the host in the joint problem")
    mask: I8 = column(meaning="all rows of Output.mask")  # [E*A]
    drawn: I64 = column("envs", "choices", initial=0, meaning="random legal actions")
    generator: I64 = column("envs", initial=0, meaning="state of each env's random generator, never zero")
    rewards: F64 = column("envs")
    outcome: I64 = column("envs", meaning="RUNS_ON, TERMINATED or TRUNCATED")
    terminated: I8 = column("envs")
    truncated: I8 = column("envs")
    elapsed: F64 = column("envs", unit="s")
    tally: F64 = column("tallies", "envs", meaning="sums of episodes that ended in this step, in the order of TALLY")
    next: I64 = column("envs", "next_size", initial=0, meaning="the template of the env's next episode")


LISTS = 7
WORLD_LIST, TASK_LIST = 0, 4  # the tables that envs share with their template
EPISODE_STATE_LIST = 5
# Frame.next: address and length of the template's block (address 0: no next episode), addresses of its World and Task
NEXT_BLOCK, NEXT_BYTES, NEXT_WORLD, NEXT_TASK, NEXT_SIZE = range(5)
TALLY = ("return", "steps", "illegal", "completed", "unfinished", "mean_wait_s", "mean_jct_s", "mean_bounded_slowdown", "stops")
TALLY_AT = positions(("episode_return", *TALLY[1:]))  # `return` is a keyword

as_task = table_reader(Task)
as_episode_state = table_reader(EpisodeState)
as_output = table_reader(Output)
as_frame = table_reader(Frame)

# What the job problem with dispatch mask has in common, unless jobs may be stopped or there are conditions: most training.
PLAIN_WORLD: KnownValues = {
    **PLAIN,
    ("policy", "backfill"): frozenset({NO_BACKFILL}),
    ("policy", "dispatch"): frozenset({REORDER}),
    ("policy", "external_queue"): frozenset({1}),
    ("policy", "scans_queue"): frozenset({0}),
    ("policy", "bounds_waits"): frozenset({0}),
    ("policy", "tracks_free_times"): frozenset({0}),
}
PLAIN_TASK: KnownValues = {
    ("config", "problem"): frozenset({JOB}),
    ("config", "dispatch"): frozenset({MASK}),
    ("config", "observation_view"): frozenset({TOKENS}),
    ("config", "lookahead"): frozenset({SORTED}),
} | {("config", name): frozenset({0}) for name in ("stop_slots", "move_slots", "one_instant", "blocking", "has_deadlines")}
as_plain_world = table_reader(World, "InPlainEnv", PLAIN_WORLD)
as_plain_task = table_reader(Task, "Plain", PLAIN_TASK)
