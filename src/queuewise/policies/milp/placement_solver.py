"""What the engine asks under `@milp`: node states in, a placement out, with statistics of how it was found.

A placement depends on the node states and the waiting jobs alone, so the same replay always gives the same schedule.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numba import types

from queuewise.policies.milp.gang_model import Batch, GangPlan, solve_batch
from queuewise.policies.milp.integer_program import DEFAULT_WORK, IntegerProgram, Whole
from queuewise.policies.milp.terms import TERMS, Objective
from queuewise.policies.thinking import Thinking
from queuewise.sim import placement
from queuewise.sim.core.compilation import JIT_DISABLED, address_in_c
from queuewise.sim.placement import gang_moves, node_states
from queuewise.sim.placement.node_states import FULL, MOVE_FROM, MOVE_JOB, MOVE_SIZE, MOVE_TASKS, MOVE_TO, MOVE_VALUES, STATE_VALUES
from queuewise.workload.jobs import Floats

MOST_STATES = 400  # of nodes, of which a batch looks at all
MOST_ROWS = 20_000  # states with those that moves lead to
MOST_MOVES = 20_000
ROOM_JOBS = 8  # waiting jobs for which the term `room` wants room
KEPT_PLANS = 256
RULES = {"tier": placement.TIER, "pack": placement.PACK, "fgd": placement.FGD}  # what a placement that is not proven best is compared with


@dataclass(frozen=True, eq=False)
class _Found:
    """A plan for one job, in states instead of nodes."""

    states: Whole  # [M] that the nodes are in
    goals: Whole  # [M, …] that they are left in
    tasks: Whole  # [M] on each node
    nodes: Whole  # [M] how many
    gap: float


@dataclass(eq=False)
class PlacementSolver:  # of Rules
    """Places one gang at a time for a replay; it may look at the next jobs of the queue."""

    objective: Objective
    num_nodes: int
    gpus_per_node: int  # the most of any node
    num_tasks: int  # of the whole workload, over which fragmentation is a mean
    work: int = DEFAULT_WORK
    limit_s: float | None = None
    statistics: Thinking = field(default_factory=Thinking)

    def __post_init__(self) -> None:
        self.lookahead = max(self.objective.jobs, 1 + ROOM_JOBS if "room" in self.objective.terms else 1)
        self.address, self.number = _ADDRESS, next(_NUMBERS)
        _SOLVERS[self.number] = self
        compile_entries()
        self._program = IntegerProgram(self.work, self.limit_s)
        self._failure: Exception | None = None
        self._plans: OrderedDict[bytes, _Found | None] = OrderedDict()
        width = node_states.STATE_GPUS + max(self.gpus_per_node, 0)
        self._rows = np.zeros((max(MOST_ROWS, self.num_nodes), width), np.int64)
        self._table = np.empty(4 * len(self._rows), np.int64)
        self._state_of, self._turn = np.zeros(self.num_nodes, np.int64), np.zeros(self.num_nodes, np.int64)
        self._moves = np.zeros((MOST_MOVES, MOVE_SIZE), np.int64)
        self._move_values = np.zeros((MOST_MOVES, MOVE_VALUES))
        self._state_values = np.zeros((len(self._rows), STATE_VALUES))

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def place(self, world: int, machine: int, state: int, c: int) -> int:
        """Place a gang of class c, which fits; 0 if it must be placed otherwise."""
        if self._failure is not None:
            return 0
        began = time.perf_counter()
        try:
            placed = self._solve_and_put(world, machine, state, c)
        except Exception as failure:  # it cannot pass through the engine
            self._failure = failure
            return 0
        self.statistics.note((time.perf_counter() - began) * 1e6)
        return int(placed)

    def _solve_and_put(self, world: int, machine: int, state: int, c: int) -> bool:
        ahead = np.zeros(self.lookahead, np.int64)
        ahead = ahead[: node_states.next_classes(world, state, c, ahead)]
        batch, room = ahead[: self.objective.jobs], ahead[1 : 1 + ROOM_JOBS] if "room" in self.objective.terms else ahead[:0]
        found = self._plan(world, machine, state, batch, room)
        if found is None or found.gap > 0:
            found = self._against_rules(world, machine, state, c, room, found)
            if found is None:
                return True  # one of the rules has placed it
        self.statistics.gaps.append(found.gap)
        return self._put(world, machine, state, c, found)

    def _plan(self, world: int, machine: int, state: int, classes: Whole, room: Whole) -> _Found | None:
        """The plan for the first of the jobs, from memory if the same was asked before."""
        by_rack = "racks" in self.objective.terms
        where = self._rows, self._table, self._state_of, self._turn
        number = node_states.list_states(world, machine, state, classes, by_rack, *where)
        if number > MOST_STATES and len(classes) > 1:  # too many for a batch
            classes = classes[:1]
            number = node_states.list_states(world, machine, state, classes, by_rack, *where)
        counts = np.bincount(self._state_of[self._state_of >= 0], minlength=number).astype(np.int64)
        key = b"".join(part.tobytes() for part in (classes, room, counts, self._rows[:number]))
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        found = self._solve(world, machine, classes, room, number, counts)
        if found is None and len(classes) > 1:
            return self._plan(world, machine, state, classes[:1], room)
        self._plans[key] = found
        if len(self._plans) > KEPT_PLANS:
            self._plans.popitem(last=False)
        return found

    def _solve(self, world: int, machine: int, classes: Whole, room: Whole, number: int, counts: Whole) -> _Found | None:
        sizes = np.zeros(2, np.int64)
        tasks = node_states.tasks_of(world, classes)
        if number == FULL or not node_states.list_moves(
            world, classes, number, self._rows, self._table, self._moves, self._move_values, sizes
        ):
            return None
        states, moves = int(sizes[0]), self._moves[: sizes[1]]
        node_states.weigh_states(world, machine, states, self._rows, room, "fgd" in self.objective.terms, self._state_values)
        self._state_values[:states, node_states.FRAGMENTED] /= self.num_tasks
        batch = Batch(tasks, counts, self._rows[:states], self._state_values[:states], moves, self._move_values[: sizes[1]])
        plan = solve_batch(self._program, batch, self.objective)
        return None if plan is None else self._first_job(plan, moves)

    def _first_job(self, plan: GangPlan, moves: Whole) -> _Found:
        own = moves[plan.moves, MOVE_JOB] == 0
        made = moves[plan.moves[own]]
        return _Found(made[:, MOVE_FROM].copy(), self._rows[made[:, MOVE_TO]].copy(), made[:, MOVE_TASKS].copy(), plan.nodes[own], plan.gap)

    def _put(self, world: int, machine: int, state: int, c: int, found: _Found) -> bool:
        """Put a plan on the lowest nodes of its states."""
        nodes, tasks, goals = [], [], []
        used: dict[int, int] = {}
        for m in np.argsort(-found.tasks, kind="stable").tolist():
            x, number = int(found.states[m]), int(found.nodes[m])
            alike = np.flatnonzero(self._state_of == x)
            alike = alike[np.argsort(self._turn[alike], kind="stable")][used.get(x, 0) : used.get(x, 0) + number]
            used[x] = used.get(x, 0) + number
            nodes += alike.tolist()
            tasks += [int(found.tasks[m])] * number
            goals += [m] * number
        on, number_of, left = (np.array(part, np.int64) for part in (nodes, tasks, goals))
        return bool(gang_moves.put_gang(world, machine, state, c, on, number_of, left, found.goals))

    def levels_of(self, values: Floats) -> tuple[float, ...]:
        """The levels of the objective for a placement, by what it changes (PLACED_VALUES)."""
        return tuple(sum(weight * self.term_of(name, values) for weight, name in level) for level in self.objective.levels)

    def term_of(self, name: str, values: Floats) -> float:
        """One term of a placement, by what it changes (PLACED_VALUES)."""
        term = TERMS[name]
        if term.of_state is not None:
            scale = self.num_tasks if term.of_state == node_states.FRAGMENTED else 1
            return term.sign * float(values[term.of_state]) / scale
        at = {"nodes": gang_moves.PLACED_NODES, "racks": gang_moves.PLACED_RACKS, "slow": gang_moves.PLACED_SLOWNESS}
        return float(values[at.get(name, gang_moves.PLACED_ENERGY)])

    def _against_rules(self, world: int, machine: int, state: int, c: int, room: Whole, found: _Found | None) -> _Found | None:
        """The plan, unless one of the engine's rules is better by the objective: then that one places the gang, and None is returned."""
        scores: dict[str, tuple[float, ...]] = {}
        needs = "fgd" in self.objective.terms
        values = np.zeros(gang_moves.PLACED_VALUES)
        for name, rule in RULES.items():
            if gang_moves.weigh_rule(world, machine, state, c, rule, room, needs, False, values):
                scores[name] = self.levels_of(values)
        if found is not None and self._put(world, machine, state, c, found):
            gang_moves.weigh_and_remove(world, machine, state, c, room, needs, values)
            if not scores or self.levels_of(values) <= min(scores.values()):
                return found
        best = min(scores, key=lambda name: scores[name]) if found is not None else next(iter(scores))
        self.statistics.fallbacks += found is None
        self.statistics.gaps.append(1.0 if found is None else found.gap)
        gang_moves.weigh_rule(world, machine, state, c, RULES[best], room, needs, True, values)
        return None


