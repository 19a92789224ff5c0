"""What an agent sees and may do: observation and mask of the present state, written into buffers the caller owns.

Nothing here changes the simulation.

Shapes and names: features.py. Meaning: docs/mdp.md.
"""

from __future__ import annotations

import numpy as np

from queuewise.envs.features import NUM_CLASS_LIVE, NUM_GLOBAL, NUM_HOST_FIXED, NUM_HOST_LIVE, NUM_JOB_FIXED, NUM_JOB_LIVE
from queuewise.envs.table import (
    ALL_GPU,
    COMMIT,
    DISPATCH,
    ENDED,
    EPOCH,
    F32,
    FREE_CPU,
    FREE_GPU,
    FREE_MEM,
    FREE_STAMP,
    GANG,
    HOST,
    HOST_SLOTS,
    I8,
    JOINT,
    LOOKAHEAD,
    NOBODY,
    NUM_SCORES,
    OFF,
    ON_MACHINE,
    PER_GPU,
    PROBLEM,
    SHOWN,
    SORTED,
    TASKS_LEFT,
    TIME_SCALE,
    TIME_SHOWN,
    UNITS,
    USAGE_SUM,
    WAITING,
    WINDOW,
    Play,
    Task,
)
from queuewise.policies.ordering import score_live
from queuewise.sim.compilation import inline, kernel
from queuewise.sim.machine import slots, slots_up_to
from queuewise.sim.placement import fits
from queuewise.sim.state import (
    ARRIVED,
    BY_CPU,
    BY_GPU,
    EVENTS,
    NO_LIMIT,
    NOW,
    NUM_JOBS,
    NUM_NODES,
    NUM_POOLS,
    RULE,
    RULE_OPTION,
    STARTS,
    TIER,
    Machine,
    State,
    World,
)
from queuewise.sim.tables import view

HALF_S = 3600.0  # a time of an hour is shown as ½: x / (x + HALF_S)
HALF_JOBS = 32.0  # the same for numbers of jobs
MOST_WAYS = 8
DAY_S = 86_400.0


@inline
def _demand(w: World, c: int) -> float:
    """What a gang of class c takes of its primary resource."""
    if w.class_primary[c] == BY_GPU:
        return float(w.class_tasks[c] * w.class_milli[c])
    return float(w.class_tasks[c] * (w.class_cpu[c] if w.class_primary[c] == BY_CPU else w.class_mem[c]))


@kernel
def _sum_free(w: World, m: Machine, s: State, p: Play) -> None:
    """Bring the sums of what is free up to date; they change with starts and ends only, or while a gang is being placed."""
    stamp = s.count[STARTS] + p.number[ENDED] + 1
    if p.number[FREE_STAMP] == stamp and p.number[GANG] == NOBODY:
        return
    p.number[FREE_STAMP] = stamp
    gpu = 0
    cpu = 0
    mem = 0
    for n in range(w.sizes[NUM_NODES]):
        gpu += m.free_milli[n]
        cpu += m.free_cpu[n]
        mem += m.free_mem[n]
    p.scalar[FREE_GPU] = gpu
    p.scalar[FREE_CPU] = cpu
    p.scalar[FREE_MEM] = mem


