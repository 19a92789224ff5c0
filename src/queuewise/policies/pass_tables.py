"""Kernels of the fast pass (`serve/fast_pass.py`): they fill the tables of a kept layout from the columns of a snapshot.

They accept only what is plain: jobs with a fixed number of tasks that were never stopped, whole GPUs, nodes on which what is free is what
the running jobs leave. Whatever else a snapshot has, `fill_tables` says that it is not plain, and the caller takes the way that knows
everything and names what is wrong. So the checks here must be sufficient; they need not explain.

Axes: J jobs, R running jobs, P pieces of them, N nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from queuewise.cluster.spec import UNLIMITED
from queuewise.sim.core.compilation import caller_by_address, entry, kernel
from queuewise.sim.core.engine import REPLAY_ARGUMENTS
from queuewise.sim.core.rules import SCORING_SIGNATURE
from queuewise.sim.core.schedule import NEVER, QUEUED, REJECTED, RUNNING
from queuewise.sim.core.state import State, World, as_machine, as_state, as_world
from queuewise.sim.core.tables import F64, I64
from queuewise.workload.jobs import WHOLE_GPU

SUBMIT, ESTIMATE, NUM_TASKS, MIN_TASKS, MAX_TASKS, GPU_MILLI, CPU_MILLI, MEM_MIB, PRIORITY, REQUESTED, DEADLINE, PREDICTED = range(12)
START, BEGIN, EXPECTED_END, FIRST_START = range(4)  # columns of runs
RUN, NODE, TASKS, GPUS = range(4)  # columns of pieces; GPUS is a mask
CLOSED, FREE_GPUS, FREE_CPU, FREE_MEM = range(4)  # columns of nodes; FREE_GPUS is a mask
NO_AMOUNT = -1  # of something without a limit
LARGEST = 2.0**31 - 1
NOT_PLAIN = -1


@kernel
def _is_plain_job(job: F64, now: float) -> bool:
    tasks, milli, cpu, mem = job[NUM_TASKS], job[GPU_MILLI], job[CPU_MILLI], job[MEM_MIB]
    if not (1 <= tasks <= LARGEST and job[MIN_TASKS] == tasks and job[MAX_TASKS] == tasks):
        return False
    if not (0 <= milli <= LARGEST and milli % WHOLE_GPU == 0 and 0 <= cpu <= LARGEST and 0 <= mem <= LARGEST and milli + cpu + mem > 0):
        return False
    return 0 <= job[ESTIMATE] < np.inf and job[SUBMIT] <= now and not job[REQUESTED] < 0 and not job[PREDICTED] < 0


@kernel
def _is_plain_run(run: F64, submit: float, now: float) -> bool:
    if not (submit <= run[START] <= now and run[START] <= run[BEGIN] < np.inf and run[START] <= run[EXPECTED_END] < np.inf):
        return False
    return run[START] <= run[FIRST_START] <= run[BEGIN]


@kernel
def _take_piece(w: World, c: int, n: int, tasks: int, gpus: int, used: I64) -> bool:
    """Note what a piece holds of its node. False: it cannot be there."""
    wanted = tasks * w.class_gpus[c]
    number = 0
    rest = gpus
    while rest != 0 and number <= wanted:
        rest &= rest - 1
        number += 1
    beyond = gpus >> w.node_gpus[n] if w.node_gpus[n] < 64 else 0
    if tasks < 1 or number != wanted or beyond != 0 or used[n, 0] & gpus:
        return False
    used[n, 0] |= gpus
    used[n, 1] += tasks * w.class_cpu[c]
    used[n, 2] += tasks * w.class_mem[c]
    return True


@kernel
def _has_left(node: I64, used: I64, gpus: int, cpu: int, mem: int) -> bool:
    """Whether what is free of a node is what the running jobs leave of it: nothing, if it is closed."""
    for amount, whole, held in ((node[FREE_CPU], cpu, used[1]), (node[FREE_MEM], mem, used[2])):
        if held > whole:
            return False
        left = NO_AMOUNT if whole == UNLIMITED else whole - held if not node[CLOSED] else 0
        if amount != left:
            return False
    every = (1 << gpus) - 1 if gpus < 64 else -1
    return node[FREE_GPUS] == (0 if node[CLOSED] else every & ~used[0])


@kernel
def _fill_pieces(w: World, s: State, first: int, row: I64, job_class: I64, runs: F64, pieces: I64, used: I64) -> bool:
    """Pieces of one run are adjacent. `first` is the position of the first running job."""
    for p in range(len(pieces)):
        r, n = pieces[p, RUN], pieces[p, NODE]
        c = job_class[first + r]
        if c < 0 or not 0 <= n < w.sizes.num_nodes or not _take_piece(w, c, n, pieces[p, TASKS], pieces[p, GPUS], used):
            return False
        begins = p
        while begins > 0 and pieces[begins - 1, RUN] == r:
            begins -= 1
            if pieces[begins, NODE] == n:
                return False
        j = row[first + r]
        s.first_piece[j] = begins
        s.num_pieces[j] = p + 1 - begins
        s.piece_job[p] = j
        s.piece_node[p] = n
        s.piece_tasks[p] = pieces[p, TASKS]
        s.piece_gpus[p] = pieces[p, GPUS]
        s.piece_start[p] = runs[r, START]
        s.piece_end[p] = NEVER
    s.count.pieces = len(pieces)
    return True


@entry
def fill_tables(world, machine, state, jobs, row, job_class, runs, pieces, nodes, used, queued, now) -> int:  # type: ignore[no-untyped-def]
    """Write the columns from which `resume` derives the rest. Returns how many jobs are queued, or NOT_PLAIN.

    The last jobs run, as many as there are `runs`; the others wait. Job k is in row[k] of the tables, with the class job_class[k], -1 if it
    fits on no empty cluster. `used` [N, 3] is scratch. The rows of queued jobs are written to `queued`.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    waiting = len(jobs) - len(runs)
    number = 0
    for k in range(len(jobs)):
        if not _is_plain_job(jobs[k], now):
            return NOT_PLAIN
        j = row[k]
        w.submit[j] = jobs[k, SUBMIT]
        w.runtime[j] = jobs[k, ESTIMATE]
        w.estimate[j] = jobs[k, ESTIMATE]
        w.job_class[j] = job_class[k]
        if k < waiting:
            s.status[j] = QUEUED if job_class[k] >= 0 else REJECTED
            if job_class[k] >= 0:
                queued[number] = j
                number += 1
    used[:] = 0
    if not _fill_pieces(w, s, waiting, row, job_class, runs, pieces, used):
        return NOT_PLAIN
    for r in range(len(runs)):
        j = row[waiting + r]
        placed = 0
        for p in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            placed += s.piece_tasks[p]
        if placed != jobs[waiting + r, NUM_TASKS] or not _is_plain_run(runs[r], jobs[waiting + r, SUBMIT], now):
            return NOT_PLAIN
        s.status[j] = RUNNING
        s.start[j] = runs[r, FIRST_START]
        s.expected[j] = runs[r, EXPECTED_END]
    for n in range(len(nodes)):
        if not _has_left(nodes[n], used[n], w.node_gpus[n], w.node_cpu[n], w.node_mem[n]):
            return NOT_PLAIN
        m.closed[n] = nodes[n, CLOSED]
    w.sizes.num_jobs = len(jobs)
    s.count.arrived = len(jobs)
    s.clock.now = now
    return number


