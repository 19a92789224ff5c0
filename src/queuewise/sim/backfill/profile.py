"""The profile of a conservative plan: a list of moments, and for each what is free from then until the next.

`times` are the times of the moments, `row` holds what is free (five matrices, one row per moment), and `where` is their order: moment i is
that of times[where[i]] and of row where[i]. Moment 0 is now as it really is; if running jobs are overdue a second moment with the same
time has them gone, so that their place can be promised but not used: these `present` moments (one or two) are one instant, and a start
now covers them all. A reservation of no length covers one moment, which another of the same time follows.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.backfill.easy import order_by_expected_end
from queuewise.sim.conditions.power_cap import draw_of, is_capped
from queuewise.sim.conditions.reserved_nodes import is_blocked
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import WHOLE, rebuild
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view

UNRESERVED = -np.inf  # start of a run that no reservation keeps from any node


@kernel
def moments(w: World, number: int):  # type: ignore[no-untyped-def]
    """Room for `number` moments: wholly free GPUs, shares, CPU and memory, each only where some job asks for it, and power in use."""
    nodes = w.sizes.num_nodes
    shares = nodes * w.sizes.gpu_stride if w.sizes.shares_gpus else 0
    cpus = nodes if view(w.class_cpu, w.sizes.num_classes).max() > 0 else 0
    mems = nodes if view(w.class_mem, w.sizes.num_classes).max() > 0 else 0
    return (
        np.empty((number, nodes), np.int64),
        np.empty((number, shares), np.int64),
        np.empty((number, cpus), np.int64),
        np.empty((number, mems), np.int64),
        np.empty((number, 1 if is_capped(w) else 0), np.int64),
    )


@kernel
def copy_moment(row, at: int, others, other: int) -> None:  # type: ignore[no-untyped-def]
    for field in range(5):
        target, source = row[field], others[field]
        for i in range(target.shape[1]):
            target[at, i] = source[other, i]


@inline
def _bits_in(word: int) -> int:
    """How many bits are set: sums of neighbours, in parallel within the word."""
    word -= (word >> 1) & 0x5555555555555555
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0F
    word += word >> 8
    word += word >> 16
    word += word >> 32
    return word & 0x7F


@kernel
def room_at(w: World, c: int, row, at: int, start: float) -> int:  # type: ignore[no-untyped-def]
    """Tasks of class c that fit at one moment of a run that starts at `start`, counted up to the gang's size."""
    mask, share, cpu, mem, _ = row
    need = w.class_tasks[c]
    reserved = w.policy.has_reservations != 0
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            if reserved and is_blocked(w, c, n, start):
                continue
            room = need
            if w.class_gpus[c] > 0:
                room = min(room, _bits_in(mask[at, n]) // w.class_gpus[c])
            elif w.class_milli[c] > 0:
                shares = 0
                for g in range(w.node_gpus[n]):
                    free = WHOLE if (mask[at, n] >> g) & 1 else share[at, n * w.sizes.gpu_stride + g]
                    shares += free // w.class_milli[c]
                room = min(room, shares)
            if w.class_cpu[c] > 0:
                room = min(room, cpu[at, n] // w.class_cpu[c])
            if w.class_mem[c] > 0:
                room = min(room, mem[at, n] // w.class_mem[c])
            total += room
            if total >= need:
                return total
    return total


@kernel
def keep_least(w: World, least, row, at: int) -> None:  # type: ignore[no-untyped-def]
    """Let `least` hold the least of itself and of moment `at` of the profile."""
    mask, share, cpu, mem, drawn = row
    least_mask, least_share, least_cpu, least_mem, most_drawn = least
    for n in range(w.sizes.num_nodes if share.shape[1] else 0):
        for g in range(w.node_gpus[n]):
            slot = n * w.sizes.gpu_stride + g
            mine = WHOLE if (least_mask[0, n] >> g) & 1 else least_share[0, slot]
            its = WHOLE if (mask[at, n] >> g) & 1 else share[at, slot]
            least_share[0, slot] = 0 if (least_mask[0, n] & mask[at, n]) >> g & 1 else min(mine, its)
    for n in range(mask.shape[1]):
        least_mask[0, n] &= mask[at, n]
    for n in range(cpu.shape[1]):
        least_cpu[0, n] = min(least_cpu[0, n], cpu[at, n])
    for n in range(mem.shape[1]):
        least_mem[0, n] = min(least_mem[0, n], mem[at, n])
    for i in range(drawn.shape[1]):
        most_drawn[0, i] = max(most_drawn[0, i], drawn[at, i])


@kernel
def load(w: World, z: Machine, row, at: int) -> None:  # type: ignore[no-untyped-def]
    """Make z the machine of one moment; what no job asks for it has already."""
    mask, share, cpu, mem, drawn = row
    view(z.free_mask, mask.shape[1])[:] = mask[at]
    view(z.share_free, share.shape[1])[:] = share[at]
    view(z.free_cpu, cpu.shape[1])[:] = cpu[at]
    view(z.free_mem, mem.shape[1])[:] = mem[at]
    view(z.drawn, drawn.shape[1])[:] = drawn[at]
    rebuild(w, z)


@inline
def _change(w: World, row, at: int, c: int, n: int, tasks: int, gpus: int, sign: int) -> None:  # type: ignore[no-untyped-def]
    """Give a piece back to a moment (sign 1) or take it (sign -1)."""
    mask, share, cpu, mem, _ = row
    if w.class_cpu[c] > 0:
        cpu[at, n] += sign * tasks * w.class_cpu[c]
    if w.class_mem[c] > 0:
        mem[at, n] += sign * tasks * w.class_mem[c]
    if w.class_gpus[c] > 0:
        mask[at, n] ^= gpus
    elif w.class_milli[c] > 0:
        g = 0
        while not (gpus >> g) & 1:
            g += 1
        slot = n * w.sizes.gpu_stride + g
        free = (WHOLE if mask[at, n] & gpus else share[at, slot]) + sign * w.class_milli[c]
        mask[at, n] = mask[at, n] | gpus if free == WHOLE else mask[at, n] & ~gpus
        share[at, slot] = 0 if free == WHOLE else free


@inline
def _change_draw(w: World, row, at: int, c: int, n: int, tasks: int) -> None:  # type: ignore[no-untyped-def]
    drawn = row[4]
    if drawn.shape[1]:
        drawn[at, 0] += draw_of(w, c, n, tasks)


@kernel
def profile_of_running(w: World, m: Machine, s: State, times, row) -> int:  # type: ignore[no-untyped-def]
    """Moments at which running jobs are expected to end; returns their number."""
    mask, share, cpu, mem, drawn = row
    times[0] = s.clock.now
    mask[0] = view(m.free_mask, mask.shape[1])
    share[0] = view(m.share_free, share.shape[1])
    cpu[0] = view(m.free_cpu, cpu.shape[1])
    mem[0] = view(m.free_mem, mem.shape[1])
    drawn[0] = view(m.drawn, drawn.shape[1])
    order = order_by_expected_end(s)
    ends = s.scratch
    last = 0
    for i in range(s.count.running_jobs):
        j = s.running[order[i]]
        if last == 0 or ends[order[i]] > times[last]:
            last += 1
            times[last] = ends[order[i]]
            copy_moment(row, last, row, last - 1)
        for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            _change_draw(w, row, last, w.job_class[j], s.piece_node[k], -s.piece_tasks[k])
            if not m.closed[s.piece_node[k]]:
                _change(w, row, last, w.job_class[j], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k], 1)
    return last + 1


@inline
def note_moment(time: float, first: int, times, where, number: int, row) -> int:  # type: ignore[no-untyped-def]
    """Let `time` be a moment of the profile, at place `first` or later; returns the number of moments."""
    at = first
    while at < number and times[where[at]] < time:
        at += 1
    if at < number and times[where[at]] == time:
        return number
    for k in range(number, at, -1):
        where[k] = where[k - 1]
    where[at] = number
    times[number] = time
    copy_moment(row, number, row, where[at - 1])
    return number + 1


@kernel
def hold(w: World, s: State, c: int, start: int, until: float, times, where, number: int, present: int, row) -> int:  # type: ignore[no-untyped-def]
    """Take the placement in State.place_* out of the profile from moment `start` to `until`; returns the number of moments."""
    end = max(start + 1, present)  # a hold of no length ends with the next moment of its time
    number = note_moment(until, end, times, where, number, row)
    while times[where[end]] < until:
        end += 1
    for at in range(start, end):
        for k in range(s.count.placed):
            _change(w, row, where[at], c, s.place_node[k], s.place_tasks[k], s.place_gpus[k], -1)
            _change_draw(w, row, where[at], c, s.place_node[k], s.place_tasks[k])
    return number
