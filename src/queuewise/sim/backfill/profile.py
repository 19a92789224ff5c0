"""The profile of a plan: a list of moments, and for each what is free from then until the next.

Moment i is that of times[i], in ascending order. What is free then stands in row[i] of five matrices, and `left` has the total of the
resource that most jobs need, so that a search can skip most moments by looking at one number. Moment 0 is now as it really is; if running
jobs are overdue a second moment with the same time has them gone, so that their place can be promised but not used: these PRESENT moments
(one or two) are one instant, and a start now covers them all. A reservation of no length covers one moment, which another of the same
time follows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from queuewise.sim.backfill.easy import order_by_expected_end
from queuewise.sim.conditions.power_cap import draw_of, is_capped
from queuewise.sim.conditions.reserved_nodes import first_reservation_end_after, is_blocked
from queuewise.sim.core.compilation import bits_in, inline, kernel, lowest_bit
from queuewise.sim.core.machine import WHOLE, rebuild
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import column_of, view

UNRESERVED = -np.inf  # start of a run that no reservation keeps from any node
LEAST = 0  # the row in which the least of several moments is computed; moments have the rows after it
# Entries of Profile.size: moments, those of now, and numbers in a row of each matrix, 0 where no job asks for it
NUMBER, PRESENT, MASKS, SHARES, CPUS, MEMS, DRAWS, SIZES = range(8)


class Profile(NamedTuple):
    """Columns of a profile. Matrices have one row per moment and one number per node, or as said."""

    size: Any  # [SIZES]
    times: Any  # [moments]
    row: Any  # [moments]
    left: Any  # [moments] GPU milli that are free on all nodes, or milli cores (World.policy.counts_cores)
    mask: Any  # wholly free GPUs
    share: Any  # free parts of GPUs in shared use, one per node and GPU
    cpu: Any
    mem: Any
    drawn: Any  # power in use, one number


@kernel
def profile_memory(w: World, most: int):  # type: ignore[no-untyped-def]
    """Arrays for a profile of at most so many moments, in the order of its columns."""
    nodes = w.sizes.num_nodes
    size = np.zeros(SIZES, np.int64)
    size[MASKS] = nodes if w.sizes.gpu_stride > 1 else 0
    size[SHARES] = nodes * w.sizes.gpu_stride if w.sizes.shares_gpus else 0
    size[CPUS] = nodes if view(w.class_cpu, w.sizes.num_classes).max() > 0 else 0
    size[MEMS] = nodes if view(w.class_mem, w.sizes.num_classes).max() > 0 else 0
    size[DRAWS] = 1 if is_capped(w) else 0
    rows = most + 1
    return (
        size,
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(rows * size[MASKS], np.int64),
        np.empty(rows * size[SHARES], np.int64),
        np.empty(rows * size[CPUS], np.int64),
        np.empty(rows * size[MEMS], np.int64),
        np.empty(rows * size[DRAWS], np.int64),
    )


@inline
def profile_in(memory: Any) -> Profile:
    """The profile in such arrays."""
    return Profile(
        column_of(memory[0]),
        column_of(memory[1]),
        column_of(memory[2]),
        column_of(memory[3]),
        column_of(memory[4]),
        column_of(memory[5]),
        column_of(memory[6]),
        column_of(memory[7]),
        column_of(memory[8]),
    )


@inline
def _copy(column, width: int, at: int, other: int) -> None:  # type: ignore[no-untyped-def]
    for i in range(width):
        column[at * width + i] = column[other * width + i]


@inline
def copy_row(p: Profile, at: int, other: int) -> None:
    _copy(p.mask, p.size[MASKS], at, other)
    _copy(p.share, p.size[SHARES], at, other)
    _copy(p.cpu, p.size[CPUS], at, other)
    _copy(p.mem, p.size[MEMS], at, other)
    _copy(p.drawn, p.size[DRAWS], at, other)


@inline
def moment_from(p: Profile, time: float, first: int) -> int:
    """The first moment that is not before `time`, from moment `first` on; the number of moments if there is none."""
    low, high = first, p.size[NUMBER]
    while low < high:
        middle = (low + high) >> 1
        if p.times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _share_of_left(w: World, c: int) -> int:
    """How much a task of class c takes from `left`."""
    return w.class_cpu[c] if w.policy.counts_cores else w.class_milli[c]


@inline
def is_scalar(w: World) -> bool:
    """Whether a place is a number of tasks: one node without GPUs, and no rule that may refuse a freer view."""
    return not w.policy.plans_all and not w.policy.fit_may_return


@inline
def _times_in(have: int, each: int, most: int) -> int:
    """How often `each` is in `have`, counted up to `most`. Divisions are slow, and seldom needed."""
    if have >= each * most:
        return most
    return have // each if have >= each else 0


@kernel
def room_at(w: World, c: int, p: Profile, at: int, start: float) -> int:
    """Tasks of class c that fit in one row of the profile, of a run that starts at `start`, counted up to the gang's size."""
    need = w.class_tasks[c]
    gpus, milli, cpu, mem = w.class_gpus[c], w.class_milli[c], w.class_cpu[c], w.class_mem[c]
    stride = w.sizes.gpu_stride
    base = at * w.sizes.num_nodes
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        pool = w.class_pools[i]
        for k in range(w.pool_first[pool], w.pool_first[pool + 1]):
            n = w.pool_nodes[k]
            room = need - total
            if gpus == 1:
                room = min(room, bits_in(p.mask[base + n]))
            elif gpus > 1:
                room = min(room, w.divide[bits_in(p.mask[base + n]) * stride + gpus])
            elif milli > 0:
                shares = 0
                for g in range(w.node_gpus[n]):
                    free = WHOLE if (p.mask[base + n] >> g) & 1 else p.share[(base + n) * stride + g]
                    shares += free // milli
                room = min(room, shares)
            if cpu > 0:
                room = _times_in(p.cpu[base + n], cpu, room)
            if mem > 0:
                room = _times_in(p.mem[base + n], mem, room)
            if room > 0 and not is_blocked(w, c, n, start):
                total += room
                if total >= need:
                    return total
    return total


