"""Conservative backfill: every waiting job gets the earliest place that delays nobody planned before it.

The plan is a profile: a list of moments, and for each what is free from then until the next. Moment 0 is now as it really is; if
running jobs are overdue a second moment with the same time has them gone, so that their place can be promised but not used: these
`present` moments (one or two) are one instant, and a start now covers them all. A reservation looks at the least that is free over its
whole length and takes it out of every moment it covers. One of no length covers one moment, and another of the same time follows it.

A job keeps the reservation it remembers from the pass before (pins.py) unless there is an earlier one.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.bars import first_lift_after, is_barred
from queuewise.sim.compilation import inline, kernel
from queuewise.sim.keys import estimate_left
from queuewise.sim.lifecycle import start_placed
from queuewise.sim.machine import WHOLE, copy_machine, rebuild, take_exactly
from queuewise.sim.pieces import class_as_placed
from queuewise.sim.pins import NO_PIN, is_pinned, pin, pin_is_free, recall, tasks_pinned, tasks_placed
from queuewise.sim.placement import might_have_room, place_one_of, runtime_factor
from queuewise.sim.power import draw_of, is_capped
from queuewise.sim.queue import SECONDARY, dequeue, enqueue, first_in_order, shortest_queued
from queuewise.sim.reserve import order_by_expected_end
from queuewise.sim.state import (
    DEPTH,
    DYNAMIC,
    EARLY_ENDS,
    FICKLE,
    GPU_STRIDE,
    NO_LIMIT,
    NOW,
    NUM_CLASSES,
    NUM_LIFTS,
    NUM_NODES,
    PENDING_JOBS,
    PINS,
    PLACED,
    PLAN_BANDS,
    QUOTAS,
    RESERVES,
    RUNNING_JOBS,
    SECOND_ORDER,
    SHARES,
    UNIFORM,
    Machine,
    State,
    World,
)
from queuewise.sim.tables import view

UNRESERVED = -np.inf  # start of a run that no reservation keeps from any node


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
def _keep_least(w: World, least, row, at: int) -> None:  # type: ignore[no-untyped-def]
    """Let `least` hold the least of itself and of moment `at` of the profile."""
    mask, share, cpu, mem, drawn = row
    least_mask, least_share, least_cpu, least_mem, most_drawn = least
    for n in range(w.sizes[NUM_NODES] if share.shape[1] else 0):
        for g in range(w.node_gpus[n]):
            slot = n * w.sizes[GPU_STRIDE] + g
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
def _copy_moment(row, at: int, others, other: int) -> None:  # type: ignore[no-untyped-def]
    for field in range(5):
        target, source = row[field], others[field]
        for i in range(target.shape[1]):
            target[at, i] = source[other, i]


@kernel
def _room(w: World, c: int, row, at: int, start: float) -> int:  # type: ignore[no-untyped-def]
    """Tasks of class c that fit at one moment of a run that starts at `start`, counted up to the gang's size."""
    mask, share, cpu, mem, _ = row
    need = w.class_tasks[c]
    reserved = w.policy[RESERVES] != 0
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            n = w.pool_nodes[k]
            if reserved and is_barred(w, c, n, start):
                continue
            room = need
            if w.class_gpus[c] > 0:
                room = min(room, _bits_in(mask[at, n]) // w.class_gpus[c])
            elif w.class_milli[c] > 0:
                shares = 0
                for g in range(w.node_gpus[n]):
                    free = WHOLE if (mask[at, n] >> g) & 1 else share[at, n * w.sizes[GPU_STRIDE] + g]
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
        slot = n * w.sizes[GPU_STRIDE] + g
        free = (WHOLE if mask[at, n] & gpus else share[at, slot]) + sign * w.class_milli[c]
        mask[at, n] = mask[at, n] | gpus if free == WHOLE else mask[at, n] & ~gpus
        share[at, slot] = 0 if free == WHOLE else free


@inline
def _change_draw(w: World, row, at: int, c: int, n: int, tasks: int) -> None:  # type: ignore[no-untyped-def]
    drawn = row[4]
    if drawn.shape[1]:
        drawn[at, 0] += draw_of(w, c, n, tasks)


@kernel
def _profile_of_running(w: World, m: Machine, s: State, times, row) -> int:  # type: ignore[no-untyped-def]
    """Moments at which running jobs are expected to end; returns their number."""
    mask, share, cpu, mem, drawn = row
    times[0] = s.clock[NOW]
    mask[0] = view(m.free_mask, mask.shape[1])
    share[0] = view(m.share_free, share.shape[1])
    cpu[0] = view(m.free_cpu, cpu.shape[1])
    mem[0] = view(m.free_mem, mem.shape[1])
    drawn[0] = view(m.drawn, drawn.shape[1])
    order = order_by_expected_end(s)
    ends = s.scratch
    last = 0
    for i in range(s.count[RUNNING_JOBS]):
        j = s.running[order[i]]
        if last == 0 or ends[order[i]] > times[last]:
            last += 1
            times[last] = ends[order[i]]
            _copy_moment(row, last, row, last - 1)
        for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            _change_draw(w, row, last, w.job_class[j], s.piece_node[k], -s.piece_tasks[k])
            if not m.closed[s.piece_node[k]]:
                _change(w, row, last, w.job_class[j], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k], 1)
    return last + 1


