"""Find the jobs to stop so that whole GPUs become free, from lists instead of by stopping running jobs one by one.

Victims are stopped in the same order for every job: greatest key first, ties by greatest index. Each node therefore has
a list of its GPUs in that order, free GPUs first. Once the job at position i (from 0) and all jobs before it are
stopped, i + 1 GPUs of the node are free. The k-th task of g GPUs fits on a node once the job at position k * g - 1 is
stopped. A gang of T tasks fits once the T-th of these jobs is stopped: this job is the *cut*.

Lists are rebuilt only for nodes that have changed, and only when they are read. They are sorted by one number per job,
its *turn* (`_turn`), so that vector instructions find the greatest of many nodes. Under `srtf` a turn may differ from
the key in the last digits. Where that could matter the answer is UNSURE, and the caller examines one job after the
other.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import preemption
from queuewise.sim.core.compilation import greater, inline, kernel, lowest_bit
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.preemption.keys import ROUNDING, bound_of, comes_before, running_key
from queuewise.sim.preemption.restart import has_just_started

MOST_TASKS = 8  # for larger gangs, examining one victim per task is faster than lists
NOT_ENOUGH, UNSURE = -1, -2
NOBODY = -1
BLOCK = 32  # nodes examined together


@inline
def _turn(w: World, s: State, j: int) -> float:
    """Position of running job j in the order of stopping: the greatest turn is stopped first.

    Keys are ranks (under BY_REMAINING: times), so adding the index makes the turns of jobs with equal keys distinct.
    """
    if w.policy.preemption_key == preemption.BY_REMAINING:
        return bound_of(w, s, j)
    return bound_of(w, s, j) * w.sizes.num_jobs + j


@inline
def _own_turn(w: World, s: State, key: float) -> float:
    """The turn that a running job's turn exceeds if and only if its key exceeds `key`."""
    if w.policy.preemption_key == preemption.BY_REMAINING:
        return key + s.clock.now
    return key * w.sizes.num_jobs + (w.sizes.num_jobs - 1)


@inline
def node_changed(w: World, s: State, n: int) -> None:
    if w.policy.lists_victims and not s.stale[n]:
        s.stale[n] = 1
        s.stale_nodes[s.count.num_stale] = n
        s.count.num_stale += 1


