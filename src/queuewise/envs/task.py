"""What an agent sees and may do: observation and mask of the present state, written into buffers the caller owns. Nothing here changes the simulation.

Shapes and names: features.py. Meaning: docs/mdp.md.
"""

from __future__ import annotations

import numpy as np

from queuewise.envs.features import NUM_GLOBAL, NUM_HOST_FIXED, NUM_HOST_LIVE, NUM_JOB_FIXED, NUM_JOB_LIVE
from queuewise.envs.table import (
    ALL_GPU,
    CDF,
    COMMIT,
    DISPATCH,
    ENDED,
    EPOCH,
    GANG,
    HOST,
    HOST_SLOTS,
    JOINT,
    LOOKAHEAD,
    NOBODY,
    NUM_SCORES,
    OFF,
    ON_MACHINE,
    PROBLEM,
    SORTED,
    TASKS_LEFT,
    TIME_SCALE,
    UNITS,
    USAGE_SUM,
    WAITING,
    WINDOW,
    Play,
    Task,
)
from queuewise.policies.ordering import score_live
from queuewise.sim.compilation import inline, kernel
from queuewise.sim.machine import WHOLE, slots, slots_up_to
from queuewise.sim.placement import fits
from queuewise.sim.state import (
    ARRIVED,
    BY_CPU,
    BY_GPU,
    EVENTS,
    NOW,
    NUM_JOBS,
    NUM_NODES,
    NUM_POOLS,
    STARTS,
    Machine,
    State,
    World,
)
from queuewise.sim.tables import view

HALF_S = 3600.0  # a time of an hour is shown as ½: x / (x + HALF_S)
HALF_JOBS = 32.0  # the same for numbers of jobs
MOST_WAYS = 8
DAY_S = 86_400.0


