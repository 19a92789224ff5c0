"""The pass of a preemptive policy: the job that comes first by key gets its place, from running jobs that come later if need be.

Only the first job of each class is ever tried: the others of the class come later, so they have fewer victims to choose from; and it is
not tried while there cannot be room for it (room.py).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import placement
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.events import cancel_event
from queuewise.sim.core.lifecycle import end_run, put_back, queue_again, start_placed, take_off
from queuewise.sim.core.machine import give, piece_is_free, slots_up_to, take_exactly
from queuewise.sim.core.prefetch import fetch_job
from queuewise.sim.core.state import NO_LIMIT, Machine, State, World
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.keys import comes_before, rerank_running, running_key
from queuewise.sim.preemption.restart import is_running, pass_levels, policy_saves, set_next_event
from queuewise.sim.preemption.room import count_free_room, count_held_room, lacks_room, room_offered, room_vacated
from queuewise.sim.preemption.victim_lists import MOST_TASKS, UNSURE, choose_from_lists, reseat_job
from queuewise.sim.preemption.victims import begin_search, next_victim
from queuewise.sim.queue.overdue import has_bound, oldest_overdue
from queuewise.sim.queue.selection import dequeue, enqueue


@kernel
def _first_class(w: World, s: State, q: int) -> int:
    """The class of the first queued job that is not set aside and may find room, -1 if there is none."""
    best = -1
    best_key = 0.0
    best_job = 0
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        key = s.heap_key[w.class_first[c]]
        if s.aside[c] or lacks_room(w, s, c, key):
            continue
        j = s.heap_job[w.class_first[c]]
        if best < 0 or comes_before(key, j, best_key, best_job):
            best, best_key, best_job = c, key, j
    return best


@inline
def _is_counted(w: World, c: int) -> bool:
    """Whether it is enough to count free GPUs, node by node, to know when class c fits."""
    plain_rule = w.policy.placement != placement.TIER and w.policy.placement_option == NO_LIMIT
    return bool(w.class_by_pool[c]) and plain_rule and not w.sizes.shares_gpus


@inline
def _slots_with(w: World, m: Machine, s: State, c: int, n: int) -> int:
    """Tasks of class c that node n could take if what State.gain says were free too."""
    return w.divide[(m.free_gpus[n] + s.gain[n]) * w.sizes.gpu_stride + w.class_gpus[c]]


@kernel
def _gain_from(w: World, m: Machine, s: State, c: int, j: int) -> int:
    """Note in State.gain what running job j would free; returns how many more tasks of class c would fit."""
    more = 0
    per_task = w.class_gpus[w.job_class[j]]
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        if not m.closed[n] and w.class_allows[c * w.sizes.num_pools + w.node_pool[n]]:
            before = _slots_with(w, m, s, c, n)
            s.gain[n] += s.piece_tasks[k] * per_task
            more += _slots_with(w, m, s, c, n) - before
    return more


@kernel
def _makes_slots(w: World, m: Machine, s: State, c: int, j: int) -> bool:
    """Whether running job j holds a node that could take a task of class c with what State.gain says."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        if s.gain[n] > 0 and _slots_with(w, m, s, c, n) > 0:
            return True
    return False


