"""EASY: when the blocked head will fit (its *shadow time*), and which jobs may start without delaying it.

There are two ways to find the shadow time. In general, the future is simulated on the spare machine: running jobs are
removed in the order of their expected ends until the head fits. If all jobs ask for whole GPUs only, `free_times` holds
the expected free times of each node's GPUs in ascending order. The head's k tasks of g GPUs then fit at the k-th
smallest of the times at which a node has g, 2g, … GPUs free, and a scan finds it.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.conditions.reserved_nodes import first_reservation_end_after
from queuewise.sim.core.compilation import inline, kernel, lesser
from queuewise.sim.core.machine import copy_machine, give, has_room, take_exactly
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.placement.placement_rules import fits

FREE = -np.inf  # in free_times: the GPU is free now
BLOCK = 32  # nodes that a scan can skip together


@inline
def book_gpus(w: World, s: State, n: int, number: int, until: float) -> None:
    """Record that `number` free GPUs of node n are now in use and expected to be free again at `until`."""
    stride = w.sizes.num_nodes
    place = w.node_place[n]
    source = number
    target = 0
    while source < w.node_gpus[n] and s.free_times[source * stride + place] < until:
        s.free_times[target * stride + place] = s.free_times[source * stride + place]
        source += 1
        target += 1
    for _ in range(number):
        s.free_times[target * stride + place] = until
        target += 1


@inline
def unbook_gpus(w: World, s: State, n: int, number: int, until: float) -> None:
    """Record that `number` GPUs of node n that were expected to be free at `until` are free now."""
    stride = w.sizes.num_nodes
    place = w.node_place[n]
    at = 0
    while s.free_times[at * stride + place] != until:
        at += 1
    for k in range(at - 1, -1, -1):
        s.free_times[(k + number) * stride + place] = s.free_times[k * stride + place]
    for k in range(number):
        s.free_times[k * stride + place] = FREE


@inline
def _least_of(s: State, first: int, end: int) -> float:
    least = np.inf
    for at in range(first, end):
        least = lesser(least, s.free_times[at])
    return least


@inline
def _insert(least, k: int, time: float) -> None:  # type: ignore[no-untyped-def]
    """Insert a time into the k least times seen so far, which are in ascending order."""
    slot = k - 1
    if time < least[slot]:
        while slot > 0 and least[slot - 1] > time:
            least[slot] = least[slot - 1]
            slot -= 1
        least[slot] = time


@kernel
def _kth_free_time(w: World, s: State, c: int) -> float:
    """The k-th smallest of the times at which a node can take one more task of class c, where k is the gang's size."""
    k = w.class_tasks[c]
    g = w.class_gpus[c]
    stride = w.sizes.num_nodes
    least = s.scratch
    for i in range(k):
        least[i] = np.inf
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for row in range(g - 1, w.pool_gpus[p], g):
            found = False
            last = row * stride + w.pool_first[p + 1]
            for block in range(row * stride + w.pool_first[p], last, BLOCK):
                end = min(block + BLOCK, last)
                if _least_of(s, block, end) < least[k - 1]:
                    found = True
                    for at in range(block, end):
                        _insert(least, k, s.free_times[at])
            if k == 1 or not found:
                break  # a node's times increase from row to row
    return least[k - 1]


@kernel
def _slots_by(w: World, s: State, c: int, time: float) -> int:
    """Tasks of class c that fit at `time` if running jobs end as expected."""
    g = w.class_gpus[c]
    stride = w.sizes.num_nodes
    total = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for row in range(g - 1, w.pool_gpus[p], g):
            here = 0
            for at in range(row * stride + w.pool_first[p], row * stride + w.pool_first[p + 1]):
                here += s.free_times[at] <= time
            total += here
            if here == 0:
                break
    return total


@inline
def _free_by(w: World, s: State, n: int, time: float) -> int:
    stride = w.sizes.num_nodes
    number = 0
    while number < w.node_gpus[n] and s.free_times[number * stride + w.node_place[n]] <= time:
        number += 1
    return number


@kernel
def order_by_expected_end(s: State):  # type: ignore[no-untyped-def]
    """Positions in State.running in the order of expected ends, which are left in State.scratch.

    Overdue jobs count as ending now.
    """
    number = s.count.running_jobs
    for i in range(number):
        s.scratch[i] = max(s.expected[s.running[i]], s.clock.now)
    return np.argsort(view(s.scratch, number))


@kernel
def _sort_running(s: State) -> None:
    """Sort State.running by expected end. It stays nearly sorted from one decision to the next, so this is quick."""
    for i in range(1, s.count.running_jobs):
        j = s.running[i]
        expected = s.expected[j]
        at = i
        while at > 0 and s.expected[s.running[at - 1]] > expected:
            s.running[at] = s.running[at - 1]
            s.running_slot[s.running[at]] = at
            at -= 1
        s.running[at] = j
        s.running_slot[j] = at


