"""Jobs that a policy's own function keeps from starting for now.

A held job is passed over: it is not the head, no candidate and has no reservation. `State.hold_until` says until when; inf means until
it is asked again. An overdue job and the committed one are not held, and times below SHORTEST_HOLD_S hold nobody: the clock
would hardly advance.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import queue
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.queue.overdue import is_overdue

SHORTEST_HOLD_S = 0.001


@inline
def is_held(w: World, s: State, j: int) -> bool:
    return w.policy.holds != 0 and s.hold_until[j] > s.clock.now


@kernel
def hold_back(w: World, s: State, holder) -> None:  # type: ignore[no-untyped-def]
    """Ask, at every decision and after every start, which jobs must not start yet. What was said for a time still holds."""
    number = s.count.pending_jobs
    now = s.clock.now
    users = view(s.users, w.sizes.num_users * queue.USER_SIZE if w.policy.reads_users else 0)
    outlook = view(s.outlook, w.sizes.outlook_row)
    s.count.user_calls += 1
    facts, params = view(w.facts, w.sizes.num_jobs), view(w.params, queue.PARAMS_SIZE)
    holder(facts, view(s.pending, number), number, now, outlook, users, params, view(s.hold, number))
    s.count.user_calls += 1
    for slot in range(number):
        j = s.pending[slot]
        committed = w.policy.dispatch == queue.COMMIT and s.head[w.class_queue[w.job_class[j]]] == j
        if committed or is_overdue(w, s, j):
            s.hold_until[j] = -np.inf
        elif s.hold_until[j] <= now or s.hold_until[j] == np.inf:
            s.hold_until[j] = now + s.hold[slot] if s.hold[slot] >= SHORTEST_HOLD_S else -np.inf
        if w.policy.remembers_plans and s.hold_until[j] > now:
            s.pin_start[j] = np.inf


@kernel
def first_held(w: World, s: State, q: int) -> int:
    """The first held job of queue q in order, -1 if there is none."""
    first = -1
    score = np.inf
    for slot in range(s.count.pending_jobs):
        j = s.pending[slot]
        if w.class_queue[w.job_class[j]] != q or not is_held(w, s, j):
            continue
        if first < 0 or s.score[slot] < score or (s.score[slot] == score and j < first):
            first = j
            score = s.score[slot]
    return first


@kernel
def note_next_hold(s: State) -> None:
    """Have a decision when the first of the jobs that are held for a time may start."""
    s.clock.wake_at = np.inf
    for slot in range(s.count.pending_jobs):
        until = s.hold_until[s.pending[slot]]
        if until > s.clock.now:
            s.clock.wake_at = min(s.clock.wake_at, until)
