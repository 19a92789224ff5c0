"""Node states: what a solver outside the engine is told of the machine. `gang_moves` puts on the machine what it has decided.

Nodes of one pool with the same free amounts are in one *state*, so a model grows with the states and not with the nodes.
A *move* puts tasks of a job on a node of one state and leaves the node in another. States are rows of numbers (STATE_*):
from STATE_GPUS on, the free milli of every GPU, greatest first. Jobs of a batch move one after the other, so a node
that a job has left in a new state can be moved again by the next.

Every entry reads the tables at the addresses that the engine passes to a solver (`placement_rules`).
"""

from __future__ import annotations

import numpy as np

from queuewise.cluster.spec import UNLIMITED
from queuewise.sim.conditions.reserved_nodes import is_blocked
from queuewise.sim.conditions.sleeping import tie_break
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.machine import MANY, WHOLE, slots_on
from queuewise.sim.core.pieces import takes_share
from queuewise.sim.core.state import Machine, World, as_machine, as_state, as_world
from queuewise.sim.placement.fgd import node_fragmentation

STATE_POOL, STATE_RACK, STATE_BLOCKED, STATE_CPU, STATE_MEM, STATE_GPUS = range(6)
MOVE_JOB, MOVE_FROM, MOVE_TO, MOVE_TASKS, MOVE_SIZE = range(5)
# What is known of a state, of which a sum over nodes is to be small
PARTLY_USED, SQUARE_OF_USE, FRAGMENTED, NO_ROOM, STATE_VALUES = range(5)
# What a move costs beside that
MOVE_ENERGY, MOVE_SLOWNESS, MOVE_VALUES = range(3)
MOST_SHARE_WAYS = 64  # ways to put several shares of one job on one node that are looked at
FULL = -1  # of a table: there are more states or moves than there is room for


@kernel
def write_state(w: World, m: Machine, n: int, blocked: int, by_rack: bool, row) -> None:  # type: ignore[no-untyped-def]
    row[STATE_POOL] = w.node_pool[n]
    row[STATE_RACK] = w.node_rack[n] if by_rack else 0
    row[STATE_BLOCKED] = blocked
    row[STATE_CPU] = m.free_cpu[n] if w.node_cpu[n] != UNLIMITED else UNLIMITED
    row[STATE_MEM] = m.free_mem[n] if w.node_mem[n] != UNLIMITED else UNLIMITED
    for g in range(len(row) - STATE_GPUS):
        free = 0
        if g < w.node_gpus[n]:
            free = WHOLE if (m.free_mask[n] >> g) & 1 else m.share_free[n * w.sizes.gpu_stride + g]
        _insert_level(row, g, free)


@inline
def _insert_level(row, number: int, free: int) -> None:  # type: ignore[no-untyped-def]
    """Put a GPU's free milli among the `number` that are sorted already."""
    at = STATE_GPUS + number
    while at > STATE_GPUS and row[at - 1] < free:
        row[at] = row[at - 1]
        at -= 1
    row[at] = free