@kernel
def _reserve_on_scratch(w: World, m: Machine, z: Machine, s: State, c: int) -> float:
    """Set z to the machine at the earliest time at which class c fits, and return that time (inf: never).

    Overdue jobs count as ending now.
    """
    copy_machine(w, m, z)
    _sort_running(s)
    number = s.count.running_jobs
    now = s.clock.now
    i = 0
    ending = first_reservation_end_after(w, now)
    while i < number or ending < w.sizes.num_reservation_ends:
        time = max(s.expected[s.running[i]], now) if i < number else np.inf
        if ending < w.sizes.num_reservation_ends and w.reservation_end[ending] <= time:
            time = w.reservation_end[ending]
            ending += 1
        while i < number and max(s.expected[s.running[i]], now) == time:
            _take_off(w, z, s, s.running[i])
            i += 1
        if w.policy.has_reservations:
            z.time[0] = time
        if fits(w, z, s, c):
            return time
    return np.inf


@inline
def _take_off(w: World, z: Machine, s: State, j: int) -> None:
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        give(w, z, w.job_class[j], s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])


@kernel
def reserve_head(w: World, m: Machine, z: Machine, s: State, q: int, head: int) -> None:
    """Compute the shadow time of the head of queue q.

    With free_times, the result is reused across decisions. It stays valid until a job ends earlier than expected: jobs
    that start in the meantime do not delay the head, and jobs that end on time were taken into account.
    """
    c = w.job_class[head]
    if not w.policy.tracks_free_times:
        s.shadow_time[q] = _reserve_on_scratch(w, m, z, s, c)
        return
    if s.shadow_head[q] == head and s.shadow_stamp[q] == s.count.early_ends and s.clock.now < s.shadow_time[q]:
        return
    time = max(_kth_free_time(w, s, c), s.clock.now)
    s.shadow_head[q] = head
    s.shadow_stamp[q] = s.count.early_ends
    s.shadow_time[q] = time
    s.shadow_slack[q] = _slots_by(w, s, c, time) - w.class_tasks[c]


@kernel
def some_class_fits(w: World, m: Machine, s: State, q: int) -> bool:
    slot = s.queue_first[q]
    last = slot + s.queue_active[q]
    while slot < last and not fits(w, m, s, s.active[slot]):
        slot += 1
    return slot < last


@kernel
def reserve_to_backfill(w: World, m: Machine, z: Machine, s: State, q: int, head: int) -> None:
    """The same before jobs of the queue are backfilled by the placement rule.

    If none of them fits, none can start, whenever the head may: then the shadow time is left at inf.
    """
    if w.policy.tracks_free_times or some_class_fits(w, m, s, q):
        reserve_head(w, m, z, s, q, head)
    else:
        s.shadow_time[q] = np.inf


@kernel
def _lost_slots(w: World, s: State, q: int, head_class: int, c: int) -> int:
    """Tasks of the head's class that no longer fit at the shadow time if the job in State.place_* outlives it."""
    g = w.class_gpus[head_class]
    pools = w.sizes.num_pools
    lost = 0
    for k in range(s.count.placed):
        n = s.place_node[k]
        if w.class_allows[head_class * pools + w.node_pool[n]]:
            free = _free_by(w, s, n, s.shadow_time[q])
            lost += free // g - (free - s.place_tasks[k] * w.class_gpus[c]) // g
    return lost


@kernel
def head_keeps_place(w: World, z: Machine, s: State, q: int, head_class: int, c: int) -> bool:
    """Whether the head still fits at the shadow time if the job placed in State.place_* outlives it."""
    if s.shadow_time[q] == np.inf:
        return True
    if w.policy.tracks_free_times:
        return _lost_slots(w, s, q, head_class, c) <= s.shadow_slack[q]
    number = s.count.placed
    for k in range(number):
        take_exactly(w, z, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
    kept = _fits_keeping_placement(w, z, s, head_class)
    for k in range(number - 1, -1, -1):
        give(w, z, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
    return kept


@kernel
def _fits_keeping_placement(w: World, z: Machine, s: State, c: int) -> bool:
    """Call `fits`, which may build its own placement, and restore the placement in State.place_* afterwards."""
    if not w.policy.room_is_not_enough:
        return has_room(w, z, c)  # builds none
    number = s.count.placed
    nodes = view(s.place_node, number).copy()
    tasks = view(s.place_tasks, number).copy()
    gpus = view(s.place_gpus, number).copy()
    answer = fits(w, z, s, c)
    view(s.place_node, number)[:] = nodes
    view(s.place_tasks, number)[:] = tasks
    view(s.place_gpus, number)[:] = gpus
    s.count.placed = number
    return answer


@kernel
def note_outliving(w: World, z: Machine, s: State, q: int, head_class: int, c: int) -> None:
    """Account for a job that starts as placed in State.place_* and leaves less for the head at the shadow time."""
    if s.shadow_time[q] == np.inf:
        return
    if w.policy.tracks_free_times:
        s.shadow_slack[q] -= _lost_slots(w, s, q, head_class, c)
    else:
        for k in range(s.count.placed):
            take_exactly(w, z, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
