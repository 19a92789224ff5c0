"""Whom to stop next: running jobs with greater keys than a queued one, the greatest first, found without looking at the others.

The search walks down the heap of running jobs (keys.py) from its root. `frontier` is a heap of slots of that heap: those whose parents have
been looked at. Jobs that have been looked at wait in a heap of their own (`victim_key`, `victim_job`, by exact key) until
nothing in the frontier can come before them: under BY_REMAINING the heap of running jobs goes by bounds, which may differ from the keys.
"""

from __future__ import annotations

from queuewise.sim import preemption
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State, World
from queuewise.sim.preemption.keys import bound_exceeds, comes_before, running_key
from queuewise.sim.preemption.restart import has_just_started, is_old_enough, may_be_stopped


@inline
def _stands_where(w: World, s: State, j: int, c: int) -> bool:
    """Whether running job j holds a node that class c allows."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        if w.class_allows[c * w.sizes.num_pools + w.node_pool[s.piece_node[k]]]:
            return True
    return False


@inline
def _sooner_slot(w: World, s: State, slot: int, other: int) -> bool:
    base = w.sizes.num_jobs
    key, other_key = s.heap_key[base + slot], s.heap_key[base + other]
    return key < other_key or (key == other_key and s.heap_job[base + slot] > s.heap_job[base + other])


@kernel
def _look_at_later(w: World, s: State, slot: int) -> None:
    """Put a slot of the heap of running jobs, if it is one, on the frontier."""
    if slot >= s.count.running_jobs:
        return
    at = s.count.frontier_size
    s.count.frontier_size = at + 1
    while at > 0 and _sooner_slot(w, s, slot, s.frontier[(at - 1) >> 1]):
        s.frontier[at] = s.frontier[(at - 1) >> 1]
        at = (at - 1) >> 1
    s.frontier[at] = slot


@kernel
def _next_slot(w: World, s: State) -> int:
    """Take the first slot off the frontier."""
    first = s.frontier[0]
    size = s.count.frontier_size - 1
    s.count.frontier_size = size
    slot = s.frontier[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _sooner_slot(w, s, s.frontier[child + 1], s.frontier[child]):
            child += 1
        if not _sooner_slot(w, s, s.frontier[child], slot):
            break
        s.frontier[at] = s.frontier[child]
        at = child
    s.frontier[at] = slot
    return first


@inline
def _is_later(s: State, key: float, j: int, slot: int) -> bool:
    """Whether a job has a greater key than the victim at a slot (ties: a greater index)."""
    return comes_before(s.victim_key[slot], s.victim_job[slot], key, j)


@kernel
def _note_victim(s: State, key: float, j: int) -> None:
    at = s.count.num_victims
    s.count.num_victims = at + 1
    while at > 0 and _is_later(s, key, j, (at - 1) >> 1):
        s.victim_key[at] = s.victim_key[(at - 1) >> 1]
        s.victim_job[at] = s.victim_job[(at - 1) >> 1]
        at = (at - 1) >> 1
    s.victim_key[at] = key
    s.victim_job[at] = j


@kernel
def _first_victim(s: State) -> int:
    """Take the noted victim with the greatest key."""
    first = s.victim_job[0]
    size = s.count.num_victims - 1
    s.count.num_victims = size
    key = s.victim_key[size]
    j = s.victim_job[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_later(s, s.victim_key[child + 1], s.victim_job[child + 1], child):
            child += 1
        if not comes_before(key, j, s.victim_key[child], s.victim_job[child]):
            break
        s.victim_key[at] = s.victim_key[child]
        s.victim_job[at] = s.victim_job[child]
        at = child
    s.victim_key[at] = key
    s.victim_job[at] = j
    return first


@inline
def _must_look_further(w: World, s: State) -> bool:
    """Whether somebody on the frontier may come before the first of the noted victims."""
    if s.count.num_victims == 0:
        return True
    slot = s.frontier[0]
    key = s.victim_key[0]
    if w.policy.preemption_key == preemption.BY_REMAINING:
        return bound_exceeds(w, s, slot, key)
    base = w.sizes.num_jobs
    return comes_before(key, s.victim_job[0], -s.heap_key[base + slot], s.heap_job[base + slot])


@kernel
def begin_search(w: World, s: State) -> None:
    s.count.frontier_size = 0
    s.count.num_victims = 0
    _look_at_later(w, s, 0)


@kernel
def next_victim(w: World, s: State, c: int, key: float) -> int:
    """The next running job that may be stopped for one of class c with this key, greatest key first; -1 if there is no other."""
    while s.count.frontier_size > 0 and _must_look_further(w, s):
        slot = _next_slot(w, s)
        if not bound_exceeds(w, s, slot, key):
            s.count.frontier_size = 0  # nor does any other there
            break
        _look_at_later(w, s, 2 * slot + 1)
        _look_at_later(w, s, 2 * slot + 2)
        j = s.heap_job[w.sizes.num_jobs + slot]
        its_key = running_key(w, s, j)
        same_queue = w.class_queue[w.job_class[j]] == w.class_queue[c]
        if its_key > key and same_queue and is_old_enough(w, s, j) and _stands_where(w, s, j, c):
            if may_be_stopped(w, s, j):
                _note_victim(s, its_key, j)
            elif has_just_started(s, j):
                s.count.num_spared += 1
    return _first_victim(s) if s.count.num_victims > 0 else -1
