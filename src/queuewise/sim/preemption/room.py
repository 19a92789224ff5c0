"""How much room a class could have at most, so that a class that cannot start is not tried again and again.

When the first job of class c, with key k, could not start even in the place of all running jobs with greater keys, `room` holds for each
node (by its place) how much of the class's primary resource is free or held by those jobs (where only whole GPUs matter: how many of
these), `room_slots` how many tasks that would be, and `room_key` is k.
From then on both are kept at or above the truth while jobs start, end and change their keys. As long as room_slots is below the gang's
size, no job of the class with a key of at least k can start, and looking at one number says so. room_key = inf: nothing is known.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import placement
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import free_primary, total_primary
from queuewise.sim.core.state import Machine, State, World


@inline
def _units(w: World, held: int, c: int) -> int:
    """How much of what counts for class c a task of class `held` takes."""
    if w.class_by_pool[c]:
        return w.class_gpus[held]
    if w.class_primary[c] == placement.BY_GPU:
        return w.class_milli[held]
    if w.class_primary[c] == placement.BY_CPU:
        return w.class_cpu[held]
    return w.class_mem[held]


@inline
def _slots_in(w: World, c: int, amount: int) -> int:
    if w.class_by_pool[c]:
        return w.divide[amount * w.sizes.gpu_stride + w.class_gpus[c]]
    return amount // _units(w, c, c)


@inline
def _add_room(w: World, s: State, c: int, n: int, amount: int) -> None:
    """Note that so much more (or less) may be used on node n by class c, if it allows the node."""
    if not w.class_allows[c * w.sizes.num_pools + w.node_pool[n]]:
        return
    at = c * w.sizes.num_nodes + w.node_place[n]
    old = s.room[at]
    new = min(old + amount, w.node_gpus[n] if w.class_by_pool[c] else total_primary(w, c, n))
    more = _slots_in(w, c, new) - _slots_in(w, c, old)  # before anything is written: the compiler then need not read all again
    s.room[at] = new
    s.room_slots[c] += more


@kernel
def _change_rooms(w: World, s: State, j: int, sign: int, above: float, up_to: float) -> None:
    """Add what job j holds to the room of classes (sign 1) or take it (sign -1): those with above <= room_key < up_to."""
    held = w.job_class[j]
    q = w.class_queue[held]
    first, end = s.queue_first[q], s.queue_first[q] + s.queue_active[q]
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        tasks = sign * s.piece_tasks[k]
        for slot in range(first, end):
            c = s.active[slot]
            if above <= s.room_key[c] < up_to:  # not where nothing is known
                _add_room(w, s, c, n, tasks * _units(w, held, c))


@inline
def room_taken(w: World, s: State, j: int, key: float) -> None:
    """Job j has started: what it holds is lost to the jobs that come later."""
    _change_rooms(w, s, j, -1, key, np.inf)


@inline
def room_released(w: World, s: State, j: int) -> None:
    """Job j has ended."""
    _change_rooms(w, s, j, 1, -np.inf, np.inf)


@inline
def room_vacated(w: World, s: State, j: int, key: float) -> None:
    """Job j, whose key it is, was stopped: those who come before it have counted on that already."""
    _change_rooms(w, s, j, 1, key, np.inf)


@inline
def room_offered(w: World, s: State, j: int, old_key: float, new_key: float) -> None:
    """The key of running job j has grown: who comes between may take its place now."""
    _change_rooms(w, s, j, 1, old_key, new_key)


@kernel
def forget_rooms(w: World, s: State) -> None:
    """Let nothing be known of any class."""
    for c in range(w.sizes.num_classes):
        s.room_key[c] = np.inf


@kernel
def count_free_room(w: World, m: Machine, s: State, c: int, key: float) -> None:
    """Begin again with what is free."""
    s.room_key[c] = key
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            free = m.free_gpus[n] if w.class_by_pool[c] else free_primary(w, m, c, n)
            s.room[c * w.sizes.num_nodes + k] = free
            total += _slots_in(w, c, free)
    s.room_slots[c] = total


@kernel
def count_held_room(w: World, s: State, c: int, j: int) -> None:
    """Count what running job j holds as room for class c."""
    units = _units(w, w.job_class[j], c)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        _add_room(w, s, c, s.piece_node[k], s.piece_tasks[k] * units)


@inline
def lacks_room(w: World, s: State, c: int, key: float) -> bool:
    """Whether no job of class c with this key can start, as far as is known."""
    return key >= s.room_key[c] and s.room_slots[c] < w.class_tasks[c]
