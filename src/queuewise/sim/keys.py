"""Keys of preemptive policies, and the queues sorted by them: one heap for each class, since only the first of a class can matter.

A class's heap lies at class_first[c] in State.heap_job and heap_key; `pending_slot` tells a job's place in it, from the class's first slot.
"""

from __future__ import annotations

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.state import BY_FIXED, BY_REMAINING, KEYS, NOW, RESTARTS, UNIFORM, State, World


@inline
def estimate_left(w: World, s: State, j: int) -> float:
    """The estimate of what a job has still to do."""
    return s.remaining_estimate[j] if w.policy[RESTARTS] else w.estimate[j]


@inline
def waiting_key(w: World, s: State, j: int) -> float:
    if w.policy[KEYS] == BY_REMAINING:
        return s.remaining_estimate[j]
    if w.policy[KEYS] == BY_FIXED:
        return w.fixed_score[j]
    return w.level_key[s.level[j]]


@inline
def note_running_key(w: World, s: State, j: int) -> None:
    """Keep what the key of a running job is made of beside its place in State.running."""
    slot = s.running_slot[j]
    s.run_key[slot] = waiting_key(w, s, j)
    s.run_begin[slot] = s.begin[j]
    s.run_factor[slot] = s.factor[j]


@inline
def running_key(w: World, s: State, slot: int) -> float:
    """The key of the running job at a position of State.running."""
    if w.policy[KEYS] != BY_REMAINING:
        return s.run_key[slot]
    worked = max(s.clock[NOW] - s.run_begin[slot], 0.0)
    return max(s.run_key[slot] - (worked if w.sizes[UNIFORM] else worked / s.run_factor[slot]), 0.0)


@inline
def comes_before(key: float, j: int, other_key: float, other: int) -> bool:
    return key < other_key or (key == other_key and j < other)


@inline
def _put(w: World, s: State, base: int, slot: int, key: float, j: int) -> None:
    s.heap_key[base + slot] = key
    s.heap_job[base + slot] = j
    s.pending_slot[j] = slot


@kernel
def _sift_up(w: World, s: State, base: int, slot: int, key: float, j: int) -> None:
    while slot > 0:
        parent = (slot - 1) >> 1
        if not comes_before(key, j, s.heap_key[base + parent], s.heap_job[base + parent]):
            break
        _put(w, s, base, slot, s.heap_key[base + parent], s.heap_job[base + parent])
        slot = parent
    _put(w, s, base, slot, key, j)


@kernel
def _sift_down(w: World, s: State, base: int, slot: int, size: int, key: float, j: int) -> None:
    while True:
        child = 2 * slot + 1
        if child >= size:
            break
        if child + 1 < size and comes_before(
            s.heap_key[base + child + 1], s.heap_job[base + child + 1], s.heap_key[base + child], s.heap_job[base + child]
        ):
            child += 1
        if comes_before(key, j, s.heap_key[base + child], s.heap_job[base + child]):
            break
        _put(w, s, base, slot, s.heap_key[base + child], s.heap_job[base + child])
        slot = child
    _put(w, s, base, slot, key, j)


@kernel
def enter_heap(w: World, s: State, c: int, j: int) -> None:
    """Class c already counts the job as pending."""
    _sift_up(w, s, w.class_first[c], s.class_pending[c] - 1, waiting_key(w, s, j), j)


@kernel
def leave_heap(w: World, s: State, c: int, j: int) -> None:
    """Class c no longer counts the job as pending."""
    base = w.class_first[c]
    slot = s.pending_slot[j]
    last = s.class_pending[c]
    if slot == last:
        return
    key = s.heap_key[base + last]
    moved = s.heap_job[base + last]
    _sift_down(w, s, base, slot, last, key, moved)
    _sift_up(w, s, base, s.pending_slot[moved], key, moved)
