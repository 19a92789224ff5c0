"""Many replays of the same jobs under rules of one shape, in one compiled call.

The tables are laid out once. What changes in a replay lies in one block of memory, which is set back before each of
them. Only what a schedule consists of (the rows of jobs and the log of pieces) has memory of its own per replay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from queuewise.sim.core.blocks import PIECE_COLUMNS, SCRATCH, into_one_block
from queuewise.sim.core.compilation import address_of, caller_by_address, entry
from queuewise.sim.core.engine import REPLAY_ARGUMENTS, compiled_replay, functions_of, run_kernel
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.setup import Layout
from queuewise.sim.core.state import Counts, State, World, as_state
from queuewise.sim.core.tables import I64, addresses_of, row_names

MOST_BYTES = 1 << 26  # memory for the results of one compiled call
ROWS = {row: row_names(State, row) for row in ("life", "run")}
APART = (*SCRATCH, *PIECE_COLUMNS, *ROWS["life"], *ROWS["run"])
NUM_PIECES, NUM_DECISIONS, LOG_FULL, NUM_COUNTS = range(4)  # columns of `counts`

_replay = caller_by_address(types.void(*REPLAY_ARGUMENTS))


@entry
def replay_each(replay, worlds, machine, spare, states, memory, template, counts, stop, scorer, second_scorer, holder) -> int:  # type: ignore[no-untyped-def]
    """Replay simulation i with the addresses worlds[i] and states[i], for all i. `replay` is the address of that entry.

    `memory` is set to `template` before each replay, and counts[i] is written after it. Returns how many replays were
    made: all, unless stop[0] was set from another thread.
    """
    for i in range(len(worlds)):
        if stop[0] != 0:
            return i
        s = as_state(states[i])
        calls = s.count.user_calls
        memory[:] = template
        s.count.user_calls = calls  # who watches it must not take two calls for one
        _replay(replay, worlds[i], machine, spare, states[i], scorer, second_scorer, holder)
        counts[i, NUM_PIECES] = s.count.pieces
        counts[i, NUM_DECISIONS] = s.count.decisions
        counts[i, LOG_FULL] = s.count.log_full
    return len(worlds)


class ReplayBatch:
    """A layout that is replayed many times."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        tables = layout.machine, layout.machine.clone(), layout.state
        self._memory, (self._machine, self._spare, self._state) = into_one_block(tables, APART)
        self._template = self._memory.copy()
        self._addresses = [addresses_of(table) for table in (layout.world, self._machine, self._spare, self._state)]
        self._rows = [getattr(layout.state, names[0]).base for names in ROWS.values()]

    @property
    def count(self) -> Counts:
        """Counts of the replay that is being made."""
        counts: Counts = self._state.count
        return counts

    @property
    def chunk(self) -> int:
        """How many replays can be made in one call."""
        log = sum(getattr(self._state, name).nbytes for name in PIECE_COLUMNS)
        return int(max(1, MOST_BYTES // (log + sum(rows.nbytes for rows in self._rows))))

    def run(self, rules: Rules, orders: Sequence[Mapping[str, NDArray[Any]]], stop: I64) -> Iterator[tuple[State, float]]:
        """The final state of a replay with each of the orders (see Layout.order_columns), and its seconds.

        There are fewer, or none, once stop[0] is set.
        """
        for first in range(0, len(orders), self.chunk):
            yield from self._run(rules, orders[first : first + self.chunk], stop)

    def _run(self, rules: Rules, orders: Sequence[Mapping[str, NDArray[Any]]], stop: I64) -> Iterator[tuple[State, float]]:
        world, machine, spare, state = self._addresses
        worlds, states = np.tile(world, (len(orders), 1)), np.tile(state, (len(orders), 1))
        kept = [_point_to(worlds[i], orders[i]) for i in range(len(orders))]
        results = self._results(states)
        counts = np.zeros((len(orders), NUM_COUNTS), np.int64)
        address = address_of(compiled_replay(self.layout.world))
        began = time.perf_counter()
        memory = self._memory, self._template
        done = _compiled_batch()(address, worlds, machine, spare, states, *memory, counts, stop, *functions_of(rules))
        seconds = (time.perf_counter() - began) / len(orders)
        for i in range(done):
            if counts[i, LOG_FULL]:
                yield self._with_growing_log(rules, kept[i]), seconds
                continue
            own = {name: column[i] for name, column in results.items()}
            count = Counts(pieces=counts[i, NUM_PIECES], decisions=counts[i, NUM_DECISIONS])
            yield self._state.replace(count=count, **own), seconds

    def _results(self, states: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Columns [I, …] of memory that each replay has for itself; notes their addresses in `states`."""
        columns: dict[str, NDArray[Any]] = {}
        for name in PIECE_COLUMNS:
            columns[name] = np.empty((len(states), len(getattr(self._state, name))), State.columns[name].dtype)
        for names, initial in zip(ROWS.values(), self._rows, strict=True):
            rows = np.empty((len(states), len(initial)), initial.dtype)
            rows[:] = initial
            columns |= {name: rows[name] for name in names}
        position = {name: place for place, name in enumerate(State.columns)}
        for name, column in columns.items():
            states[:, position[name]] = column.ctypes.data + column.strides[0] * np.arange(len(states))
        return columns

    def _with_growing_log(self, rules: Rules, order: Mapping[str, NDArray[Any]]) -> State:
        """The same replay once more, with a log of pieces that grows."""
        self._memory[:] = self._template
        world = self.layout.world.replace(sizes=self.layout.world.sizes.copy(), **order)
        return run_kernel(compiled_replay(world), rules, world, self._machine.clone(), self._state.clone())


def _compiled_batch() -> Callable[..., int]:
    """The entry, compiled or loaded from the cache on first use."""
    with _compiling:
        if not replay_each.signatures:  # type: ignore[attr-defined]
            addresses, bytes_, rows = types.int64[::1], types.uint8[::1], types.int64[:, ::1]
            machines, functions = REPLAY_ARGUMENTS[1:3], REPLAY_ARGUMENTS[4:]
            replay_each.compile((types.int64, rows, *machines, rows, bytes_, bytes_, rows, addresses, *functions))  # type: ignore[attr-defined]
            replay_each.disable_compile()  # type: ignore[attr-defined]
    return replay_each


_compiling = threading.Lock()
_POSITION = {name: place for place, name in enumerate(World.columns)}


def _point_to(addresses: NDArray[np.int64], columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Write the addresses of these columns of a World. Returns the columns, which must be kept."""
    checked = World.checked(**columns)
    for name, column in checked.items():
        addresses[_POSITION[name]] = column.ctypes.data
    return checked