@inline
def is_full(w: World, c: int, p: Profile, i: int) -> bool:
    """Whether at moment i all nodes together have too little left for a gang of class c."""
    return p.left[i] < w.class_tasks[c] * _share_of_left(w, c)


@inline
def has_room(w: World, c: int, p: Profile, i: int, start: float) -> bool:
    """Whether a gang of class c fits at moment i, of a run that starts at `start`."""
    return not is_full(w, c, p, i) and room_at(w, c, p, p.row[i], start) >= w.class_tasks[c]


@inline
def skip_full(w: World, c: int, p: Profile, first: int, last: int) -> int:
    """The first moment, from `first` on, with enough left for a gang of class c on all nodes together; `last` if there is none before."""
    need = w.class_tasks[c] * _share_of_left(w, c)
    at = first
    while at < last and p.left[at] < need:
        at += 1
    return at


@kernel
def keep_least(w: World, p: Profile, at: int) -> None:
    """Let row LEAST hold the least of itself and of row `at`."""
    stride = w.sizes.gpu_stride
    nodes = w.sizes.num_nodes
    for n in range(nodes if p.size[SHARES] else 0):
        for g in range(w.node_gpus[n]):
            slot = LEAST * nodes * stride + n * stride + g
            mask, its_mask = p.mask[LEAST * nodes + n], p.mask[at * nodes + n]
            mine = WHOLE if (mask >> g) & 1 else p.share[slot]
            its = WHOLE if (its_mask >> g) & 1 else p.share[(at * nodes + n) * stride + g]
            p.share[slot] = 0 if (mask & its_mask) >> g & 1 else min(mine, its)
    for n in range(p.size[MASKS]):
        p.mask[LEAST * nodes + n] &= p.mask[at * nodes + n]
    for n in range(p.size[CPUS]):
        p.cpu[LEAST * nodes + n] = min(p.cpu[LEAST * nodes + n], p.cpu[at * nodes + n])
    for n in range(p.size[MEMS]):
        p.mem[LEAST * nodes + n] = min(p.mem[LEAST * nodes + n], p.mem[at * nodes + n])
    for i in range(p.size[DRAWS]):
        p.drawn[LEAST + i] = max(p.drawn[LEAST + i], p.drawn[at + i])


@kernel
def load_least(w: World, z: Machine, p: Profile) -> None:
    """Make z the machine of row LEAST; what no job asks for it has already."""
    for n in range(p.size[MASKS]):
        z.free_mask[n] = p.mask[LEAST * p.size[MASKS] + n]
    for i in range(p.size[SHARES]):
        z.share_free[i] = p.share[LEAST * p.size[SHARES] + i]
    for n in range(p.size[CPUS]):
        z.free_cpu[n] = p.cpu[LEAST * p.size[CPUS] + n]
    for n in range(p.size[MEMS]):
        z.free_mem[n] = p.mem[LEAST * p.size[MEMS] + n]
    for i in range(p.size[DRAWS]):
        z.drawn[i] = p.drawn[LEAST + i]
    rebuild(w, z)


@inline
def _change(w: World, p: Profile, at: int, c: int, n: int, tasks: int, gpus: int, sign: int) -> None:
    """Give a piece back to a row (sign 1) or take it (sign -1)."""
    slot = at * w.sizes.num_nodes + n
    if w.class_cpu[c] > 0:
        p.cpu[slot] += sign * tasks * w.class_cpu[c]
    if w.class_mem[c] > 0:
        p.mem[slot] += sign * tasks * w.class_mem[c]
    if w.class_gpus[c] > 0:
        p.mask[slot] ^= gpus
    elif w.class_milli[c] > 0:
        part = slot * w.sizes.gpu_stride + lowest_bit(gpus)
        free = (WHOLE if p.mask[slot] & gpus else p.share[part]) + sign * w.class_milli[c]
        p.mask[slot] = p.mask[slot] | gpus if free == WHOLE else p.mask[slot] & ~gpus
        p.share[part] = 0 if free == WHOLE else free


