"""Where a job goes: the placement rules.

`place` puts a gang on a machine node by node and leaves the pieces in State.place_*; `unplace` takes it off again. Every rule is a key,
least first, ties to the lowest node. For classes answered by the pool index, the lowest node of each bucket stands for all nodes of the
bucket (their keys are equal), so a choice costs a handful of comparisons however many nodes there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from queuewise.sim import placement
from queuewise.sim.conditions.power_cap import is_over_cap
from queuewise.sim.conditions.sleeping import is_asleep, tie_break
from queuewise.sim.core.compilation import caller_by_address, caller_of_c, inline, kernel, noinline
from queuewise.sim.core.machine import WHOLE, free_primary, free_slots, has_room, lowest_in_bucket, slots, total_primary
from queuewise.sim.core.pieces import class_as_placed, group_by_node, nodes_used, put_tasks, unplace
from queuewise.sim.core.rules import NODE_SCORING_SIGNATURE
from queuewise.sim.core.state import NO_LIMIT, Machine, State, World
from queuewise.sim.core.table_types import address_of_table, view
from queuewise.sim.placement.fgd import place_least_fragmenting
from queuewise.sim.placement.tiers import place_by_tier
from queuewise.sim.queue import PARAMS_SIZE


@inline
def mix(x: Any) -> Any:
    """One step of the SplitMix64 generator."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inline
def _task_watts(w: World, c: int, n: int) -> float:
    return w.class_milli[c] / 1000 * w.node_gpu_watts[n] + w.class_cpu[c] / 1000 * w.node_core_watts[n]


@inline
def _rule_key(w: World, m: Machine, rule: int, c: int, n: int) -> float:
    """What the rule looks at before it packs."""
    if rule == placement.SPREAD:
        total = total_primary(w, c, n)
        return (total - free_primary(w, m, c, n)) / total
    speed = w.node_speed[n] if w.class_milli[c] > 0 else 1.0
    if rule == placement.FASTEST:
        return -speed
    if rule == placement.CHEAPEST:
        return _task_watts(w, c, n) / speed
    return 0.0


@inline
def _kind_of(w: World, p: int) -> int:
    """The GPU kind of a pool's nodes."""
    return w.node_kind[w.pool_nodes[w.pool_first[p]]]


@kernel
def _has_room_on(w: World, m: Machine, c: int, kind: int) -> bool:
    """Whether nodes of one GPU kind hold the gang."""
    left = w.class_tasks[c]
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        if _kind_of(w, p) == kind:
            for k in range(w.pool_first[p], w.pool_first[p + 1]):
                left -= slots(w, m, c, w.pool_nodes[k])
                if left <= 0:
                    return True
    return False


@noinline
def _cheapest_kind(w: World, m: Machine, c: int) -> int:
    """The GPU kind that uses the least energy of those that hold the whole gang, -1 if none does.

    A gang runs at the speed of its slowest kind, so mixing kinds makes the faster ones wait under power.
    """
    best = -1
    best_key = 0.0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        n = w.pool_nodes[w.pool_first[w.class_pools[i]]]
        key = w.node_gpu_watts[n] / w.node_speed[n]
        if (best < 0 or key < best_key) and _has_room_on(w, m, c, w.node_kind[n]):
            best = w.node_kind[n]
            best_key = key
    return best


@kernel
def _choose(w: World, s: State, m: Machine, rule: int, c: int, remaining: int) -> int:
    """The node that the next tasks go to; there is one with room."""
    packs = rule in (placement.PACK, placement.FASTEST, placement.CHEAPEST)
    best = -1
    best_tie = 0
    best_key = 0.0
    best_fill = 0
    best_free = 0
    by_pool = w.class_by_pool[c]
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        if s.count.only_kind > 0 and _kind_of(w, p) != s.count.only_kind - 1:
            continue
        first = w.class_gpus[c] if by_pool else w.pool_first[p]
        last = w.pool_gpus[p] + 1 if by_pool else w.pool_first[p + 1]
        for k in range(first, last):
            if by_pool:
                if m.bucket[p * w.sizes.gpu_stride + k] == 0:
                    continue
                n = lowest_in_bucket(w, m, p, k)
                tie = n
                room = w.divide[k * w.sizes.gpu_stride + w.class_gpus[c]]
            else:
                n = w.pool_nodes[k]
                room = slots(w, m, c, n)
                if room == 0:
                    continue
                tie = n if rule == placement.FIRST else tie_break(w, s, n)
            key = _rule_key(w, m, rule, c, n)
            fill = -min(room, remaining) if packs else 0
            free = free_primary(w, m, c, n) if packs else 0
            if best < 0 or (
                key < best_key
                or (
                    key == best_key
                    and (fill < best_fill or (fill == best_fill and (free < best_free or (free == best_free and tie < best_tie))))
                )
            ):
                best = n
                best_tie = tie
                best_key = key
                best_fill = fill
                best_free = free
    return best


