"""The compiled walk of `wait_causes`: through a finished schedule in time, asking at each instant why the waiting jobs wait.

Between two instants nothing changes, so a cause lasts from one to the next. The state of an instant is that after its
decisions. Jobs of a demand class that are in the queue have the same cause, so it is found once per class. The walk sums
the seconds of each class by cause; those of one job are the difference between two of these sums.

There are two machines: `m` is the real one; on the other one, `z`, no node is ever closed or reserved.
"""

from __future__ import annotations

import numpy as np
from numba import types

from queuewise.sim import backfill, conditions
from queuewise.sim.conditions.power_cap import is_capped
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.conditions.reserved_nodes import is_blocked
from queuewise.sim.core.compilation import caller_by_address, entry, inline, kernel
from queuewise.sim.core.machine import close_node, give, set_free_gpus, slots_on, take_exactly
from queuewise.sim.core.pieces import unplace
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.core.tables import F64, I32, I64, Scalars, Table, column, table_reader
from queuewise.sim.placement.placement_rules import fits, place_by_rule

# What a job waits for, in the order in which causes are tried. The first two are no matter of the queue, and are found without the walk.
MEANINGS = {
    "dependency": "other jobs that the job depends on",
    "waking": "its nodes, which it already has, to wake up",
    "quota": "GPUs that its virtual cluster holds and may not exceed",
    "closed": "nodes that are down, drained or reserved for others; the job would fit if they were open",
    "gpus": "GPUs: fewer are free, on all nodes that it may use together, than it asks for",
    "cores": "cores: fewer are free, on all nodes that it may use together, than it asks for",
    "memory": "memory: less is free, on all nodes that it may use together, than it asks for",
    "fragmentation": "room in one place: enough is free in all, but not on single nodes or GPUs",
    "power": "power: it would fit, but exceed the cap",
    "bound": "a job that has waited longer than the bound; it would fit itself",
    "reservation": "jobs ahead of it, for which the backfill rule keeps the room; it would fit itself",
    "priority": "jobs that the policy puts first; it would fit itself",
}
CAUSES = tuple(MEANINGS)
DEPENDENCY, WAKING, QUOTA, CLOSED, GPUS, CORES, MEMORY, FRAGMENTATION, POWER, BOUND, RESERVATION, PRIORITY = range(len(CAUSES))
NUM_CAUSES = len(CAUSES)
FITS = NUM_CAUSES  # it could start: the policy is the cause
# Walk.room: tasks, GPU milli, CPU milli and MiB on the nodes that a class may use, and tasks if no node were closed or reserved
SLOTS, FREE_GPU, FREE_CPU, FREE_MEM, OPEN_SLOTS, ROOM_SIZE = range(6)


class WalkCounts(Scalars, dtype=np.int64):
    """How far the walk is in each list of events, and lengths of lists."""

    begun: int
    ended: int
    late: int
    started: int
    stopped: int
    outages: int
    listed: int  # classes with waiting jobs
    touched: int  # nodes that change at this instant
    num_waits: int
    num_ends: int  # of waits that end
    num_late: int
    num_starts: int
    num_stops: int
    changed: int  # 1: something has happened since the causes were last found
    rule: int  # address of `answer_of_rule`, if it is needed
    reserves: int  # 1: the backfill rule keeps candidates from starting for the sake of others


class Walk(Table):
    count: WalkCounts = column()
    # Waits: times for which a job is in its queue, by begin
    begin: F64 = column("waits", unit="s")
    end: F64 = column("waits", unit="s")
    late_at: F64 = column("waits", unit="s", meaning="when the job is overdue; inf: not in this wait")
    wait_class: I64 = column("waits")
    by_end: I64 = column("waits")
    by_late: I64 = column("waits")
    seconds: F64 = column("waits", "causes", initial=0.0, unit="s", meaning="the result")
    # Pieces of a length above 0
    by_start: I64 = column("pieces")
    by_stop: I64 = column("pieces")
    piece_class: I32 = column("pieces")
    piece_node: I32 = column("pieces")
    piece_tasks: I32 = column("pieces")
    piece_gpus: I64 = column("pieces")
    piece_start: F64 = column("pieces", unit="s")
    piece_end: F64 = column("pieces", unit="s")
    # Demand classes
    waiting: I64 = column("classes", initial=0, meaning="jobs in the queue")
    overdue: I64 = column("classes", initial=0, meaning="overdue jobs in the queue")
    listed: I64 = column("classes", meaning="classes with waiting jobs")
    place: I64 = column("classes", meaning="position in `listed`")
    total: F64 = column("classes", "causes", initial=0.0, unit="s", meaning="by cause, up to `since`; 0 when the first job came")
    since: F64 = column("classes", unit="s")
    cause: I64 = column("classes", initial=0, meaning="since `since`")
    found: I64 = column("classes", meaning="the cause from now on")
    room: I64 = column("classes", "rooms", initial=0, meaning="what the class finds free, of each resource no more than it asks for")
    # Queues and nodes
    blocked: I64 = column("queues", meaning="1: a job does not fit")
    late: I64 = column("queues", meaning="1: an overdue job waits, and not for its quota")
    touched: I64 = column("nodes")
    is_touched: I64 = column("nodes", initial=0)


