"""Who holds which nodes and GPUs, and until when, as observations show it: expected free times and loads of nodes.

Observations must not reveal true runtimes, so every time here is an expected end, computed from estimates. A *unit* is
one GPU, or one node of a cluster without GPUs.
"""

from __future__ import annotations

from queuewise.envs import columns
from queuewise.envs.columns import EpisodeState, Task
from queuewise.sim import placement
from queuewise.sim.core.compilation import inline, kernel, lowest_bit
from queuewise.sim.core.state import Machine, State, World


@inline
def _free_amount(m: Machine, resource: int, n: int) -> float:
    if resource == placement.BY_GPU:
        return float(m.free_milli[n])
    if resource == placement.BY_CPU:
        return float(m.free_cpu[n])
    return float(m.free_mem[n])


@inline
def touch(p: EpisodeState, n: int) -> None:
    """Mark node n as changed by more than the passing of time."""
    p.touched[n // columns.TOUCHED_BITS] |= 1 << (n % columns.TOUCHED_BITS)


@inline
def update_load(m: Machine, k: Task, p: EpisodeState, n: int) -> float:
    """Update the load of the node and return it. A node that is down or drained counts as idle."""
    touch(p, n)
    if k.node_amount[n] == 0.0:
        return 0.0
    load = 0.0 if m.closed[n] else 1.0 - _free_amount(m, k.config.resource, n) / k.node_amount[n]
    old = p.node_load[n]
    p.value.load_sum += load - old
    p.value.load_squares += load * load - old * old
    p.node_load[n] = load
    return load


@kernel
def _move_units(k: Task, p: EpisodeState, old: float, new: float, number: int) -> None:
    """Change `number` of the sorted times from `old` to `new`: move the gap that they leave to their new position."""
    free = p.count.free_units
    gap = free - number
    if old > columns.FREE:
        gap = free
        while p.unit_sorted[gap] < old:
            gap += 1
    if new > old:
        last = k.config.units - number
        while gap < last and p.unit_sorted[gap + number] < new:
            p.unit_sorted[gap] = p.unit_sorted[gap + number]
            gap += 1
    else:
        while gap > free and p.unit_sorted[gap - 1] > new:
            gap -= 1
            p.unit_sorted[gap + number] = p.unit_sorted[gap]
    for unit in range(gap, gap + number):
        p.unit_sorted[unit] = new
    p.count.free_units = free + number * (int(new == columns.FREE) - int(old == columns.FREE))


@inline
def _set_unit(k: Task, p: EpisodeState, unit: int, until: float) -> None:
    """Set the time until which the unit is held, also among the sorted times."""
    old = p.unit_until[unit]
    p.unit_until[unit] = until
    if k.config.lookahead == columns.SORTED and old != until:
        _move_units(k, p, old, until, 1)


@inline
def _set_whole_gpus(s: State, k: Task, p: EpisodeState, piece: int, old: float, until: float) -> None:
    """Do the same for all GPUs of a piece that does not share them."""
    first = k.unit_first[s.piece_node[piece]]
    gpus = s.piece_gpus[piece]
    number = 0
    while gpus:
        p.unit_until[first + lowest_bit(gpus)] = until
        gpus &= gpus - 1
        number += 1
    if k.config.lookahead == columns.SORTED:
        _move_units(k, p, old, until, number)


@kernel
def _latest_end(s: State, p: EpisodeState, n: int, gpus: int) -> float:
    """The latest expected end on node n, columns.FREE if there is none.

    If `gpus` is not 0, only pieces that use one of them count.
    """
    latest = columns.FREE
    for i in range(p.count.on_machine):
        j = p.running[i]
        if s.expected[j] <= latest:
            continue
        for piece in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            if s.piece_node[piece] == n and (gpus == 0 or s.piece_gpus[piece] & gpus):
                latest = s.expected[j]
                break
    return latest


@inline
def hold_piece(w: World, s: State, k: Task, p: EpisodeState, piece: int, c: int, old: float, until: float) -> None:
    """Let a piece that was held until `old` (columns.FREE: not at all) be held until a later time."""
    n = s.piece_node[piece]
    p.node_until[n] = max(p.node_until[n], until)
    if k.config.resource != placement.BY_GPU:
        _set_unit(k, p, k.unit_first[n], p.node_until[n])
    elif w.class_gpus[c] > 0:
        _set_whole_gpus(s, k, p, piece, old, until)
    elif w.class_milli[c] > 0:
        unit = k.unit_first[n] + lowest_bit(s.piece_gpus[piece])
        _set_unit(k, p, unit, max(p.unit_until[unit], until))


@kernel
def _node_until(w: World, s: State, k: Task, p: EpisodeState, n: int) -> float:
    """The latest expected end on node n. It follows from the units, unless jobs without GPUs are running."""
    if k.config.resource != placement.BY_GPU or p.count.without_gpu > 0:
        return _latest_end(s, p, n, 0)
    latest = columns.FREE
    for unit in range(k.unit_first[n], k.unit_first[n + 1]):
        latest = max(latest, p.unit_until[unit])
    return latest


@inline
def release_piece(w: World, s: State, k: Task, p: EpisodeState, piece: int, c: int, until: float) -> None:
    n = s.piece_node[piece]
    if k.config.resource == placement.BY_GPU:
        if w.class_gpus[c] > 0:
            _set_whole_gpus(s, k, p, piece, until, columns.FREE)
        elif w.class_milli[c] > 0:
            gpus = s.piece_gpus[piece]
            _set_unit(k, p, k.unit_first[n] + lowest_bit(gpus), _latest_end(s, p, n, gpus))
    if p.node_until[n] == until:
        p.node_until[n] = _node_until(w, s, k, p, n)
    if k.config.resource != placement.BY_GPU:
        _set_unit(k, p, k.unit_first[n], p.node_until[n])


@kernel
def reset_occupancy(w: World, k: Task, p: EpisodeState) -> None:
    """Mark everything as free and set all loads to zero: the cluster is empty."""
    for n in range(w.sizes.num_nodes):
        p.node_until[n] = columns.FREE
        p.node_load[n] = 0.0
    for unit in range(k.config.units):
        p.unit_until[unit] = columns.FREE
    if k.config.lookahead == columns.SORTED:
        for unit in range(k.config.units):
            p.unit_sorted[unit] = columns.FREE
    p.count.free_units = k.config.units
    p.value.usage_sum = 0.0