@noinline
def _choose_random(w: World, s: State, m: Machine, c: int, draw: int) -> int:
    """A node with room, drawn uniformly: scans, because every node counts once."""
    allowed = s.scratch_nodes
    number = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            if slots(w, m, c, n) > 0:
                allowed[number] = n
                number += 1
    u = mix(mix(w.policy.seed ^ np.int64(mix(s.count.starts))) + np.uint64(draw))
    chosen = view(allowed, number)
    if w.class_pool_first[c + 1] - w.class_pool_first[c] > 1:
        chosen.sort()
    return chosen[np.int64(u % np.uint64(number))]


_score_nodes = caller_by_address(NODE_SCORING_SIGNATURE)


@inline
def _describe_node(w: World, s: State, m: Machine, node, n: int, room: int) -> None:  # type: ignore[no-untyped-def]
    """Bring up to date what a scoring function is told of node n."""
    node.free_gpus = m.free_milli[n] / WHOLE
    node.whole_gpus = m.free_gpus[n]
    node.free_cores = m.free_cpu[n] / 1000 if node.cores < np.inf else np.inf
    node.free_mem_mib = m.free_mem[n] if node.mem_mib < np.inf else np.inf
    node.slots = room
    node.asleep = 1.0 if w.policy.nodes_sleep and is_asleep(w, s, n) else 0.0


@kernel
def _choose_by_score(w: World, s: State, m: Machine, c: int, remaining: int) -> int:
    """The node with the least score; scans, because a function may tell any two nodes apart."""
    facts = view(s.node_facts, w.sizes.num_nodes)
    number = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            room = slots(w, m, c, n)
            if room > 0:
                _describe_node(w, s, m, facts[n], n, room)
                s.scratch_nodes[number] = n
                number += 1
    s.demand[placement.NUM_TASKS] = w.class_tasks[c]
    s.demand[placement.REMAINING] = remaining
    s.demand[placement.TASK_GPUS] = w.class_milli[c] / WHOLE
    s.demand[placement.TASK_CPUS] = w.class_cpu[c] / 1000
    s.demand[placement.TASK_MEM_MIB] = w.class_mem[c]
    nodes = view(s.scratch_nodes, number)
    s.count.user_calls += 1
    demand, params = view(s.demand, placement.DEMAND_SIZE), view(w.node_params, PARAMS_SIZE)
    _score_nodes(w.policy.node_scorer, facts, nodes, number, demand, params, view(s.node_score, number))
    s.count.user_calls += 1
    best = 0
    for i in range(1, number):
        score, least = s.node_score[i], s.node_score[best]
        if score < least or (score == least and tie_break(w, s, s.scratch_nodes[i]) < tie_break(w, s, s.scratch_nodes[best])):
            best = i
    return s.scratch_nodes[best]


@inline
def _next_node(w: World, s: State, m: Machine, rule: int, c: int, remaining: int, draw: int) -> int:
    if rule == placement.RANDOM:
        return _choose_random(w, s, m, c, draw)
    if w.policy.node_scorer and rule == placement.BY_SCORE:
        return _choose_by_score(w, s, m, c, remaining)
    return _choose(w, s, m, rule, c, remaining)


_call_solver = caller_of_c(5)


@noinline
def _ask_solver(w: World, m: Machine, s: State, c: int) -> bool:
    """Let the solver of the policy place a gang that fits. It gives up, and changes nothing, if its work is limited."""
    tables = address_of_table(w), address_of_table(m), address_of_table(s)
    return _call_solver(w.policy.solver, w.policy.solver_number, tables[0], tables[1], tables[2], c) != 0


