"""Fragmentation gradient descent: each task goes where it makes the least free GPU useless.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.
The fragment of a node for a task type is the GPU milli that is free on it but that a task of the type cannot use; a node's
fragmentation is the mean over the workload's task types, weighted by how often they come.
"""

from __future__ import annotations

from queuewise.sim.conditions.power_cap import draw
from queuewise.sim.conditions.sleeping import tie_break
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.machine import WHOLE, give, slots, take, take_share
from queuewise.sim.core.pieces import group_by_node, note_piece
from queuewise.sim.core.state import Machine, State, World

LARGEST = 1 << 62


@inline
def _free_of(w: World, m: Machine, n: int, g: int) -> int:
    return WHOLE if (m.free_mask[n] >> g) & 1 else m.share_free[n * w.sizes.gpu_stride + g]


@kernel
def node_fragmentation(w: World, m: Machine, n: int) -> int:
    """GPU milli of node n that are free but useless, summed over the workload's tasks as the next one (exact, so ties are ties).

    Types are sorted by the GPU milli they ask for, so what is too little on a GPU is added up once for each amount.
    """
    total = 0
    need = 0
    too_little = 0
    for t in range(w.sizes.num_types):
        if min(w.type_gpu[t], WHOLE) != need:
            need = min(w.type_gpu[t], WHOLE)
            too_little = _free_below(w, m, n, need)
        total += w.type_weight[t] * (too_little if _may_use(w, m, n, t) else m.free_milli[n])
    return total


@inline
def _may_use(w: World, m: Machine, n: int, t: int) -> bool:
    """Whether node n, if one of its GPUs has enough free, can take a task of type t that asks for GPUs."""
    milli = w.type_gpu[t]
    right_kind = milli > 0 and w.node_gpus[n] > 0 and ((w.type_kinds[t] >> w.node_kind[n]) & 1) == 1
    enough = m.free_cpu[n] >= w.type_cpu[t] and m.free_mem[n] >= w.type_mem[t]
    return right_kind and enough and (milli < WHOLE or m.free_gpus[n] * WHOLE >= milli)


@kernel
def _free_below(w: World, m: Machine, n: int, need: int) -> int:
    """GPU milli that are free on GPUs of node n with less free than needed: all of them, if no GPU has enough."""
    total = 0
    for g in range(w.node_gpus[n]):
        free = _free_of(w, m, n, g)
        if free < need:
            total += free
    return total


@noinline
def place_least_fragmenting(w: World, m: Machine, s: State, c: int) -> None:
    """Place a gang that fits, task by task, by the least increase of fragmentation."""
    for _ in range(w.class_tasks[c]):
        best_node = -1
        best_gpu = -1
        best_growth = LARGEST
        for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
            p = w.class_pools[i]
            looked_at = -1
            gpu, growth = -1, LARGEST
            for k in range(w.pool_first[p], w.pool_first[p + 1]):
                n = w.pool_nodes[k]
                if slots(w, m, c, n) == 0:
                    continue
                if looked_at < 0 or not _are_alike(w, m, n, looked_at):
                    gpu, growth = _least_growth(w, m, c, n, node_fragmentation(w, m, n))
                    looked_at = n
                if growth < best_growth or (growth == best_growth and tie_break(w, s, n) < tie_break(w, s, best_node)):
                    best_node, best_gpu, best_growth = n, gpu, growth
        gpus = _take_at(w, m, c, best_node, best_gpu)
        note_piece(s, best_node, 1, gpus)
    group_by_node(w, s, c)


@inline
def _are_alike(w: World, m: Machine, n: int, other: int) -> bool:
    """Whether two nodes of one pool have the same free, GPU by GPU."""
    if m.free_mask[n] != m.free_mask[other] or m.free_milli[n] != m.free_milli[other]:
        return False
    if m.free_cpu[n] != m.free_cpu[other] or m.free_mem[n] != m.free_mem[other]:
        return False
    if m.free_milli[n] > m.free_gpus[n] * WHOLE:
        for g in range(w.node_gpus[n]):
            if _free_of(w, m, n, g) != _free_of(w, m, other, g):
                return False
    return True


@inline
def _take_at(w: World, m: Machine, c: int, n: int, g: int) -> int:
    """Take one task on node n; a share on GPU g."""
    if g < 0:
        return take(w, m, c, n, 1, False)
    draw(w, m, c, n, 1)
    m.free_cpu[n] -= w.class_cpu[c]
    m.free_mem[n] -= w.class_mem[c]
    take_share(w, m, n, 1 << g, w.class_milli[c])
    return 1 << g


@inline
def _is_like_one_before(w: World, m: Machine, n: int, g: int) -> bool:
    """Whether a GPU of node n with a lower number has as much free as GPU g."""
    found = False
    for before in range(g):
        found = found or _free_of(w, m, n, before) == _free_of(w, m, n, g)
    return found


@kernel
def _least_growth(w: World, m: Machine, c: int, n: int, before: int) -> tuple[int, int]:
    """The GPU (-1 unless the task is a share) and the growth of the node's fragmentation if the task goes there."""
    if w.class_gpus[c] > 0 or w.class_milli[c] == 0:
        gpus = take(w, m, c, n, 1, False)
        growth = node_fragmentation(w, m, n) - before
        give(w, m, c, n, 1, gpus)
        return -1, growth
    best_gpu = -1
    best = LARGEST
    for g in range(w.node_gpus[n]):
        if _free_of(w, m, n, g) >= w.class_milli[c] and not _is_like_one_before(w, m, n, g):
            gpus = _take_at(w, m, c, n, g)
            growth = node_fragmentation(w, m, n) - before
            give(w, m, c, n, 1, gpus)
            if growth < best:
                best = growth
                best_gpu = g
    return best_gpu, best
