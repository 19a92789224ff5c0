"""The queued jobs, and the first of them in order that may start now.

`State.stretch` summarises, for each class, what hardware and reservations allow: FORBIDDEN (the class does not fit),
ANY_LENGTH, or a factor. With a factor, `now + estimate * stretch` must not exceed `Clock.bound`, the bound set by a
reservation.

Static orders (the score never changes) keep one tree per class over the jobs of the class, in that order. Leaves hold
the estimates of queued jobs (inf otherwise), inner nodes the minimum of their 16 children. One descent finds the first
job with a short enough estimate, however long the queue is. Dynamic orders keep a plain list, which is scanned.
Preemptive policies, whose keys change when a job is stopped, keep one heap per class (keys.py).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import queue
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import NO_LIMIT, State, World
from queuewise.sim.core.tables import F64
from queuewise.sim.preemption.keys import enter_heap, estimate_left, leave_heap
from queuewise.sim.queue.holds import is_held
from queuewise.sim.queue.line import join_line, leave_line

FORBIDDEN = -1.0
ANY_LENGTH = 0.0
FAN_OUT = 16
FAN_SHIFT = 4
PRIMARY, SECONDARY = range(2)


@inline
def _raise_leaf(w: World, s: State, c: int, shift: int, leaf: int, value: float) -> None:
    """Set the value of an empty leaf and update the minima above it."""
    index = leaf
    for level in range(w.tree_levels[c]):
        at = shift + w.tree_level[c * queue.MAX_LEVELS + level] + index
        if level > 0 and s.tree[at] <= value:
            return
        s.tree[at] = value
        index >>= FAN_SHIFT


@inline
def _clear_leaf(w: World, s: State, c: int, shift: int, leaf: int) -> None:
    """Empty a leaf and update the minima above it."""
    at = shift + w.tree_level[c * queue.MAX_LEVELS] + leaf
    old = s.tree[at]
    s.tree[at] = np.inf
    index = leaf
    for level in range(1, w.tree_levels[c]):
        below = shift + w.tree_level[c * queue.MAX_LEVELS + level - 1] + (index >> FAN_SHIFT << FAN_SHIFT)
        index >>= FAN_SHIFT
        at = shift + w.tree_level[c * queue.MAX_LEVELS + level] + index
        if s.tree[at] < old:
            return
        least = np.inf
        for i in range(FAN_OUT):
            least = min(least, s.tree[below + i])
        if least == s.tree[at]:
            return
        s.tree[at] = least


@inline
def _first_leaf(w: World, s: State, c: int, shift: int, now: float, stretch: float, bound: float) -> int:
    """The first leaf with now + value * stretch <= bound, -1 if there is none.

    Empty leaves (inf) never pass: inf * 0 is NaN.
    """
    level = w.tree_levels[c] - 1
    index = 0
    while True:
        base = shift + w.tree_level[c * queue.MAX_LEVELS + level] + index
        child = 0
        while child < FAN_OUT and not now + s.tree[base + child] * stretch <= bound:
            child += 1
        if child == FAN_OUT:
            return -1
        index += child
        if level == 0:
            return index
        index <<= FAN_SHIFT
        level -= 1


@inline
def _activate(w: World, s: State, c: int) -> None:
    if s.class_pending[c] == 0:
        s.room_key[c] = np.inf
        q = w.class_queue[c]
        slot = s.queue_first[q] + s.queue_active[q]
        s.active[slot] = c
        s.active_slot[c] = slot
        s.queue_active[q] += 1
    s.class_pending[c] += 1


@inline
def _deactivate(w: World, s: State, c: int) -> None:
    s.class_pending[c] -= 1
    if s.class_pending[c] == 0:
        q = w.class_queue[c]
        s.queue_active[q] -= 1
        last = s.active[s.queue_first[q] + s.queue_active[q]]
        s.active[s.active_slot[c]] = last
        s.active_slot[last] = s.active_slot[c]


@inline
def _enter_tree(w: World, s: State, c: int, order: int, j: int) -> None:
    slot = order * w.sizes.num_jobs + j
    leaf = w.leaf[slot]
    _raise_leaf(w, s, c, order * w.sizes.tree_size, leaf, estimate_left(w, s, j))
    at = order * w.sizes.num_classes + c
    if s.class_pending[c] == 1 or (s.head_leaf[at] >= 0 and leaf < s.head_leaf[at]):
        s.head_leaf[at] = leaf
        s.head_rank[at] = w.rank[slot]


@inline
def _leave_tree(w: World, s: State, c: int, order: int, j: int) -> None:
    leaf = w.leaf[order * w.sizes.num_jobs + j]
    _clear_leaf(w, s, c, order * w.sizes.tree_size, leaf)
    at = order * w.sizes.num_classes + c
    if s.head_leaf[at] == leaf:
        s.head_leaf[at] = -1


@inline
def _find_head(w: World, s: State, c: int, order: int) -> None:
    """Update head_leaf and head_rank of a class that has queued jobs."""
    at = order * w.sizes.num_classes + c
    if s.head_leaf[at] < 0:
        leaf = _first_leaf(w, s, c, order * w.sizes.tree_size, 0.0, ANY_LENGTH, 0.0)
        jobs = order * w.sizes.num_jobs
        s.head_leaf[at] = leaf
        s.head_rank[at] = w.rank[jobs + w.leaf_job[jobs + w.class_first[c] + leaf]]


@inline
def shortest_queued(w: World, s: State, c: int) -> float:
    """The least estimate of the queued jobs of a class, inf if there are none. Without trees, 0 as a lower bound."""
    if w.policy.preemption_key or w.policy.scans_queue:
        return 0.0
    top = w.tree_level[c * queue.MAX_LEVELS + w.tree_levels[c] - 1]
    least = np.inf
    for child in range(FAN_OUT):
        least = min(least, s.tree[top + child])
    return least


@kernel
def enqueue(w: World, s: State, j: int) -> None:
    slot = s.count.pending_jobs
    s.count.pending_jobs = slot + 1
    if w.policy.external_queue:
        return
    c = w.job_class[j]
    _activate(w, s, c)
    if w.policy.preemption_key:
        enter_heap(w, s, c, j)
    elif w.policy.scans_queue:
        s.pending[slot] = j
        s.pending_slot[j] = slot
    else:
        _enter_tree(w, s, c, PRIMARY, j)
        if w.policy.second_order:
            _enter_tree(w, s, c, SECONDARY, j)
        if w.policy.lines_up:
            join_line(w, s, j)


@kernel
def dequeue(w: World, s: State, j: int) -> None:
    last = s.count.pending_jobs - 1
    s.count.pending_jobs = last
    if w.policy.external_queue:
        return
    c = w.job_class[j]
    _deactivate(w, s, c)
    if w.policy.preemption_key:
        leave_heap(w, s, c, j)
    elif w.policy.scans_queue:
        slot = s.pending_slot[j]
        s.pending[slot] = s.pending[last]
        s.score[slot] = s.score[last]
        s.second_score[slot] = s.second_score[last]
        s.pending_slot[s.pending[slot]] = slot
    else:
        _leave_tree(w, s, c, PRIMARY, j)
        if w.policy.second_order:
            _leave_tree(w, s, c, SECONDARY, j)
        if w.policy.lines_up:
            leave_line(w, s, j)


@kernel
def _first_by_trees(w: World, s: State, q: int, order: int, limited: bool) -> int:
    jobs = order * w.sizes.num_jobs
    best = -1
    best_rank = w.sizes.num_jobs
    best_standing = OVER
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        stretch = s.stretch[c] if limited else ANY_LENGTH
        stands = standing(w, s, c)
        if stretch == FORBIDDEN or stands == OVER or stands > best_standing:
            continue
        _find_head(w, s, c, order)
        at = order * w.sizes.num_classes + c
        if stands == best_standing and s.head_rank[at] >= best_rank:
            continue  # no job of this class comes before the best so far
        leaf = s.head_leaf[at]
        if stretch != ANY_LENGTH:
            leaf = _first_leaf(w, s, c, order * w.sizes.tree_size, s.clock.now, stretch, s.clock.bound)
            if leaf < 0:
                continue
        j = w.leaf_job[jobs + w.class_first[c] + leaf]
        if stands < best_standing or w.rank[jobs + j] < best_rank:
            best = j
            best_rank = w.rank[jobs + j]
            best_standing = stands
    return best


@inline
def _sooner(score: float, j: int, other_score: float, other: int) -> bool:
    return score < other_score or (score == other_score and j < other)


@kernel
def _least(s: State, score: F64) -> int:
    """The job that comes first by these scores among all that wait."""
    best = s.pending[0]
    best_score = score[0]
    for slot in range(1, s.count.pending_jobs):
        if score[slot] <= best_score and _sooner(score[slot], s.pending[slot], best_score, best):
            best = s.pending[slot]
            best_score = score[slot]
    return best


@kernel
def _first_by_scan(w: World, s: State, q: int, order: int, limited: bool) -> int:
    if not limited and w.sizes.num_queues == 1 and not w.policy.holds and not w.policy.has_quotas and s.count.pending_jobs > 0:
        return _least(s, s.score) if order == PRIMARY else _least(s, s.second_score)
    shallow = limited and w.policy.depth != NO_LIMIT
    holds = w.policy.holds != 0
    best = -1
    best_score = np.inf
    best_standing = OVER
    for slot in range(s.count.pending_jobs):
        j = s.pending[slot]
        c = w.job_class[j]
        if w.class_queue[c] != q or (holds and is_held(w, s, j)):
            continue
        if limited and (s.stretch[c] == FORBIDDEN or s.clock.now + estimate_left(w, s, j) * s.stretch[c] > s.clock.bound):
            continue
        score = s.score[slot] if order == PRIMARY else s.second_score[slot]
        if shallow and _sooner(s.clock.depth_score, s.count.depth_job, score, j):
            continue
        stands = standing(w, s, c)
        if stands < best_standing or (stands == best_standing and stands != OVER and _sooner(score, j, best_score, best)):
            best = j
            best_score = score
            best_standing = stands
    return best


@kernel
def first_in_order(w: World, s: State, q: int, order: int, limited: bool) -> int:
    """The first job of queue q in the order, -1 if there is none. If `limited`, only jobs that may start now count."""
    which = order if w.policy.second_order else PRIMARY
    if w.policy.scans_queue:
        return _first_by_scan(w, s, q, which, limited)
    return _first_by_trees(w, s, q, which, limited)


@kernel
def note_depth(w: World, s: State, q: int) -> None:
    """Find the last of the first `depth` candidates of queue q. Backfill considers no job after it."""
    depth = w.policy.depth
    number = 0
    for slot in range(s.count.pending_jobs):
        j = s.pending[slot]
        if w.class_queue[w.job_class[j]] != q or is_held(w, s, j):
            continue
        score = s.second_score[slot] if w.policy.second_order else s.score[slot]
        if number == depth and not _sooner(score, j, s.scratch[depth - 1], s.scratch_jobs[depth - 1]):
            continue
        number = min(number + 1, depth)
        at = number - 1
        while at > 0 and _sooner(score, j, s.scratch[at - 1], s.scratch_jobs[at - 1]):
            s.scratch[at] = s.scratch[at - 1]
            s.scratch_jobs[at] = s.scratch_jobs[at - 1]
            at -= 1
        s.scratch[at] = score
        s.scratch_jobs[at] = j
    s.clock.depth_score = s.scratch[number - 1] if number else -np.inf
    s.count.depth_job = s.scratch_jobs[number - 1] if number else -1