@kernel
def _compute_class(w: World, m: Machine, s: State, p: Play, c: int) -> None:
    _sum_free(w, m, s, p)
    at = c * NUM_CLASS_LIVE
    room = slots_up_to(w, m, c, MOST_WAYS * w.class_tasks[c])
    demand = _demand(w, c)
    free = p.scalar[FREE_GPU + w.class_primary[c]]
    plain = w.policy[RULE] != TIER and w.policy[RULE_OPTION] == NO_LIMIT
    fitting = room >= w.class_tasks[c] if plain else fits(w, m, s, c)
    p.class_live[at] = np.float32(fitting)
    p.class_live[at + 1] = np.float32(min(room // w.class_tasks[c], MOST_WAYS) / MOST_WAYS)
    p.class_live[at + 2] = np.float32(demand / free if demand < free else 1.0)


@kernel
def class_fits(w: World, m: Machine, s: State, p: Play, c: int) -> bool:
    """Whether class c fits now; it is asked once for each state of the machine, and class_live is brought up to date."""
    stamp = s.count[STARTS] + p.number[ENDED] + 1
    if p.class_stamp[c] != stamp or p.number[GANG] != NOBODY:
        _compute_class(w, m, s, p, c)
        p.class_stamp[c] = stamp
    return p.class_live[c * NUM_CLASS_LIVE] > 0.0


@inline
def shown_jobs(k: Task, p: Play) -> int:
    return min(p.number[WAITING], k.config[WINDOW])


@inline
def lies_ahead(w: World, s: State) -> bool:
    """Whether there is an event to wait for."""
    return s.count[EVENTS] > 0 or s.count[ARRIVED] < w.sizes[NUM_JOBS]


@kernel
def _observe_jobs(w: World, m: Machine, s: State, k: Task, p: Play, out: F32, at: int, fresh: bool) -> int:
    """Job tokens; returns how many of the jobs shown fit."""
    width = NUM_JOB_FIXED + NUM_JOB_LIVE + k.config[NUM_SCORES]
    shown = shown_jobs(k, p)
    now = s.clock[NOW]
    per_usage = 1.0 / p.scalar[USAGE_SUM] if p.scalar[USAGE_SUM] > 0.0 else 0.0
    fitting = 0
    for q in range(shown):
        j = p.waiting[q]
        c = w.job_class[j]
        fitting += class_fits(w, m, s, p, c)
        base = at + q * width
        for f in range(NUM_JOB_FIXED):
            out[base + f] = k.token[j * NUM_JOB_FIXED + f]
        base += NUM_JOB_FIXED
        wait = now - w.submit[j]
        slack = k.deadline[j] - now - w.estimate[j]
        out[base] = np.float32(wait / (wait + HALF_S))
        for f in range(NUM_CLASS_LIVE):
            out[base + 1 + f] = p.class_live[c * NUM_CLASS_LIVE + f]
        out[base + 4] = np.float32(p.usage[k.job_user[j]] * per_usage if k.job_user[j] >= 0 else 0.0)
        out[base + 5] = np.float32(slack / (abs(slack) + HALF_S) if slack < np.inf else 1.0)
        out[base + 6] = np.float32(0.0)
        if p.number[GANG] == j:
            out[base + 6] = np.float32(p.number[TASKS_LEFT] / w.class_tasks[c])
    for f in range(at + shown * width, at + (k.config[WINDOW] if fresh else p.number[SHOWN]) * width):
        out[f] = np.float32(0.0)
    p.number[SHOWN] = shown
    if k.config[NUM_SCORES] > 0 and shown > 0:
        _observe_scores(w, s, k, p, out, at + NUM_JOB_FIXED + NUM_JOB_LIVE, width, shown)
    return fitting


@kernel
def _observe_scores(w: World, s: State, k: Task, p: Play, out: F32, at: int, width: int, shown: int) -> None:
    """Scores of heuristics, from 0 (would go first of the jobs shown) to 1 (last)."""
    num_jobs = max(w.sizes[NUM_JOBS], 1)
    params = view(p.order, 8)
    for number in range(k.config[NUM_SCORES]):
        if k.score_kind[number] >= 0:
            params[0] = k.score_kind[number]
            score_live(view(k.facts, num_jobs), view(p.waiting, shown), shown, s.clock[NOW], view(p.order, 8), params, view(p.score, shown))
        else:
            for q in range(shown):
                p.score[q] = k.score[number * num_jobs + p.waiting[q]]
        least = np.inf
        most = -np.inf
        for q in range(shown):
            if abs(p.score[q]) < np.inf:
                least = min(least, p.score[q])
                most = max(most, p.score[q])
        for q in range(shown):
            share = (p.score[q] - least) / (most - least) if most > least else 0.0
            out[at + q * width + number] = np.float32(min(max(share, 0.0), 1.0))


@kernel
def _observe_hosts(w: World, m: Machine, s: State, k: Task, p: Play, out: F32, at: int, fresh: bool) -> None:
    width = NUM_HOST_FIXED + NUM_HOST_LIVE
    now = s.clock[NOW]
    nodes = w.sizes[NUM_NODES]
    gang = p.number[GANG]
    for n in range(nodes):
        base = at + n * width
        if fresh:
            for f in range(NUM_HOST_FIXED):
                out[base + f] = k.host_token[n * NUM_HOST_FIXED + f]
        base += NUM_HOST_FIXED
        free = m.free_milli[n] * k.node_inverse[n * 3]
        remaining = max(p.node_until[n] - now, 0.0)
        out[base] = np.float32(free)
        out[base + 1] = np.float32((w.node_cpu[n] - m.free_cpu[n]) * k.node_inverse[n * 3 + 1])
        out[base + 2] = np.float32((w.node_mem[n] - m.free_mem[n]) * k.node_inverse[n * 3 + 2])
        out[base + 3] = np.float32(remaining / (remaining + HALF_S))
        out[base + 4] = np.float32(free if free < 1.0 else 0.0)
        out[base + 5] = np.float32(0.0)
        if gang != NOBODY:
            c = w.job_class[gang]
            out[base + 5] = np.float32(min(room_on(w, m, c, n), p.number[TASKS_LEFT]) / w.class_tasks[c])
    if fresh:
        for f in range(at + nodes * width, at + k.config[HOST_SLOTS] * width):
            out[f] = np.float32(0.0)


@inline
def room_on(w: World, m: Machine, c: int, n: int) -> int:
    """Tasks of class c that node n can take now."""
    if not w.class_allows[c * w.sizes[NUM_POOLS] + w.node_pool[n]]:
        return 0
    return slots(w, m, c, n)


@kernel
def _observe_lookahead(s: State, k: Task, p: Play, out: F32, at: int, fresh: bool) -> None:
    """When capacity comes free: remaining expected busy time of each unit ÷ time scale, cut to [0, 1], in one of four views."""
    units = k.config[UNITS]
    mode = k.config[LOOKAHEAD]
    now = s.clock[NOW]
    per_scale = 1.0 / k.scale[TIME_SCALE]
    if mode in (PER_GPU, SORTED):
        source = p.unit_sorted if mode == SORTED else p.unit_until
        for u in range(units):
            out[at + u] = np.float32(min(max((source[u] - now) * per_scale, 0.0), 1.0))
        return
    if mode == OFF and not fresh:
        return
    for u in range(units):
        out[at + u] = np.float32(0.0)
    if mode == OFF:
        return
    for u in range(units):
        slot = np.ceil(max((p.unit_until[u] - now) * per_scale, 0.0) * units) - 1.0
        if slot < units:
            out[at + max(int(slot), 0)] += np.float32(1.0)
    number = 0.0
    for u in range(units):
        number += out[at + u]
        out[at + u] = np.float32(number / units)


@kernel
def _observe_global(w: World, m: Machine, s: State, k: Task, p: Play, out: F32, at: int, fitting: int, fresh: bool) -> None:
    _sum_free(w, m, s, p)
    waiting = float(p.number[WAITING])
    running = float(p.number[ON_MACHINE])
    out[at] = np.float32(waiting / (waiting + HALF_JOBS))
    out[at + 1] = np.float32((waiting - shown_jobs(k, p)) / max(waiting, 1.0))
    out[at + 2] = np.float32(running / (running + HALF_JOBS))
    for resource in range(3):
        total = k.scale[ALL_GPU + resource]
        out[at + 3 + resource] = np.float32(1.0 - p.scalar[FREE_GPU + resource] / total if total > 0.0 else 0.0)
    out[at + 10] = np.float32(fitting / k.config[WINDOW])
    if fresh or p.scalar[TIME_SHOWN] != s.clock[NOW]:
        p.scalar[TIME_SHOWN] = s.clock[NOW]
        day = 2.0 * np.pi / DAY_S * (s.clock[NOW] + k.scale[EPOCH])
        out[at + 6] = np.float32(np.sin(day))
        out[at + 7] = np.float32(np.cos(day))
        out[at + 8] = np.float32(np.sin(day / 7.0))
        out[at + 9] = np.float32(np.cos(day / 7.0))


@kernel
def observe(w: World, m: Machine, s: State, k: Task, p: Play, out: F32, fresh: bool) -> None:
    """Write the observation into `out`. What has not changed is left alone unless it is fresh: not what was written to last time."""
    jobs_at = NUM_GLOBAL + k.config[UNITS]
    hosts_at = jobs_at + k.config[WINDOW] * (NUM_JOB_FIXED + NUM_JOB_LIVE + k.config[NUM_SCORES])
    fitting = _observe_jobs(w, m, s, k, p, out, jobs_at, fresh)
    _observe_global(w, m, s, k, p, out, 0, fitting, fresh)
    _observe_lookahead(s, k, p, out, NUM_GLOBAL, fresh)
    _observe_hosts(w, m, s, k, p, out, hosts_at, fresh)


@kernel
def mark_legal(w: World, m: Machine, s: State, k: Task, p: Play, mask: I8) -> None:
    """Write which actions are legal: [Q+1] (job), [H+1] (host) or [Q+1 + Q*H] (joint: jobs, then hosts of each)."""
    if k.config[PROBLEM] == HOST:
        _mark_hosts(w, m, s, k, p, mask)
        return
    window = k.config[WINDOW]
    shown = shown_jobs(k, p)
    gang = p.number[GANG]
    some = False
    for q in range(shown):
        j = p.waiting[q]
        legal = True
        if gang != NOBODY:
            legal = j == gang
        elif k.config[DISPATCH] != COMMIT:
            legal = class_fits(w, m, s, p, w.job_class[j])
        mask[q] = np.int8(legal)
        some = some or legal
    for q in range(shown, window):
        mask[q] = np.int8(0)
    may_wait = gang == NOBODY and lies_ahead(w, s) and (k.config[DISPATCH] != COMMIT or not some)
    mask[window] = np.int8(may_wait or not some)  # something is always legal, also when the episode is over
    if k.config[PROBLEM] == JOINT:
        _mark_pairs(w, m, k, p, mask, shown)


@kernel
def _mark_hosts(w: World, m: Machine, s: State, k: Task, p: Play, mask: I8) -> None:
    hosts = k.config[HOST_SLOTS]
    gang = p.number[GANG]
    for n in range(hosts):
        mask[n] = np.int8(gang != NOBODY and n < w.sizes[NUM_NODES] and room_on(w, m, w.job_class[gang], n) > 0)
    untouched = gang == NOBODY or p.number[TASKS_LEFT] == w.class_tasks[w.job_class[gang]]
    mask[hosts] = np.int8(gang == NOBODY or (untouched and lies_ahead(w, s)))


@kernel
def _mark_pairs(w: World, m: Machine, k: Task, p: Play, mask: I8, shown: int) -> None:
    window, hosts = k.config[WINDOW], k.config[HOST_SLOTS]
    for q in range(window):
        at = window + 1 + q * hosts
        for n in range(hosts):
            mask[at + n] = np.int8(0)
        if q < shown and mask[q]:
            c = w.job_class[p.waiting[q]]
            for n in range(min(hosts, w.sizes[NUM_NODES])):
                mask[at + n] = np.int8(room_on(w, m, c, n) > 0)
