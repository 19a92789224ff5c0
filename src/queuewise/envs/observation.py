"""The observation of the present state, written into a buffer of the caller.

Nothing here changes the simulation. `features` declares names and shapes, docs/mdp.md defines the features.
"""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns
from queuewise.envs.class_fit import class_fits, machine_stamp, stamped_fits, sum_free
from queuewise.envs.columns import EpisodeState, Task
from queuewise.envs.features import (
    GLOBAL_AT,
    HOST_AT,
    JOB_AT,
    LONGEST_S,
    NUM_CLASS_LIVE,
    NUM_GLOBAL,
    NUM_HOST_FIXED,
    NUM_HOST_LIVE,
    NUM_JOB_FIXED,
    NUM_JOB_LIVE,
)
from queuewise.envs.node_occupancy import touch
from queuewise.policies.ordering import score_live
from queuewise.sim import placement
from queuewise.sim.core.compilation import inline, kernel, lowest_bit
from queuewise.sim.core.machine import slots_on
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.core.tables import F32

HALF_S = 3600.0  # a time x is shown as x / (x + HALF_S), so one hour is shown as ½
HALF_JOBS = 32.0  # the same for numbers of jobs
WEEK_S = 7 * 86_400.0


@inline
def shown_estimate(seconds: float) -> np.float32:
    """The value of the feature `estimate`."""
    return np.float32(min(np.log1p(seconds) / np.log1p(LONGEST_S), 1.0))


@inline
def shown_jobs(k: Task, p: EpisodeState) -> int:
    return min(p.count.waiting, k.config.window)


@kernel
def _close_gap(p: EpisodeState, out: F32, at: int, width: int, gap: int, rows: int) -> None:
    """Move up the rows after row `gap`, whose job has left the window."""
    for f in range(at + gap * width, at + (rows - 1) * width):
        out[f] = out[f + width]
    for q in range(gap, rows - 1):
        p.row_job[q] = p.row_job[q + 1]
        p.row_class[q] = p.row_class[q + 1]
        p.row_submit[q] = p.row_submit[q + 1]
        p.row_user[q] = p.row_user[q + 1]


@inline
def _open_row(w: World, s: State, k: Task, p: EpisodeState, out: F32, base: int, q: int, j: int) -> None:
    """Begin to show job j in row q: write features that never change, and defaults of features that rarely apply."""
    p.row_job[q] = j
    p.row_class[q] = w.job_class[j]
    p.row_submit[q] = w.submit[j]
    p.row_user[q] = k.job_user[j]
    for f in range(NUM_JOB_FIXED):
        out[base + f] = k.token[j * NUM_JOB_FIXED + f]
    if w.policy.can_restart and s.stops[j] > 0:
        out[base + JOB_AT.estimate] = shown_estimate(s.remaining_estimate[j])
    out[base + JOB_AT.user_usage] = np.float32(0.0)
    out[base + JOB_AT.slack] = np.float32(1.0)
    out[base + JOB_AT.current] = np.float32(0.0)


@kernel
def _observe_jobs(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32, at: int, fresh: bool) -> None:
    """Write the job tokens. In rows that show the same job as before, only the features that can change are written."""
    width = NUM_JOB_FIXED + NUM_JOB_LIVE + k.config.num_scores
    shown = shown_jobs(k, p)
    now = s.clock.now
    known = 0 if fresh else p.count.shown
    stamp, in_gang = machine_stamp(s, p), p.count.gang != columns.NOBODY
    fitting = 0
    for q in range(shown):
        j = p.waiting[q]
        base = at + q * width
        if q < known and p.row_job[q] != j and q + 1 < known and p.row_job[q + 1] == j:
            _close_gap(p, out, at, width, q, known)
            known -= 1
        if q >= known or p.row_job[q] != j:
            _open_row(w, s, k, p, out, base, q, j)
        c = p.row_class[q]
        fitting += stamped_fits(w, m, s, p, c, stamp, in_gang)
        wait = np.float32(now - p.row_submit[q])
        out[base + JOB_AT.wait] = wait / (wait + np.float32(HALF_S))
        for f in range(NUM_CLASS_LIVE):
            out[base + JOB_AT.fits + f] = p.class_live[c * NUM_CLASS_LIVE + f]
    for f in range(at + shown * width, at + (k.config.window if fresh else p.count.shown) * width):
        out[f] = np.float32(0.0)
    p.count.shown = shown
    p.count.fitting = fitting
    _observe_rare(w, s, k, p, out, at, width, shown)
    if k.config.num_scores > 0 and shown > 0:
        _observe_scores(w, s, k, p, out, at + NUM_JOB_FIXED + NUM_JOB_LIVE, width, shown)


