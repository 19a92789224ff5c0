"""The mask of legal actions in the present state, written into a buffer of the caller. docs/mdp.md defines it."""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns
from queuewise.envs.class_fit import machine_stamp, overdue_job_waits, stamped_fits
from queuewise.envs.columns import EpisodeState, Task
from queuewise.envs.features import NUM_CLASS_LIVE
from queuewise.envs.observation import shown_jobs
from queuewise.envs.stopping import mark_stops
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.machine import slots_on
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.stepwise import may_start
from queuewise.sim.core.tables import I8
from queuewise.sim.preemption.keys import estimate_left
from queuewise.sim.queue.overdue import has_bound, next_overdue_time


@inline
def lies_ahead(w: World, s: State) -> bool:
    """Whether a further event will happen while jobs wait."""
    if s.count.events > 0 or s.count.arrived < w.sizes.num_jobs or s.count.outages_seen < w.sizes.num_outages:
        return True
    return next_overdue_time(w, s) < np.inf


@noinline
def _spares_overdue(w: World, m: Machine, z: Machine, s: State, j: int) -> bool:
    """Whether job j, whose class fits, may start beside an overdue job that waits.

    Where the agent chooses the nodes, only jobs may that are expected to end in time on any of them.
    """
    c = w.job_class[j]
    if w.policy.external_places:
        return s.clock.now + estimate_left(w, s, j) * w.class_worst[c] <= s.shadow_time[w.class_queue[c]]
    return may_start(w, m, z, s, j, c)


@noinline
def _unmark_delaying(w: World, m: Machine, z: Machine, s: State, p: EpisodeState, mask: I8, shown: int) -> int:
    """Forbid jobs that fit but would delay an overdue job. Returns how many these are."""
    number = 0
    for q in range(shown):
        j = p.waiting[q]
        if mask[q] and overdue_job_waits(w, s, j) and not _spares_overdue(w, m, z, s, j):
            mask[q] = np.int8(0)
            number += 1
    return number


@kernel
def first_choice(w: World, m: Machine, z: Machine, s: State, p: EpisodeState, most: int) -> int:
    """The first of so many waiting jobs that may start now, -1 if none may."""
    stamp = machine_stamp(s, p)
    in_gang = p.count.gang != columns.NOBODY
    for q in range(most):
        j = p.waiting[q]
        if stamped_fits(w, m, s, p, w.job_class[j], stamp, in_gang) and (not overdue_job_waits(w, s, j) or _spares_overdue(w, m, z, s, j)):
            return j
    return columns.NOBODY


@inline
def may_be_head(w: World, s: State, p: EpisodeState, j: int) -> bool:
    """Dispatch head: whether job j may be named now. It is of the queue whose turn it is, and its quota lets it start."""
    c = w.job_class[j]
    return w.class_queue[c] == p.count.turn and standing(w, s, c) != OVER


@kernel
def mark_legal(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, mask: I8) -> None:
    """Write which actions are legal: [Q+P+M+1] (job), [H+1] (host) or [Q+1 + Q*H] (joint: jobs, then hosts of each)."""
    if k.config.problem == columns.HOST:
        _mark_hosts(w, m, s, k, p, mask)
        return
    window = k.config.window
    shown = shown_jobs(k, p)
    gang = p.count.gang
    some = 0
    for q in range(shown):
        legal = True
        if gang != columns.NOBODY:
            legal = p.waiting[q] == gang
        elif k.config.dispatch == columns.HEAD:
            legal = may_be_head(w, s, p, p.waiting[q])
        elif k.config.dispatch == columns.MASK:
            legal = p.class_live[p.row_class[q] * NUM_CLASS_LIVE] > 0.0  # fits, as computed for the observation
        mask[q] = np.int8(legal)
        some += legal
    if has_bound(w) and gang == columns.NOBODY and k.config.dispatch == columns.MASK:
        some -= _unmark_delaying(w, m, z, s, p, mask, shown)
    for q in range(shown, window):
        mask[q] = np.int8(0)
    if k.config.stop_slots > 0:
        some += mark_stops(w, m, s, k, p, mask)
    may_wait = gang == columns.NOBODY and lies_ahead(w, s) and (k.config.dispatch != columns.COMMIT or some == 0)
    waits = may_wait or some == 0  # at least one action is always legal, even after the episode has ended
    mask[k.config.wait_action] = np.int8(waits)
    p.count.legal = some + waits
    if k.config.problem == columns.JOINT:
        _mark_pairs(w, m, k, p, mask, shown)


@kernel
def _mark_hosts(w: World, m: Machine, s: State, k: Task, p: EpisodeState, mask: I8) -> None:
    hosts = k.config.host_slots
    gang = p.count.gang
    some = 0
    for n in range(hosts):
        legal = gang != columns.NOBODY and n < w.sizes.num_nodes and slots_on(w, m, w.job_class[gang], n) > 0
        mask[n] = np.int8(legal)
        some += legal
    untouched = gang == columns.NOBODY or p.count.tasks_left == w.class_tasks[w.job_class[gang]]
    waits = gang == columns.NOBODY or (untouched and lies_ahead(w, s))
    mask[hosts] = np.int8(waits)
    p.count.legal = some + waits


@kernel
def _mark_pairs(w: World, m: Machine, k: Task, p: EpisodeState, mask: I8, shown: int) -> None:
    window, hosts = k.config.window, k.config.host_slots
    for q in range(window):
        at = window + 1 + q * hosts
        for n in range(hosts):
            mask[at + n] = np.int8(0)
        if q < shown and mask[q]:
            c = w.job_class[p.waiting[q]]
            for n in range(min(hosts, w.sizes.num_nodes)):
                mask[at + n] = np.int8(slots_on(w, m, c, n) > 0)
