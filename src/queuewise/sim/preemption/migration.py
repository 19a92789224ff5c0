"""Migration: empty one node for a blocked head, if enough resources are free but scattered over nodes."""

from __future__ import annotations

from queuewise.sim.conditions.outages import jobs_on_node
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.lifecycle import put_back, start_placed, stop_to_move, take_off
from queuewise.sim.core.machine import amount_for, close_node, free_for, free_primary, give, open_node, total_primary
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.restart import may_be_stopped

TRIED_NODES = 8  # at most, for one head


@inline
def _in_use(w: World, m: Machine, n: int) -> bool:
    return m.free_cpu[n] < w.node_cpu[n] or m.free_mem[n] < w.node_mem[n] or m.free_gpus[n] < w.node_gpus[n]


@kernel
def _next_node(w: World, m: Machine, c: int, last: int) -> int:
    """The node that follows `last` (-1: the first node) by used primary resource, least first, -1 if there is none.

    Only nodes that are in use and that class c allows count.
    """
    last_used = total_primary(w, c, last) - free_primary(w, m, c, last) if last >= 0 else -1
    best = -1
    best_used = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            if m.closed[n] or not _in_use(w, m, n):
                continue
            used = total_primary(w, c, n) - free_primary(w, m, c, n)
            if used < last_used or (used == last_used and n <= last):
                continue
            if best < 0 or used < best_used or (used == best_used and n < best):
                best = n
                best_used = used
    return best


@kernel
def _note_plan(w: World, s: State, at: int) -> int:
    """Write the placement in State.place_* to the unused part of the log, from `at` on.

    Returns the position after it.
    """
    for k in range(s.count.placed):
        s.piece_node[at + k] = s.place_node[k]
        s.piece_tasks[at + k] = s.place_tasks[k]
        s.piece_gpus[at + k] = s.place_gpus[k]
    return at + s.count.placed


@kernel
def _try_to_empty(w: World, m: Machine, s: State, n: int, head_class: int, number: int) -> bool:
    """Place the `number` jobs in State.victim_job elsewhere, and return whether the head then fits.

    If it does, the jobs are on the machine in their new places, which are written to the unused part of the log.
    victim_key holds the position at which each of them begins. Otherwise, nothing has changed.
    """
    for i in range(number):
        take_off(w, m, s, s.victim_job[i])
    close_node(w, m, n)
    at = s.count.pieces
    moved = 0
    while moved < number and place(w, m, s, w.job_class[s.victim_job[moved]]):
        s.victim_key[moved] = at
        at = _note_plan(w, s, at)
        moved += 1
    open_node(w, m, n)
    if moved == number and fits(w, m, s, head_class):
        s.victim_key[number] = at
        return True
    for i in range(moved - 1, -1, -1):
        end = at
        at = int(s.victim_key[i])
        for k in range(at, end):
            give(w, m, w.job_class[s.victim_job[i]], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
    for i in range(number):
        put_back(w, m, s, s.victim_job[i])
    return False


@kernel
def _migrate(w: World, m: Machine, s: State, number: int) -> None:
    """Let the jobs in State.victim_job continue where _try_to_empty has placed them."""
    for i in range(number):
        j = s.victim_job[i]
        first = int(s.victim_key[i])
        s.count.placed = int(s.victim_key[i + 1]) - first
        for k in range(s.count.placed):
            s.place_node[k] = s.piece_node[first + k]
            s.place_tasks[k] = s.piece_tasks[first + k]
            s.place_gpus[k] = s.piece_gpus[first + k]
        stop_to_move(w, s, j)
        start_placed(w, s, j, runtime_factor(w, s, w.job_class[j]))


@kernel
def make_room_by_migration(w: World, m: Machine, s: State, head: int) -> bool:
    """Empty a node so that the blocked head fits. If this sets Counts.log_full, the caller must leave the pass."""
    c = w.job_class[head]
    if amount_for(w, c, c) > free_for(w, m, c):
        return False
    n = -1
    for _ in range(TRIED_NODES):
        n = _next_node(w, m, c, n)
        if n < 0:
            return False
        number = jobs_on_node(s, n)
        all_may = True
        for i in range(number):
            all_may = all_may and may_be_stopped(w, s, s.victim_job[i])
        if not all_may:
            continue
        if s.count.pieces + w.sizes.most_pieces * (number + s.count.pending_jobs) > w.sizes.log_size:
            s.count.log_full = 1
            return False
        if _try_to_empty(w, m, s, n, c, number):
            _migrate(w, m, s, number)
            return True
    return False
