"""Preemption and migration: which running jobs an agent sees, which it may stop or move, and how (docs/mdp.md)."""

from __future__ import annotations

import numpy as np

from queuewise.envs.bookkeeping import note_start, note_stop
from queuewise.envs.class_fit import class_fits, overdue_job_waits
from queuewise.envs.columns import EpisodeState, Task
from queuewise.envs.features import JOB_AT, NUM_JOB_FIXED, NUM_RUNNING, RUNNING_AT
from queuewise.envs.observation import HALF_S
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.lifecycle import end_run, queue_again, start_placed, stop_to_move, take_off
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.tables import F32, I8
from queuewise.sim.placement.placement_rules import place, runtime_factor
from queuewise.sim.preemption.restart import may_be_stopped, policy_saves, run_started


@inline
def _goes_before(s: State, j: int, other: int) -> bool:
    """Whether running job j is shown before the other. The job with the latest expected end comes first."""
    return s.expected[j] > s.expected[other] or (s.expected[j] == s.expected[other] and j < other)


@kernel
def _list_running(s: State, k: Task, p: EpisodeState) -> None:
    """List the running jobs that are shown in EpisodeState.stop_job."""
    slots = k.config.stop_slots
    number = 0
    for i in range(p.count.on_machine):
        j = p.running[i]
        at = number
        while at > 0 and _goes_before(s, j, p.stop_job[at - 1]):
            if at < slots:
                p.stop_job[at] = p.stop_job[at - 1]
            at -= 1
        if at < slots:
            p.stop_job[at] = j
            number = min(number + 1, slots)
    p.count.listed = number


@inline
def _stops_so_far(s: State, k: Task) -> int:
    """How many stops there may have been by now."""
    per = k.config.jobs_per_limit
    return k.config.most_stops * ((s.count.arrived + per - 1) // per if per > 0 else 1)


@inline
def _may_stop(w: World, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    """Whether running job j may be stopped. A run that began now may not, otherwise an episode could go on for ever."""
    return may_be_stopped(w, s, j) and p.count.stops < _stops_so_far(s, k)


@inline
def _may_preempt(w: World, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    return p.count.waiting > 0 and _may_stop(w, s, k, p, j)


@inline
def _may_move(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    """Whether running job j may be moved: not where an overdue job waits for its place, which the move might take."""
    if k.config.move_slots == 0 or not _may_stop(w, s, k, p, j) or overdue_job_waits(w, s, j):
        return False
    return class_fits(w, m, s, p, w.job_class[j])


@noinline
def something_may_stop(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Whether one of the running jobs that will be shown may be preempted or moved."""
    _list_running(s, k, p)
    for i in range(p.count.listed):
        j = p.stop_job[i]
        if _may_preempt(w, s, k, p, j) or _may_move(w, m, s, k, p, j):
            return True
    return False


@noinline
def mark_stops(w: World, m: Machine, s: State, k: Task, p: EpisodeState, mask: I8) -> int:
    """Write which of the running jobs shown may be preempted and which may be moved.

    Returns how many actions are legal.
    """
    slots = k.config.stop_slots
    first = k.config.window
    some = 0
    for i in range(slots):
        listed = i < p.count.listed
        stops = listed and _may_preempt(w, s, k, p, p.stop_job[i])
        mask[first + i] = np.int8(stops)
        some += stops
        if i < k.config.move_slots:
            moves = listed and _may_move(w, m, s, k, p, p.stop_job[i])
            mask[first + slots + i] = np.int8(moves)
            some += moves
    return some


@noinline
def observe_running(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32, at: int) -> None:
    """Write the tokens of the running jobs shown."""
    _list_running(s, k, p)
    now = s.clock.now
    for f in range(at, at + k.config.stop_slots * NUM_RUNNING):
        out[f] = np.float32(0.0)
    for i in range(p.count.listed):
        j = p.stop_job[i]
        base = at + i * NUM_RUNNING
        ran = now - run_started(s, j)
        left = max(s.expected[j] - now, 0.0)
        known = j * NUM_JOB_FIXED
        out[base + RUNNING_AT.shown] = np.float32(1.0)
        out[base + RUNNING_AT.held] = k.token[known + JOB_AT.size]
        out[base + RUNNING_AT.gang] = k.token[known + JOB_AT.tasks]
        out[base + RUNNING_AT.weight] = k.token[known + JOB_AT.priority]
        out[base + RUNNING_AT.ran] = np.float32(ran / (ran + HALF_S))
        out[base + RUNNING_AT.left] = np.float32(left / (left + HALF_S))
        out[base + RUNNING_AT.stopped] = np.float32(s.stops[j] / (s.stops[j] + 1.0))
        out[base + RUNNING_AT.may_stop] = np.float32(_may_preempt(w, s, k, p, j))
        out[base + RUNNING_AT.may_move] = np.float32(_may_move(w, m, s, k, p, j))


@noinline
def stop_or_move(w: World, m: Machine, s: State, k: Task, p: EpisodeState, choice: int) -> None:
    """Preempt the running job in slot `choice` or, if `choice` ≥ P, move the one in slot `choice` − P."""
    moves = choice >= k.config.stop_slots
    j = p.stop_job[choice - k.config.stop_slots if moves else choice]
    c = w.job_class[j]
    if moves:
        place(w, m, s, c)  # before it leaves its old place
    take_off(w, m, s, j)
    if moves:
        stop_to_move(w, s, j)
    else:
        end_run(w, s, j, policy_saves(w))
        queue_again(w, s, j)
    at = 0
    while p.running[at] != j:
        at += 1
    note_stop(w, m, s, k, p, at)
    p.count.stops += 1
    if moves:
        start_placed(w, s, j, runtime_factor(w, s, c))
        note_start(w, m, s, k, p, j)
