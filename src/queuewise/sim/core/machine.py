"""Free resources: how much fits, and how tasks take resources and give them back.

A GPU is wholly free (a bit in `free_mask`), used exclusively, or shared (`share_free` milli are left). For classes that
ask for whole GPUs only, nodes of a pool with the same number of free GPUs are interchangeable. They are in one
*bucket*, a bitset in index order. `pool_slots` holds the number of tasks that each pool can take, so testing a fit
reads one number per pool.
"""

from __future__ import annotations

from queuewise.sim import placement
from queuewise.sim.conditions.power_cap import draw, is_capped
from queuewise.sim.conditions.reserved_nodes import is_blocked
from queuewise.sim.core.compilation import bits_in, inline, kernel, lowest_bit, noinline
from queuewise.sim.core.state import Machine, World
from queuewise.sim.core.table_types import view

WHOLE = 1000
MANY = 1 << 60


@inline
def lowest_bits(mask: int, number: int) -> int:
    """The lowest `number` set bits of the mask."""
    rest = mask
    for _ in range(number):
        rest &= rest - 1
    return mask ^ rest


@kernel
def share_slots(w: World, m: Machine, n: int, milli: int) -> int:
    total = 0
    base = n * w.sizes.gpu_stride
    for g in range(w.node_gpus[n]):
        if (m.free_mask[n] >> g) & 1:
            total += WHOLE // milli
        else:
            total += m.share_free[base + g] // milli
    return total


@inline
def slots(w: World, m: Machine, c: int, n: int) -> int:
    """Tasks of class c that node n, which must be in an allowed pool, can take now."""
    room = free_slots(w, m, c, n)
    return 0 if room > 0 and is_blocked(w, c, n, m.time[0]) else room


@inline
def free_slots(w: World, m: Machine, c: int, n: int) -> int:
    """The same, ignoring reservations."""
    room = MANY
    if w.class_gpus[c] > 0:
        room = m.free_gpus[n] // w.class_gpus[c]
    elif w.sizes.shares_gpus and w.class_milli[c] > 0:
        room = share_slots(w, m, n, w.class_milli[c])
    if w.class_cpu[c] > 0:
        room = min(room, m.free_cpu[n] // w.class_cpu[c])
    if w.class_mem[c] > 0:
        room = min(room, m.free_mem[n] // w.class_mem[c])
    return room


@inline
def slots_on(w: World, m: Machine, c: int, n: int) -> int:
    """Tasks of class c that node n can take now. The node may be in any pool."""
    return slots(w, m, c, n) if w.class_allows[c * w.sizes.num_pools + w.node_pool[n]] else 0


@kernel
def slots_up_to(w: World, m: Machine, c: int, enough: int) -> int:
    """Tasks of class c that all nodes together can take. Counting stops at `enough`.

    It begins with the last nodes: most rules take the first, so there is room at the end if anywhere.
    """
    total = 0
    if w.class_by_pool[c]:
        for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
            total += m.pool_slots[w.class_pools[i] * w.sizes.gpu_stride + w.class_gpus[c]]
        return total
    if w.policy.has_reservations:
        return _open_slots_up_to(w, m, c, enough)
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p + 1] - 1, w.pool_first[p] - 1, -1):
            total += free_slots(w, m, c, w.pool_nodes[k])
            if total >= enough:
                return total
    return total


@noinline
def _open_slots_up_to(w: World, m: Machine, c: int, enough: int) -> int:
    """The same if there are reservations. This is a separate function because a loop without calls is faster."""
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            total += slots(w, m, c, w.pool_nodes[k])
            if total >= enough:
                return total
    return total


@inline
def has_room(w: World, m: Machine, c: int) -> bool:
    """Whether a gang of class c fits, without restrictions of the placement rule."""
    return slots_up_to(w, m, c, w.class_tasks[c]) >= w.class_tasks[c]


@inline
def free_primary(w: World, m: Machine, c: int, n: int) -> int:
    if w.class_primary[c] == placement.BY_GPU:
        return m.free_milli[n]
    if w.class_primary[c] == placement.BY_CPU:
        return m.free_cpu[n]
    return m.free_mem[n]


@inline
def total_primary(w: World, c: int, n: int) -> int:
    if w.class_primary[c] == placement.BY_GPU:
        return w.node_gpus[n] * WHOLE
    if w.class_primary[c] == placement.BY_CPU:
        return w.node_cpu[n]
    return w.node_mem[n]


@inline
def amount_for(w: World, held: int, c: int) -> int:
    """How much a gang of class `held` holds of the primary resource of class c."""
    if w.class_primary[c] == placement.BY_GPU:
        return w.class_tasks[held] * w.class_milli[held]
    if w.class_primary[c] == placement.BY_CPU:
        return w.class_tasks[held] * w.class_cpu[held]
    return w.class_tasks[held] * w.class_mem[held]


