"""Reward terms that are known only at the end of an episode."""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns, rewards
from queuewise.envs.bookkeeping import BOUND_S, discounted, inverse, is_own, time_waited
from queuewise.envs.columns import EpisodeState, Task
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State, World


@kernel
def _jain_index(p: EpisodeState, users: int) -> float:
    """Jain's index (Σx)² ÷ (n·Σx²) of the users' mean bounded slowdowns, 1 if no user is known."""
    total = 0.0
    squares = 0.0
    number = 0
    for user in range(users):
        if p.user_ended[user] > 0.0:
            mean = p.user_slowdown[user] / p.user_ended[user]
            total += mean
            squares += mean * mean
            number += 1
    return total * total / (number * squares) if number else 1.0


@kernel
def _own_value(w: World, s: State, k: Task, p: EpisodeState) -> float:
    """The figure of the window's own jobs that is compared with the baseline.

    Lower is better. Unfinished jobs count as if they ended now.
    """
    now = s.clock.now
    what = k.config.relative_to
    if what == columns.UTILISATION_MEAN:
        span = now - k.scale.first_time
        return -p.value.busy_seconds / span if span > 0.0 else 0.0
    number = p.count.own_ended
    total = 0.0
    if what == columns.WAIT_MEAN:
        total = p.value.wait_sum
    elif what == columns.JCT_MEAN:
        total = p.value.jct_sum
    elif what == columns.SLOWDOWN_MEAN:
        total = p.value.slowdown_sum
    else:
        total = p.value.bounded_sum
    for i in range(p.count.on_machine + p.count.waiting):
        waits = i >= p.count.on_machine
        j = p.waiting[i - p.count.on_machine] if waits else p.running[i]
        if not is_own(w, k, j):
            continue
        number += 1
        so_far = now - w.submit[j]
        if what == columns.WAIT_MEAN:
            total += time_waited(w, s, p, j, not waits)
        elif what == columns.JCT_MEAN:
            total += so_far
        elif what == columns.SLOWDOWN_MEAN:
            total += so_far * inverse(w.runtime[j])
        else:
            total += max(1.0, so_far / max(w.runtime[j], BOUND_S))
    return total / max(number, 1)


@inline
def _work_to_come(w: World, s: State, k: Task) -> float:
    """Work of the jobs that have not arrived, without those that can never run."""
    work = 0.0
    for j in range(s.count.arrived, w.sizes.num_jobs):
        if w.job_class[j] >= 0:
            work += k.job_work[j]
    return work


@kernel
def add_final_terms(w: World, s: State, k: Task, p: EpisodeState, unfinished: bool) -> None:
    """Add the terms that are known only at the end. `unfinished`: it came before all jobs had ended."""
    worth = discounted(s, k, p)
    if unfinished:
        x = p.value
        p.term[rewards.UNFINISHED] -= (x.queued_work + x.running_work) * worth
        p.term[rewards.UNDONE] -= (x.queued_work + x.running_work + _work_to_come(w, s, k)) * worth
        for i in range(p.count.on_machine):
            if s.clock.now > k.deadline[p.running[i]]:
                p.term[rewards.DEADLINE] -= worth
        for i in range(p.count.waiting):
            if s.clock.now > k.deadline[p.waiting[i]]:
                p.term[rewards.DEADLINE] -= worth
    else:
        p.term[rewards.TIME_LEFT] += max(k.scale.horizon - s.clock.now, 0.0) * worth
    p.term[rewards.FAIRNESS] += _jain_index(p, k.config.num_users) * worth
    if k.config.relative_to != columns.NOTHING:
        base = k.scale.base_value
        own = _own_value(w, s, k, p)
        p.term[rewards.RELATIVE] += (base - own) / max(base, own, 1.0) * worth
        p.term[rewards.LOG_RATIO] += np.log(max(base, k.scale.least_value) / max(own, k.scale.least_value)) * worth