@inline
def job_left(w: World, s: State, j: int) -> None:
    """Mark the nodes of job j, which has ended or was stopped, as changed."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        node_changed(w, s, s.piece_node[k])


@inline
def _set_gpus(w: World, s: State, j: int, k: int, turn: float) -> None:
    """Record job j and its turn for the GPUs of its piece k."""
    rest = s.piece_gpus[k]
    while rest:
        at = s.piece_node[k] * w.sizes.gpu_stride + lowest_bit(rest)
        s.gpu_job[at] = j
        s.gpu_turn[at] = turn
        rest &= rest - 1


@inline
def _seat_pieces(w: World, s: State, j: int, turn: float) -> None:
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        node_changed(w, s, s.piece_node[k])
        _set_gpus(w, s, j, k, turn)


@kernel
def seat_job(w: World, s: State, j: int) -> None:
    """Record the GPUs of job j, which has started."""
    if w.policy.lists_victims:
        _seat_pieces(w, s, j, _turn(w, s, j))


@inline
def _move_up(w: World, s: State, n: int, old: float, turn: float) -> None:
    """Change a turn in the list of node n from `old` to `turn`, which is greater, and move its entries up."""
    nodes = w.sizes.num_nodes
    first = w.node_place[n]
    end = first + w.node_gpus[n] * nodes
    while first < end and s.list_turn[first] != old:
        first += nodes
    if first == end:  # the node is closed
        return
    j = s.list_job[first]
    at = first
    while at + nodes < end and s.list_turn[at + nodes] == old:
        at += nodes
    above = first - nodes
    while above >= 0 and s.list_turn[above] < turn:
        s.list_turn[at] = s.list_turn[above]
        s.list_job[at] = s.list_job[above]
        at -= nodes
        above -= nodes
    while at > above:
        s.list_turn[at] = turn
        s.list_job[at] = j
        at -= nodes


@kernel
def reseat_job(w: World, s: State, j: int) -> None:
    """Update the turn of running job j, whose key has changed."""
    if not w.policy.lists_victims:
        return
    turn = _turn(w, s, j)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        if not s.piece_gpus[k]:
            continue
        n = s.piece_node[k]
        old = s.gpu_turn[n * w.sizes.gpu_stride + lowest_bit(s.piece_gpus[k])]
        _set_gpus(w, s, j, k, turn)
        if turn < old:
            node_changed(w, s, n)
        elif not s.stale[n]:
            _move_up(w, s, n, old, turn)


@kernel
def _list_node(w: World, m: Machine, s: State, n: int) -> None:
    nodes = w.sizes.num_nodes
    gpus = n * w.sizes.gpu_stride
    end = w.node_place[n]
    for _ in range(m.free_gpus[n]):
        s.list_turn[end] = np.inf
        s.list_job[end] = NOBODY
        end += nodes
    for g in range(w.node_gpus[n]):
        if (m.free_mask[n] >> g) & 1:
            continue
        turn = -np.inf if m.closed[n] else s.gpu_turn[gpus + g]
        at = end
        while at >= nodes and s.list_turn[at - nodes] < turn:
            s.list_turn[at] = s.list_turn[at - nodes]
            s.list_job[at] = s.list_job[at - nodes]
            at -= nodes
        s.list_turn[at] = turn
        s.list_job[at] = s.gpu_job[gpus + g]
        end += nodes


@kernel
def _update_lists(w: World, m: Machine, s: State) -> None:
    for i in range(s.count.num_stale):
        n = s.stale_nodes[i]
        s.stale[n] = 0
        _list_node(w, m, s, n)
    s.count.num_stale = 0


@inline
def _greatest_turn(s: State, first: int, end: int) -> float:
    greatest = -np.inf
    for at in range(first, end):
        greatest = greater(greatest, s.list_turn[at])
    return greatest


@inline
def _note_task(s: State, tasks: int, turn: float, place: int) -> None:
    """Keep the `tasks` greatest turns in State.scratch, in order, and the places of their nodes in State.place_node."""
    i = tasks - 1
    while i > 0 and s.scratch[i - 1] < turn:
        s.scratch[i] = s.scratch[i - 1]
        s.place_node[i] = s.place_node[i - 1]
        i -= 1
    s.scratch[i] = turn
    s.place_node[i] = place


@kernel
def _find_cut(w: World, s: State, c: int) -> float:
    """The turn of the cut of class c.

    The turns and places of its tasks are left in State.scratch and State.place_node.
    """
    last = w.class_tasks[c] - 1
    per_task = w.class_gpus[c]
    nodes = w.sizes.num_nodes
    for i in range(last + 1):
        s.scratch[i] = -np.inf
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for row in range((per_task - 1) * nodes, w.pool_gpus[p] * nodes, per_task * nodes):
            found = False
            row_end = row + w.pool_first[p + 1]
            for block in range(row + w.pool_first[p], row_end, BLOCK):
                end = min(block + BLOCK, row_end)
                if _greatest_turn(s, block, end) > s.scratch[last]:
                    found = True
                    for at in range(block, end):
                        if s.list_turn[at] > s.scratch[last]:
                            _note_task(s, last + 1, s.list_turn[at], at - row)
            if last == 0 or not found:
                break  # turns do not increase further down the lists
    return s.scratch[last]


@inline
def _rounding_margin(w: World, s: State, cut: float) -> float:
    """How close a turn must be to the cut to leave open which of the two keys is greater."""
    if w.policy.preemption_key != preemption.BY_REMAINING or cut == -np.inf:
        return 0.0
    return 4.0 * ROUNDING * (abs(cut) + abs(s.clock.now))


@kernel
def _note_victim(w: World, s: State, number: int, j: int) -> int:
    """Insert job j into State.taken, greatest key first, unless it is already there. Returns the number of entries."""
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


@inline
def _note_place(s: State, number: int, place: int) -> int:
    """Append a place to State.scratch_nodes unless it is already there. Returns the number of entries."""
    for i in range(number):
        if s.scratch_nodes[i] == place:
            return number
    s.scratch_nodes[number] = place
    return number + 1


@kernel
def _note_places(w: World, s: State, c: int, cut: float, list_job: int) -> int:
    """List in State.scratch_nodes the places with room for a task of class c once all jobs up to the cut are stopped.

    Returns their number.
    """
    number = 0
    for i in range(w.class_tasks[c]):
        number = _note_place(s, number, s.place_node[i])
    first = (w.class_gpus[c] - 1) * w.sizes.num_nodes
    for k in range(s.first_piece[list_job], s.first_piece[list_job] + s.num_pieces[list_job]):  # the job of the cut may be on more nodes
        place = w.node_place[s.piece_node[k]]
        if s.list_turn[first + place] == cut and w.class_allows[c * w.sizes.num_pools + w.node_pool[s.piece_node[k]]]:
            number = _note_place(s, number, place)
    return number


@inline
def _places_from(w: World, s: State, c: int, turn: float) -> int:
    """How many places have room for a task of class c once all jobs with this turn or a greater one are stopped."""
    number = 0
    row = (w.class_gpus[c] - 1) * w.sizes.num_nodes
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for at in range(row + w.pool_first[p], row + w.pool_first[p + 1]):
            number += s.list_turn[at] >= turn
    return number


@kernel
def _list_victims(w: World, s: State, c: int, cut: float) -> int:
    """List the victims up to the cut in State.taken, from nodes that then have room for a task.

    Returns their number, or UNSURE.
    """
    nodes = w.sizes.num_nodes
    at = s.place_node[w.class_tasks[c] - 1]
    while s.list_turn[at] != cut:
        at += nodes
    list_job = s.list_job[at]
    margin = _rounding_margin(w, s, cut)
    places = _note_places(w, s, c, cut, list_job)
    if margin > 0.0 and _places_from(w, s, c, cut - margin) > places:
        return UNSURE
    number = 0
    for i in range(places):
        place = s.scratch_nodes[i]
        for at in range(place, place + w.node_gpus[w.pool_nodes[place]] * nodes, nodes):
            turn = s.list_turn[at]
            if turn < cut - margin:
                break
            j = s.list_job[at]
            if margin > 0.0 and j != list_job and abs(turn - cut) <= margin:
                return UNSURE
            if turn < np.inf:
                number = _note_victim(w, s, number, j)
    return number


@kernel
def _note_room(w: World, s: State, c: int, turn: float) -> None:
    """Record the room of class c (room.py): GPUs that are free or held by jobs with greater turns."""
    nodes = w.sizes.num_nodes
    stride = w.sizes.gpu_stride
    s.room_slots[c] = 0
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        first, end = w.pool_first[p], w.pool_first[p + 1]
        for place in range(first, end):
            s.room[c * nodes + place] = 0
        for row in range(0, w.pool_gpus[p] * nodes, nodes):
            for place in range(first, end):
                s.room[c * nodes + place] += s.list_turn[row + place] > turn
        for place in range(first, end):
            s.room_slots[c] += w.divide[s.room[c * nodes + place] * stride + w.class_gpus[c]]


@kernel
def _choose_among_all(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """As choose_from_lists, whenever the victims started."""
    _update_lists(w, m, s)
    cut = _find_cut(w, s, c)
    own = _own_turn(w, s, key)
    margin = _rounding_margin(w, s, cut)
    if cut > own + margin:
        return _list_victims(w, s, c, cut)
    if margin > 0.0 and cut >= own - margin:
        return UNSURE
    _note_room(w, s, c, own - _rounding_margin(w, s, own))
    s.room_key[c] = key  # the recorded room may be too large, but never too small
    return NOT_ENOUGH


@kernel
def _spare_newcomers(w: World, s: State, number: int, spared: int) -> int:
    """Let those of State.taken that have just started go last of all, and note them in State.victim_job; returns how many that are."""
    for i in range(number):
        if has_just_started(s, s.taken[i]):
            s.victim_job[spared] = s.taken[i]
            spared += 1
            _seat_pieces(w, s, s.taken[i], -np.inf)
    return spared


@kernel
def choose_from_lists(w: World, m: Machine, s: State, c: int, key: float) -> int:
    """List the jobs to stop for a job of class c with this key in State.taken, in order.

    Returns their number, NOT_ENOUGH or UNSURE. Victims on nodes that would still have no room for a task are omitted,
    because the placement does not use these nodes. A job that has just started is not a victim. That is rare, so only the
    chosen victims are checked.
    """
    number = _choose_among_all(w, m, s, c, key)
    before, spared = 0, _spare_newcomers(w, s, number, 0)
    while spared > before:
        number = _choose_among_all(w, m, s, c, key)
        before, spared = spared, _spare_newcomers(w, s, number, spared)
    for i in range(spared):
        _seat_pieces(w, s, s.victim_job[i], _turn(w, s, s.victim_job[i]))
    s.count.num_spared += spared
    if spared > 0:
        s.room_key[c] = np.inf  # there will be more room as soon as the clock has moved
    return number