@kernel
def _load(w: World, z: Machine, row, at: int) -> None:  # type: ignore[no-untyped-def]
    """Make z the machine of one moment; what no job asks for it has already."""
    mask, share, cpu, mem, drawn = row
    view(z.free_mask, mask.shape[1])[:] = mask[at]
    view(z.share_free, share.shape[1])[:] = share[at]
    view(z.free_cpu, cpu.shape[1])[:] = cpu[at]
    view(z.free_mem, mem.shape[1])[:] = mem[at]
    view(z.drawn, drawn.shape[1])[:] = drawn[at]
    rebuild(w, z)


@kernel
def _moments(w: World, number: int):  # type: ignore[no-untyped-def]
    """Room for `number` moments: wholly free GPUs, shares, CPU and memory, each only where some job asks for it, and power in use."""
    nodes = w.sizes[NUM_NODES]
    shares = nodes * w.sizes[GPU_STRIDE] if w.sizes[SHARES] else 0
    cpus = nodes if view(w.class_cpu, w.sizes[NUM_CLASSES]).max() > 0 else 0
    mems = nodes if view(w.class_mem, w.sizes[NUM_CLASSES]).max() > 0 else 0
    return (
        np.empty((number, nodes), np.int64),
        np.empty((number, shares), np.int64),
        np.empty((number, cpus), np.int64),
        np.empty((number, mems), np.int64),
        np.empty((number, 1 if is_capped(w) else 0), np.int64),
    )


@inline
def _band(length: float) -> int:
    """Lengths of one band differ by less than a factor of two."""
    return 0 if length < 1.0 else min(1 + int(np.log2(length)), PLAN_BANDS - 1)


@kernel
def _earliest(w: World, s: State, c: int, length: float) -> float:
    """A time before which no job of the class and length can start: where a shorter one of the class was planned, in a freer profile."""
    earliest = -np.inf
    if not w.policy[FICKLE]:
        for band in range(_band(length)):
            earliest = max(earliest, s.planned[c * PLAN_BANDS + band])
    return earliest


@inline
def _could_start(w: World, s: State, c: int, estimate: float, latest: float) -> bool:
    """Whether a job of this class and estimate, started now, ends before its class meets what stood in its way before."""
    if w.class_span[c] > 0:
        return True  # what stands in the way of one size need not be in that of another
    return s.clock[NOW] + estimate * w.class_worst[c] <= latest


@kernel
def _somebody_could_start(w: World, m: Machine, s: State, q: int, latest) -> bool:  # type: ignore[no-untyped-def]
    """Whether any job that is not planned yet has room on the machine as it is now, and is short enough for it."""
    if w.policy[DYNAMIC]:
        for i in range(s.count[PENDING_JOBS]):
            j = s.pending[i]
            c = w.job_class[j]
            if w.class_queue[c] == q and _could_start(w, s, c, estimate_left(w, s, j), latest[c]) and might_have_room(w, m, c):
                return True
        return False
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        if _could_start(w, s, c, shortest_queued(w, s, c), latest[c]) and might_have_room(w, m, c):
            return True
    return False


@inline
def _note_obstacle(w: World, c: int, start: int, time: float, latest) -> None:  # type: ignore[no-untyped-def]
    """Class c cannot start now and run beyond `time` (-inf: at all). That stays so while the profile fills up, with rules that are not fickle."""
    if start == 0 and not w.policy[FICKLE]:
        latest[c] = min(latest[c], time)