@inline
def _observe_rare(w: World, s: State, k: Task, p: EpisodeState, out: F32, at: int, width: int, shown: int) -> None:
    """Write the features user_usage (jobs with users), slack (with deadlines) and current (a gang being placed)."""
    if k.config.num_users > 0:
        per_usage = 1.0 / p.value.usage_sum if p.value.usage_sum > 0.0 else 0.0
        for q in range(shown):
            user = p.row_user[q]
            out[at + q * width + JOB_AT.user_usage] = np.float32(p.usage[user] * per_usage if user >= 0 else 0.0)
    if k.config.has_deadlines:
        for q in range(shown):
            j = p.waiting[q]
            slack = k.deadline[j] - s.clock.now - w.estimate[j]
            out[at + q * width + JOB_AT.slack] = np.float32(slack / (abs(slack) + HALF_S) if slack < np.inf else 1.0)
    if p.count.gang != columns.NOBODY or p.count.shown_gang:
        for q in range(shown):
            j = p.waiting[q]
            left = p.count.tasks_left / w.class_tasks[w.job_class[j]] if j == p.count.gang else 0.0
            out[at + q * width + JOB_AT.current] = np.float32(left)


@kernel
def _observe_scores(w: World, s: State, k: Task, p: EpisodeState, out: F32, at: int, width: int, shown: int) -> None:
    """Write the scores of heuristics, from 0 (first of the jobs shown) to 1 (last)."""
    num_jobs = max(w.sizes.num_jobs, 1)
    params = view(p.order, 8)
    for number in range(k.config.num_scores):
        if k.score_kind[number] >= 0:
            params[0] = k.score_kind[number]
            facts, none = view(k.facts, (number + 1) * num_jobs)[number * num_jobs :], view(p.order, 0)
            score_live(facts, view(p.waiting, shown), shown, s.clock.now, none, none, params, view(p.score, shown))
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


@inline
def _shown_remaining(p: EpisodeState, n: int, now: float) -> np.float32:
    remaining = np.float32(max(p.node_until[n] - now, 0.0))
    return remaining / (remaining + np.float32(HALF_S))


@inline
def _show_host(w: World, m: Machine, k: Task, p: EpisodeState, n: int, now: float, out: F32, at: int) -> None:
    """Write how much of node n is in use, and for how long."""
    free = m.free_milli[n] * k.node_inverse[n * columns.RESOURCES + placement.BY_GPU]
    out[at + HOST_AT.gpu_free] = np.float32(free)
    out[at + HOST_AT.core_util] = np.float32((w.node_cpu[n] - m.free_cpu[n]) * k.node_inverse[n * columns.RESOURCES + placement.BY_CPU])
    out[at + HOST_AT.mem_util] = np.float32((w.node_mem[n] - m.free_mem[n]) * k.node_inverse[n * columns.RESOURCES + placement.BY_MEM])
    out[at + HOST_AT.remaining] = _shown_remaining(p, n, now)
    out[at + HOST_AT.fragmentation] = np.float32(free if free < 1.0 else 0.0)


