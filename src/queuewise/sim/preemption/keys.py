"""Keys of preemptive policies, and jobs sorted by them.

Queued jobs stand in one heap for each class, since only the first of a class can matter; running jobs, where victims must be searched for
(World.policy.ranks_running), in one heap, the greatest key first.
All heaps lie in State.heap_key and heap_job: class c's from class_first[c] on, that of running jobs from NUM_JOBS on. A job is in one of
them at most, and `heap_slot` is its place counted from the heap's first slot.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import preemption
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State, World

ROUNDING = 1e-14  # more than the relative error of a sum of three times


@inline
def estimate_left(w: World, s: State, j: int) -> float:
    """The estimate of what a job has still to do."""
    return s.remaining_estimate[j] if w.policy.can_restart else w.estimate[j]


@inline
def waiting_key(w: World, s: State, j: int) -> float:
    if w.policy.preemption_key == preemption.BY_REMAINING:
        return s.remaining_estimate[j]
    if w.policy.preemption_key == preemption.BY_FIXED:
        return w.fixed_score[j]
    return s.level_key[s.level[j]]


@inline
def running_key(w: World, s: State, j: int) -> float:
    if w.policy.preemption_key != preemption.BY_REMAINING:
        return waiting_key(w, s, j)
    worked = max(s.clock.now - s.begin[j], 0.0)
    return max(s.remaining_estimate[j] - worked / s.factor[j], 0.0)


@inline
def bound_of(w: World, s: State, j: int) -> float:
    """By what running jobs are sorted: their keys, preemption.BY_REMAINING the time at which the key would reach 0, which does not change.

    Where jobs run at different speeds no such order lasts, and all are alike.
    """
    if w.policy.preemption_key != preemption.BY_REMAINING:
        return waiting_key(w, s, j)
    return s.remaining_estimate[j] + s.begin[j] if w.sizes.uniform_speed else np.inf


@inline
def bound_exceeds(w: World, s: State, slot: int, key: float) -> bool:
    """Whether the running job at a slot of the heap, or any below it, may have a greater key than this one."""
    bound = -s.heap_key[w.sizes.num_jobs + slot]
    if w.policy.preemption_key != preemption.BY_REMAINING:
        return bound > key
    return bound - s.clock.now > key - ROUNDING * (abs(bound) + abs(key))


@inline
def comes_before(key: float, j: int, other_key: float, other: int) -> bool:
    return key < other_key or (key == other_key and j < other)


@inline
def _above(w: World, s: State, base: int, key: float, j: int, slot: int) -> bool:
    """Whether a job belongs above the one at a slot of the heap. Of running jobs with equal keys the greatest index comes first."""
    other_key, other = s.heap_key[base + slot], s.heap_job[base + slot]
    if base == w.sizes.num_jobs:
        return key < other_key or (key == other_key and j > other)
    return comes_before(key, j, other_key, other)


@inline
def _put(s: State, base: int, slot: int, key: float, j: int) -> None:
    s.heap_key[base + slot] = key
    s.heap_job[base + slot] = j
    s.heap_slot[j] = slot


@kernel
def _sift_up(w: World, s: State, base: int, slot: int, key: float, j: int) -> None:
    while slot > 0:
        parent = (slot - 1) >> 1
        if not _above(w, s, base, key, j, parent):
            break
        _put(s, base, slot, s.heap_key[base + parent], s.heap_job[base + parent])
        slot = parent
    _put(s, base, slot, key, j)


@kernel
def _sift_down(w: World, s: State, base: int, slot: int, size: int, key: float, j: int) -> None:
    while True:
        child = 2 * slot + 1
        if child >= size:
            break
        if child + 1 < size and _above(w, s, base, s.heap_key[base + child + 1], s.heap_job[base + child + 1], child):
            child += 1
        if _above(w, s, base, key, j, child):
            break
        _put(s, base, slot, s.heap_key[base + child], s.heap_job[base + child])
        slot = child
    _put(s, base, slot, key, j)


@kernel
def _remove(w: World, s: State, base: int, last: int, j: int) -> None:
    """Take a job out of the heap whose last slot is `last`."""
    slot = s.heap_slot[j]
    if slot == last:
        return
    key = s.heap_key[base + last]
    moved = s.heap_job[base + last]
    _sift_down(w, s, base, slot, last, key, moved)
    _sift_up(w, s, base, s.heap_slot[moved], key, moved)


@kernel
def enter_heap(w: World, s: State, c: int, j: int) -> None:
    """Class c already counts the job as pending."""
    _sift_up(w, s, w.class_first[c], s.class_pending[c] - 1, waiting_key(w, s, j), j)


@kernel
def leave_heap(w: World, s: State, c: int, j: int) -> None:
    """Class c no longer counts the job as pending."""
    _remove(w, s, w.class_first[c], s.class_pending[c], j)


@kernel
def rank_running(w: World, s: State, j: int) -> None:
    """The job is already counted as running."""
    if w.policy.ranks_running:
        _sift_up(w, s, w.sizes.num_jobs, s.count.running_jobs - 1, -bound_of(w, s, j), j)


@kernel
def unrank_running(w: World, s: State, j: int) -> None:
    """The job is no longer counted as running."""
    if w.policy.ranks_running:
        _remove(w, s, w.sizes.num_jobs, s.count.running_jobs, j)


@kernel
def rank_all_again(w: World, s: State) -> None:
    """The keys of all jobs may have changed."""
    for c in range(w.sizes.num_classes):
        base = w.class_first[c]
        for slot in range(s.class_pending[c]):
            j = s.heap_job[base + slot]
            _sift_up(w, s, base, slot, waiting_key(w, s, j), j)
    if w.policy.ranks_running:
        base = w.sizes.num_jobs
        for slot in range(s.count.running_jobs):
            j = s.heap_job[base + slot]
            _sift_up(w, s, base, slot, -bound_of(w, s, j), j)


@kernel
def rerank_running(w: World, s: State, j: int) -> None:
    """The key of a running job has changed."""
    if not w.policy.ranks_running:
        return
    base = w.sizes.num_jobs
    key = -bound_of(w, s, j)
    _sift_down(w, s, base, s.heap_slot[j], s.count.running_jobs, key, j)
    _sift_up(w, s, base, s.heap_slot[j], key, j)
