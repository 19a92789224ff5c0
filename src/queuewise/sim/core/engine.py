"""`simulate`: build the tables, run the kernel and return the Schedule."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.sim import queue
from queuewise.sim.conditions.reserved_nodes import count_overstays
from queuewise.sim.core.blocks import PIECE_COLUMNS
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.loop import replay, replay_plain, replay_preemptive
from queuewise.sim.core.rules import SCORING_SIGNATURE, Order, Rules, scoring_function
from queuewise.sim.core.schedule import DONE, KILLED, Origin, Schedule
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.state import PLAIN, PREEMPTIVE, Machine, State, World
from queuewise.sim.core.tables import F64, addresses_of, has_known
from queuewise.sim.core.watch import run_watched
from queuewise.workload.history import NO_HISTORY, History
from queuewise.workload.jobs import Workload

REPLAY_ARGUMENTS = (*4 * (types.int64[::1],), *3 * (types.FunctionType(SCORING_SIGNATURE),))


def simulate(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    *,
    estimate: F64,
    history: History = NO_HISTORY,
    policy: str = "",
    estimates: str = "",
    kill_at_limit: bool = False,
    conditions: Conditions = PERFECT,
    drive: Callable[[World, Machine, State], State] | None = None,
    begin: Callable[[World, Machine, State], State] | None = None,
) -> Schedule:
    """Replay the workload on the cluster.

    `estimate` is what the policy knows about runtimes, `history` holds the columns that its functions use.
    `drive` replaces the engine's loop: it advances the state to the end and returns it (see stepwise). `begin` changes
    the tables before the first event and returns the state to use.
    """
    if len(workload) == 0:
        raise InputError("the workload has no jobs", hint="check the file, or the filter that was applied to it")
    began = time.perf_counter()
    runtime, killed = limited_runtime(workload, kill_at_limit)
    layout = lay_out(workload, cluster, rules, runtime=runtime, estimate=estimate, history=history, conditions=conditions)
    world, machine, state = layout.tables
    if begin is not None:
        state = begin(world, machine, state)
    laid_out = time.perf_counter()
    if drive is None:
        drive = partial(run_kernel, compiled_replay(world), rules)
    began_replay = time.perf_counter()
    state = run_watched(partial(drive, world, machine, state), state.count, rules.time_limit_s)
    engine_s = (laid_out - began) + (time.perf_counter() - began_replay)  # without the time of compilation
    state.status[(state.status == DONE) & killed] = KILLED
    return schedule_of(workload, cluster, rules, state, estimate, policy, estimates, engine_s, conditions)


def run_kernel(run: Callable[..., None], rules: Rules, world: World, machine: Machine, state: State) -> State:
    spare = machine.clone()
    functions = functions_of(rules)
    while True:
        run(addresses_of(world), addresses_of(machine), addresses_of(spare), addresses_of(state), *functions)
        if not state.count.log_full:
            return state
        state = _with_longer_log(world, state)


def with_room_in_log(world: World, state: State) -> State:
    """The state, with room in its log of pieces for a pass that starts all waiting jobs and one more."""
    most = (state.count.pending_jobs + 1) * world.sizes.most_pieces
    full = world.policy.can_restart and state.count.pieces + most > world.sizes.log_size
    return _with_longer_log(world, state) if full else state


def _with_longer_log(world: World, state: State) -> State:
    """The state with twice the room for pieces, and at least enough for all waiting and running jobs."""
    needed = int(state.count.pending_jobs + state.count.running_jobs + 1) * int(world.sizes.most_pieces)
    size = 2 * int(world.sizes.log_size) + needed
    used = int(state.count.pieces)
    columns = {}
    for name in PIECE_COLUMNS:
        old = getattr(state, name)
        columns[name] = np.empty(size, old.dtype)
        columns[name][:used] = old[:used]
    world.sizes.log_size = size
    return state.replace(**columns)


VARIANTS = ((replay_plain, PLAIN), (replay_preemptive, PREEMPTIVE))  # of the replay, with what they know
_compiling = threading.Lock()  # several threads may start the first replay at the same time


def variant_for(world: World) -> Any:
    """The entry of the replay with the least code that this simulation can have."""
    return next((one for one, known in VARIANTS if has_known(world, known)), replay)


def compiled_replay(world: World | None = None) -> Callable[..., None]:
    """The replay kernel for this simulation, compiled or loaded from the cache on first use. Without a world: for plain ones.

    There are three for all policies: without the code for preemption, conditions and plans (`state.PLAIN`), without that for conditions
    and plans (`state.PREEMPTIVE`), and with all of it.
    """
    chosen: Any = replay_plain if world is None else variant_for(world)
    if JIT_DISABLED:
        return partial(_replay_in_python, chosen)
    with _compiling:
        if not chosen.signatures:
            chosen.compile(REPLAY_ARGUMENTS)
            chosen.disable_compile()
    return chosen


def _replay_in_python(run: Callable[..., None], *arguments: Any) -> None:
    with np.errstate(all="ignore"):  # as in compiled code, where overflow wraps and inf * 0 is NaN
        run(*arguments)


@scoring_function
def _no_score(facts: Any, pending: Any, number: int, now: float, outlook: Any, users: Any, params: Any, out: Any) -> None:
    """The placeholder for a function that the policy does not have."""


def functions_of(rules: Rules) -> list[Callable[..., None]]:
    """The functions that score by both orders, and the one that holds jobs."""
    functions = (rules.order.function, None if rules.backfill_order is None else rules.backfill_order.function, rules.order.hold)
    return [_no_score if function is None else function for function in functions]


def limited_runtime(workload: Workload, kill_at_limit: bool) -> tuple[F64, NDArray[np.bool_]]:
    """Runtimes and which jobs are killed. With `kill_at_limit`, a runtime is limited to the requested time."""
    if not kill_at_limit:
        return workload.runtime, np.zeros(len(workload), bool)
    killed = workload.runtime > workload.requested
    return np.where(killed, workload.requested, workload.runtime), killed


def schedule_of(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    state: State,
    estimate: F64,
    policy: str,
    estimates: str,
    engine_s: float,
    conditions: Conditions = PERFECT,
) -> Schedule:
    if rules.solver is not None:
        rules.solver.raise_failure()
    pieces = int(state.count.pieces)
    stays = tuple(column[:pieces] for column in (state.piece_job, state.piece_node, state.piece_start, state.piece_end))
    return Schedule(
        workload=workload,
        cluster=cluster,
        policy=policy,
        dispatch="commit" if rules.dispatch == queue.COMMIT else "reorder",
        estimates=estimates,
        seed=rules.seed,
        estimate=estimate,
        status=state.status.copy(),
        start=state.start.copy(),
        end=state.end.copy(),
        preemptions=state.stops.copy() if len(state.stops) == len(workload) else np.zeros(len(workload), np.int32),
        piece_job=state.piece_job[:pieces],
        piece_node=state.piece_node[:pieces],
        piece_tasks=state.piece_tasks[:pieces],
        piece_gpus=state.piece_gpus[:pieces],
        piece_start=state.piece_start[:pieces],
        piece_end=state.piece_end[:pieces],
        engine_s=engine_s,
        decisions=int(state.count.decisions),
        overstays=count_overstays(workload, cluster, conditions, stays),
        power=conditions.power,
        thinking=None if rules.solver is None else rules.solver.statistics.as_dict(),
        origin=Origin(
            rules=dataclasses.replace(rules, order=Order(), backfill_order=None, solver=None),  # scores of all jobs take much memory
            conditions=conditions,
            ready=state.ready[: len(workload)].copy() if len(state.ready) >= len(workload) else None,
        ),
    )