@kernel
def _observe_hosts(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32, at: int, fresh: bool) -> None:
    """Write the host tokens.

    For hosts that were not touched since they were last shown, only the remaining time changes.
    """
    width = NUM_HOST_FIXED + NUM_HOST_LIVE
    now = s.clock.now
    nodes = w.sizes.num_nodes
    if fresh:
        for n in range(nodes):
            touch(p, n)
            for f in range(NUM_HOST_FIXED):
                out[at + n * width + f] = k.host_token[n * NUM_HOST_FIXED + f]
            out[at + n * width + HOST_AT.slots] = np.float32(0.0)
        for f in range(at + nodes * width, at + k.config.host_slots * width):
            out[f] = np.float32(0.0)
    elif p.value.time_shown != now:
        for n in range(nodes):
            out[at + n * width + HOST_AT.remaining] = _shown_remaining(p, n, now)
    for word in range(nodes // columns.TOUCHED_BITS + 1):
        touched = p.touched[word]
        p.touched[word] = 0
        while touched:
            n = word * columns.TOUCHED_BITS + lowest_bit(touched)
            _show_host(w, m, k, p, n, now, out, at + n * width)
            touched &= touched - 1
    gang = p.count.gang
    if gang != columns.NOBODY or p.count.shown_gang:
        for n in range(nodes):
            part = 0.0
            if gang != columns.NOBODY:
                c = w.job_class[gang]
                part = min(slots_on(w, m, c, n), p.count.tasks_left) / w.class_tasks[c]
            out[at + n * width + HOST_AT.slots] = np.float32(part)


@kernel
def observe_lookahead(s: State, k: Task, p: EpisodeState, out: F32, at: int, fresh: bool) -> None:
    """Write when capacity becomes free: remaining expected busy time of each unit ÷ time scale, clipped to [0, 1].

    There are four modes, see docs/mdp.md.
    """
    units = k.config.units
    mode = k.config.lookahead
    now = s.clock.now
    per_scale = 1.0 / k.scale.time_scale
    if mode in (columns.PER_GPU, columns.SORTED):
        until = p.unit_sorted if mode == columns.SORTED else p.unit_until
        scale, none, most = (
            np.float32(per_scale),
            np.float32(0.0),
            np.float32(1.0),
        )  # float32 is twice as fast as float64
        for u in range(units):
            out[at + u] = min(max(np.float32(until[u] - now) * scale, none), most)
        return
    if mode == columns.OFF and not fresh:
        return
    for u in range(units):
        out[at + u] = np.float32(0.0)
    if mode == columns.OFF:
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
def _observe_global(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32, at: int, fresh: bool) -> None:
    sum_free(w, m, s, p)
    waiting = float(p.count.waiting)
    running = float(p.count.on_machine)
    out[at + GLOBAL_AT.queue_length] = np.float32(waiting / (waiting + HALF_JOBS))
    out[at + GLOBAL_AT.beyond_window] = np.float32((waiting - shown_jobs(k, p)) / max(waiting, 1.0))
    out[at + GLOBAL_AT.running] = np.float32(running / (running + HALF_JOBS))
    for resource in range(columns.RESOURCES):
        total = k.total[resource]
        out[at + GLOBAL_AT.gpu_use + resource] = np.float32(1.0 - p.free[resource] / total if total > 0.0 else 0.0)
    out[at + GLOBAL_AT.choices] = np.float32(p.count.fitting / k.config.window)
    if fresh or p.value.time_shown != s.clock.now:
        _observe_calendar(s.clock.now + k.scale.epoch, out, at)


@inline
def _observe_calendar(time: float, out: F32, at: int) -> None:
    """Write sine and cosine of the time of day and of the week.

    The angle of the day is seven times the angle of the week, so the first follows from the second by addition
    theorems.
    """
    week = 2.0 * np.pi * (time / WEEK_S - np.floor(time / WEEK_S))
    sine, cosine = np.sin(week), np.cos(week)
    sine_2, cosine_2 = 2.0 * sine * cosine, cosine * cosine - sine * sine
    sine_3, cosine_3 = sine_2 * cosine + cosine_2 * sine, cosine_2 * cosine - sine_2 * sine
    sine_4, cosine_4 = 2.0 * sine_2 * cosine_2, cosine_2 * cosine_2 - sine_2 * sine_2
    out[at + GLOBAL_AT.day_sin] = np.float32(min(max(sine_3 * cosine_4 + cosine_3 * sine_4, -1.0), 1.0))
    out[at + GLOBAL_AT.day_cos] = np.float32(min(max(cosine_3 * cosine_4 - sine_3 * sine_4, -1.0), 1.0))
    out[at + GLOBAL_AT.week_sin] = np.float32(sine)
    out[at + GLOBAL_AT.week_cos] = np.float32(cosine)


@kernel
def take_over(k: Task, p: EpisodeState, out: F32, before: F32, job_rows: int, length: int) -> None:
    """Make `out`, which holds the observation before the last, equal to the last one, which is in `before`.

    Rows of jobs that are zero in both are left alone, and so is the lookahead, which is always written in full.
    """
    width = NUM_JOB_FIXED + NUM_JOB_LIVE + k.config.num_scores
    jobs_at = NUM_GLOBAL + k.config.units
    hosts_at = jobs_at + k.config.window * width
    for f in range(NUM_GLOBAL):
        out[f] = before[f]
    shown_until = jobs_at + p.count.shown * width
    for f in range(jobs_at, shown_until):
        out[f] = before[f]
    for f in range(shown_until, jobs_at + job_rows * width):
        out[f] = np.float32(0.0)
    for f in range(hosts_at, length):
        out[f] = before[f]


@kernel
def observe(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32, fresh: bool) -> None:
    """Write the observation into `out`. Features that have not changed are skipped, unless `out` is `fresh`.

    A buffer is fresh if it is not the one that holds the last observation.
    """
    jobs_at = NUM_GLOBAL + k.config.units
    hosts_at = jobs_at + k.config.window * (NUM_JOB_FIXED + NUM_JOB_LIVE + k.config.num_scores)
    _observe_jobs(w, m, s, k, p, out, jobs_at, fresh)
    _observe_global(w, m, s, k, p, out, 0, fresh)
    observe_lookahead(s, k, p, out, NUM_GLOBAL, fresh)
    _observe_hosts(w, m, s, k, p, out, hosts_at, fresh)
    p.count.shown_gang = p.count.gang != columns.NOBODY
    p.value.time_shown = s.clock.now


@kernel
def note_window(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Update what masks and rewards need to know about the jobs shown. Used where `observe` is not called."""
    fitting = 0
    for q in range(shown_jobs(k, p)):
        j = p.waiting[q]
        p.row_class[q] = w.job_class[j]
        p.row_submit[q] = w.submit[j]
        fitting += class_fits(w, m, s, p, w.job_class[j])
    p.count.fitting = fitting
