"""The line: waiting jobs one after the other, sorted by the order of backfill, for who has to look at all of them.

It is kept where that order never changes and a plan goes through it (World.policy.lines_up). `line_up` copies the jobs
of one queue; where there is no line, it sorts them by their scores.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.state import State, World
from queuewise.sim.queue.holds import is_held


@inline
def _rank(w: World, j: int) -> int:
    return w.rank[w.policy.second_order * w.sizes.num_jobs + j]


@kernel
def _place_in_line(w: World, s: State, j: int, number: int) -> int:
    """How many of the first `number` jobs of the line come before job j."""
    rank = _rank(w, j)
    low, high = 0, number
    while low < high:
        middle = (low + high) >> 1
        if _rank(w, s.line[middle]) < rank:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def join_line(w: World, s: State, j: int) -> None:
    """Job j is the last of the pending jobs that were counted."""
    last = s.count.pending_jobs - 1
    at = _place_in_line(w, s, j, last)
    for k in range(last, at, -1):
        s.line[k] = s.line[k - 1]
    s.line[at] = j


@kernel
def leave_line(w: World, s: State, j: int) -> None:
    """Job j is no longer counted among the pending jobs."""
    number = s.count.pending_jobs
    for k in range(_place_in_line(w, s, j, number + 1), number):
        s.line[k] = s.line[k + 1]


@kernel
def line_up(w: World, s: State, q: int, head: int, line) -> int:  # type: ignore[no-untyped-def]
    """Write the jobs of queue q but its head into an array, in the order of backfill; returns their number."""
    if w.policy.scans_queue:
        return _line_up_by_score(w, s, q, head, line)
    number = 0
    for k in range(s.count.pending_jobs):
        j = s.line[k]
        line[number] = j
        number += int(j != head and (w.sizes.num_queues == 1 or w.class_queue[w.job_class[j]] == q))
    return number


@noinline
def _line_up_by_score(w: World, s: State, q: int, head: int, line) -> int:  # type: ignore[no-untyped-def]
    number = 0
    for slot in range(s.count.pending_jobs):
        j = s.pending[slot]
        if j != head and w.class_queue[w.job_class[j]] == q and not is_held(w, s, j):
            line[number] = j
            number += 1
    jobs = np.sort(line[:number])  # equal scores: by index
    scores = np.empty(number)
    for k in range(number):
        slot = s.pending_slot[jobs[k]]
        scores[k] = s.second_score[slot] if w.policy.second_order else s.score[slot]
    line[:number] = jobs[np.argsort(scores, kind="mergesort")]
    return number


@noinline
def line_up_again(w: World, s: State, line, first: int, number: int) -> int:  # type: ignore[no-untyped-def]
    """Sort a line of so many jobs from place `first` on, after a start that may have changed the order. Returns its new length.

    Jobs that their quota keeps from starting leave it.
    """
    jobs = np.sort(line[first:number])
    scores, stands = np.empty(len(jobs)), np.empty(len(jobs))
    for k in range(len(jobs)):
        j = jobs[k]
        stands[k] = standing(w, s, w.job_class[j])
        scores[k] = s.score[s.pending_slot[j]] if w.policy.scans_queue else _rank(w, j)
    by_score = np.argsort(scores, kind="mergesort")
    order = by_score[np.argsort(stands[by_score], kind="mergesort")]
    end = first
    for k in order:
        if stands[k] != OVER:
            line[end] = jobs[k]
            end += 1
    return end