@kernel
def _find_start(
    w: World, z: Machine, s: State, c: int, estimate: float, times, where, number: int, present: int, row, least, latest
) -> int:  # type: ignore[no-untyped-def]
    """The first moment from which class c has a place for as long as it takes; the place is left in State.place_*. -1 if there is none.

    Of an elastic job all sizes are tried at one moment, the greatest first, before the next moment.
    It is one function because arrays are costly to hand over.
    """
    span = w.class_span[c]
    size = c + span
    start = 0 if _could_start(w, s, c, estimate, latest[c]) else 1
    earliest = _earliest(w, s, c, estimate * w.class_worst[c]) if span == 0 else -np.inf
    while start < number and times[where[start]] < earliest:
        start += 1
    while start < number:
        time = times[where[start]]
        until = time + estimate * w.class_worst[size]
        need = w.class_tasks[size]
        following = start + 1
        obstacle = -np.inf
        fitting = _room(w, size, row, where[start], time) >= need
        if fitting:
            _copy_moment(least, 0, row, where[start])
        at = start + 1
        while fitting and at < number and (times[where[at]] < until or at < present):
            obstacle = times[where[at]] if at >= present else -np.inf
            if _room(w, size, row, where[at], UNRESERVED) < need:
                following = at + 1  # every start up to there meets the same obstacle
                fitting = False
                break
            _keep_least(w, least, row, where[at])
            fitting = _room(w, size, least, 0, time) >= need
            at += 1
        if fitting:
            _load(w, z, least, 0)
            z.time[0] = time
            if place_one_of(w, z, s, size, size):
                return start
        _note_obstacle(w, size, start, obstacle, latest)
        if size > c:
            size -= 1
        else:
            size = c + span
            start = following if span == 0 else start + 1
    return -1


@kernel
def _is_free_from(w: World, s: State, j: int, first: int, time: float, until: float, times, where, number: int, present: int, row) -> bool:  # type: ignore[no-untyped-def]
    """Whether the place that job j remembers is free from `time`, which moment `first` is of, until `until`."""
    c = w.job_class[j]
    size = c + tasks_pinned(w, s, j) - w.class_tasks[c]
    if not pin_is_free(w, s, j, size, row, where[first], time):
        return False
    at = first + 1
    while at < number and (times[where[at]] < until or at < present):
        if not pin_is_free(w, s, j, size, row, where[at], UNRESERVED):
            return False
        at += 1
    return True


@kernel
def _pinned_start(w: World, s: State, j: int, estimate: float, found: int, times, where, number: int, present: int, row):  # type: ignore[no-untyped-def]
    """The moment at which job j starts where it remembers, -1 if that is not free or moment `found` is better; and the number of moments."""
    c = w.job_class[j]
    time = max(s.pin_start[j], s.clock[NOW])
    until = time + estimate * w.class_worst[c + tasks_pinned(w, s, j) - w.class_tasks[c]]
    last = number - 1 if found < 0 else found
    at = 0
    while at <= last and times[where[at]] < time:
        at += 1
    if at > last and found >= 0:
        return -1, number
    if at > last or times[where[at]] > time:
        if not _is_free_from(w, s, j, at - 1, time, until, times, where, number, present, row):
            return -1, number
        return at, _note_moment(time, at, times, where, number, row)
    while at <= last and times[where[at]] == time:
        if _is_free_from(w, s, j, at, time, until, times, where, number, present, row):
            larger = at == found and tasks_placed(s) > tasks_pinned(w, s, j)
            return -1 if larger else at, number
        at += 1
    return -1, number


@inline
def _note_moment(time: float, first: int, times, where, number: int, row) -> int:  # type: ignore[no-untyped-def]
    """Let `time` be a moment of the profile, at place `first` or later; returns the number of moments."""
    at = first
    while at < number and times[where[at]] < time:
        at += 1
    if at < number and times[where[at]] == time:
        return number
    return _insert_moment(time, at, times, where, number, row)


@inline
def _insert_moment(time: float, at: int, times, where, number: int, row) -> int:  # type: ignore[no-untyped-def]
    """Let there be a moment at place `at`, as the one before it."""
    for k in range(number, at, -1):
        where[k] = where[k - 1]
    where[at] = number
    times[number] = time
    _copy_moment(row, number, row, where[at - 1])
    return number + 1