@inline
def round_down(w: World, s: State, time: float) -> float:
    """The last time of the plan's resolution, counted from now, that is not after `time`."""
    step = w.slurm.resolution
    return s.clock.now + np.floor((time - s.clock.now) / step) * step if step > 0.0 else time


@inline
def round_up(w: World, s: State, time: float) -> float:
    """The first time of the plan's resolution, counted from now, that is not before `time`."""
    step = w.slurm.resolution
    return s.clock.now + np.ceil((time - s.clock.now) / step) * step if step > 0.0 else time


@kernel
def begin_profile(w: World, m: Machine, s: State, q: int, p: Profile) -> None:
    """Let the profile have what is free now, the moments at which running jobs are expected to end, and the ends of reserved times."""
    _note_present(w, m, s, p)
    order = order_by_expected_end(s)
    ends = s.scratch
    last = 0
    for i in range(s.count.running_jobs):
        j = s.running[order[i]]
        c = w.job_class[j]
        if w.class_queue[c] != q and not is_capped(w):
            continue  # its nodes are of another partition
        end = round_down(w, s, ends[order[i]])
        if last == 0 or end > p.times[last]:
            last += 1
            p.times[last] = end
            p.left[last] = p.left[last - 1]
            p.row[last] = last + 1
            copy_row(p, last + 1, last)
        for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            if is_capped(w):
                p.drawn[last + 1] -= draw_of(w, c, s.piece_node[k], s.piece_tasks[k])
            if not m.closed[s.piece_node[k]]:
                _change(w, p, last + 1, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k], 1)
                p.left[last] += s.piece_tasks[k] * _share_of_left(w, c)
    p.size[NUMBER] = last + 1
    p.size[PRESENT] = 2 if last > 0 and p.times[1] == p.times[0] else 1
    for i in range(first_reservation_end_after(w, s.clock.now), w.sizes.num_reservation_ends):
        note_moment(p, round_up(w, s, w.reservation_end[i]), p.size[PRESENT])


@inline
def _note_present(w: World, m: Machine, s: State, p: Profile) -> None:
    """Let moment 0 be the machine as it is."""
    p.times[0] = s.clock.now
    p.row[0] = 1
    for n in range(p.size[MASKS]):
        p.mask[p.size[MASKS] + n] = m.free_mask[n]
    for i in range(p.size[SHARES]):
        p.share[p.size[SHARES] + i] = m.share_free[i]
    for n in range(p.size[CPUS]):
        p.cpu[p.size[CPUS] + n] = m.free_cpu[n]
    for n in range(p.size[MEMS]):
        p.mem[p.size[MEMS] + n] = m.free_mem[n]
    if is_capped(w):
        p.drawn[1] = m.drawn[0]
    left = 0
    for n in range(w.sizes.num_nodes):
        left += m.free_cpu[n] if w.policy.counts_cores else m.free_milli[n]
    p.left[0] = left


@inline
def note_moment(p: Profile, time: float, first: int) -> int:
    """Let `time` be a moment of the profile, at place `first` or later; returns its place."""
    at = moment_from(p, time, first)
    number = p.size[NUMBER]
    if at < number and p.times[at] == time:
        return at
    for k in range(number, at, -1):
        p.times[k] = p.times[k - 1]
    for k in range(number, at, -1):
        p.row[k] = p.row[k - 1]
    for k in range(number, at, -1):
        p.left[k] = p.left[k - 1]
    p.times[at] = time
    p.row[at] = number + 1
    p.left[at] = p.left[at - 1]
    copy_row(p, number + 1, p.row[at - 1])
    p.size[NUMBER] = number + 1
    return at


@kernel
def hold(w: World, s: State, c: int, p: Profile, start: int, until: float) -> None:
    """Take the placement in State.place_* out of the profile from moment `start` to `until`."""
    # A hold of no length ends with the next moment of its time.
    end = note_moment(p, until, max(start + 1, p.size[PRESENT]))
    for k in range(s.count.placed):
        n, tasks, gpus = s.place_node[k], s.place_tasks[k], s.place_gpus[k]
        taken = tasks * _share_of_left(w, c)
        for i in range(start, end):
            _change(w, p, p.row[i], c, n, tasks, gpus, -1)
            p.left[i] -= taken
        if is_capped(w):
            for i in range(start, end):
                p.drawn[p.row[i]] += draw_of(w, c, n, tasks)