@kernel
def free_for(w: World, m: Machine, c: int) -> int:
    """How much of the primary resource of class c is free on its allowed nodes, even if too scattered for a task."""
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        if w.class_by_pool[c] and not w.sizes.shares_gpus:
            total += m.pool_slots[p * w.sizes.gpu_stride + 1] * WHOLE
        else:
            for k in range(w.pool_first[p], w.pool_first[p + 1]):
                total += free_primary(w, m, c, w.pool_nodes[k])
    return total


@inline
def lowest_in_bucket(w: World, m: Machine, p: int, f: int) -> int:
    """The first node of pool p with f free GPUs; the bucket must not be empty."""
    base = w.pool_bits[p] + f * w.pool_words[p]
    word = 0
    while m.bits[base + word] == 0:
        word += 1
    return w.pool_nodes[w.pool_first[p] + (word << 6) + lowest_bit(m.bits[base + word])]


@inline
def set_free_gpus(w: World, m: Machine, n: int, mask: int, free: int) -> None:
    """Set the wholly free GPUs of node n to those in mask, and move the node to its bucket."""
    old = m.free_gpus[n]
    m.free_mask[n] = mask
    if old == free:
        return
    m.free_gpus[n] = free
    p = w.node_pool[n]
    stride = w.sizes.gpu_stride
    base = p * stride
    m.bucket[base + old] -= 1
    m.bucket[base + free] += 1
    slot = w.node_slot[n]
    word = w.pool_bits[p] + (slot >> 6)
    bit = 1 << (slot & 63)
    m.bits[word + old * w.pool_words[p]] ^= bit
    m.bits[word + free * w.pool_words[p]] ^= bit
    for g in range(1, w.pool_gpus[p] + 1):
        m.pool_slots[base + g] += w.divide[free * stride + g] - w.divide[old * stride + g]


@inline
def take(w: World, m: Machine, c: int, n: int, tasks: int, widest: bool) -> int:
    """Put tasks of class c on node n, which has room for them. Returns the GPUs used, as bits.

    Shares are placed one at a time (the caller passes tasks = 1), on the GPU with the least free part that holds the
    share or, if `widest`, on the GPU with the largest free part.
    """
    draw(w, m, c, n, tasks)
    m.free_cpu[n] -= tasks * w.class_cpu[c]
    m.free_mem[n] -= tasks * w.class_mem[c]
    gpus = 0
    if w.class_gpus[c] > 0:
        number = tasks * w.class_gpus[c]
        gpus = lowest_bits(m.free_mask[n], number)
        m.free_milli[n] -= number * WHOLE
        set_free_gpus(w, m, n, m.free_mask[n] ^ gpus, m.free_gpus[n] - number)
    elif w.sizes.shares_gpus and w.class_milli[c] > 0:
        gpus = 1 << choose_share(w, m, n, w.class_milli[c], widest)
        take_share(w, m, n, gpus, w.class_milli[c])
    return gpus


@kernel
def choose_share(w: World, m: Machine, n: int, milli: int, widest: bool) -> int:
    """The GPU of node n that takes the share. At least one GPU must have room."""
    base = n * w.sizes.gpu_stride
    best = -1
    best_free = 0
    for g in range(w.node_gpus[n]):
        free = WHOLE if (m.free_mask[n] >> g) & 1 else m.share_free[base + g]
        if free >= milli and (best < 0 or (free > best_free if widest else free < best_free)):
            best = g
            best_free = free
    return best


@kernel
def take_share(w: World, m: Machine, n: int, gpus: int, milli: int) -> None:
    g = lowest_bit(gpus)
    at = n * w.sizes.gpu_stride + g
    m.free_milli[n] -= milli
    if (m.free_mask[n] >> g) & 1:
        m.share_free[at] = WHOLE - milli
        set_free_gpus(w, m, n, m.free_mask[n] ^ gpus, m.free_gpus[n] - 1)
    else:
        m.share_free[at] -= milli


@inline
def take_exactly(w: World, m: Machine, c: int, n: int, tasks: int, gpus: int) -> None:
    """Take exactly this piece, which was chosen earlier or on another machine."""
    draw(w, m, c, n, tasks)
    if m.closed[n]:
        return
    m.free_cpu[n] -= tasks * w.class_cpu[c]
    m.free_mem[n] -= tasks * w.class_mem[c]
    if w.class_gpus[c] > 0:
        number = tasks * w.class_gpus[c]
        m.free_milli[n] -= number * WHOLE
        set_free_gpus(w, m, n, m.free_mask[n] ^ gpus, m.free_gpus[n] - number)
    elif w.sizes.shares_gpus and w.class_milli[c] > 0:
        take_share(w, m, n, gpus, w.class_milli[c])