@kernel
def _hold(w: World, s: State, c: int, start: int, until: float, times, where, number: int, present: int, row) -> int:  # type: ignore[no-untyped-def]
    """Take the placement in State.place_* out of the profile from moment `start` to `until`; returns the number of moments."""
    end = max(start + 1, present)
    if until > times[where[start]]:
        number = _note_moment(until, end, times, where, number, row)
        while times[where[end]] < until:
            end += 1
    else:
        number = _insert_moment(until, end, times, where, number, row)
    for at in range(start, end):
        for k in range(s.count[PLACED]):
            _change(w, row, where[at], c, s.place_node[k], s.place_tasks[k], s.place_gpus[k], -1)
            _change_draw(w, row, where[at], c, s.place_node[k], s.place_tasks[k])
    return number


@inline
def _can_rely_on_last_plan(w: World, s: State, q: int) -> bool:
    """Whether what was planned ahead of each job in the last pass is still to come, or less is free: then nobody finds an earlier start.

    Not if orders change, something ended early, or runs may be shorter than their reservations.
    """
    if not w.policy[PINS] or w.policy[DYNAMIC] or w.policy[QUOTAS] or w.policy[SECOND_ORDER] or w.policy[FICKLE]:
        return False
    return w.sizes[UNIFORM] != 0 and s.plan_stamp[q] == s.count[EARLY_ENDS]


@kernel
def plan_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Plan the blocked head and then all candidates of queue q; start those whose turn is now.

    Where nobody remembers, plans are made for the sake of who starts now, so planning ends when nobody is left who could.
    """
    pins = w.policy[PINS] != 0
    latest = np.full(w.sizes[NUM_CLASSES], np.inf)  # by class: jobs that would run beyond it cannot start now
    if not pins and not _somebody_could_start(w, m, s, q, latest):
        return
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        for band in range(PLAN_BANDS):
            s.planned[s.active[slot] * PLAN_BANDS + band] = -np.inf
    copy_machine(w, m, z)
    waiting = s.count[PENDING_JOBS]
    most = s.count[RUNNING_JOBS] + 2 * waiting + 3 + w.sizes[NUM_LIFTS]
    times = np.empty(most)
    where = np.arange(most)
    row, least = _moments(w, most), _moments(w, 1)
    number = _profile_of_running(w, m, s, times, row)
    present = 2 if number > 1 and times[1] == times[0] else 1
    for lift in range(first_lift_after(w, s.clock[NOW]), w.sizes[NUM_LIFTS]):
        number = _note_moment(w.lift_time[lift], present, times, where, number, row)
    left = waiting if w.policy[DEPTH] == NO_LIMIT else w.policy[DEPTH]
    deferred = np.empty(waiting, np.int64)
    deferrals = 0
    settled = _can_rely_on_last_plan(w, s, q)
    j = s.head[q]
    while j >= 0:
        c = w.job_class[j]
        estimate = estimate_left(w, s, j)
        kept = -1
        if settled and is_pinned(w, s, j):
            kept, number = _pinned_start(w, s, j, estimate, -1, times, where, number, present, row)
            settled = kept == 0 or (kept > 0 and times[where[kept - 1]] < times[where[kept]])
        start = kept
        if kept < 0 or not settled:
            start = _find_start(w, z, s, c, estimate, times, where, number, present, row, least, latest)
            kept = -1
            if start > 0:
                slot = c * PLAN_BANDS + _band(estimate * w.class_worst[class_as_placed(w, s, c)])
                s.planned[slot] = max(s.planned[slot], times[where[start]])
            if is_pinned(w, s, j):
                kept, number = _pinned_start(w, s, j, estimate, start, times, where, number, present, row)
        if kept >= 0:
            start = kept
            recall(w, s, j)
        length = estimate * w.class_worst[class_as_placed(w, s, c)] if start >= 0 else 0.0
        if start == 0:
            for k in range(s.count[PLACED]):
                take_exactly(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
            start_placed(w, s, j, runtime_factor(w, s, c))
            number = _hold(w, s, c, 0, s.clock[NOW] + length, times, where, number, present, row)
        else:
            if pins:
                s.pin_start[j] = NO_PIN
            if start > 0:
                if pins:
                    pin(w, s, j, times[where[start]])
                number = _hold(w, s, c, start, times[where[start]] + length, times, where, number, present, row)
            dequeue(w, s, j)
            deferred[deferrals] = j
            deferrals += 1
        j = first_in_order(w, s, q, SECONDARY, False) if left > 0 and (pins or _somebody_could_start(w, m, s, q, latest)) else -1
        left -= 1
    for i in range(deferrals):
        enqueue(w, s, deferred[i])
    s.plan_stamp[q] = s.count[EARLY_ENDS]
