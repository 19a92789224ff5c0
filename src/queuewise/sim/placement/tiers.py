"""Tiered placement after RLTune: on the fewest nodes, or on one node more if that does not raise fragmentation.

The option LOWEST (`tier1`) is its default: only the fewest nodes, and of these placements the lexicographically least.

The published code enumerates some placements and misses others. This module searches all placements of a tier by
dynamic programming over nodes. Fragmentation, waste and balance are sums over nodes, so for the last candidates it is
enough to know the best way to put a number of tasks on a number of nodes.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.compilation import inline, kernel, lowest_bit, noinline
from queuewise.sim.core.machine import slots
from queuewise.sim.core.pieces import put_tasks, unplace
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view

DEFRAGMENT, BALANCE, LOWEST = range(3)  # PolicyFlags.placement_option of the rules `tier`, `tier:balance`, `tier1`
IMPOSSIBLE = 1 << 60


@inline
def _empty_slots(w: World, c: int, n: int) -> int:
    room = IMPOSSIBLE
    if w.class_gpus[c] > 0:
        room = w.node_gpus[n] // w.class_gpus[c]
    elif w.class_milli[c] > 0:
        room = w.node_gpus[n] * (1000 // w.class_milli[c])
    if w.class_cpu[c] > 0:
        room = min(room, w.node_cpu[n] // w.class_cpu[c])
    if w.class_mem[c] > 0:
        room = min(room, w.node_mem[n] // w.class_mem[c])
    return room


@kernel
def _fewest_in(w: World, c: int, domain: int) -> int:
    """Nodes of the domain that a gang needs while they are empty, 0 if it does not fit there.

    Nodes with the most room are filled first.
    """
    if w.sizes.num_domains == 1:
        return w.class_min_nodes[c]
    left = w.class_tasks[c]
    used = 0
    before = IMPOSSIBLE
    while left > 0:
        room = 0
        nodes = 0
        for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
            p = w.class_pools[i]
            there = _empty_slots(w, c, w.pool_nodes[w.pool_first[p]])
            if w.pool_domain[p] != domain or there >= before or there < room:
                continue
            nodes = w.pool_first[p + 1] - w.pool_first[p] + (nodes if there == room else 0)
            room = there
        if room == 0:
            return 0
        taken = min(nodes, (left + room - 1) // room)
        used += taken
        left -= taken * room
        before = room
    return used


@kernel
def _candidates(w: World, m: Machine, s: State, c: int, most: int, domain: int) -> int:
    """List the candidate nodes of the domain in scratch_nodes, ascending.

    Of equal nodes, only the first `most` can matter. Returns their number.
    """
    number = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        if w.sizes.num_domains > 1 and w.pool_domain[p] != domain:
            continue
        if w.class_by_pool[c]:
            for f in range(w.class_gpus[c], w.pool_gpus[p] + 1):
                number += _first_of_bucket(w, m, s, p, f, most, number)
        else:
            for k in range(w.pool_first[p], w.pool_first[p + 1]):
                if slots(w, m, c, w.pool_nodes[k]) > 0:
                    s.scratch_nodes[number] = w.pool_nodes[k]
                    number += 1
    view(s.scratch_nodes, number).sort()
    return number


@kernel
def _first_of_bucket(w: World, m: Machine, s: State, p: int, f: int, most: int, at: int) -> int:
    """Copy the first `most` nodes of a bucket to scratch_nodes from `at` on. Returns how many were copied."""
    base = w.pool_bits[p] + f * w.pool_words[p]
    number = 0
    for word in range(w.pool_words[p]):
        bits = m.bits[base + word]
        while bits != 0 and number < most:
            s.scratch_nodes[at + number] = w.pool_nodes[w.pool_first[p] + (word << 6) + lowest_bit(bits)]
            bits &= bits - 1
            number += 1
    return number


@inline
def _changes(cap: int, free: int, used: int) -> tuple[int, int, int]:
    """How fragmentation, waste and balance change when `used` tasks are put on a node."""
    left = free - used
    partial_before = 1 if 0 < free < cap else 0
    partial_after = 1 if 0 < left < cap else 0
    waste = partial_after * (cap - left) - partial_before * (cap - free)
    return partial_after - partial_before, waste, (cap - left) ** 2 - (cap - free) ** 2


@kernel
def _search(w: World, m: Machine, s: State, c: int, number: int, nodes: int, second_tier: bool) -> bool:
    """Find the best placement on exactly `nodes` of the candidates and put it on the machine.

    The tables hold, for the candidates from i on, the best way to fill k nodes so that counts add up to x and
    fragmentation changes by d - half. What is counted is either tasks or slots left unused compared with the largest
    node, whichever is less: a gang on the fewest possible nodes leaves hardly any slots unused. A node without unused
    slots does not change fragmentation, so their number also bounds the change.
    """
    largest = 0
    for i in range(number):
        largest = max(largest, _empty_slots(w, c, s.scratch_nodes[i]))
    unused = nodes * largest - w.class_tasks[c]
    by_unused = unused < w.class_tasks[c]
    total = unused if by_unused else w.class_tasks[c]
    half = min(nodes, unused) if by_unused else nodes
    shape = (number + 1, nodes + 1, total + 1, 2 * half + 1)
    lead = np.full(shape, IMPOSSIBLE)  # waste, or balance if that comes first
    trail = np.full(shape, IMPOSSIBLE)
    lead[number, 0, 0, half] = 0
    trail[number, 0, 0, half] = 0
    balance_first = w.policy.placement_option == BALANCE
    for i in range(number - 1, -1, -1):
        n = s.scratch_nodes[i]
        cap, free = _empty_slots(w, c, n), slots(w, m, c, n)
        lead[i] = lead[i + 1]
        trail[i] = trail[i + 1]
        for used in range(1, min(free, w.class_tasks[c]) + 1):
            count = largest - used if by_unused else used
            frag, waste, balance = _changes(cap, free, used)
            first, second = (balance, waste) if balance_first else (waste, balance)
            for k in range(1, nodes + 1):
                for x in range(count, total + 1):
                    for d in range(max(0, frag), min(2 * half + 1, 2 * half + 1 + frag)):
                        below = lead[i + 1, k - 1, x - count, d - frag]
                        if below == IMPOSSIBLE:
                            continue
                        one, two = below + first, trail[i + 1, k - 1, x - count, d - frag] + second
                        if one < lead[i, k, x, d] or (one == lead[i, k, x, d] and two < trail[i, k, x, d]):
                            lead[i, k, x, d] = one
                            trail[i, k, x, d] = two
    goal = _best_frag(lead[0, nodes, total], half, second_tier, balance_first)
    if goal < 0:
        return False
    _put_best(w, m, s, c, number, nodes, total, goal, lead, trail, largest if by_unused else 0)
    return True


@kernel
def _best_frag(lead, half: int, second_tier: bool, balance_first: bool) -> int:  # type: ignore[no-untyped-def]
    """The change of fragmentation (plus half) of the best placement, -1 if there is none."""
    best = -1
    for d in range(len(lead)):
        if lead[d] == IMPOSSIBLE or (second_tier and d > half):
            continue
        if best < 0 or (balance_first and (lead[d] < lead[best])):
            best = d
    return best


@kernel
def _put_best(w: World, m: Machine, s: State, c: int, number: int, nodes: int, total: int, goal: int, lead, trail, largest: int) -> None:  # type: ignore[no-untyped-def]
    """Follow the tables to the optimum: choose the lowest nodes, and the fewest tasks on each, that still reach it."""
    balance_first = w.policy.placement_option == BALANCE
    k, x, d = nodes, total, goal
    for i in range(number):
        if k == 0:
            return
        n = s.scratch_nodes[i]
        cap, free = _empty_slots(w, c, n), slots(w, m, c, n)
        for used in range(1, min(free, w.class_tasks[c]) + 1):
            count = largest - used if largest > 0 else used
            frag, waste, balance = _changes(cap, free, used)
            first, second = (balance, waste) if balance_first else (waste, balance)
            if count > x or not 0 <= d - frag < lead.shape[3]:
                continue
            below = lead[i + 1, k - 1, x - count, d - frag]
            if below == IMPOSSIBLE:
                continue
            if below + first == lead[i, k, x, d] and trail[i + 1, k - 1, x - count, d - frag] + second == trail[i, k, x, d]:
                put_tasks(w, m, s, c, n, used, False)
                k, x, d = k - 1, x - count, d - frag
                break


@kernel
def _put_lowest(w: World, m: Machine, s: State, c: int, number: int, nodes: int) -> None:
    """Put a gang that fits on exactly `nodes` of the candidates on the lowest of them, with the fewest tasks on the first ones."""
    left = w.class_tasks[c]
    k = nodes
    for i in range(number):
        if k == 0:
            return
        n = s.scratch_nodes[i]
        used = max(1, left - _most_on(w, m, s, c, i + 1, number, k - 1))
        if used <= slots(w, m, c, n) and left - used >= k - 1:
            put_tasks(w, m, s, c, n, used, False)
            left -= used
            k -= 1


@kernel
def _place_on(w: World, m: Machine, s: State, c: int, domain: int, nodes: int, second_tier: bool) -> bool:
    """Put a gang on exactly so many nodes of the domain, if it fits by the rule's option."""
    number = _candidates(w, m, s, c, nodes, domain)
    if w.class_tasks[c] < nodes or _most_on(w, m, s, c, 0, number, nodes) < w.class_tasks[c]:
        return False
    if w.policy.placement_option == LOWEST:
        _put_lowest(w, m, s, c, number, nodes)
        return True
    return _search(w, m, s, c, number, nodes, second_tier)


