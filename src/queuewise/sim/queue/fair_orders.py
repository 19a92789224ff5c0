"""Fair orders: scores by past usage of the jobs' owners (`fairshare`, `fairtree`, `multifactor`) or by what they hold now (`drf`).

Every node of the account tree keeps its decayed usage as of its last change (`State.usage`) and the rate at which it
has grown since then (`State.usage_rate`, in milli GPUs, cores or tasks). Rates are integers, so they return to exactly
zero when the last job ends.
"""

from __future__ import annotations

import math

import numpy as np

from queuewise.sim import queue
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.pieces import tasks_held
from queuewise.sim.core.state import State, World
from queuewise.sim.queue.account_tree import ROOT

LN2 = math.log(2.0)


@inline
def _usage_at(w: World, s: State, a: int, now: float) -> float:
    passed = now - s.usage_time[a]
    if w.fairness.decay_rate == 0.0:
        return s.usage[a] + s.usage_rate[a] * passed
    kept = math.exp(-(passed * w.fairness.decay_rate))
    return s.usage[a] * kept + s.usage_rate[a] / w.fairness.decay_rate * (1.0 - kept)


@inline
def rate_of(w: World, c: int) -> int:
    """What a task of the class is charged per second, in milli."""
    if w.class_milli[c] > 0:
        return w.class_milli[c]
    return w.class_cpu[c] if w.class_cpu[c] > 0 else 1000


@kernel
def charge(w: World, s: State, j: int, sign: int) -> None:
    """Update what the owner of job j holds, and the rates from the owner up to the root.

    The job has started (sign = 1) or stopped (sign = -1).
    """
    if w.sizes.num_accounts == 1:
        return
    c = w.job_class[j]
    now = s.clock.now
    tasks = sign * tasks_held(w, s, j)
    rate = tasks * rate_of(w, c)
    a = w.owner[j]
    s.held[3 * a] += tasks * w.class_milli[c]
    s.held[3 * a + 1] += tasks * w.class_cpu[c]
    s.held[3 * a + 2] += tasks * w.class_mem[c]
    while a >= ROOT:
        s.usage[a] = _usage_at(w, s, a, now)
        s.usage_time[a] = now
        s.usage_rate[a] += rate
        a = w.account_parent[a]
    if sign > 0 and queue.DRF in (w.scored_by[0], w.scored_by[1]):
        _rescore_owner(w, s, w.owner[j])


@kernel
def _effective_usage(w: World, s: State, leaf: int) -> float:
    """Slurm's classic effective usage of a leaf. It is computed from the root down, once per account and decision."""
    stamp = s.count.decisions
    while s.effective_at[leaf] != stamp:
        a = leaf
        while w.account_parent[a] != ROOT and s.effective_at[w.account_parent[a]] != stamp:
            a = w.account_parent[a]
        total = _usage_at(w, s, ROOT, s.clock.now)
        part = _usage_at(w, s, a, s.clock.now) / total if total > 0.0 else 0.0
        above = w.account_parent[a]
        s.effective[a] = part if above == ROOT else part + (s.effective[above] - part) * w.account_fraction[a]
        s.effective_at[a] = stamp
    return s.effective[leaf]


@inline
def _usage_ratio(w: World, s: State, leaf: int) -> float:
    """Effective usage relative to the share of the whole."""
    share = w.account_share[leaf]
    return _effective_usage(w, s, leaf) / share if share > 0.0 else np.inf


# --- the Fair Tree


@inline
def _is_user(w: World, a: int) -> bool:
    return a >= w.fairness.first_user


@kernel
def _level_fairshares(w: World, s: State):  # type: ignore[no-untyped-def]
    """[A] what each node should have of its parent's usage, relative to what it has; inf if it has nothing."""
    number = w.sizes.num_accounts
    usage = np.empty(number)
    for a in range(number):
        unused = s.usage[a] == 0.0 and s.usage_rate[a] == 0
        usage[a] = 0.0 if unused else _usage_at(w, s, a, s.clock.now)
    level = np.zeros(number)
    for a in range(1, number):
        total = usage[w.account_parent[a]]
        part = usage[a] / total if total > 0.0 else 0.0
        if w.account_fraction[a] > 0.0:
            level[a] = w.account_fraction[a] / part if part > 0.0 else np.inf
    return level


@inline
def _comes_before(w: World, level, a: int, b: int) -> bool:  # type: ignore[no-untyped-def]
    return level[a] > level[b] or (level[a] == level[b] and _is_user(w, a) and not _is_user(w, b))


