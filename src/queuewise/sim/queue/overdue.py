"""The bound on waiting: the oldest overdue job of a queue comes before all others of the queue.

A job is overdue from `submit + bound` on, whether it waits or runs. Jobs are indexed by submission, so the oldest one has the
least index. Two cursors make that quick: `State.oldest` (no queued job of the queue has a lesser index) and
`Counts.next_overdue` (no queued job with a lesser index is still to become overdue).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.schedule import QUEUED
from queuewise.sim.core.state import State, World


@inline
def has_bound(w: World) -> bool:
    return w.policy.bounds_waits != 0


@inline
def is_overdue(w: World, s: State, j: int) -> bool:
    return w.policy.bounds_waits != 0 and w.submit[j] + w.wait_bound[0] <= s.clock.now


@inline
def _waits_in(w: World, s: State, j: int, q: int) -> bool:
    return s.status[j] == QUEUED and w.class_queue[w.job_class[j]] == q


@inline
def oldest_overdue(w: World, s: State, q: int) -> int:
    """The oldest job of queue q that is overdue and not kept from starting by its quota, -1 if there is none."""
    return _find_oldest(w, s, q) if has_bound(w) else -1


@kernel
def _find_oldest(w: World, s: State, q: int) -> int:
    j = s.oldest[q]
    while j < s.count.arrived and not _waits_in(w, s, j, q):
        j += 1
    s.oldest[q] = j
    while j < s.count.arrived and is_overdue(w, s, j):
        if _waits_in(w, s, j, q) and standing(w, s, w.job_class[j]) != OVER:
            return j
        j += 1
    return -1


@inline
def note_waiting(w: World, s: State, j: int) -> None:
    """Job j has joined its queue, for the first time or again."""
    if has_bound(w):
        _note_waiting(w, s, j)


@kernel
def _note_waiting(w: World, s: State, j: int) -> None:
    q = w.class_queue[w.job_class[j]]
    s.oldest[q] = min(s.oldest[q], j)
    if is_overdue(w, s, j):
        s.dirty[q] = 1
    else:
        s.count.next_overdue = min(s.count.next_overdue, j)


@inline
def next_overdue_time(w: World, s: State) -> float:
    """When the next queued job becomes overdue, inf if none will."""
    return _find_next_time(w, s) if has_bound(w) else np.inf


@kernel
def _find_next_time(w: World, s: State) -> float:
    j = s.count.next_overdue
    while j < s.count.arrived and s.status[j] != QUEUED:
        j += 1
    s.count.next_overdue = j
    return w.submit[j] + w.wait_bound[0] if j < s.count.arrived else np.inf


@inline
def note_overdue(w: World, s: State) -> None:
    """Have the queues of jobs that have become overdue looked at."""
    if has_bound(w):
        _look_at_overdue(w, s)


@kernel
def _look_at_overdue(w: World, s: State) -> None:
    j = s.count.next_overdue
    while j < s.count.arrived and is_overdue(w, s, j):
        if s.status[j] == QUEUED:
            s.dirty[w.class_queue[w.job_class[j]]] = 1
        j += 1
    s.count.next_overdue = j
