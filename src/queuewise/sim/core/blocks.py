"""Tables in one block of memory, so that a simulation is copied, and set back to an earlier state, in one piece."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.tables import Table

# Columns of a State that carry nothing from one instant to the next. (`room` is kept, but room_key says whether it is valid.)
SCRATCH = (
    "scratch", "scratch_jobs", "scratch_nodes", "place_node", "place_tasks", "place_gpus", "victim_key", "victim_job", "taken",
    "frontier", "gain", "planned", "aside", "stretch", "node_facts", "node_score", "demand", "hold",
)  # fmt: skip
PIECE_COLUMNS = ("piece_job", "piece_node", "piece_tasks", "piece_gpus", "piece_start", "piece_end")
ALIGNMENT = 64

T = TypeVar("T", bound=Table)


def into_one_block(tables: Sequence[Table], apart: Collection[str]) -> tuple[NDArray[np.uint8], list[Any]]:
    """A block of memory, and copies of the tables with their columns in it. Columns that are named in `apart` stay where they are."""
    wholes: dict[int, NDArray[Any]] = {}  # columns that are fields of the same rows count once
    for table in tables:
        for name in table.columns:
            if name not in apart:
                whole = _whole(getattr(table, name))
                wholes[id(whole)] = whole
    offsets, size = {}, 0
    for key, whole in wholes.items():
        offsets[key] = size
        size += -(-whole.nbytes // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(size, np.uint8)
    moved = {}
    for key, whole in wholes.items():
        moved[key] = memory[offsets[key] : offsets[key] + whole.nbytes].view(whole.dtype).view(type(whole))
        moved[key][...] = whole

    def place(table: T) -> T:
        return type(table)(**{name: _placed(moved, name, getattr(table, name)) for name in table.columns})

    return memory, [place(table) for table in tables]


def _placed(moved: dict[int, NDArray[Any]], name: str, column: NDArray[Any]) -> NDArray[Any]:
    whole = _whole(column)
    if id(whole) not in moved:
        return column
    return moved[id(whole)][name] if whole.dtype.names and whole is not column else moved[id(whole)]


def _whole(column: NDArray[Any]) -> NDArray[Any]:
    """The rows that a column is a field of, or the column itself."""
    base = column.base
    return base if isinstance(base, np.ndarray) and base.dtype.names and not column.dtype.names else column