@kernel
def _line_up_children(w: World, s: State, level, line, first: int, last: int, begin: int) -> int:  # type: ignore[no-untyped-def]
    """Write the children of the nodes line[first:last] from line[begin] on: the greatest level fairshare first, users before accounts.

    They are nearly sorted: as they were last time. Returns where they end.
    """
    end = begin
    for at in range(first, last):
        for i in range(w.child_first[line[at]], w.child_first[line[at] + 1]):
            a = s.children[i]
            k = end
            while k > begin and _comes_before(w, level, a, line[k - 1]):
                line[k] = line[k - 1]
                k -= 1
            line[k] = a
            end += 1
    if last == first + 1:
        for k in range(begin, end):
            s.children[w.child_first[line[first]] + k - begin] = line[k]
    return end


@kernel
def _rank_users(w: World, s: State) -> None:
    """Rank all users by a walk through the tree, depth first. Accounts that are tied are one: their children are sorted together.

    The lines of siblings that are being walked stand one after the other, and `stack` says of each where it begins and ends, which node
    is next, and whether the first node is tied with the user before it.
    """
    number = w.sizes.num_accounts
    level = _level_fairshares(w, s)
    line = np.zeros(number, np.int64)  # it begins with the root
    stack = np.zeros((number + 1, 4), np.int64)
    place = number - int(w.fairness.first_user)  # rank of the next user who is not tied
    rank = place
    stack[0] = 1, 1, _line_up_children(w, s, level, line, 0, 1, 1), 0
    depth = 0
    while depth >= 0:
        begin, at, end, tied = stack[depth]
        if at == end:
            depth -= 1
            continue
        if at > begin:
            tied = int(level[line[at]] == level[line[at - 1]])
        after = at + 1
        if _is_user(w, line[at]):
            rank = rank if tied else place
            place -= 1
            s.fair_rank[line[at]] = rank
            stack[depth, 1] = after
            continue
        while after < end and level[line[after]] == level[line[at]]:
            after += 1
        stack[depth, 1] = after
        depth += 1
        stack[depth] = end, end, _line_up_children(w, s, level, line, at, after, end), tied


# --- scores


@inline
def _goes_by_rank(w: World, order: int) -> bool:
    return w.scored_by[order] == queue.FAIRTREE or (w.scored_by[order] == queue.MULTIFACTOR and not w.fairness.classic_factor)


@inline
def _dominant_share(w: World, s: State, leaf: int) -> float:
    gpu = s.held[3 * leaf] / w.fairness.gpu_total
    cpu = s.held[3 * leaf + 1] / w.fairness.cpu_total
    mem = s.held[3 * leaf + 2] / w.fairness.mem_total
    return max(gpu, cpu, mem)


@kernel
def _fair_score(w: World, s: State, order: int, j: int) -> float:
    leaf = w.owner[j]
    if w.scored_by[order] == queue.DRF:
        return _dominant_share(w, s, leaf)
    if w.scored_by[order] == queue.FAIRTREE:
        return -float(s.fair_rank[leaf])
    if w.scored_by[order] == queue.FAIRSHARE:
        return _usage_ratio(w, s, leaf)
    age = min((s.clock.now - w.submit[j]) / w.fairness.max_age, 1.0)
    if w.fairness.classic_factor:
        factor = math.exp(-(_usage_ratio(w, s, leaf) * LN2))
    else:
        factor = s.fair_rank[leaf] / (w.sizes.num_accounts - w.fairness.first_user)
    return -(w.fixed_score[order * w.sizes.num_jobs + j] + w.fairness.age_weight * age + w.fairness.fairshare_weight * factor)


@kernel
def score_fairly(w: World, s: State, order: int, scores) -> None:  # type: ignore[no-untyped-def]
    """Score the queue by a fair order. `scores` is State.score or State.second_score."""
    if _goes_by_rank(w, order) and s.count.pending_jobs > 1:  # one job is the first in any order
        _rank_users(w, s)
    for slot in range(s.count.pending_jobs):
        scores[slot] = _fair_score(w, s, order, s.pending[slot])


@kernel
def _rescore_owner(w: World, s: State, leaf: int) -> None:
    """Update the scores of the owner's queued jobs after its dominant share has changed within a pass."""
    share = _dominant_share(w, s, leaf)
    for slot in range(s.count.pending_jobs):
        if w.owner[s.pending[slot]] == leaf:
            if w.scored_by[0] == queue.DRF:
                s.score[slot] = share
            if w.policy.second_order and w.scored_by[1] == queue.DRF:
                s.second_score[slot] = share
