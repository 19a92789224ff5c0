"""Pins: the reservations that waiting jobs remember from one decision to the next, under conservative backfill.

A pin is a start and an exact place: nodes, tasks on each, GPUs. On one node without GPUs a place is a number of tasks, and a
search finds the remembered one again or an earlier one: there pins only save work (World.policy.plans_all is 0).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.backfill import SETTLED, UNSETTLED
from queuewise.sim.backfill.profile import PRESENT, Profile, moment_from
from queuewise.sim.conditions.power_cap import draw_of, is_capped, is_over_cap
from queuewise.sim.conditions.reserved_nodes import is_blocked
from queuewise.sim.core.compilation import inline, kernel, lowest_bit, noinline
from queuewise.sim.core.machine import WHOLE, give, piece_is_free, take_exactly
from queuewise.sim.core.pieces import note_piece, unplace
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.placement.placement_rules import place

NO_PIN = np.inf  # as start


@inline
def is_pinned(w: World, s: State, j: int) -> bool:
    return w.policy.remembers_plans != 0 and s.pin_start[j] < NO_PIN


@kernel
def remember_place(w: World, s: State, j: int, start: float) -> None:
    """Let job j remember this start and the placement in State.place_*, or nothing if the start is NO_PIN."""
    s.pin_start[j] = start
    if start == NO_PIN:
        return
    s.pin_pieces[j] = s.count.placed
    for k in range(s.count.placed):
        at = w.pin_first[j] + k
        s.pin_node[at] = s.place_node[k]
        s.pin_tasks[at] = s.place_tasks[k]
        s.pin_gpus[at] = s.place_gpus[k]


@kernel
def recall(w: World, s: State, j: int) -> None:
    """Let State.place_* be the place that job j remembers."""
    s.count.placed = 0
    for at in range(w.pin_first[j], w.pin_first[j] + s.pin_pieces[j]):
        note_piece(s, s.pin_node[at], s.pin_tasks[at], s.pin_gpus[at])


@kernel
def tasks_placed(s: State) -> int:
    tasks = 0
    for k in range(s.count.placed):
        tasks += s.place_tasks[k]
    return tasks


@kernel
def tasks_pinned(w: World, s: State, j: int) -> int:
    tasks = 0
    for at in range(w.pin_first[j], w.pin_first[j] + s.pin_pieces[j]):
        tasks += s.pin_tasks[at]
    return tasks


@kernel
def pin_is_free(w: World, s: State, j: int, c: int, p: Profile, first: int, time: float, until: float) -> bool:
    """Whether the place is free from moment `first` of a profile until `until`, for a run that starts at `time`.

    Class c has as many tasks as the pin.
    """
    last = max(moment_from(p, until, first + 1), p.size[PRESENT])
    nodes = w.sizes.num_nodes
    begin = w.pin_first[j]
    tasks = 0  # of this node so far
    draw = 0
    for at in range(begin, begin + s.pin_pieces[j]):
        n, gpus = s.pin_node[at], s.pin_gpus[at]
        tasks = s.pin_tasks[at] + (tasks if at > begin and s.pin_node[at - 1] == n else 0)
        if is_blocked(w, c, n, time):
            return False
        if w.class_gpus[c] > 0:
            for i in range(first, last):
                if p.mask[p.row[i] * nodes + n] & gpus != gpus:
                    return False
        elif w.class_milli[c] > 0 and not _share_is_free(w, p, n, gpus, _shares_up_to(s, begin, at) * w.class_milli[c], first, last):
            return False
        if w.class_cpu[c] > 0 and not _is_left(p.cpu, p, nodes, n, tasks * w.class_cpu[c], first, last):
            return False
        if w.class_mem[c] > 0 and not _is_left(p.mem, p, nodes, n, tasks * w.class_mem[c], first, last):
            return False
        draw += draw_of(w, c, n, s.pin_tasks[at]) if is_capped(w) else 0
    return not is_capped(w) or _power_is_left(w, p, draw, first, last)


@inline
def _is_left(column, p: Profile, nodes: int, n: int, amount: int, first: int, last: int) -> bool:  # type: ignore[no-untyped-def]
    at = first
    while at < last and column[p.row[at] * nodes + n] >= amount:
        at += 1
    return at >= last


@kernel
def _share_is_free(w: World, p: Profile, n: int, gpus: int, milli: int, first: int, last: int) -> bool:
    for i in range(first, last):
        slot = p.row[i] * w.sizes.num_nodes + n
        if (WHOLE if p.mask[slot] & gpus else p.share[slot * w.sizes.gpu_stride + lowest_bit(gpus)]) < milli:
            return False
    return True


@kernel
def _power_is_left(w: World, p: Profile, draw: int, first: int, last: int) -> bool:
    at = first
    while at < last and p.drawn[p.row[at]] + draw <= w.policy.power_budget:
        at += 1
    return at >= last


@kernel
def _shares_up_to(s: State, first: int, at: int) -> int:
    """How many of the pieces from `first` to `at` share the GPU of the last one; pieces of one node stand together."""
    number = 0
    for k in range(at, first - 1, -1):
        if s.pin_node[k] != s.pin_node[at]:
            break
        number += s.pin_gpus[k] == s.pin_gpus[at]
    return number


@kernel
def _place_at_pin(w: World, m: Machine, s: State, j: int) -> bool:
    """Put job j on machine m where it remembers, if that is free now; leaves the pieces in State.place_*."""
    c = w.job_class[j]
    size = c + tasks_pinned(w, s, j) - w.class_tasks[c]
    recall(w, s, j)
    free = True
    taken = 0
    while free and taken < s.count.placed:
        n, tasks, gpus = s.place_node[taken], s.place_tasks[taken], s.place_gpus[taken]
        free = not m.closed[n] and not is_blocked(w, size, n, s.clock.now) and piece_is_free(w, m, c, n, tasks, gpus)
        if free:
            take_exactly(w, m, c, n, tasks, gpus)
            taken += 1
    if free and not is_over_cap(w, m):
        return True
    for k in range(taken - 1, -1, -1):
        give(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
    return False


@kernel
def place_first(w: World, m: Machine, s: State, j: int) -> bool:
    """Put the first job of a queue on machine m: where it remembers if that is due and free, otherwise by the rule.

    An elastic job goes where the rule gives it more tasks.
    """
    c = w.job_class[j]
    placed = place(w, m, s, c)
    return placed if not w.policy.remembers_plans else _prefer_pin(w, m, s, j, c, placed)


@noinline
def _prefer_pin(w: World, m: Machine, s: State, j: int, c: int, placed: bool) -> bool:
    """The rest of `place_first`, where jobs remember their reservations."""
    q = w.class_queue[c]
    if not is_pinned(w, s, j):
        if placed:
            s.plan_state[q] = min(s.plan_state[q], SETTLED)
        return placed
    if s.pin_start[j] <= s.clock.now:
        found = 0
        if placed:
            found = tasks_placed(s)
            unplace(w, m, s, c)
        if tasks_pinned(w, s, j) >= found and _place_at_pin(w, m, s, j):
            if s.pin_start[j] < s.clock.now:
                s.plan_state[q] = min(s.plan_state[q], SETTLED)  # it ends later than planned
            return True
        placed = placed and place(w, m, s, c)
    if placed:
        s.plan_state[q] = UNSETTLED
    return placed