@inline
def place(w: World, m: Machine, s: State, c: int) -> bool:
    """Put a gang of class c on machine m by the policy's rule, or leave m as it was and return False.

    An elastic job gets as many tasks as find a place.
    """
    return place_one_of(w, m, s, c, c + w.class_span[c])


@kernel
def place_one_of(w: World, m: Machine, s: State, least: int, greatest: int) -> bool:
    """The same for the first class, from the greatest number of tasks down to the least, that finds a place."""
    c = greatest
    while True:
        placed = place_by_rule(w, m, s, c)
        if placed and is_over_cap(w, m):
            unplace(w, m, s, c)
            placed = False
        if placed or c == least:
            return placed
        c -= 1


@kernel
def place_by_rule(w: World, m: Machine, s: State, c: int) -> bool:
    """The same for class c alone, whatever it draws."""
    s.count.placed = 0
    rule = w.policy.placement
    if w.policy.placement == placement.TIER:
        return place_by_tier(w, m, s, c)
    if not has_room(w, m, c):
        return False
    if w.policy.placement == placement.BY_SOLVER:
        if _ask_solver(w, m, s, c) or place_by_tier(w, m, s, c):
            return True
        rule = placement.PACK
    if w.policy.placement == placement.FGD:
        place_least_fragmenting(w, m, s, c)
        return True
    s.count.only_kind = 0
    if rule == placement.CHEAPEST and w.class_milli[c] > 0:
        kind = _cheapest_kind(w, m, c)
        if kind < 0:
            rule = placement.FASTEST  # the slowest of mixed kinds is as fast as possible
        else:
            s.count.only_kind = kind + 1
    remaining = w.class_tasks[c]
    draw = 0
    while remaining > 0:
        n = _next_node(w, s, m, rule, c, remaining, draw)
        tasks = 1 if rule == placement.SPREAD else min(remaining, free_slots(w, m, c, n))
        put_tasks(w, m, s, c, n, tasks, rule == placement.SPREAD)
        remaining -= tasks
        draw += 1
    if rule == placement.SPREAD:
        group_by_node(w, s, c)
    if w.policy.placement_option != NO_LIMIT and nodes_used(s) > w.class_min_nodes[c] + w.policy.placement_option:
        unplace(w, m, s, c)
        return False
    return True


@kernel
def fits(w: World, m: Machine, s: State, c: int) -> bool:
    """Whether the rule finds a place for class c on machine m, which is left unchanged."""
    if not w.policy.room_is_not_enough:
        return has_room(w, m, c)
    if not place(w, m, s, c):
        return False
    unplace(w, m, s, c)
    return True


@kernel
def might_have_room(w: World, m: Machine, c: int) -> bool:
    """Whether a gang of class c, an elastic one in any size, fits, before any wish of the rule. (With fewer tasks it may be blocked.)"""
    size = c + (w.class_span[c] if w.policy.has_reservations else 0)
    while size > c and not has_room(w, m, size):
        size -= 1
    return has_room(w, m, size)


@kernel
def runtime_factor(w: World, s: State, c: int) -> float:
    """The factor of the placement in State.place_*: slowest kind, spread penalties, and the number of tasks of an elastic job."""
    if w.sizes.uniform_speed:
        return 1.0
    size = class_as_placed(w, s, c)
    slowest = np.inf
    number = nodes_used(s)
    racks = 0
    for k in range(s.count.placed):
        n = s.place_node[k]
        if w.class_milli[c] > 0:
            slowest = min(slowest, w.node_speed[n])
        seen = False
        for before in range(k):
            if w.node_rack[s.place_node[before]] == w.node_rack[n]:
                seen = True
                break
        if not seen:
            racks += 1
    penalty = 1.0
    if number > w.class_min_nodes[size]:
        penalty += w.penalty[0]
    if racks > (number + w.class_rack_nodes[c] - 1) // w.class_rack_nodes[c]:
        penalty += w.penalty[1]
    return (penalty / slowest if slowest < np.inf else penalty) * w.class_scale[size]