@kernel
def _state_slots(w: World, c: int, row) -> int:  # type: ignore[no-untyped-def]
    """Tasks of class c that a node in this state can take, reservations and pools aside."""
    room = MANY
    if w.class_milli[c] > 0:
        room = 0
        per_gpu = min(w.class_milli[c], WHOLE)
        for at in range(STATE_GPUS, len(row)):
            room += row[at] // per_gpu
        if w.class_gpus[c] > 0:
            room //= w.class_gpus[c]
    if w.class_cpu[c] > 0:
        room = min(room, row[STATE_CPU] // w.class_cpu[c])
    if w.class_mem[c] > 0:
        room = min(room, row[STATE_MEM] // w.class_mem[c])
    return room


@inline
def _allowed_slots(w: World, c: int, bit: int, row) -> int:  # type: ignore[no-untyped-def]
    """The same with them; `bit` is the place of the class in STATE_BLOCKED."""
    if not w.class_allows[c * w.sizes.num_pools + row[STATE_POOL]] or (row[STATE_BLOCKED] >> bit) & 1:
        return 0
    return _state_slots(w, c, row)


@kernel
def _number_of(row, rows, number: int, table) -> int:  # type: ignore[no-untyped-def]
    """The number of the state, which is added if it is new; FULL if there is no room for it."""
    code = np.uint64(1469598103934665603)
    for value in row:
        code = (code ^ np.uint64(value)) * np.uint64(1099511628211)
        code ^= code >> np.uint64(29)
    slot = np.int64(code % np.uint64(len(table)))
    while table[slot] >= 0:
        same = True
        for k in range(len(row)):
            if rows[table[slot], k] != row[k]:
                same = False
                break
        if same:
            return table[slot]
        slot = (slot + 1) % len(table)
    if number == len(rows):
        return FULL
    table[slot] = number
    rows[number] = row
    return number


@entry
def list_states(world, machine, state, classes, by_rack: bool, rows, table, state_of, turn) -> int:  # type: ignore[no-untyped-def]
    """Number the states of all nodes that can take a task of one of the classes: rows[x] is state x, state_of[n] that of node n.

    Other nodes have -1. turn[n] is the place of a node among equal ones, least first. Returns the number of states, or FULL.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    table[:] = -1
    row = np.zeros(rows.shape[1], np.int64)
    number = 0
    for n in range(w.sizes.num_nodes):
        state_of[n] = -1
        turn[n] = tie_break(w, s, n)
        useful = False
        blocked = 0
        for i in range(len(classes)):
            if slots_on(w, m, classes[i], n) > 0:
                useful = True
            elif is_blocked(w, classes[i], n, m.time[0]):
                blocked |= 1 << i
        if useful:
            write_state(w, m, n, blocked, by_rack, row)
            x = _number_of(row, rows, number, table)
            if x == FULL:
                return FULL
            state_of[n] = x
            number = max(number, x + 1)
    return number


@kernel
def _leave(w: World, c: int, tasks: int, row, left) -> None:  # type: ignore[no-untyped-def]
    """The state after tasks that take no shares; a whole GPU is one of the first."""
    left[:] = row
    if w.class_cpu[c] > 0 and row[STATE_CPU] != UNLIMITED:
        left[STATE_CPU] -= tasks * w.class_cpu[c]
    if w.class_mem[c] > 0 and row[STATE_MEM] != UNLIMITED:
        left[STATE_MEM] -= tasks * w.class_mem[c]
    taken = tasks * w.class_gpus[c]
    if taken > 0:
        for at in range(STATE_GPUS, len(row)):
            left[at] = row[at + taken] if at + taken < len(row) else 0


@kernel
def _leave_share(w: World, c: int, at: int, row, left) -> None:  # type: ignore[no-untyped-def]
    """The state after one task that takes a share of the GPU at a place of the row."""
    _leave(w, c, 1, row, left)
    free = row[at] - w.class_milli[c]
    while at + 1 < len(left) and left[at + 1] > free:
        left[at] = left[at + 1]
        at += 1
    left[at] = free


@kernel
def _add_move(rows, table, moves, count, job: int, before: int, tasks: int, left) -> bool:  # type: ignore[no-untyped-def]
    """Note a move; count holds how many states and moves there are."""
    if count[1] == len(moves):
        return False
    after = _number_of(left, rows, count[0], table)
    if after == FULL:
        return False
    count[0] = max(count[0], after + 1)
    move = moves[count[1]]
    move[MOVE_JOB], move[MOVE_FROM], move[MOVE_TO], move[MOVE_TASKS] = job, before, after, tasks
    count[1] += 1
    return True


@kernel
def _share_moves(w: World, c: int, job: int, x: int, most: int, rows, table, moves, count) -> bool:  # type: ignore[no-untyped-def]
    """All ways to put 1, 2, … `most` shares on a node in state x: each differs in what it leaves."""
    ways = np.zeros((2, MOST_SHARE_WAYS, rows.shape[1]), np.int64)
    left = np.zeros(rows.shape[1], np.int64)
    ways[0, 0] = rows[x]
    number = 1
    for tasks in range(1, most + 1):
        old, new = (tasks - 1) & 1, tasks & 1
        found = 0
        for k in range(number):
            for at in range(rows.shape[1] - 1, STATE_GPUS - 1, -1):
                row = ways[old, k]
                if row[at] < w.class_milli[c] or (at + 1 < len(row) and row[at + 1] == row[at]):
                    continue
                _leave_share(w, c, at, row, left)
                known = False
                for before in range(found):
                    known = known or (ways[new, before] == left).all()
                if not known and found < MOST_SHARE_WAYS:
                    ways[new, found] = left
                    found += 1
                    if not _add_move(rows, table, moves, count, job, x, tasks, left):
                        return False
        number = found
    return True


@entry
def list_moves(world, classes, number: int, rows, table, moves, values, count) -> bool:  # type: ignore[no-untyped-def]
    """List the moves of all jobs of the batch, and the states that they lead to. Returns False if there is no room for all.

    count becomes the number of states and of moves; values[k] is what move k costs (MOVE_VALUES).
    """
    w = as_world(world)
    count[0], count[1] = number, 0
    left = np.zeros(rows.shape[1], np.int64)
    for job in range(len(classes)):
        c = classes[job]
        for x in range(count[0]):
            most = min(_allowed_slots(w, c, job, rows[x]), w.class_tasks[c])
            first = count[1]
            if takes_share(w, c):
                if not _share_moves(w, c, job, x, most, rows, table, moves, count):
                    return False
            else:
                for tasks in range(1, most + 1):
                    _leave(w, c, tasks, rows[x], left)
                    if not _add_move(rows, table, moves, count, job, x, tasks, left):
                        return False
            n = w.pool_nodes[w.pool_first[rows[x, STATE_POOL]]]
            for k in range(first, count[1]):
                values[k, MOVE_ENERGY] = moves[k, MOVE_TASKS] * task_energy(w, c, n)
                values[k, MOVE_SLOWNESS] = slowness(w, c, n)
    return True


@inline
def slowness(w: World, c: int, n: int) -> float:
    return 1.0 / w.node_speed[n] if w.class_milli[c] > 0 else 1.0


@inline
def task_energy(w: World, c: int, n: int) -> float:
    """Watts of one task beyond an idle node's, times how long it takes relative to speed 1."""
    return (w.class_milli[c] / 1000 * w.node_gpu_watts[n] + w.class_cpu[c] / 1000 * w.node_core_watts[n]) * slowness(w, c, n)


@kernel
def _use(w: World, n: int, row) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """What is free and what there is of the resource by which a node's use is judged: GPUs, or else cores, or else memory."""
    if w.node_gpus[n] > 0:
        free = 0
        for at in range(STATE_GPUS, len(row)):
            free += row[at]
        return free, w.node_gpus[n] * WHOLE
    if w.node_cpu[n] != UNLIMITED:
        return row[STATE_CPU], w.node_cpu[n]
    return row[STATE_MEM], w.node_mem[n]


@kernel
def _fragmentation_of(w: World, m: Machine, n: int, row) -> int:  # type: ignore[no-untyped-def]
    """Weng's measure of a node of n's pool in this state: node n is put into it, and back."""
    base = n * w.sizes.gpu_stride
    mask, gpus, milli, cpu, mem = m.free_mask[n], m.free_gpus[n], m.free_milli[n], m.free_cpu[n], m.free_mem[n]
    shares = np.empty(w.node_gpus[n], np.int64)
    m.free_mask[n], m.free_gpus[n], m.free_milli[n] = 0, 0, 0
    m.free_cpu[n], m.free_mem[n] = row[STATE_CPU], row[STATE_MEM]
    for g in range(w.node_gpus[n]):
        shares[g] = m.share_free[base + g]
        free = row[STATE_GPUS + g]
        m.share_free[base + g] = free if free < WHOLE else 0
        m.free_milli[n] += free
        if free == WHOLE:
            m.free_mask[n] |= 1 << g
            m.free_gpus[n] += 1
    found = node_fragmentation(w, m, n)
    for g in range(w.node_gpus[n]):
        m.share_free[base + g] = shares[g]
    m.free_mask[n], m.free_gpus[n], m.free_milli[n], m.free_cpu[n], m.free_mem[n] = mask, gpus, milli, cpu, mem
    return found


@kernel
def weigh_state(w: World, m: Machine, row, room, needs_fragmentation: bool, out) -> None:  # type: ignore[no-untyped-def]
    """Write the STATE_VALUES of one state."""
    n = w.pool_nodes[w.pool_first[row[STATE_POOL]]]
    free, total = _use(w, n, row)
    used = round(100.0 * (total - free) / total) if total > 0 else 0
    out[PARTLY_USED] = 1.0 if 0 < free < total else 0.0
    out[SQUARE_OF_USE] = used * used
    out[FRAGMENTED] = _fragmentation_of(w, m, n, row) if needs_fragmentation else 0.0
    out[NO_ROOM] = 0.0
    for i in range(len(room)):
        if w.class_allows[room[i] * w.sizes.num_pools + row[STATE_POOL]]:
            out[NO_ROOM] -= _state_slots(w, room[i], row)


@entry
def weigh_states(world, machine, number: int, rows, room, needs_fragmentation: bool, values) -> None:  # type: ignore[no-untyped-def]
    """Write values[x], the STATE_VALUES of state x. `room` are the classes for which room is wanted."""
    w = as_world(world)
    m = as_machine(machine)
    for x in range(number):
        weigh_state(w, m, rows[x], room, needs_fragmentation, values[x])


@entry
def tasks_of(world, classes):  # type: ignore[no-untyped-def]
    """[I] the tasks of gangs of these classes."""
    w = as_world(world)
    found = np.empty(len(classes), np.int64)
    for i in range(len(classes)):
        found[i] = w.class_tasks[classes[i]]
    return found


@entry
def next_classes(world, state, c: int, found) -> int:  # type: ignore[no-untyped-def]
    """Write the class that is placed and those of the jobs after it in the order of backfill, if that is known. Returns how many."""
    w = as_world(world)
    s = as_state(state)
    found[0] = c
    number = 1
    skipped = False
    for k in range(s.count.pending_jobs if w.policy.lines_up else 0):
        other = w.job_class[s.line[k]]
        if other == c and not skipped:
            skipped = True
        elif number < len(found) and w.class_queue[other] == w.class_queue[c]:
            found[number] = other
            number += 1
        elif number == len(found):
            break
    return number