@inline
def give(w: World, m: Machine, c: int, n: int, tasks: int, gpus: int) -> None:
    """Give a piece back."""
    draw(w, m, c, n, -tasks)
    if m.closed[n]:
        return
    m.free_cpu[n] += tasks * w.class_cpu[c]
    m.free_mem[n] += tasks * w.class_mem[c]
    if w.class_gpus[c] > 0:
        number = tasks * w.class_gpus[c]
        m.free_milli[n] += number * WHOLE
        set_free_gpus(w, m, n, m.free_mask[n] | gpus, m.free_gpus[n] + number)
    elif w.sizes.shares_gpus and w.class_milli[c] > 0:
        give_share(w, m, n, gpus, w.class_milli[c])


@kernel
def give_share(w: World, m: Machine, n: int, gpus: int, milli: int) -> None:
    g = lowest_bit(gpus)
    at = n * w.sizes.gpu_stride + g
    m.free_milli[n] += milli
    m.share_free[at] += milli
    if m.share_free[at] == WHOLE:
        m.share_free[at] = 0
        set_free_gpus(w, m, n, m.free_mask[n] | gpus, m.free_gpus[n] + 1)


@kernel
def piece_is_free(w: World, m: Machine, c: int, n: int, tasks: int, gpus: int) -> bool:
    """Whether exactly this piece can be taken.

    On a closed node it always can, because taking it changes no free amounts there.
    """
    if m.closed[n]:
        return True
    if m.free_cpu[n] < tasks * w.class_cpu[c] or m.free_mem[n] < tasks * w.class_mem[c]:
        return False
    if (m.free_mask[n] & gpus) == gpus:
        return True
    return w.class_gpus[c] == 0 and m.share_free[n * w.sizes.gpu_stride + lowest_bit(gpus)] >= w.class_milli[c]


@kernel
def close_node(w: World, m: Machine, n: int) -> None:
    """Close the node: nothing on it is free."""
    m.free_cpu[n] = 0
    m.free_mem[n] = 0
    m.free_milli[n] = 0
    for g in range(w.node_gpus[n]):
        m.share_free[n * w.sizes.gpu_stride + g] = 0
    set_free_gpus(w, m, n, 0, 0)
    m.closed[n] = 1


@kernel
def open_node(w: World, m: Machine, n: int) -> None:
    """Open the node with everything free. The caller must then take what is in use."""
    m.closed[n] = 0
    m.free_cpu[n] = w.node_cpu[n]
    m.free_mem[n] = w.node_mem[n]
    m.free_milli[n] = w.node_gpus[n] * WHOLE
    set_free_gpus(w, m, n, (1 << w.node_gpus[n]) - 1, w.node_gpus[n])


@kernel
def copy_machine(w: World, source: Machine, target: Machine) -> None:
    nodes = w.sizes.num_nodes
    buckets = w.sizes.num_pools * w.sizes.gpu_stride
    view(target.free_mask, nodes)[:] = view(source.free_mask, nodes)
    view(target.free_gpus, nodes)[:] = view(source.free_gpus, nodes)
    view(target.free_milli, nodes)[:] = view(source.free_milli, nodes)
    view(target.free_cpu, nodes)[:] = view(source.free_cpu, nodes)
    view(target.free_mem, nodes)[:] = view(source.free_mem, nodes)
    view(target.closed, nodes)[:] = view(source.closed, nodes)
    view(target.pool_slots, buckets)[:] = view(source.pool_slots, buckets)
    view(target.bucket, buckets)[:] = view(source.bucket, buckets)
    view(target.bits, w.sizes.num_words)[:] = view(source.bits, w.sizes.num_words)
    if is_capped(w):
        target.drawn[0] = source.drawn[0]
    if w.policy.has_reservations:
        target.time[0] = source.time[0]
    if w.sizes.shares_gpus:
        view(target.share_free, nodes * w.sizes.gpu_stride)[:] = view(source.share_free, nodes * w.sizes.gpu_stride)


@kernel
def rebuild(w: World, m: Machine) -> None:
    """Compute counts and buckets again from free_mask and share_free."""
    stride = w.sizes.gpu_stride
    view(m.pool_slots, w.sizes.num_pools * stride)[:] = 0
    view(m.bucket, w.sizes.num_pools * stride)[:] = 0
    view(m.bits, w.sizes.num_words)[:] = 0
    for n in range(w.sizes.num_nodes):
        free = bits_in(m.free_mask[n])
        milli = 0
        for g in range(w.node_gpus[n] if w.sizes.shares_gpus else 0):
            if not (m.free_mask[n] >> g) & 1:
                milli += m.share_free[n * stride + g]
        m.free_gpus[n] = free
        m.free_milli[n] = free * WHOLE + milli
        p = w.node_pool[n]
        m.bucket[p * stride + free] += 1
        slot = w.node_slot[n]
        m.bits[w.pool_bits[p] + free * w.pool_words[p] + (slot >> 6)] |= 1 << (slot & 63)
        for g in range(1, w.pool_gpus[p] + 1):
            m.pool_slots[p * stride + g] += w.divide[free * stride + g]
