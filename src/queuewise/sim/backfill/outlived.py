"""Running jobs that have outlived their estimates, where these are guesses: they are expected to end later.

State.expected is changed in place, at the beginning of an instant. What a job is expected to do then depends only on its begin, its
estimate and the time, whatever instants there were before.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.backfill import SETTLED
from queuewise.sim.backfill.easy import book_gpus, unbook_gpus
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.state import State, World

GROWTH = 4.0  # how much longer than before a run is expected to be each time it has been so long
LEAST_S = 1.0  # of a run that is longer than was expected


@inline
def _later_end(w: World, s: State, j: int) -> float:
    """When running job j, which has outlived its expected end, is expected to end now."""
    begin = s.begin[j] if w.policy.can_restart else s.start[j]
    end = s.expected[j]
    while end < s.clock.now:
        before, end = end, begin + max(GROWTH * (end - begin), LEAST_S)
        if end <= before:
            break  # the clock is so far beyond 2^53 that a second makes no difference
    return end


@kernel
def _put_off(w: World, s: State, j: int, end: float) -> None:
    """Running job j is expected to end then, later than before: no reservation that counted on its end stands."""
    c = w.job_class[j]
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j] if w.policy.tracks_free_times else 0):
        gpus = s.piece_tasks[k] * w.class_gpus[c]
        unbook_gpus(w, s, s.piece_node[k], gpus, s.expected[j])
        book_gpus(w, s, s.piece_node[k], gpus, end)
    s.expected[j] = end
    q = w.class_queue[c]
    s.shadow_head[q] = -1
    s.plan_state[q] = min(s.plan_state[q], SETTLED)
    s.dirty[q] = 1


@noinline
def _put_off_all(w: World, s: State) -> None:
    first = np.inf
    for i in range(s.count.running_jobs):
        j = s.running[i]
        if s.expected[j] < s.clock.now:
            _put_off(w, s, j, _later_end(w, s, j))
        first = min(first, s.expected[j])
    s.clock.outlived_at = first


@inline
def expect_later_ends(w: World, s: State) -> None:
    """Let no running job be expected to have ended before now, if estimates are guesses."""
    if w.policy.guesses and s.clock.now > s.clock.outlived_at:
        _put_off_all(w, s)