as_walk = table_reader(Walk)


@kernel
def _count_node(w: World, m: Machine, z: Machine, t: Walk, c: int, n: int, sign: int) -> None:
    """Add what class c finds free on node n to its room (sign = 1), or subtract it (-1)."""
    if not w.class_allows[c * w.sizes.num_pools + w.node_pool[n]]:
        return
    tasks = w.class_tasks[c]
    at = c * ROOM_SIZE
    t.room[at + OPEN_SLOTS] += sign * min(slots_on(w, z, c, n), tasks)
    t.room[at + SLOTS] += sign * min(slots_on(w, m, c, n), tasks)
    if is_blocked(w, c, n, m.time[0]):
        return
    t.room[at + FREE_GPU] += sign * min(m.free_milli[n], tasks * w.class_milli[c])
    t.room[at + FREE_CPU] += sign * min(m.free_cpu[n], tasks * w.class_cpu[c])
    t.room[at + FREE_MEM] += sign * min(m.free_mem[n], tasks * w.class_mem[c])


@kernel
def _count_room(w: World, m: Machine, z: Machine, t: Walk, c: int) -> None:
    for k in range(ROOM_SIZE):
        t.room[c * ROOM_SIZE + k] = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        p = w.class_pools[i]
        for k in range(w.pool_first[p], w.pool_first[p + 1]):
            _count_node(w, m, z, t, c, w.pool_nodes[k], 1)


@kernel
def _touch(w: World, m: Machine, z: Machine, t: Walk, n: int) -> None:
    """Node n is about to change."""
    t.count.changed = 1
    if t.is_touched[n]:
        return
    t.is_touched[n] = 1
    t.touched[t.count.touched] = n
    t.count.touched += 1
    for i in range(t.count.listed):
        _count_node(w, m, z, t, t.listed[i], n, -1)


@kernel
def _leave_touched(w: World, m: Machine, z: Machine, t: Walk) -> None:
    for k in range(t.count.touched):
        n = t.touched[k]
        t.is_touched[n] = 0
        for i in range(t.count.listed):
            _count_node(w, m, z, t, t.listed[i], n, 1)
    t.count.touched = 0


@kernel
def _reopen(w: World, m: Machine, z: Machine, n: int) -> None:
    """Node n is in use again: what no job holds is free."""
    m.closed[n] = 0
    m.free_cpu[n] = z.free_cpu[n]
    m.free_mem[n] = z.free_mem[n]
    m.free_milli[n] = z.free_milli[n]
    for g in range(w.node_gpus[n]):
        m.share_free[n * w.sizes.gpu_stride + g] = z.share_free[n * w.sizes.gpu_stride + g]
    set_free_gpus(w, m, n, z.free_mask[n], z.free_gpus[n])


@inline
def _move_piece(w: World, m: Machine, z: Machine, s: State, t: Walk, k: int, sign: int) -> None:
    """Piece k starts (sign = 1) or stops (-1)."""
    c, n, tasks, gpus = t.piece_class[k], t.piece_node[k], t.piece_tasks[k], t.piece_gpus[k]
    _touch(w, m, z, t, n)
    if sign > 0:
        take_exactly(w, m, c, n, tasks, gpus)
        take_exactly(w, z, c, n, tasks, gpus)
    else:
        give(w, m, c, n, tasks, gpus)
        give(w, z, c, n, tasks, gpus)
    if w.policy.has_quotas:
        s.tenant_used[w.class_tenant[c]] += sign * tasks * w.class_milli[c]