@noinline
def place_by_tier(w: World, m: Machine, s: State, c: int) -> bool:
    """Put a gang on the machine by tiers. If it does not fit, change nothing and return False.

    Partitions that share no nodes are domains: a gang stands in one of them, the first that has a place in the lowest
    tier. One that would need two nodes more than another is not used.
    """
    least = IMPOSSIBLE
    for d in range(w.sizes.num_domains):
        fewest = _fewest_in(w, c, d)
        if 0 < fewest < least:
            least = fewest
    for tier in range(1 if w.policy.placement_option == LOWEST else 2):
        for d in range(w.sizes.num_domains):
            fewest = _fewest_in(w, c, d)
            if 0 < fewest <= least + 1 and _place_on(w, m, s, c, d, fewest + tier, tier == 1):
                return True
    return False


@noinline
def fits_second_tier(w: World, m: Machine, s: State, c: int) -> bool:
    """Whether a gang fits on one node more than the fewest without raising fragmentation.

    The machine is not changed.
    """
    s.count.placed = 0
    if w.policy.placement_option == LOWEST:
        return False
    for d in range(w.sizes.num_domains):
        fewest = _fewest_in(w, c, d)
        if fewest > 0 and _place_on(w, m, s, c, d, fewest + 1, True):
            unplace(w, m, s, c)
            return True
    return False


@kernel
def _most_on(w: World, m: Machine, s: State, c: int, first: int, number: int, nodes: int) -> int:
    """The most tasks that `nodes` of the candidates from the first on can take, 0 if there are fewer."""
    if number - first < nodes or nodes == 0:
        return 0
    room = np.empty(number - first, np.int64)
    for i in range(first, number):
        room[i - first] = min(slots(w, m, c, s.scratch_nodes[i]), w.class_tasks[c])
    room.sort()
    return room[number - first - nodes :].sum()