def compile_entries() -> None:
    """Compile what a solver calls, or load it from the cache, before a replay begins and not within its first decision."""
    if JIT_DISABLED or gang_moves.read_placed.signatures:  # type: ignore[attr-defined]
        return
    at, yes, ints, table, numbers = types.int64, types.boolean, types.int64[::1], types.int64[:, ::1], types.float64[:, ::1]
    values = types.float64[::1]
    signatures: dict[Any, tuple[Any, ...]] = {
        node_states.list_states: (at, at, at, ints, yes, table, ints, ints, ints),
        node_states.list_moves: (at, ints, at, table, ints, table, numbers, ints),
        node_states.weigh_states: (at, at, at, table, ints, yes, numbers),
        node_states.tasks_of: (at, ints),
        node_states.next_classes: (at, at, at, ints),
        gang_moves.put_gang: (at, at, at, at, ints, ints, ints, table),
        gang_moves.weigh_rule: (at, at, at, at, at, ints, yes, yes, values),
        gang_moves.weigh_and_remove: (at, at, at, at, ints, yes, values),
        gang_moves.read_placed: (at, table),
    }
    for function, signature in signatures.items():
        function.compile(signature)


_SOLVERS: WeakValueDictionary[int, PlacementSolver] = WeakValueDictionary()
_NUMBERS = count(1)


def _ask(number: int, world: int, machine: int, state: int, c: int) -> int:
    """What the engine calls: one function for all solvers, which therefore need not outlive their replays."""
    solver = _SOLVERS.get(number)
    return 0 if solver is None else solver.place(world, machine, state, c)


_ADDRESS, _callback = address_in_c(_ask, 5)
