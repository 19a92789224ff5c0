"""Runs of jobs that may be stopped: what a restart costs, what a stop leaves. The formulas are those of docs/simulator.md."""

from __future__ import annotations

import numpy as np

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.events import COMPLETION, TIMER, cancel_event, set_event
from queuewise.sim.schedule import NEVER, RUNNING
from queuewise.sim.sleeping import wake_nodes
from queuewise.sim.state import (
    BACKFILL,
    BY_LEVEL,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    CHECKPOINT_PER_GPU,
    COSTLY,
    DEFRAG,
    KEYS,
    KILLS,
    NOW,
    NUM_LEVELS,
    PLACED,
    PROMOTES,
    QUANTUM,
    RESTART,
    RESTART_PER_GPU,
    SLEEPS,
    TIMED,
    TRANSFER,
    TRANSFER_PER_GPU,
    State,
    World,
)

PATIENCE = 8.0  # a job is promoted when it has waited so many times as long as it has worked


@kernel
def _same_nodes(s: State, j: int) -> bool:
    """Whether the placement in State.place_* is on the nodes of the job's last run; pieces of one node stand together in both."""
    first = s.first_piece[j]
    last = first + s.num_pieces[j]
    for k in range(s.count[PLACED]):
        found = False
        for before in range(first, last):
            found = found or s.piece_node[before] == s.place_node[k]
        if not found:
            return False
    for before in range(first, last):
        found = False
        for k in range(s.count[PLACED]):
            found = found or s.piece_node[before] == s.place_node[k]
        if not found:
            return False
    return True


@inline
def _cost(w: World, j: int, base: int, per_gpu: int) -> float:
    return w.costs[base] + w.costs[per_gpu] * w.width[j]


@kernel
def _overhead(w: World, s: State, j: int) -> float:
    """Seconds before a restarted job works, placed as in State.place_*."""
    seconds = _cost(w, j, CHECKPOINT, CHECKPOINT_PER_GPU) if s.saved[j] else 0.0
    seconds += _cost(w, j, RESTART, RESTART_PER_GPU)
    if not _same_nodes(s, j):
        seconds += _cost(w, j, TRANSFER, TRANSFER_PER_GPU)
    dearest = 0.0
    for k in range(s.count[PLACED]):
        dearest = max(dearest, w.node_cost[s.place_node[k]])
    return seconds * dearest


@kernel
def begin_run(w: World, s: State, j: int, factor: float) -> None:
    """Job j starts now as placed in State.place_*: set its times. Its pieces are still those of the run before."""
    awake = wake_nodes(w, s) if w.policy[SLEEPS] else s.clock[NOW]
    s.begin[j] = awake + (_overhead(w, s, j) if w.policy[COSTLY] and s.stops[j] > 0 else 0.0)
    s.factor[j] = factor
    s.end[j] = s.begin[j] + s.remaining[j] * factor
    s.expected[j] = s.begin[j] + s.remaining_estimate[j] * factor
    if s.start[j] == NEVER:
        s.start[j] = awake


@inline
def _pace(w: World, j: int) -> float:
    """Service that the running job attains in a second."""
    return 1.0 if w.policy[TIMED] else w.width[j]


@inline
def level_passes_at(w: World, s: State, j: int) -> float:
    """When the running job reaches the end of its level, inf if it is the last."""
    level = s.level[j]
    if w.policy[KEYS] != BY_LEVEL or level >= w.sizes[NUM_LEVELS]:
        return np.inf
    return s.begin[j] + max(w.level_bound[level] - s.attained[j], 0.0) / _pace(w, j)


@inline
def run_started(s: State, j: int) -> float:
    return s.piece_start[s.first_piece[j]]


@inline
def _next_timer(w: World, s: State, j: int) -> float:
    """When the running job reaches the end of its level or of its quantum, whichever is first; inf: neither."""
    time = level_passes_at(w, s, j)
    if w.costs[QUANTUM] > 0.0:
        quantum_ends = run_started(s, j) + w.costs[QUANTUM]
        if quantum_ends > s.clock[NOW]:
            time = min(time, quantum_ends)
    return time


@kernel
def set_next_event(w: World, s: State, j: int) -> None:
    """Wait for what happens next to running job j: a timer, or its end."""
    if w.policy[KEYS] or w.policy[BACKFILL] == DEFRAG:
        time = _next_timer(w, s, j)
        if time < s.end[j]:
            set_event(s, j, TIMER, time)
            return
    set_event(s, j, COMPLETION, s.end[j])


@kernel
def settle_run(w: World, s: State, j: int, saves: bool) -> None:
    """The run of job j ends unfinished now: carry over what was done. `saves`: the stop takes a checkpoint."""
    worked = max(s.clock[NOW] - s.begin[j], 0.0)
    kept = worked
    every = w.costs[CHECKPOINT_EVERY]
    if not saves and every > 0.0:
        kept = 0.0 if every == np.inf else np.floor(worked / every) * every
    done = kept / s.factor[j]
    s.remaining[j] = max(s.remaining[j] - done, 0.0)
    s.remaining_estimate[j] = max(s.remaining_estimate[j] - done, 0.0)
    s.worked[j] += worked
    s.saved[j] = saves
    s.stops[j] += 1
    if w.policy[KEYS] == BY_LEVEL:
        s.attained[j] += _pace(w, j) * worked


@inline
def policy_saves(w: World) -> bool:
    return w.policy[KILLS] == 0


@inline
def await_promotion(w: World, s: State, j: int) -> None:
    """A job stopped at a low level is not left there for ever. Another waits for nothing that the calendar knows of."""
    if w.policy[PROMOTES] and s.level[j] > 0:
        set_event(s, j, TIMER, s.clock[NOW] + PATIENCE * s.worked[j])
    else:
        cancel_event(s, j)


@inline
def pass_levels(w: World, s: State, j: int) -> None:
    while level_passes_at(w, s, j) <= s.clock[NOW]:
        s.level[j] += 1


@inline
def is_running(s: State, j: int) -> bool:
    return s.status[j] == RUNNING
