"""Whom to stop so that whole GPUs come free, read off lists instead of stopping running jobs one by one to see.

Victims go in one order for everybody: greatest key first, ties by greatest index. So each node has a list of its GPUs in that order, free
ones first: with the job at place i (from 0) gone, and all that go before it, i + 1 GPUs of the node are free. A node's k-th task of g GPUs
has room from the job at place k * g - 1 on, and a gang of T tasks has room from the T-th of these jobs on: the *cut*.

Lists are made anew only where something has changed, and only when somebody asks. They go by the bounds of keys.py, which under `srtf` may
differ from the keys in the last digits: where that could matter the answer is UNSURE, and the caller looks at one job after the other.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.keys import ROUNDING, bound_of, comes_before, running_key
from queuewise.sim.machine import WHOLE
from queuewise.sim.state import BY_REMAINING, CUTS, GPU_STRIDE, KEYS, NOW, NUM_NODES, STALE, Machine, State, World

MOST_TASKS = 8  # of gangs for which lists are quicker than looking at as many victims as there are tasks
NOT_ENOUGH, UNSURE = -1, -2
NOBODY = -1


@inline
def node_changed(w: World, s: State, n: int) -> None:
    if w.policy[CUTS] and not s.stale[n]:
        s.stale[n] = 1
        s.stale_nodes[s.count[STALE]] = n
        s.count[STALE] += 1


@inline
def job_changed(w: World, s: State, j: int) -> None:
    """Job j has ended, was stopped, or has another key."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        node_changed(w, s, s.piece_node[k])


@kernel
def seat_job(w: World, s: State, j: int) -> None:
    """Job j has started: note whose its GPUs are."""
    if not w.policy[CUTS]:
        return
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        node_changed(w, s, n)
        rest = s.piece_gpus[k]
        at = n * w.sizes[GPU_STRIDE]
        while rest:
            if rest & 1:
                s.gpu_job[at] = j
            rest >>= 1
            at += 1


@kernel
def _list_node(w: World, m: Machine, s: State, n: int) -> None:
    nodes = w.sizes[NUM_NODES]
    place = w.node_place[n]
    for g in range(w.node_gpus[n]):
        key = -np.inf
        j = NOBODY
        if (m.free_mask[n] >> g) & 1:
            key = np.inf
        elif not m.closed[n]:
            j = s.gpu_job[n * w.sizes[GPU_STRIDE] + g]
            key = bound_of(w, s, j)
        i = g
        while i > 0 and comes_before(s.cut_key[(i - 1) * nodes + place], s.cut_job[(i - 1) * nodes + place], key, j):
            s.cut_key[i * nodes + place] = s.cut_key[(i - 1) * nodes + place]
            s.cut_job[i * nodes + place] = s.cut_job[(i - 1) * nodes + place]
            i -= 1
        s.cut_key[i * nodes + place] = key
        s.cut_job[i * nodes + place] = j


@kernel
def _bring_up_to_date(w: World, m: Machine, s: State) -> None:
    for i in range(s.count[STALE]):
        n = s.stale_nodes[i]
        s.stale[n] = 0
        _list_node(w, m, s, n)
    s.count[STALE] = 0


@kernel
def _find_cut(w: World, s: State, c: int) -> None:
    """Leave the cut of class c in State.scratch and State.place_node, at the place of its last task; before it, those of its others."""
    tasks = w.class_tasks[c]
    per_task = w.class_gpus[c]
    nodes = w.sizes[NUM_NODES]
    last = tasks - 1
    for i in range(tasks):
        s.scratch[i] = -np.inf
        s.place_node[i] = NOBODY
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for place in range(w.pool_first[p], w.pool_first[p + 1]):
            for step in range(per_task - 1, w.pool_gpus[p], per_task):
                key = s.cut_key[step * nodes + place]
                if key < s.scratch[last]:
                    break  # nor do those after it come sooner
                j = s.cut_job[step * nodes + place]
                i = tasks
                while i > 0 and comes_before(s.scratch[i - 1], s.place_node[i - 1], key, j):
                    i -= 1
                for to in range(last, i, -1):
                    s.scratch[to] = s.scratch[to - 1]
                    s.place_node[to] = s.place_node[to - 1]
                if i < tasks:
                    s.scratch[i] = key
                    s.place_node[i] = j


@inline
def _doubt(w: World, s: State, cut: float) -> float:
    """How near to the cut a bound leaves open which of the keys is greater."""
    if w.policy[KEYS] != BY_REMAINING or cut == -np.inf:
        return 0.0
    return 4.0 * ROUNDING * (abs(cut) + abs(s.clock[NOW]))


@kernel
def _note_victim(w: World, s: State, number: int, j: int) -> int:
    """Put job j into State.taken, greatest key first, unless it is there; returns how many there are."""
    for i in range(number):
        if s.taken[i] == j:
            return number
    key = running_key(w, s, j)
    i = number
    while i > 0 and comes_before(running_key(w, s, s.taken[i - 1]), s.taken[i - 1], key, j):
        s.taken[i] = s.taken[i - 1]
        i -= 1
    s.taken[i] = j
    return number + 1


@kernel
def _list_victims(w: World, s: State, c: int, cut: float, cut_job: int) -> int:
    """Put those who go, up to the cut, from nodes that then have room for a task into State.taken; returns their number."""
    nodes = w.sizes[NUM_NODES]
    doubt = _doubt(w, s, cut)
    first = (w.class_gpus[c] - 1) * nodes
    number = 0
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for place in range(w.pool_first[p], w.pool_first[p + 1]):
            if s.cut_key[first + place] < cut - doubt:
                continue
            chosen = not comes_before(s.cut_key[first + place], s.cut_job[first + place], cut, cut_job)
            for i in range(w.pool_gpus[p]):
                key = s.cut_key[i * nodes + place]
                j = s.cut_job[i * nodes + place]
                if doubt > 0.0 and j != cut_job and abs(key - cut) <= doubt:
                    return UNSURE
                if not chosen or comes_before(key, j, cut, cut_job):
                    continue
                if key < np.inf:
                    number = _note_victim(w, s, number, j)
    return number


@kernel
def _note_room(w: World, s: State, c: int, key: float) -> None:
    """Note the room of class c (room.py): what is free or held by jobs with greater keys."""
    nodes = w.sizes[NUM_NODES]
    s.room_slots[c] = 0
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for place in range(w.pool_first[p], w.pool_first[p + 1]):
            gpus = 0
            while gpus < w.pool_gpus[p] and s.cut_key[gpus * nodes + place] > key:
                gpus += 1
            s.room[c * nodes + w.pool_nodes[place]] = gpus * WHOLE
            s.room_slots[c] += gpus // w.class_gpus[c]


@kernel
def choose_by_cut(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """List in State.taken whom to stop for a job of class c with this key, in order; returns their number, or NOT_ENOUGH, or UNSURE.

    Victims on nodes that would not have room for a task even so are left out: they do not matter to the placement.
    """
    _bring_up_to_date(w, m, s)
    _find_cut(w, s, c)
    cut = s.scratch[w.class_tasks[c] - 1]
    cut_job = s.place_node[w.class_tasks[c] - 1]
    own = key + s.clock[NOW] if w.policy[KEYS] == BY_REMAINING else key
    doubt = _doubt(w, s, cut)
    if cut > own + doubt:
        return _list_victims(w, s, c, cut, cut_job)
    if doubt > 0.0 and cut >= own - doubt:
        return UNSURE
    _note_room(w, s, c, own - _doubt(w, s, own))
    s.room_key[c] = key  # the room may be more than there is, never less
    return NOT_ENOUGH
