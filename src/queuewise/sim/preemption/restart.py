"""Runs of jobs that may be stopped: what a restart costs, what a stop leaves. The formulas are those of docs/simulator.md."""

from __future__ import annotations

import numpy as np

from queuewise.sim import backfill, preemption
from queuewise.sim.conditions.sleeping import wake_nodes
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.events import COMPLETION, TIMER, cancel_event, set_event
from queuewise.sim.core.schedule import NEVER, RUNNING
from queuewise.sim.core.state import State, World
from queuewise.sim.queue.overdue import is_overdue

PATIENCE = 8.0  # a job is promoted when it has waited so many times as long as it has worked


@kernel
def _same_nodes(s: State, j: int) -> bool:
    """Whether the placement in State.place_* is on the nodes of the job's last run; pieces of one node stand together in both."""
    first = s.first_piece[j]
    last = first + s.num_pieces[j]
    for k in range(s.count.placed):
        found = False
        for before in range(first, last):
            found = found or s.piece_node[before] == s.place_node[k]
        if not found:
            return False
    for before in range(first, last):
        found = False
        for k in range(s.count.placed):
            found = found or s.piece_node[before] == s.place_node[k]
        if not found:
            return False
    return True


@kernel
def _overhead(w: World, s: State, j: int) -> float:
    """Seconds before a restarted job works, placed as in State.place_*."""
    seconds = w.costs.checkpoint + w.costs.checkpoint_per_gpu * w.width[j] if s.saved[j] else 0.0
    seconds += w.costs.restart + w.costs.restart_per_gpu * w.width[j]
    if not _same_nodes(s, j):
        seconds += w.costs.transfer + w.costs.transfer_per_gpu * w.width[j]
    dearest = 0.0
    for k in range(s.count.placed):
        dearest = max(dearest, w.node_cost[s.place_node[k]])
    return seconds * dearest


@kernel
def begin_run(w: World, s: State, j: int, factor: float) -> None:
    """Job j starts now as placed in State.place_*: set its times. Its pieces are still those of the run before."""
    awake = wake_nodes(w, s) if w.policy.nodes_sleep else s.clock.now
    s.begin[j] = awake + (_overhead(w, s, j) if w.policy.restart_takes_time and s.stops[j] > 0 else 0.0)
    s.factor[j] = factor
    s.end[j] = s.begin[j] + s.remaining[j] * factor
    s.expected[j] = s.begin[j] + s.remaining_estimate[j] * factor
    if s.start[j] == NEVER:
        s.start[j] = awake


@inline
def _pace(w: World, j: int) -> float:
    """Service that the running job attains in a second."""
    return 1.0 if w.policy.levels_by_time else w.width[j]


@inline
def attained_now(w: World, s: State, j: int) -> float:
    """The service that the running job has attained by now."""
    return s.attained[j] + _pace(w, j) * max(s.clock.now - s.begin[j], 0.0)


@inline
def level_passes_at(w: World, s: State, j: int) -> float:
    """When the running job reaches the end of its level, inf if it is the last."""
    level = s.level[j]
    if w.policy.preemption_key != preemption.BY_LEVEL or level >= w.sizes.num_levels:
        return np.inf
    return s.begin[j] + max(w.level_bound[level] - s.attained[j], 0.0) / _pace(w, j)


@inline
def run_started(s: State, j: int) -> float:
    return s.piece_start[s.first_piece[j]]


@inline
def is_old_enough(w: World, s: State, j: int) -> bool:
    """Whether the quantum of the running job is over."""
    return s.clock.now >= run_started(s, j) + w.costs.quantum


@inline
def has_just_started(s: State, j: int) -> bool:
    """Whether the run of the job started at this very time: no policy stops it then."""
    return run_started(s, j) == s.clock.now


@inline
def may_be_stopped(w: World, s: State, j: int) -> bool:
    """Whether a policy may stop the running job now. An overdue job is stopped no more."""
    return is_old_enough(w, s, j) and not has_just_started(s, j) and not is_overdue(w, s, j)


@inline
def _next_timer(w: World, s: State, j: int) -> float:
    """When the running job reaches the end of its level or of its quantum, whichever is first; inf: neither."""
    time = level_passes_at(w, s, j)
    if w.costs.quantum > 0.0:
        quantum_ends = run_started(s, j) + w.costs.quantum
        if quantum_ends > s.clock.now:
            time = min(time, quantum_ends)
    return time


@kernel
def set_next_event(w: World, s: State, j: int) -> None:
    """Wait for what happens next to running job j: a timer, or its end."""
    if w.policy.preemption_key or w.policy.backfill == backfill.DEFRAG:
        time = _next_timer(w, s, j)
        if time < s.end[j]:
            set_event(s, j, TIMER, time)
            return
    set_event(s, j, COMPLETION, s.end[j])


@kernel
def settle_run(w: World, s: State, j: int, saves: bool) -> None:
    """The run of job j ends unfinished now: carry over what was done. `saves`: the stop takes a checkpoint."""
    worked = max(s.clock.now - s.begin[j], 0.0)
    kept = worked
    every = w.costs.checkpoint_every
    if not saves and every > 0.0:
        kept = 0.0 if every == np.inf else np.floor(worked / every) * every
    done = kept / s.factor[j]
    s.remaining[j] = max(s.remaining[j] - done, 0.0)
    s.remaining_estimate[j] = max(s.remaining_estimate[j] - done, 0.0)
    s.worked[j] += worked
    s.saved[j] = saves
    s.stops[j] += 1
    if w.policy.preemption_key == preemption.BY_LEVEL:
        s.attained[j] += _pace(w, j) * worked


@inline
def policy_saves(w: World) -> bool:
    return w.policy.stop_loses_progress == 0


@inline
def await_promotion(w: World, s: State, j: int) -> None:
    """A job stopped at a low level is not left there for ever. Another waits for nothing that the calendar knows of."""
    if w.policy.promotes and s.level[j] > 0:
        set_event(s, j, TIMER, s.clock.now + PATIENCE * s.worked[j])
    else:
        cancel_event(s, j)


@inline
def pass_levels(w: World, s: State, j: int) -> None:
    while level_passes_at(w, s, j) <= s.clock.now:
        s.level[j] += 1


@inline
def is_running(s: State, j: int) -> bool:
    return s.status[j] == RUNNING