@kernel
def refresh_class(w: World, m: Machine, s: State, p: Play, c: int) -> None:
    """Whether class c fits now, and how often side by side; computed once for each state of the machine."""
    stamp = s.count[STARTS] + p.number[ENDED] + 1
    if p.class_stamp[c] == stamp and p.number[GANG] == NOBODY:
        return
    p.class_stamp[c] = stamp
    p.class_fits[c] = fits(w, m, s, c)
    room = slots_up_to(w, m, c, MOST_WAYS * w.class_tasks[c])
    p.class_ways[c] = min(room // w.class_tasks[c], MOST_WAYS) / MOST_WAYS


@inline
def shown_jobs(k: Task, p: Play) -> int:
    return min(p.number[WAITING], k.config[WINDOW])


@inline
def lies_ahead(w: World, s: State) -> bool:
    """Whether there is an event to wait for."""
    return s.count[EVENTS] > 0 or s.count[ARRIVED] < w.sizes[NUM_JOBS]


@inline
def _demand(w: World, c: int) -> float:
    """What a gang of class c takes of its primary resource."""
    if w.class_primary[c] == BY_GPU:
        return float(w.class_tasks[c] * w.class_milli[c])
    return float(w.class_tasks[c] * (w.class_cpu[c] if w.class_primary[c] == BY_CPU else w.class_mem[c]))


@kernel
def _observe_jobs(w: World, m: Machine, s: State, k: Task, p: Play, out, at: int, free) -> int:  # type: ignore[no-untyped-def]
    """Job tokens; returns how many of the jobs shown fit."""
    width = NUM_JOB_FIXED + NUM_JOB_LIVE + k.config[NUM_SCORES]
    shown = shown_jobs(k, p)
    now = s.clock[NOW]
    all_usage = p.scalar[USAGE_SUM]
    fitting = 0
    for q in range(shown):
        j = p.waiting[q]
        c = w.job_class[j]
        base = at + q * width
        for f in range(NUM_JOB_FIXED):
            out[base + f] = k.token[j * NUM_JOB_FIXED + f]
        refresh_class(w, m, s, p, c)
        base += NUM_JOB_FIXED
        wait = now - w.submit[j]
        demand = _demand(w, c)
        room = free[w.class_primary[c]]
        slack = k.deadline[j] - now - w.estimate[j]
        user = k.job_user[j]
        fitting += p.class_fits[c]
        out[base] = wait / (wait + HALF_S)
        out[base + 1] = p.class_fits[c]
        out[base + 2] = p.class_ways[c]
        out[base + 3] = demand / room if demand < room else 1.0
        out[base + 4] = p.usage[user] / all_usage if user >= 0 and all_usage > 0.0 else 0.0
        out[base + 5] = slack / (abs(slack) + HALF_S) if slack < np.inf else 1.0
        out[base + 6] = p.number[TASKS_LEFT] / w.class_tasks[c] if p.number[GANG] == j else 0.0
    for f in range(at + shown * width, at + k.config[WINDOW] * width):
        out[f] = 0.0
    if k.config[NUM_SCORES] > 0 and shown > 0:
        _observe_scores(w, s, k, p, out, at + NUM_JOB_FIXED + NUM_JOB_LIVE, width, shown)
    return fitting


@kernel
def _observe_scores(w: World, s: State, k: Task, p: Play, out, at: int, width: int, shown: int) -> None:  # type: ignore[no-untyped-def]
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
            out[at + q * width + number] = min(max(share, 0.0), 1.0)


@kernel
def _observe_hosts(w: World, m: Machine, s: State, k: Task, p: Play, out, at: int) -> None:  # type: ignore[no-untyped-def]
    width = NUM_HOST_FIXED + NUM_HOST_LIVE
    now = s.clock[NOW]
    nodes = w.sizes[NUM_NODES]
    gang = p.number[GANG]
    c = w.job_class[gang] if gang != NOBODY else 0
    for n in range(min(nodes, k.config[HOST_SLOTS])):
        base = at + n * width
        for f in range(NUM_HOST_FIXED):
            out[base + f] = k.host_token[n * NUM_HOST_FIXED + f]
        base += NUM_HOST_FIXED
        total = w.node_gpus[n] * WHOLE
        free = m.free_milli[n]
        remaining = max(p.node_until[n] - now, 0.0)
        out[base] = free / total if total > 0 else 0.0
        out[base + 1] = 1.0 - m.free_cpu[n] / w.node_cpu[n] if w.node_cpu[n] > 0 else 0.0
        out[base + 2] = 1.0 - m.free_mem[n] / w.node_mem[n] if w.node_mem[n] > 0 else 0.0
        out[base + 3] = remaining / (remaining + HALF_S)
        out[base + 4] = free / total if free < total else 0.0
        out[base + 5] = 0.0
        if gang != NOBODY:
            out[base + 5] = min(room_on(w, m, c, n), p.number[TASKS_LEFT]) / w.class_tasks[c]
    for f in range(at + min(nodes, k.config[HOST_SLOTS]) * width, at + k.config[HOST_SLOTS] * width):
        out[f] = 0.0


@inline
def room_on(w: World, m: Machine, c: int, n: int) -> int:
    """Tasks of class c that node n can take now."""
    if not w.class_allows[c * w.sizes[NUM_POOLS] + w.node_pool[n]]:
        return 0
    return slots(w, m, c, n)


@kernel
def _observe_lookahead(s: State, k: Task, p: Play, out, at: int) -> None:  # type: ignore[no-untyped-def]
    """When capacity comes free: remaining expected busy time of each unit ÷ time scale, cut to [0, 1], in one of four views."""
    units = k.config[UNITS]
    mode = k.config[LOOKAHEAD]
    now = s.clock[NOW]
    scale = k.scale[TIME_SCALE]
    for u in range(units):
        out[at + u] = 0.0
    if mode == OFF:
        return
    if mode != CDF:
        for u in range(units):
            until = p.unit_sorted[u] if mode == SORTED else p.unit_until[u]
            if until > now:
                out[at + u] = min((until - now) / scale, 1.0)
        return
    for u in range(units):
        until = p.unit_until[u]
        slot = 0
        if until > now:
            slot = min(int(np.ceil((until - now) / scale * units)) - 1, units)
        if slot < units:
            out[at + max(slot, 0)] += np.float32(1.0) / np.float32(units)
    for u in range(1, units):
        out[at + u] = min(out[at + u] + out[at + u - 1], np.float32(1.0))


@kernel
def _observe_global(s: State, k: Task, p: Play, out, at: int, fitting: int, free) -> None:  # type: ignore[no-untyped-def]
    waiting = float(p.number[WAITING])
    shown = shown_jobs(k, p)
    day = (s.clock[NOW] + k.scale[EPOCH]) / DAY_S
    out[at] = waiting / (waiting + HALF_JOBS)
    out[at + 1] = (waiting - shown) / max(waiting, 1.0)
    out[at + 2] = p.number[ON_MACHINE] / (p.number[ON_MACHINE] + HALF_JOBS)
    for resource in range(3):
        total = k.scale[ALL_GPU + resource]
        out[at + 3 + resource] = 1.0 - free[resource] / total if total > 0.0 else 0.0
    out[at + 6] = np.sin(2.0 * np.pi * day)
    out[at + 7] = np.cos(2.0 * np.pi * day)
    out[at + 8] = np.sin(2.0 * np.pi * day / 7.0)
    out[at + 9] = np.cos(2.0 * np.pi * day / 7.0)
    out[at + 10] = fitting / k.config[WINDOW]


@inline
def _sum_free(w: World, m: Machine) -> tuple[float, float, float]:
    gpu = 0
    cpu = 0
    mem = 0
    for n in range(w.sizes[NUM_NODES]):
        gpu += m.free_milli[n]
        cpu += m.free_cpu[n]
        mem += m.free_mem[n]
    return float(gpu), float(cpu), float(mem)


@kernel
def observe(w: World, m: Machine, s: State, k: Task, p: Play, out) -> None:  # type: ignore[no-untyped-def]
    """Write the observation into `out`, a float32 row."""
    free = _sum_free(w, m)
    units = k.config[UNITS]
    jobs_at = NUM_GLOBAL + units
    hosts_at = jobs_at + k.config[WINDOW] * (NUM_JOB_FIXED + NUM_JOB_LIVE + k.config[NUM_SCORES])
    _observe_lookahead(s, k, p, out, NUM_GLOBAL)
    fitting = _observe_jobs(w, m, s, k, p, out, jobs_at, free)
    _observe_global(s, k, p, out, 0, fitting, free)
    _observe_hosts(w, m, s, k, p, out, hosts_at)


@kernel
def mark_legal(w: World, m: Machine, s: State, k: Task, p: Play, mask) -> None:  # type: ignore[no-untyped-def]
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
            refresh_class(w, m, s, p, w.job_class[j])
            legal = p.class_fits[w.job_class[j]] > 0
        mask[q] = legal
        some = some or legal
    for q in range(shown, window):
        mask[q] = False
    may_wait = gang == NOBODY and lies_ahead(w, s) and (k.config[DISPATCH] != COMMIT or not some)
    mask[window] = may_wait or not some  # something is always legal, also when the episode is over
    if k.config[PROBLEM] == JOINT:
        _mark_pairs(w, m, k, p, mask, shown)


@kernel
def _mark_hosts(w: World, m: Machine, s: State, k: Task, p: Play, mask) -> None:  # type: ignore[no-untyped-def]
    hosts = k.config[HOST_SLOTS]
    gang = p.number[GANG]
    for n in range(hosts):
        mask[n] = gang != NOBODY and n < w.sizes[NUM_NODES] and room_on(w, m, w.job_class[gang], n) > 0
    untouched = gang == NOBODY or p.number[TASKS_LEFT] == w.class_tasks[w.job_class[gang]]
    mask[hosts] = gang == NOBODY or (untouched and lies_ahead(w, s))


@kernel
def _mark_pairs(w: World, m: Machine, k: Task, p: Play, mask, shown: int) -> None:  # type: ignore[no-untyped-def]
    window, hosts = k.config[WINDOW], k.config[HOST_SLOTS]
    for q in range(window):
        at = window + 1 + q * hosts
        for n in range(hosts):
            mask[at + n] = False
        if q < shown and mask[q]:
            c = w.job_class[p.waiting[q]]
            for n in range(min(hosts, w.sizes[NUM_NODES])):
                mask[at + n] = room_on(w, m, c, n) > 0