@kernel
def _change_machine(w: World, m: Machine, z: Machine, s: State, t: Walk, now: float) -> None:
    """Pieces that end, outages, repairs and pieces that start at this instant."""
    while t.count.stopped < t.count.num_stops and t.piece_end[t.by_stop[t.count.stopped]] == now:
        _move_piece(w, m, z, s, t, t.by_stop[t.count.stopped], -1)
        t.count.stopped += 1
    while t.count.outages < w.sizes.num_outages and w.outage_time[t.count.outages] == now:
        n = w.outage_node[t.count.outages]
        kind = w.outage_kind[t.count.outages]
        t.count.outages += 1
        if kind == conditions.RESERVATION_ENDED:
            continue
        _touch(w, m, z, t, n)
        if kind == conditions.REPAIRED:
            _reopen(w, m, z, n)
        else:
            close_node(w, m, n)
    while t.count.started < t.count.num_starts and t.piece_start[t.by_start[t.count.started]] == now:
        _move_piece(w, m, z, s, t, t.by_start[t.count.started], 1)
        t.count.started += 1
    _leave_touched(w, m, z, t)


@inline
def _settle(t: Walk, c: int, now: float) -> None:
    """Add the seconds since the last change of cause."""
    t.total[c * NUM_CAUSES + t.cause[c]] += now - t.since[c]
    t.since[c] = now


@kernel
def _leave_queue(t: Walk, i: int, now: float) -> None:
    """Wait i ends."""
    c = t.wait_class[i]
    _settle(t, c, now)
    for k in range(NUM_CAUSES):
        t.seconds[i * NUM_CAUSES + k] = t.total[c * NUM_CAUSES + k] - t.seconds[i * NUM_CAUSES + k]
    if t.late_at[i] <= now:
        t.overdue[c] -= 1
        t.count.changed = 1
    t.waiting[c] -= 1
    if t.waiting[c] == 0:
        t.count.listed -= 1
        last = t.listed[t.count.listed]
        t.listed[t.place[c]] = last
        t.place[last] = t.place[c]
        t.count.changed = 1


@kernel
def _join_queue(w: World, m: Machine, z: Machine, t: Walk, i: int, now: float) -> None:
    """Wait i begins."""
    c = t.wait_class[i]
    if t.waiting[c] == 0:
        t.place[c] = t.count.listed
        t.listed[t.count.listed] = c
        t.count.listed += 1
        t.since[c] = now
        for k in range(NUM_CAUSES):
            t.total[c * NUM_CAUSES + k] = 0.0
        _count_room(w, m, z, t, c)
        t.count.changed = 1
    t.waiting[c] += 1
    _settle(t, c, now)
    for k in range(NUM_CAUSES):
        t.seconds[i * NUM_CAUSES + k] = t.total[c * NUM_CAUSES + k]


@kernel
def _change_queues(w: World, m: Machine, z: Machine, t: Walk, now: float) -> None:
    """Jobs that leave and join their queues at this instant, and jobs that become overdue."""
    while t.count.ended < t.count.num_ends and t.end[t.by_end[t.count.ended]] == now:
        _leave_queue(t, t.by_end[t.count.ended], now)
        t.count.ended += 1
    while t.count.begun < t.count.num_waits and t.begin[t.count.begun] == now:
        _join_queue(w, m, z, t, t.count.begun, now)
        t.count.begun += 1
    while t.count.late < t.count.num_late and t.late_at[t.by_late[t.count.late]] == now:
        t.overdue[t.wait_class[t.by_late[t.count.late]]] += 1
        t.count.changed = 1
        t.count.late += 1


@inline
def _free_share(w: World, t: Walk, c: int, resource: int, per_task: int) -> float:
    """How much of what class c asks for is free, at most 1."""
    asked = per_task * w.class_tasks[c]
    return 1.0 if asked == 0 else min(t.room[c * ROOM_SIZE + resource] / asked, 1.0)


@kernel
def _shortage(w: World, t: Walk, c: int) -> int:
    """The resource of which the least share of the demand is free; fragmentation if there is enough of all."""
    gpu = _free_share(w, t, c, FREE_GPU, w.class_milli[c])
    cpu = _free_share(w, t, c, FREE_CPU, w.class_cpu[c])
    mem = _free_share(w, t, c, FREE_MEM, w.class_mem[c])
    least = min(gpu, cpu, mem)
    if least == 1.0:
        return FRAGMENTATION
    return GPUS if gpu == least else CORES if cpu == least else MEMORY


