"""What Slurm's two scheduling loops do: docs/simulator.md, "Backfill".

The main loop tries the first jobs in order at every decision. A job that does not fit withdraws the nodes of its partitions, so that no
job behind it takes them. The backfill loop plans the first jobs in a profile every now and then. Nothing is remembered of a plan: it only
says which jobs may start now. So a plan ends when nobody is left who could.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.backfill.conservative import picks_one_by_one, start_there
from queuewise.sim.backfill.profile import (
    NUMBER,
    Profile,
    begin_profile,
    hold,
    moment_from,
    profile_in,
    profile_memory,
    round_down,
    round_up,
)
from queuewise.sim.backfill.start_search import forget_planned, last_that_could_start, search_start
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import close_node, copy_machine
from queuewise.sim.core.pieces import class_as_placed
from queuewise.sim.core.schedule import QUEUED
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.placement.placement_rules import place
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.queue.line import line_up, line_up_again
from queuewise.sim.queue.overdue import is_overdue


@inline
def begin_main_loop(w: World, s: State) -> int:
    """How many jobs the main loop tries now: all of them if it has not done so for long."""
    if s.clock.now >= s.clock.looped_at + w.slurm.main_interval:
        s.clock.looped_at = s.clock.now
        return s.count.pending_jobs
    return int(w.slurm.main_depth)


@kernel
def _withdraw(w: World, c: int, withdrawn) -> bool:  # type: ignore[no-untyped-def]
    """Withdraw the pools of the partitions that class c names. Returns whether others are left."""
    pools = w.sizes.num_pools
    left = False
    for p in range(pools):
        if w.partition_pools[w.class_partitions[c] * pools + p]:
            withdrawn[p] = 1
        left = left or withdrawn[p] == 0
    return left


@kernel
def _close_withdrawn(w: World, z: Machine, withdrawn) -> None:  # type: ignore[no-untyped-def]
    for n in range(w.sizes.num_nodes):
        if withdrawn[w.node_pool[n]] and not z.closed[n]:
            close_node(w, z, n)


@kernel
def _is_withdrawn(w: World, c: int, withdrawn) -> bool:  # type: ignore[no-untyped-def]
    """Whether no node is left in the partitions that class c names."""
    pools = w.sizes.num_pools
    p = 0
    while p < pools and (withdrawn[p] or not w.partition_pools[w.class_partitions[c] * pools + p]):
        p += 1
    return p == pools


@kernel
def go_on_behind_head(w: World, m: Machine, z: Machine, s: State, q: int, most: int) -> None:
    """Let the main loop go on behind the blocked head with at most so many jobs, of other partitions."""
    withdrawn = np.zeros(w.sizes.num_pools, np.int64)
    if most <= 0 or not _withdraw(w, w.job_class[s.head[q]], withdrawn):
        return
    copy_machine(w, m, z)
    _close_withdrawn(w, z, withdrawn)
    line = np.empty(s.count.pending_jobs, np.int64)
    number = line_up(w, s, q, s.head[q], line)
    again = picks_one_by_one(w)
    if again:
        number = line_up_again(w, s, line, 0, number)
    at = 0
    while at < min(number, most):
        j = line[at]
        c = w.job_class[j]
        at += 1
        if _is_withdrawn(w, c, withdrawn):
            continue
        if place(w, z, s, c):
            start_there(w, m, s, j)
            if again:
                number = line_up_again(w, s, line, at, number)
        elif _withdraw(w, c, withdrawn):
            _close_withdrawn(w, z, withdrawn)
        else:
            return


@inline
def backfill_is_due(w: World, s: State) -> bool:
    return s.clock.now >= s.clock.backfilled_at + w.slurm.backfill_interval


@kernel
def plan_first_jobs(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """The backfill loop: plan the head and the first jobs behind it; start those whose turn is now."""
    s.clock.backfilled_at = s.clock.now
    line = np.empty(1 + s.count.pending_jobs, np.int64)
    line[0] = s.head[q]
    number = 1 + line_up(w, s, q, s.head[q], line[1:])
    if picks_one_by_one(w):
        number = line_up_again(w, s, line, 1, number)
    latest = np.full(w.sizes.num_classes, np.inf)  # by class: jobs that would run beyond it cannot start now
    most = int(w.slurm.most_planned)
    if last_that_could_start(w, m, s, line, 0, min(number, most) - 1, latest) < 0:
        return
    memory = profile_memory(w, s.count.running_jobs + 2 * min(number, most) + 3 + w.sizes.num_reservation_ends)
    copy_machine(w, m, z)
    p = profile_in(memory)
    begin_profile(w, m, s, q, p)
    _plan_line(w, m, z, s, q, p, line, number, latest)
    memory[0][NUMBER] = 0  # not before here is the memory released


@kernel
def _plan_line(w: World, m: Machine, z: Machine, s: State, q: int, p: Profile, line, number: int, latest) -> None:  # type: ignore[no-untyped-def]
    forget_planned(s, q)
    most = int(w.slurm.most_planned)
    at, last = 0, min(number, most) - 1
    while at <= last:
        j = line[at]
        c = w.job_class[j]
        at += 1
        start = search_start(w, z, s, q, j, p, _end_of_window(w, s, j, p), -np.inf, latest)
        if start >= 0:
            until = p.times[start] + estimate_left(w, s, j) * w.class_worst[class_as_placed(w, s, c)]
            hold(w, s, c, p, start, round_down(w, s, until) if start == 0 else round_up(w, s, until))
        if start == 0:
            start_there(w, m, s, j)
            if picks_one_by_one(w):
                number = line_up_again(w, s, line, at, number)
                last = min(number, most) - 1
        last = last_that_could_start(w, m, s, line, at, last, latest)


@inline
def _end_of_window(w: World, s: State, j: int, p: Profile) -> int:
    """The first moment that is too late to plan a start of job j; -1 if none is."""
    if is_overdue(w, s, j):
        return -1
    end = moment_from(p, np.nextafter(s.clock.now + w.slurm.window, np.inf), 0)
    return end if end < p.size[NUMBER] else -1


@inline
def is_queued(s: State, j: int) -> bool:
    return j >= 0 and s.status[j] == QUEUED


@kernel
def note_next_loop(w: World, s: State) -> None:
    """Have a decision when the next loop is due: one that has not seen what has happened since the last one."""
    now = s.clock.now
    if not w.policy.holds:
        s.clock.wake_at = np.inf
    if s.count.pending_jobs > 0 and s.clock.backfilled_at < now:
        s.clock.wake_at = _sooner_after(now, s.clock.backfilled_at + w.slurm.backfill_interval, s.clock.wake_at)
    if s.count.pending_jobs > w.slurm.main_depth and s.clock.looped_at < now:
        s.clock.wake_at = _sooner_after(now, s.clock.looped_at + w.slurm.main_interval, s.clock.wake_at)


@inline
def _sooner_after(now: float, time: float, other: float) -> float:
    return min(time, other) if time > now else other
