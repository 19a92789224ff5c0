"""Which demand classes fit now, as masks and observations show it. The answer is kept until something changes."""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns
from queuewise.envs.columns import EpisodeState
from queuewise.envs.features import CLASS_AT, NUM_CLASS_LIVE
from queuewise.sim import placement
from queuewise.sim.conditions.power_cap import is_capped
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.machine import slots, slots_up_to
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.placement.placement_rules import fits
from queuewise.sim.queue.overdue import has_bound

MOST_WAYS = 8


@inline
def _demand(w: World, c: int) -> float:
    """How much of its primary resource a gang of class c needs."""
    if w.class_primary[c] == placement.BY_GPU:
        return float(w.class_tasks[c] * w.class_milli[c])
    return float(w.class_tasks[c] * (w.class_cpu[c] if w.class_primary[c] == placement.BY_CPU else w.class_mem[c]))


@inline
def overdue_job_waits(w: World, s: State, j: int) -> bool:
    """Whether an overdue job of the queue of job j has a reservation, which no action on job j must delay."""
    return has_bound(w) and s.head[w.class_queue[w.job_class[j]]] >= 0


@inline
def machine_stamp(s: State, p: EpisodeState) -> int:
    """A number that changes whenever what fits may change, except while a gang is being placed."""
    return s.count.starts + p.count.ended + p.count.stops + s.count.outages_seen + p.count.instants + 1


@inline
def fit_changes_with_time(w: World) -> bool:
    """Whether a class may fit, or no longer fit, only because the clock has moved."""
    return w.policy.has_reservations != 0 or w.policy.nodes_sleep != 0


@kernel
def sum_free(w: World, m: Machine, s: State, p: EpisodeState) -> None:
    """Update the sums of free resources."""
    stamp = machine_stamp(s, p)
    if p.count.free_stamp == stamp and p.count.gang == columns.NOBODY:
        return
    p.count.free_stamp = stamp
    gpu = 0
    cpu = 0
    mem = 0
    for n in range(w.sizes.num_nodes):
        gpu += m.free_milli[n]
        cpu += m.free_cpu[n]
        mem += m.free_mem[n]
    p.free[placement.BY_GPU] = gpu
    p.free[placement.BY_CPU] = cpu
    p.free[placement.BY_MEM] = mem


@kernel
def _dearest_draw(w: World, m: Machine, c: int) -> int:
    """The most milliwatts that a gang of class c could draw where there is room for its tasks now."""
    left = w.class_tasks[c]
    total = 0
    last_draw = 1 << 62
    last_pool = -1
    while left > 0:
        dearest = -1
        most = -1
        for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
            p = w.class_pools[i]
            draw = w.task_draw[c * w.sizes.num_pools + p]
            if (draw < last_draw or (draw == last_draw and p > last_pool)) and draw > most:
                dearest = p
                most = draw
        if dearest < 0:
            break
        room = 0
        for i in range(w.pool_first[dearest], w.pool_first[dearest + 1]):
            room += slots(w, m, c, w.pool_nodes[i])
        total += most * min(room, left)
        left -= min(room, left)
        last_draw = most
        last_pool = dearest
    return total


@inline
def _may_be_placed(w: World, m: Machine, s: State, c: int, room: int) -> bool:
    """Whether a gang of class c, for which the machine has this room, can start now."""
    if standing(w, s, c) == OVER:
        return False
    if w.policy.external_places:  # on any nodes with room
        return room >= w.class_tasks[c] and (not is_capped(w) or m.drawn[0] + _dearest_draw(w, m, c) <= w.policy.power_budget)
    return fits(w, m, s, c) if w.policy.room_is_not_enough else room >= w.class_tasks[c]


@noinline
def _compute_class(w: World, m: Machine, s: State, p: EpisodeState, c: int) -> None:
    sum_free(w, m, s, p)
    at = c * NUM_CLASS_LIVE
    room = slots_up_to(w, m, c, MOST_WAYS * w.class_tasks[c])
    demand = _demand(w, c)
    free = p.free[w.class_primary[c]]
    p.class_live[at + CLASS_AT.fits] = np.float32(_may_be_placed(w, m, s, c, room))
    p.class_live[at + CLASS_AT.ways] = np.float32(min(room // w.class_tasks[c], MOST_WAYS) / MOST_WAYS)
    p.class_live[at + CLASS_AT.share_of_free] = np.float32(demand / free if demand < free else 1.0)


@inline
def stamped_fits(w: World, m: Machine, s: State, p: EpisodeState, c: int, stamp: int, in_gang: bool) -> bool:
    if p.class_stamp[c] != stamp or in_gang:
        _compute_class(w, m, s, p, c)
        p.class_stamp[c] = stamp
    return p.class_live[c * NUM_CLASS_LIVE + CLASS_AT.fits] > 0.0


@inline
def class_fits(w: World, m: Machine, s: State, p: EpisodeState, c: int) -> bool:
    """Whether class c fits now. This updates class_live, at most once per state of the machine."""
    return stamped_fits(w, m, s, p, c, machine_stamp(s, p), p.count.gang != columns.NOBODY)
