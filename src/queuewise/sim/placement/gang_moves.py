"""Putting a gang where a solver outside the engine has decided, and weighing what the engine's own rules would do (`node_states`)."""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.compilation import entry, kernel
from queuewise.sim.core.machine import lowest_bits, piece_is_free, slots_on, take_exactly
from queuewise.sim.core.pieces import note_piece, takes_share, unplace
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.placement.node_states import (
    STATE_BLOCKED,
    STATE_CPU,
    STATE_GPUS,
    STATE_RACK,
    STATE_VALUES,
    slowness,
    task_energy,
    weigh_state,
    write_state,
)
from queuewise.sim.placement.placement_rules import place_by_rule

# What a placement by one of the engine's rules amounts to: STATE_VALUES sums, then these
PLACED_NODES, PLACED_RACKS, PLACED_SLOWNESS, PLACED_ENERGY, PLACED_VALUES = range(STATE_VALUES, STATE_VALUES + 5)


@kernel
def _same_state(w: World, m: Machine, n: int, row, other) -> bool:  # type: ignore[no-untyped-def]
    """Whether node n has the free amounts of the row; `other` is space for its own."""
    write_state(w, m, n, row[STATE_BLOCKED], row[STATE_RACK] != 0, other)
    return (row[STATE_CPU:] == other[STATE_CPU:]).all()


@kernel
def _put_shares(w: World, m: Machine, s: State, c: int, n: int, tasks: int, goal, row) -> bool:  # type: ignore[no-untyped-def]
    """Put shares on the GPUs of node n, one after the other, so that it is left in the state `goal`: a search with backtracking."""
    first = s.count.placed
    chosen = np.zeros(tasks, np.int64)  # the GPU of each task; to be tried from there on
    depth = 0
    while depth >= 0:
        if depth == tasks:
            if _same_state(w, m, n, goal, row):
                return True
            depth -= 1
        elif chosen[depth] < w.node_gpus[n]:
            gpu = chosen[depth]
            if piece_is_free(w, m, c, n, 1, 1 << gpu):
                take_exactly(w, m, c, n, 1, 1 << gpu)
                note_piece(s, n, 1, 1 << gpu)
                if depth + 1 < tasks:
                    chosen[depth + 1] = gpu
                depth += 1
                continue
            chosen[depth] += 1
            continue
        else:
            depth -= 1
        if depth >= 0:
            _take_back(w, m, s, c)
            chosen[depth] += 1
    s.count.placed = first
    return False


@kernel
def _take_back(w: World, m: Machine, s: State, c: int) -> None:
    """Give the last piece of the placement back."""
    last = s.count.placed - 1
    nodes, tasks, gpus = s.place_node[0], s.place_tasks[0], s.place_gpus[0]
    s.place_node[0], s.place_tasks[0], s.place_gpus[0] = s.place_node[last], s.place_tasks[last], s.place_gpus[last]
    s.count.placed = 1
    unplace(w, m, s, c)
    s.place_node[0], s.place_tasks[0], s.place_gpus[0] = nodes, tasks, gpus
    s.count.placed = last


@entry
def put_gang(world, machine, state, c: int, nodes, tasks, goals, rows) -> bool:  # type: ignore[no-untyped-def]
    """Put tasks[i] tasks of class c on nodes[i], which that leaves in state goals[i]. If they do not fit, change nothing."""
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    s.count.placed = 0
    row = np.zeros(rows.shape[1], np.int64)
    for i in range(len(nodes)):
        done = slots_on(w, m, c, nodes[i]) >= tasks[i]
        if done and takes_share(w, c):
            done = _put_shares(w, m, s, c, nodes[i], tasks[i], rows[goals[i]], row)
        elif done:
            gpus = lowest_bits(m.free_mask[nodes[i]], tasks[i] * w.class_gpus[c])
            take_exactly(w, m, c, nodes[i], tasks[i], gpus)
            note_piece(s, nodes[i], tasks[i], gpus)
        if not done:
            unplace(w, m, s, c)
            s.count.placed = 0
            return False
    return True


@entry
def weigh_rule(world, machine, state, c: int, rule: int, room, needs_fragmentation: bool, keeps: bool, values) -> bool:  # type: ignore[no-untyped-def]
    """Place a gang by one of the engine's rules, and write what that changes (PLACED_VALUES). Returns False if the rule finds no place.

    It is taken off again, unless it `keeps` the place.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    own = w.policy.placement
    w.policy.placement = rule
    placed = place_by_rule(w, m, s, c)
    w.policy.placement = own
    if placed:
        weigh_placed(w, m, s, c, room, needs_fragmentation, values)
        if not keeps:
            unplace(w, m, s, c)
    return placed


@entry
def weigh_and_remove(world, machine, state, c: int, room, needs_fragmentation: bool, values) -> None:  # type: ignore[no-untyped-def]
    """The same for the gang that was put on the machine last, which is taken off."""
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    weigh_placed(w, m, s, c, room, needs_fragmentation, values)
    unplace(w, m, s, c)


@kernel
def weigh_placed(w: World, m: Machine, s: State, c: int, room, needs_fragmentation: bool, values) -> None:  # type: ignore[no-untyped-def]
    """What the gang in State.place_*, which is on the machine, has changed. Pieces of one node are adjacent."""
    row = np.zeros(STATE_GPUS + w.sizes.gpu_stride - 1, np.int64)
    one = np.zeros(STATE_VALUES)
    values[:] = 0.0
    for sign in (1.0, -1.0):
        for k in range(s.count.placed):
            n = s.place_node[k]
            if k > 0 and s.place_node[k - 1] == n:
                continue
            write_state(w, m, n, 0, False, row)
            weigh_state(w, m, row, room, needs_fragmentation, one)
            for v in range(STATE_VALUES):
                values[v] += sign * one[v]
        if sign > 0.0:
            unplace(w, m, s, c)
    for k in range(s.count.placed):
        n = s.place_node[k]
        take_exactly(w, m, c, n, s.place_tasks[k], s.place_gpus[k])
        values[PLACED_ENERGY] += s.place_tasks[k] * task_energy(w, c, n)
        values[PLACED_SLOWNESS] = max(values[PLACED_SLOWNESS], slowness(w, c, n))
        values[PLACED_NODES] += k == 0 or s.place_node[k - 1] != n
        new_rack = True
        for before in range(k):
            new_rack = new_rack and w.node_rack[s.place_node[before]] != w.node_rack[n]
        values[PLACED_RACKS] += new_rack


@entry
def read_placed(state, found) -> int:  # type: ignore[no-untyped-def]
    """Copy the placement in State.place_* as rows of node, tasks and GPUs. Returns how many there are."""
    s = as_state(state)
    for k in range(s.count.placed):
        found[k, 0], found[k, 1], found[k, 2] = s.place_node[k], s.place_tasks[k], s.place_gpus[k]
    return s.count.placed