@entry
def answer_of_rule(world, machine, state, c) -> int:  # type: ignore[no-untyped-def]
    """What the placement rule says to a job of class c: FITS, POWER if only the power cap forbids it, or FRAGMENTATION.

    It is compiled apart from the walk because few policies need it and it takes four times as long to compile.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    if fits(w, m, s, c):
        return FITS
    if is_capped(w) and place_by_rule(w, m, s, c):
        unplace(w, m, s, c)
        return POWER
    return FRAGMENTATION


ADDRESSES = types.int64[::1]
ANSWER_SIGNATURE = types.int64(ADDRESSES, ADDRESSES, ADDRESSES, types.int64)
_ask_rule = caller_by_address(ANSWER_SIGNATURE)


@kernel
def _hardware_cause(w: World, s: State, t: Walk, c: int, tables) -> int:  # type: ignore[no-untyped-def]
    """Why no job of class c can start now, FITS if one could."""
    if standing(w, s, c) == OVER:
        return QUOTA
    tasks = w.class_tasks[c]
    has_slots = t.room[c * ROOM_SIZE + SLOTS] >= tasks
    answer = FITS
    if w.policy.room_is_not_enough:
        world, machine, state = tables
        answer = _ask_rule(t.count.rule, world, machine, state, c)
    # An elastic job may fit in a greater size alone: with its fewest tasks it would run longer, into a reservation.
    if has_slots or (w.policy.room_is_not_enough and answer == FITS):
        return answer
    return CLOSED if t.room[c * ROOM_SIZE + OPEN_SLOTS] >= tasks else _shortage(w, t, c)


@kernel
def _policy_cause(w: World, t: Walk, c: int) -> int:
    """Why a job that fits does not start."""
    q = w.class_queue[c]
    if t.late[q]:
        return BOUND
    # Without a blocked job there is nothing to reserve for; only Slurm's loops may still be to come.
    if t.count.reserves and (t.blocked[q] or w.policy.backfill == backfill.SLURM):
        return RESERVATION
    return PRIORITY


@kernel
def _find_causes(w: World, m: Machine, z: Machine, s: State, t: Walk, now: float, tables) -> None:  # type: ignore[no-untyped-def]
    """The causes of all waiting jobs, from now on."""
    for q in range(w.sizes.num_queues):
        t.blocked[q] = 0
        t.late[q] = 0
    for i in range(t.count.listed):
        c = t.listed[i]
        if w.policy.has_reservations:  # which nodes are blocked changes with time
            _count_room(w, m, z, t, c)
        cause = _hardware_cause(w, s, t, c, tables)
        t.found[c] = cause
        if cause != QUOTA:
            t.blocked[w.class_queue[c]] |= cause != FITS
            t.late[w.class_queue[c]] |= t.overdue[c] > 0
    for i in range(t.count.listed):
        c = t.listed[i]
        cause = t.found[c]
        if cause == FITS:
            cause = _policy_cause(w, t, c)
        if cause != t.cause[c]:
            _settle(t, c, now)
            t.cause[c] = cause


@kernel
def _next_time(w: World, t: Walk) -> float:
    time: float = t.end[t.by_end[t.count.ended]]
    if t.count.begun < t.count.num_waits:
        time = min(time, t.begin[t.count.begun])
    if t.count.late < t.count.num_late:
        time = min(time, t.late_at[t.by_late[t.count.late]])
    if t.count.started < t.count.num_starts:
        time = min(time, t.piece_start[t.by_start[t.count.started]])
    if t.count.stopped < t.count.num_stops:
        time = min(time, t.piece_end[t.by_stop[t.count.stopped]])
    if t.count.outages < w.sizes.num_outages:
        time = min(time, w.outage_time[t.count.outages])
    return time


@entry
def walk_causes(world, machine, open_machine, state, walk) -> None:  # type: ignore[no-untyped-def]
    """Fill Walk.seconds."""
    w = as_world(world)
    m = as_machine(machine)
    z = as_machine(open_machine)
    s = as_state(state)
    t = as_walk(walk)
    while t.count.ended < t.count.num_ends:
        now = _next_time(w, t)
        if w.policy.has_reservations:
            m.time[0] = now
            t.count.changed = 1
        _change_machine(w, m, z, s, t, now)
        _change_queues(w, m, z, t, now)
        if t.count.changed:
            _find_causes(w, m, z, s, t, now, (world, machine, state))
            t.count.changed = 0
