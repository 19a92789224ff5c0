"""The integer program of a batch of gangs: how many nodes make which move. docs/placement.md writes it out.

Columns are y[k], the nodes that make move k; then, for every job but the first, x[i] = 1 if it is placed; then 0-1 columns for
racks and speeds that a gang uses, if a term asks. A node that has made a move can make another for a later job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from queuewise.policies.milp.integer_program import IntegerProgram, Rows, Whole
from queuewise.policies.milp.terms import TERMS, Objective
from queuewise.sim.placement.node_states import MOVE_ENERGY, MOVE_FROM, MOVE_JOB, MOVE_SLOWNESS, MOVE_TASKS, MOVE_TO, STATE_RACK
from queuewise.workload.jobs import Floats

MOST_COMBINED = 1e7  # levels of whole numbers are one objective while its values stay below
TOLERANCE = 1e-7  # relative, of a level that is kept


@dataclass(frozen=True, eq=False)
class Batch:
    """Jobs that are placed together, in the order of the queue, and what they can do. The first job fits by itself."""

    tasks: Whole  # [I] of each job
    counts: Whole  # [S] nodes in each state at first
    rows: Whole  # [S, …] the states
    state_values: Floats  # [S, STATE_VALUES]
    moves: Whole  # [K, MOVE_SIZE]
    move_values: Floats  # [K, MOVE_VALUES]


@dataclass(frozen=True, eq=False)
class GangPlan:
    """Which moves are made, and by how many nodes."""

    moves: Whole  # [M] numbers of moves
    nodes: Whole  # [M] how many nodes make each
    gap: float  # (objective − bound) ÷ |objective| of the first level that is not proven optimal, 0 if all are
    values: tuple[float, ...]  # of the levels


@dataclass
class _Columns:
    """Columns beside those of moves, with their rows and costs."""

    upper: list[float] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    cost: list[tuple[str, int, float]] = field(default_factory=list)  # (term, column, cost)

    def add_row(self, least: float, most: float) -> int:
        self.least.append(least)
        self.most.append(most)
        return len(self.least) - 1

    def put(self, row: int, columns: Whole | list[int], values: Floats | list[float]) -> None:
        self.row += [row] * len(columns)
        self.column += list(columns)
        self.value += list(values)


def solve_batch(program: IntegerProgram, batch: Batch, objective: Objective) -> GangPlan | None:
    """The best moves; None if none were found within the limit of work."""
    if len(batch.tasks) == 1:
        batch, kept = _without_dominated(batch, objective)
        if batch.tasks[0] == 1:
            best = min(range(len(kept)), key=lambda k: tuple(cost[k] for cost in _move_costs(batch, objective)))
            found = tuple(float(cost[best]) for cost in _move_costs(batch, objective))
            return GangPlan(kept[[best]], np.ones(1, np.int64), 0.0, found)
    else:
        kept = np.arange(len(batch.moves))
    extra = _extra_columns(batch, objective)
    num = len(batch.moves)
    rows = Rows(
        np.array(extra.row, np.int64), np.array(extra.column, np.int64), np.array(extra.value, np.float64),
        np.array(extra.least, np.float64), np.array(extra.most, np.float64),
    )  # fmt: skip
    most = batch.tasks[batch.moves[:, MOVE_JOB]] // batch.moves[:, MOVE_TASKS]
    program.load(np.concatenate([most.astype(np.float64), extra.upper]), rows)
    values, gap, levels = _minimise_levels(program, _level_costs(batch, objective, extra))
    if values is None:
        return None
    made = np.flatnonzero(values[:num] > 0)
    return GangPlan(kept[made], values[made].astype(np.int64), gap, levels)


def _minimise_levels(program: IntegerProgram, levels: list[tuple[Floats, bool]]) -> tuple[Floats | None, float, tuple[float, ...]]:
    """One level after the other; each keeps what those before it have reached."""
    values: Floats | None = None
    gap = 0.0
    reached: list[float] = []
    for number, (cost, whole) in enumerate(levels):
        solved = program.minimise(cost, whole_costs=whole)
        if solved.values is None:
            if values is None:
                return None, 0.0, ()
            gap = gap or 1.0
            break
        values = solved.values
        value = float(cost @ values)
        reached.append(value)
        short = value - solved.bound
        if short > max(TOLERANCE * abs(value), TOLERANCE):
            gap = gap or short / max(abs(value), 1e-9)
            break
        if number + 1 < len(levels):
            program.keep_at_most(cost, value + (0.5 if whole else max(abs(value), 1.0) * TOLERANCE))
    return values, gap, tuple(reached)


def _move_costs(batch: Batch, objective: Objective) -> list[Floats]:
    """The cost of every move at every level, as far as it is a sum over moves; the rest counts if the gang has one task."""
    return [sum((weight * _term_of_moves(batch, name) for weight, name in level), np.zeros(len(batch.moves))) for level in objective.levels]


def _term_of_moves(batch: Batch, name: str) -> Floats:
    term = TERMS[name]
    if term.of_state is not None:
        of_state = term.sign * batch.state_values[:, term.of_state]
        return of_state[batch.moves[:, MOVE_TO]] - of_state[batch.moves[:, MOVE_FROM]]
    if name == "energy":
        return batch.move_values[:, MOVE_ENERGY]
    if name == "slow":
        return batch.move_values[:, MOVE_SLOWNESS]
    return np.ones(len(batch.moves))  # nodes, racks


def _without_dominated(batch: Batch, objective: Objective) -> tuple[Batch, Whole]:
    """Without moves that some optimum does without: of moves of equally many tasks, speed and rack, the cheapest for as many nodes as
    there are tasks. A solution that makes another has one of these nodes left over, and is no worse if that makes the move instead.
    """
    costs = _move_costs(batch, objective)
    by_rack = batch.rows[batch.moves[:, MOVE_FROM], STATE_RACK] if "racks" in objective.terms else np.zeros(len(batch.moves))
    by_speed = batch.move_values[:, MOVE_SLOWNESS] if "slow" in objective.terms else np.zeros(len(batch.moves))
    order = np.lexsort((*costs[::-1], by_speed, by_rack, batch.moves[:, MOVE_TASKS]))
    keys = np.column_stack([batch.moves[:, MOVE_TASKS], by_rack, by_speed])[order]
    begins = np.concatenate([[True], (keys[1:] != keys[:-1]).any(axis=1)])
    # Several moves of one state may leave it in different states: only the cheapest of a state and number of tasks is of use.
    pairs = np.column_stack([keys, batch.moves[order, MOVE_FROM]])
    first = np.zeros(len(order), bool)
    first[np.unique(pairs, axis=0, return_index=True)[1]] = True
    nodes = np.where(first, batch.counts[batch.moves[order, MOVE_FROM]], 0)
    before = np.cumsum(nodes) - nodes
    before -= np.maximum.accumulate(np.where(begins, before, 0))
    kept = np.sort(order[first & (before < batch.tasks[0])])
    fewer = Batch(batch.tasks, batch.counts, batch.rows, batch.state_values, batch.moves[kept], batch.move_values[kept])
    return fewer, kept.astype(np.int64)


def _extra_columns(batch: Batch, objective: Objective) -> _Columns:
    """The rows of the program, and the columns beside those of moves."""
    extra = _Columns()
    job, tasks = batch.moves[:, MOVE_JOB], batch.moves[:, MOVE_TASKS].astype(np.float64)
    num, num_jobs = len(batch.moves), len(batch.tasks)
    for i in range(num_jobs):
        mine = np.flatnonzero(job == i)
        total = float(batch.tasks[i])
        row = extra.add_row(total if i == 0 else 0.0, total if i == 0 else 0.0)
        extra.put(row, mine, tasks[mine])
        if i > 0:
            extra.put(row, [num + len(extra.upper)], [-total])
            extra.cost.append(("placed", num + len(extra.upper), -float(1 << (num_jobs - 1 - i))))
            extra.upper.append(1.0)
    _limit_states(extra, batch)
    for i in range(num_jobs):
        mine = np.flatnonzero(job == i)
        if "racks" in objective.terms:
            racks = batch.rows[batch.moves[mine, MOVE_FROM], STATE_RACK]
            for rack in np.unique(racks):
                _add_choice(extra, num, "racks", mine[racks == rack], tasks, float(batch.tasks[i]), 1.0)
        if "slow" in objective.terms and len(mine):
            slowness = batch.move_values[mine, MOVE_SLOWNESS]
            steps = np.unique(slowness)
            for less, more in zip(np.concatenate([[0.0], steps[:-1]]), steps, strict=True):
                _add_choice(extra, num, "slow", mine[slowness >= more], tasks, float(batch.tasks[i]), float(more - less))
    return extra


def _limit_states(extra: _Columns, batch: Batch) -> None:
    """No more nodes leave a state for a job than are in it: those of the beginning, and those that earlier jobs have brought or taken."""
    moves = batch.moves
    counts = np.zeros(len(batch.rows), np.int64)
    counts[: len(batch.counts)] = batch.counts
    for i in range(len(batch.tasks)):
        mine = np.flatnonzero(moves[:, MOVE_JOB] == i)
        before = np.flatnonzero(moves[:, MOVE_JOB] < i)
        for x in np.unique(moves[mine, MOVE_FROM]).tolist():
            out = mine[moves[mine, MOVE_FROM] == x]
            if i == 0 and len(batch.tasks) == 1 and counts[x] >= batch.tasks[0]:
                continue
            row = extra.add_row(-np.inf, float(counts[x]))
            extra.put(row, out, np.ones(len(out)))
            taken, brought = before[moves[before, MOVE_FROM] == x], before[moves[before, MOVE_TO] == x]
            extra.put(row, taken, np.ones(len(taken)))
            extra.put(row, brought, -np.ones(len(brought)))


def _add_choice(extra: _Columns, num: int, term: str, moves: Whole, tasks: Floats, most: float, cost: float) -> None:
    """A 0-1 column that is 1 if one of the moves is made."""
    row = extra.add_row(-np.inf, 0.0)
    extra.put(row, moves, tasks[moves])
    extra.put(row, [num + len(extra.upper)], [-most])
    extra.cost.append((term, num + len(extra.upper), cost))
    extra.upper.append(1.0)


def _level_costs(batch: Batch, objective: Objective, extra: _Columns) -> list[tuple[Floats, bool]]:
    """The costs of all columns at every level, and whether they are whole numbers. Neighbours of whole numbers are combined."""
    num = len(batch.moves)
    most = float(batch.tasks.sum()) + len(extra.upper)  # columns that can be above 0, counted as often as they are

    def spread(of_moves: Floats, weights: dict[str, float]) -> Floats:
        cost = np.concatenate([of_moves, np.zeros(len(extra.upper))])
        for term, column, amount in extra.cost:
            cost[column] += weights.get(term, 0.0) * amount
        return cost

    levels = [(spread(np.zeros(num), {"placed": 1.0}), True)] if len(batch.tasks) > 1 else []
    for level in objective.levels:
        summed = [(weight, name) for weight, name in level if name not in ("racks", "slow")]
        of_moves = sum((weight * _term_of_moves(batch, name) for weight, name in summed), np.zeros(num))
        whole = all(TERMS[name].is_whole and weight.is_integer() for weight, name in level)
        levels.append((spread(of_moves, {name: weight for weight, name in level}), whole))
    combined = [levels[0]]
    for cost, whole in levels[1:]:
        before, was_whole = combined[-1]
        reach = 2.0 * most * float(np.abs(cost).max(initial=0.0)) + 1.0
        if whole and was_whole and reach * most * float(np.abs(before).max(initial=0.0)) < MOST_COMBINED:
            combined[-1] = before * reach + cost, True
        else:
            combined.append((cost, whole))
    return combined
