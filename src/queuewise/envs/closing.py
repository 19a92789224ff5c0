"""The reward terms that are known at the end of an episode only."""

from __future__ import annotations

from queuewise.envs import rewards
from queuewise.envs.accounts import BOUND_S, discounted, inverse
from queuewise.envs.table import (
    BASE_VALUE,
    BOUNDED_SUM,
    BUSY_SECONDS,
    ENDED,
    FIRST_SUBMIT,
    HORIZON,
    JCT_MEAN,
    JCT_SUM,
    NOTHING,
    NUM_USERS,
    ON_MACHINE,
    QUEUED_WORK,
    RELATIVE_TO,
    RUNNING_WORK,
    SLOWDOWN_MEAN,
    SLOWDOWN_SUM,
    UTILISATION_MEAN,
    WAIT_MEAN,
    WAIT_SUM,
    WAITING,
    Play,
    Task,
)
from queuewise.sim.compilation import kernel
from queuewise.sim.state import NOW, State, World


@kernel
def _jain_index(p: Play, users: int) -> float:
    """(Σx)² ÷ (n·Σx²) over users' mean bounded slowdowns, 1 when no user is known."""
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
def _own_value(w: World, s: State, k: Task, p: Play) -> float:
    """The episode's figure that is compared with the baseline's, lower is better; unfinished jobs count as if they ended now."""
    now = s.clock[NOW]
    what = k.config[RELATIVE_TO]
    if what == UTILISATION_MEAN:
        span = now - k.scale[FIRST_SUBMIT]
        return -p.scalar[BUSY_SECONDS] / span if span > 0.0 else 0.0
    number = p.number[ENDED] + p.number[ON_MACHINE] + p.number[WAITING]
    total = 0.0
    if what == WAIT_MEAN:
        total = p.scalar[WAIT_SUM]
    elif what == JCT_MEAN:
        total = p.scalar[JCT_SUM]
    elif what == SLOWDOWN_MEAN:
        total = p.scalar[SLOWDOWN_SUM]
    else:
        total = p.scalar[BOUNDED_SUM]
    for i in range(p.number[ON_MACHINE] + p.number[WAITING]):
        waits = i >= p.number[ON_MACHINE]
        j = p.waiting[i - p.number[ON_MACHINE]] if waits else p.running[i]
        so_far = now - w.submit[j]
        if what == WAIT_MEAN:
            total += so_far if waits else 0.0
        elif what == JCT_MEAN:
            total += so_far
        elif what == SLOWDOWN_MEAN:
            total += so_far * inverse(w.runtime[j])
        else:
            total += max(1.0, so_far / max(w.runtime[j], BOUND_S))
    return total / max(number, 1)


@kernel
def close_books(w: World, s: State, k: Task, p: Play, truncated: bool) -> None:
    """The terms that are known at the end only."""
    worth = discounted(s, k, p)
    if truncated:
        x = p.scalar
        p.term[rewards.UNFINISHED] -= (x[QUEUED_WORK] + x[RUNNING_WORK]) * worth
        for i in range(p.number[ON_MACHINE]):
            if s.clock[NOW] > k.deadline[p.running[i]]:
                p.term[rewards.DEADLINE] -= worth
        for i in range(p.number[WAITING]):
            if s.clock[NOW] > k.deadline[p.waiting[i]]:
                p.term[rewards.DEADLINE] -= worth
    else:
        p.term[rewards.TIME_LEFT] += max(k.scale[HORIZON] - s.clock[NOW], 0.0) * worth
    p.term[rewards.FAIRNESS] += _jain_index(p, k.config[NUM_USERS]) * worth
    if k.config[RELATIVE_TO] != NOTHING:
        base = k.scale[BASE_VALUE]
        own = _own_value(w, s, k, p)
        p.term[rewards.RELATIVE] += (base - own) / max(base, own, 1.0) * worth
