"""The arrays of an environment, beside the engine's own: `Task` k (read-only, one an episode) and `Play` p (what changes, one an env).

Kernels of this package take (w, m, s, k, p): the engine's World, Machine and State, then these. `Frame` is what a call needs beside
them. Sizes: J jobs, N nodes, C demand classes, Q slots of the window, U units of the lookahead (GPUs, or nodes of a cluster without
GPUs), T reward terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.state import FACTS
from queuewise.sim.tables import addresses_of, table

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
Records = NDArray[np.void]  # FACTS

# Task.config
(PROBLEM, DISPATCH, WINDOW, HOST_SLOTS, LOOKAHEAD, UNITS, NUM_SCORES, SKIP_FORCED, BLOCKING, MAX_STEPS, TERMINAL, RELATIVE_TO, RESOURCE,
 NUM_USERS, DEADLINES, NUM_WEIGHTED, VIEW, WAIT_ACTION, STOP_SLOTS, MOVE_SLOTS, MOST_STOPS, CONFIG_SIZE) = range(22)  # fmt: skip
#   DEADLINES: 1 if some job has one. NUM_WEIGHTED: entries of Task.weighted. WAIT_ACTION: the last action.
#   STOP_SLOTS: running jobs shown. MOVE_SLOTS: as many, or 0 if they may not be migrated.
JOB, HOST, JOINT = range(3)
MASK, COMMIT = range(2)
OFF, PER_GPU, SORTED, CDF = range(4)
TOKENS = 0  # VIEW: any other number is a published one
NO_CAP = -1  # MAX_STEPS without a limit
NOTHING, WAIT_MEAN, JCT_MEAN, SLOWDOWN_MEAN, BOUNDED_SLOWDOWN_MEAN, UTILISATION_MEAN = range(6)  # RELATIVE_TO
# Task.scale
(HORIZON, TIME_SCALE, EPOCH, DECAY, ALL_GPU, ALL_CPU, ALL_MEM, CAPACITY, ALL_FLOPS, IDLE_WATTS, BASE_VALUE, FIRST_SUBMIT, NUM_LOADED,
 SCALE_SIZE) = range(14)  # fmt: skip
# Play.number
(WAITING, ON_MACHINE, ENDED, STEPS, ILLEGAL, GANG, TASKS_LEFT, OVER, BEGUN, FREE_STAMP, WITHOUT_GPU, SHOWN, SHOWN_GANG, FITTING,
 STOPS, LISTED, LEGAL, FREE_UNITS, NUMBER_SIZE) = range(19)  # fmt: skip
NOBODY = -1  # in GANG
#   FREE_STAMP: stamp of the machine when FREE_GPU and the two after it were summed. WITHOUT_GPU: running jobs that hold no GPU.
#   Of the last observation: SHOWN rows of the window, whether a gang was being placed, and how many of
#   the jobs shown were FITTING. STOPS: preemptions and migrations. LISTED: entries of stop_job.
#   LEGAL: how many actions are (of a joint one: how many first choices). FREE_UNITS: of Play.unit_sorted.
# Play.scalar
(STEP_BEGAN, QUEUED_WORK, RUNNING_WORK, RUNNING_RATE, BUSY, FLOPS, WATTS, LOAD_SUM, LOAD_SQUARES, INVERSE, BOUNDED_INVERSE, SUBMIT_SUM,
 USAGE_SUM, IDLING, HELD, WAIT_SUM, JCT_SUM, SLOWDOWN_SUM, BOUNDED_SUM, BUSY_SECONDS, ELAPSED, RETURN, FREE_GPU, FREE_CPU, FREE_MEM,
 TIME_SHOWN, SCALAR_SIZE) = range(27)  # fmt: skip

TOUCHED_BITS = 32  # of a word of Play.touched
FREE = -np.inf  # a unit or node that nobody holds, in Play.unit_until and Play.node_until


# Columns of jobs that are read together lie together, in rows.
TASK_ROW = np.dtype(
    [
        ("job_size", np.float64),
        ("job_amount", np.float64),
        ("job_work", np.float64),
        ("priority", np.float64),
        ("deadline", np.float64),
        ("job_user", np.int64),
    ]
)


class Task(NamedTuple):
    config: I64  # [CONFIG_SIZE]
    scale: F64  # [SCALE_SIZE]
    weight: F64  # [T] weight of each reward term, divided by what the term is counted per
    weighted: I64  # [T] the terms with a weight
    token: F32  # [J*S] features of a job that never change
    host_token: F32  # [N*S] features of a node that never change
    job_size: F64  # [J]
    job_amount: F64  # [J] what the job holds of the cluster's main resource: GPU milli, otherwise CPU milli, otherwise MiB
    job_work: F64  # [J] size x true runtime; rewards only
    job_user: I64  # [J] -1 unknown
    priority: F64  # [J]
    deadline: F64  # [J] inf: none
    unit_first: I64  # [N+1] first lookahead unit of each node
    node_flops: F64  # [N] of one GPU
    node_inverse: F64  # [N*3] 1 ÷ GPU milli, 1 ÷ CPU milli, 1 ÷ MiB of the node, 0 where it has none
    node_amount: F64  # [N] how much of the main resource the node holds, 0: none or unlimited
    score: F64  # [K*J] scores of heuristics that never change
    score_kind: I64  # [K] -1: in `score`; otherwise the live order
    facts: Records  # [J] or [1] for live orders
    published: F32  # rows of a published view: see published.py
    class_group: I64  # [C or 1] classes that may use the same nodes have the same number (rltune's view)


class Play(NamedTuple):
    number: I64  # [NUMBER_SIZE]
    scalar: F64  # [SCALAR_SIZE]
    term: F64  # [T] this step's reward terms, unweighted
    waiting: I32  # [J] queued jobs in the order of the window
    running: I32  # [J]
    running_end: F64  # [J] when they end
    class_stamp: I64  # [C] stamp of the machine when class_live was computed
    class_live: F32  # [C*3] features of a class: fits, ways, share_of_free
    node_until: F64  # [N] latest expected end of what runs on the node, FREE
    node_load: F64  # [N] share of the main resource in use
    unit_until: F64  # [U]
    unit_sorted: F64  # [U or 1] the times of unit_until, ascending, where the lookahead is sorted
    touched: I64  # [N/TOUCHED_BITS] a bit for each node: more than time has changed there since it was shown
    row_job: I32  # [Q] the job whose features are in each row of the last observation
    row_class: I32  # [Q] its class
    row_submit: F64  # [Q] and its submission
    usage: F64  # [users] size x estimate started, newer starts weighing more; only ratios mean something
    user_slowdown: F64  # [users] sums of bounded slowdowns
    user_ended: F64  # [users]
    score: F64  # [Q]
    order: F64  # [8] parameters of a live order
    class_pool_stamp: I64  # [C or 1] stamp of the machine when class_pool was computed (rltune's view)
    class_pool: F64  # [C*POOL_VALUES or 1] what the class's nodes offer
    group_demand: F64  # [C or 1] GPUs that the jobs shown ask for
    stop_job: I32  # [P or 1] the running jobs shown
    served: F64  # [J or 1] seconds of the job's earlier runs


class Output(NamedTuple):
    """Where an env writes what its agent sees."""

    observation: F32  # [F]
    mask: I8  # [A] 1: legal
    final: F32  # [F] the last observation of an episode after which the env went on at once


class Frame(NamedTuple):
    """What one compiled call needs to know of a batch."""

    lists: I64  # [E*LISTS] of each env, addresses of its World, Machine, spare Machine, State, Task, Play, Output
    home: I64  # [E] address of the env's block
    running_at: I64  # [1] where tokens of running jobs begin in an observation
    length: I64  # [1] F
    space: I64  # [SPACE_SIZE] of actions
    actions: I64  # [E*2] the action, and the host of a joint one
    mask: I8  # [E*MASK_WIDTH] all rows of Output.mask
    drawn: I64  # [E*2] random legal actions
    generator: I64  # [E] state of each env's generator, not zero
    rewards: F64  # [E]
    outcome: I64  # [E] RUNS_ON, TERMINATED or TRUNCATED
    terminated: I8  # [E]
    truncated: I8  # [E]
    elapsed: F64  # [E]
    tally: F64  # [TALLY_SIZE*E] sums of episodes that have just ended
    next: I64  # [E*NEXT_SIZE] what the env goes on with when its episode ends


# Frame.space: numbers of actions and hosts, length of a mask, whether a joint action names both, whether illegal ones count as waits,
# and whether each step shall end with drawing a random action for the next
ACTIONS, HOSTS, MASK_WIDTH, PAIRS, LENIENT, DRAWS, SPACE_SIZE = range(7)
LISTS = 7
WORLD_LIST, TASK_LIST = 0, 4  # the lists of an env that are its template's
PLAY_LIST = 5
# Frame.next: address of the template's block (0: the env stops there) and its length, and of the template's World and Task
NEXT_BLOCK, NEXT_BYTES, NEXT_WORLD, NEXT_TASK, NEXT_SIZE = range(5)
TALLY = ("return", "steps", "illegal", "completed", "unfinished", "mean_wait_s", "mean_jct_s", "mean_bounded_slowdown", "stops")
TALLY_SIZE = len(TALLY)

_DTYPES = {"I8": np.int8, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "Records": FACTS}


def _column_dtypes(fields: type[NamedTuple]) -> dict[str, Any]:
    return {name: _DTYPES[alias.__forward_arg__] for name, alias in fields.__annotations__.items()}


_ROWS = (TASK_ROW,)
as_task = table(Task, _column_dtypes(Task), _ROWS)
as_play = table(Play, _column_dtypes(Play))
as_output = table(Output, _column_dtypes(Output))
as_frame = table(Frame, _column_dtypes(Frame))


def handle(arrays: Task | Play | Frame) -> Any:
    """What a compiled entry is given in place of the structure; the structure must outlive the call."""
    return addresses_of(arrays, _column_dtypes(type(arrays)), _ROWS)