@intrinsic
def _function_at(typingctx: Any, address: Any) -> Any:
    """A scoring function by its address: to pass one as an argument takes Numba longer than to make a decision."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = cgutils.create_struct_proxy(SCORER)(context, builder)
        value.jit_addr = builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))
        return value._getvalue()

    return SCORER(types.int64), codegen


_at: Any = _function_at
SCORER = types.FunctionType(SCORING_SIGNATURE)
_replay = caller_by_address(types.void(*REPLAY_ARGUMENTS))


@kernel
def begin_pass(world, state) -> None:  # type: ignore[no-untyped-def]
    """Let the next call of the replay make one pass, and stop."""
    w = as_world(world)
    s = as_state(state)
    s.count.log_full = 1  # a pass is due: the replay begins with it
    s.count.decisions += 1
    for q in range(w.sizes.num_queues):
        s.dirty[q] = 1
    s.clock.stop_at = np.nextafter(s.clock.now, -np.inf)


@entry
def make_pass(replay, world, machine, spare, state, scorer, second_scorer, holder) -> None:  # type: ignore[no-untyped-def]
    """Call the replay for one pass at the present instant. It and the functions are given by their addresses."""
    begin_pass(world, state)
    _replay(replay, world, machine, spare, state, _at(scorer), _at(second_scorer), _at(holder))


@entry
def pieces_fit(world, state, first, nodes, used) -> bool:  # type: ignore[no-untyped-def]
    """Whether what was started since piece `first` can be carried out: every piece on a node that is open, with what it needs there.

    `used` is as `fill_tables` has left it.
    """
    w = as_world(world)
    s = as_state(state)
    for p in range(first, s.count.pieces):
        n = s.piece_node[p]
        if nodes[n, CLOSED] or not _take_piece(w, w.job_class[s.piece_job[p]], n, s.piece_tasks[p], s.piece_gpus[p], used):
            return False
        if used[n, 1] > w.node_cpu[n] or used[n, 2] > w.node_mem[n]:
            return False
    return True