@kernel
def _choose_by_counting(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """List victims in State.taken until class c would fit without them, and return their number; -1 - number if it would not.

    Of those listed only the ones whose nodes can then take a task matter to the placement; they are taken off, the others struck out (-1).
    """
    number = 0
    room = slots_up_to(w, m, c, w.class_tasks[c])
    begin_search(w, s)
    while room < w.class_tasks[c]:
        j = next_victim(w, s, c, key)
        if j < 0:
            break
        s.taken[number] = j
        number += 1
        room += _gain_from(w, m, s, c, j)
    suffices = room >= w.class_tasks[c]
    if suffices:
        for i in range(number):
            if not _makes_slots(w, m, s, c, s.taken[i]):
                s.taken[i] = -1 - s.taken[i]
    for i in range(number):
        j = s.taken[i] if s.taken[i] >= 0 else -1 - s.taken[i]
        for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            s.gain[s.piece_node[k]] = 0
        if suffices and s.taken[i] >= 0:
            take_off(w, m, s, j)
        elif suffices:
            s.taken[i] = -1
    return number if suffices else -1 - number


@kernel
def _choose_by_trying(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """The same for classes and rules for which counting does not do: take victims off until class c fits, or put them all back."""
    number = 0
    begin_search(w, s)
    j = next_victim(w, s, c, key)
    while j >= 0:
        s.taken[number] = j
        number += 1
        take_off(w, m, s, j)
        if fits(w, m, s, c):
            return number
        j = next_victim(w, s, c, key)
    for i in range(number):
        put_back(w, m, s, s.taken[i])
    return -1 - number


@kernel
def _take_off_until_fits(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """Take victims off, greatest key first, until class c fits, and list them in State.taken; returns their number.

    If nothing helps they stay where they are, what they hold is noted as the class's room (unless others are spared only for now), and
    the answer is -1.
    """
    if w.policy.lists_victims and w.class_by_pool[c] and w.class_tasks[c] <= MOST_TASKS:
        number = choose_from_lists(w, m, s, c, key)
        for i in range(number):
            take_off(w, m, s, s.taken[i])
        if number != UNSURE:
            return number
    number = _choose_by_counting(w, m, s, c, key) if _is_counted(w, c) else _choose_by_trying(w, m, s, c, key)
    if number >= 0:
        return number
    if s.count.num_spared > 0:
        s.room_key[c] = np.inf  # there will be more room as soon as the clock has moved
        return -1
    count_free_room(w, m, s, c, key)
    for i in range(-1 - number):
        count_held_room(w, s, c, s.taken[i])
    return -1


@kernel
def _spare(w: World, m: Machine, s: State, j: int) -> bool:
    """Put a victim back where it was, unless it is in the way."""
    c = w.job_class[j]
    first = s.first_piece[j]
    for k in range(first, first + s.num_pieces[j]):
        if not piece_is_free(w, m, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k]):
            for back in range(first, k):
                give(w, m, c, s.piece_node[back], s.piece_tasks[back], s.piece_gpus[back])
            return False
        take_exactly(w, m, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
    return True


@kernel
def _make_room(w: World, m: Machine, s: State, c: int, key: float) -> bool:
    """Stop victims so that class c gets a place, which is left in State.place_*; False, and nothing changed, if they do not suffice."""
    number = _take_off_until_fits(w, m, s, c, key)
    if number < 0:
        return False
    place(w, m, s, c)
    for i in range(number - 1, -1, -1):
        if s.taken[i] >= 0 and _spare(w, m, s, s.taken[i]):
            s.taken[i] = -1
    for i in range(number):
        j = s.taken[i]
        if j >= 0:
            room_vacated(w, s, j, running_key(w, s, j))
            end_run(w, s, j, policy_saves(w))
            queue_again(w, s, j)
    return True


@kernel
def _set_nothing_aside(s: State, q: int) -> None:
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        s.aside[s.active[slot]] = 0


@inline
def _log_is_full(w: World, s: State) -> bool:
    """Whether there is no room in the log of pieces for one more start. If so, it is noted for the caller of the pass."""
    if s.count.pieces + w.sizes.most_pieces <= w.sizes.log_size:
        return False
    s.count.log_full = 1
    return True


@noinline
def _start_overdue(w: World, m: Machine, s: State, q: int, tried: int) -> int:
    """Start overdue jobs, the oldest first. Returns the one for which there is no room, or -1; `tried` is known to be such a one."""
    while True:
        j = oldest_overdue(w, s, q)
        if j < 0 or j == tried or _log_is_full(w, s):
            return tried
        c = w.job_class[j]
        if place(w, m, s, c):
            start_placed(w, s, j, runtime_factor(w, s, c))
        elif _make_room(w, m, s, c, -np.inf):
            start_placed(w, s, j, runtime_factor(w, s, c))
            _set_nothing_aside(s, q)
            tried = -1
        else:
            tried = j


@kernel
def preempt_in_queue(w: World, m: Machine, s: State, q: int) -> None:
    """One pass over queue q. May be left when the log is full (LOG_FULL) and taken up again."""
    if not s.dirty[q]:
        return
    _set_nothing_aside(s, q)
    s.count.num_spared = 0
    bounded = has_bound(w)
    tried = -1  # the overdue job for which there is no room
    while True:
        if bounded:
            tried = _start_overdue(w, m, s, q, tried)
            if s.count.log_full:
                return
        c = _first_class(w, s, q)
        if c < 0:
            s.dirty[q] = s.count.num_spared > 0  # the next decision may stop those that were spared in this one
            return
        if _log_is_full(w, s):
            return
        j = s.heap_job[w.class_first[c]]
        fetch_job(w, s, j)
        if place(w, m, s, c):
            start_placed(w, s, j, runtime_factor(w, s, c))
        elif _make_room(w, m, s, c, s.heap_key[w.class_first[c]]):
            start_placed(w, s, j, runtime_factor(w, s, c))
            _set_nothing_aside(s, q)
            tried = -1
        else:
            s.aside[c] = 1


@kernel
def _somebody_waits_before(w: World, s: State, q: int, key: float) -> bool:
    found = False
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        found = found or s.heap_key[w.class_first[s.active[slot]]] < key
    return found


@kernel
def ring_timer(w: World, s: State, j: int) -> None:
    """A running job has reached the end of its level or quantum, or a queued one has waited long enough to be promoted."""
    c = w.job_class[j]
    q = w.class_queue[c]
    if is_running(s, j):
        if w.policy.preemption_key:
            old_key = running_key(w, s, j) if w.costs.quantum == 0.0 else -np.inf  # young jobs are counted nowhere
            pass_levels(w, s, j)
            rerank_running(w, s, j)
            reseat_job(w, s, j)
            key = running_key(w, s, j)
            room_offered(w, s, j, old_key, key)
            if _somebody_waits_before(w, s, q, key) or oldest_overdue(w, s, q) >= 0:
                s.dirty[q] = 1
        set_next_event(w, s, j)
    else:
        cancel_event(s, j)
        s.dirty[q] = 1
        dequeue(w, s, j)
        s.level[j] = 0
        s.attained[j] = 0.0
        enqueue(w, s, j)
