"""Whom to stop so that whole GPUs come free, read off lists instead of stopping running jobs one by one to see.

Victims go in one order for everybody: greatest key first, ties by greatest index. So each node has a list of its GPUs in that order, free
ones first: with the job at place i (from 0) gone, and all that go before it, i + 1 GPUs of the node are free. A node's k-th task of g GPUs
has room from the job at place k * g - 1 on, and a gang of T tasks has room from the T-th of these jobs on: the *cut*.

Lists are made anew only where something has changed, and only when somebody asks. They go by one number a job (`_turn`), so that the
greatest of many nodes is found several at a time. Under `srtf` that number may differ from the key in the last digits: where that could
matter the answer is UNSURE, and the caller looks at one job after the other.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim import preemption
from queuewise.sim.core.compilation import greater, inline, kernel, lowest_bit
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.preemption.keys import ROUNDING, bound_of, comes_before, running_key
from queuewise.sim.preemption.restart import has_just_started

MOST_TASKS = 8  # of gangs for which lists are quicker than looking at as many victims as there are tasks
NOT_ENOUGH, UNSURE = -1, -2
NOBODY = -1
BLOCK = 32  # nodes looked at together


@inline
def _turn(w: World, s: State, j: int) -> float:
    """When running job j would have to go: greatest first. Keys are ranks (times under BY_REMAINING), so jobs of equal keys differ."""
    if w.policy.preemption_key == preemption.BY_REMAINING:
        return bound_of(w, s, j)
    return bound_of(w, s, j) * w.sizes.num_jobs + j


@inline
def _own_turn(w: World, s: State, key: float) -> float:
    """What the turn of a running job must exceed if its key shall exceed this one."""
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
    """Job j has ended or was stopped."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        node_changed(w, s, s.piece_node[k])


@inline
def _seat(w: World, s: State, j: int, k: int, turn: float) -> None:
    """Note whose the GPUs of piece k are, and when job j, whose they are, would have to go."""
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
        _seat(w, s, j, k, turn)


@kernel
def seat_job(w: World, s: State, j: int) -> None:
    """Job j has started."""
    if w.policy.lists_victims:
        _seat_pieces(w, s, j, _turn(w, s, j))


@inline
def _move_up(w: World, s: State, n: int, old: float, turn: float) -> None:
    """Let the job of turn `old`, if it is in the list of node n, stand where `turn`, which is greater, belongs."""
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
    """Running job j has another key."""
    if not w.policy.lists_victims:
        return
    turn = _turn(w, s, j)
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        if not s.piece_gpus[k]:
            continue
        n = s.piece_node[k]
        old = s.gpu_turn[n * w.sizes.gpu_stride + lowest_bit(s.piece_gpus[k])]
        _seat(w, s, j, k, turn)
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
def _bring_up_to_date(w: World, m: Machine, s: State) -> None:
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
    """Keep the `tasks` greatest turns, in order, in State.scratch, and the places they are from in State.place_node."""
    i = tasks - 1
    while i > 0 and s.scratch[i - 1] < turn:
        s.scratch[i] = s.scratch[i - 1]
        s.place_node[i] = s.place_node[i - 1]
        i -= 1
    s.scratch[i] = turn
    s.place_node[i] = place


@kernel
def _find_cut(w: World, s: State, c: int) -> float:
    """The turn of the cut of class c; State.scratch and State.place_node hold the turns and places of its tasks."""
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
                break  # further down the lists turns are no greater
    return s.scratch[last]


@inline
def _doubt(w: World, s: State, cut: float) -> float:
    """How near to the cut a bound leaves open which of the keys is greater."""
    if w.policy.preemption_key != preemption.BY_REMAINING or cut == -np.inf:
        return 0.0
    return 4.0 * ROUNDING * (abs(cut) + abs(s.clock.now))


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


@inline
def _note_place(s: State, number: int, place: int) -> int:
    """Put a place into State.scratch_nodes unless it is there; returns how many there are."""
    for i in range(number):
        if s.scratch_nodes[i] == place:
            return number
    s.scratch_nodes[number] = place
    return number + 1


@kernel
def _note_places(w: World, s: State, c: int, cut: float, list_job: int) -> int:
    """List in State.scratch_nodes where class c would have room for a task if all up to the cut went; returns how many places there are."""
    number = 0
    for i in range(w.class_tasks[c]):
        number = _note_place(s, number, s.place_node[i])
    first = (w.class_gpus[c] - 1) * w.sizes.num_nodes
    for k in range(s.first_piece[list_job], s.first_piece[list_job] + s.num_pieces[list_job]):  # the cut may be at others of its nodes too
        place = w.node_place[s.piece_node[k]]
        if s.list_turn[first + place] == cut and w.class_allows[c * w.sizes.num_pools + w.node_pool[s.piece_node[k]]]:
            number = _note_place(s, number, place)
    return number


@inline
def _places_from(w: World, s: State, c: int, turn: float) -> int:
    """How many places have room for a task of class c if all with this turn or a greater one go."""
    number = 0
    row = (w.class_gpus[c] - 1) * w.sizes.num_nodes
    for pool in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[pool]
        for at in range(row + w.pool_first[p], row + w.pool_first[p + 1]):
            number += s.list_turn[at] >= turn
    return number


@kernel
def _list_victims(w: World, s: State, c: int, cut: float) -> int:
    """Put those who go, up to the cut, from nodes that then have room for a task into State.taken; returns their number."""
    nodes = w.sizes.num_nodes
    at = s.place_node[w.class_tasks[c] - 1]
    while s.list_turn[at] != cut:
        at += nodes
    list_job = s.list_job[at]
    doubt = _doubt(w, s, cut)
    places = _note_places(w, s, c, cut, list_job)
    if doubt > 0.0 and _places_from(w, s, c, cut - doubt) > places:
        return UNSURE
    number = 0
    for i in range(places):
        place = s.scratch_nodes[i]
        for at in range(place, place + w.node_gpus[w.pool_nodes[place]] * nodes, nodes):
            turn = s.list_turn[at]
            if turn < cut - doubt:
                break
            j = s.list_job[at]
            if doubt > 0.0 and j != list_job and abs(turn - cut) <= doubt:
                return UNSURE
            if turn < np.inf:
                number = _note_victim(w, s, number, j)
    return number


@kernel
def _note_room(w: World, s: State, c: int, turn: float) -> None:
    """Note the room of class c (room.py): what is free or held by jobs with greater turns."""
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
    _bring_up_to_date(w, m, s)
    cut = _find_cut(w, s, c)
    own = _own_turn(w, s, key)
    doubt = _doubt(w, s, cut)
    if cut > own + doubt:
        return _list_victims(w, s, c, cut)
    if doubt > 0.0 and cut >= own - doubt:
        return UNSURE
    _note_room(w, s, c, own - _doubt(w, s, own))
    s.room_key[c] = key  # the room may be more than there is, never less
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
    """List in State.taken whom to stop for a job of class c with this key, in order; returns their number, or NOT_ENOUGH, or UNSURE.

    Victims on nodes that would not have room for a task even so are left out: they do not matter to the placement. A job that has just
    started is no victim. That seldom matters, so it is looked for only among those who would have to go.
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
