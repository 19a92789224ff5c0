"""Rows of observations, copied in one go: scaled, or without the slots of the window that none of them uses, which are most of a row."""

from __future__ import annotations

from queuewise.sim.core.compilation import entry


@entry
def gather_rows(rows, chosen, before, after, out) -> None:  # type: ignore[no-untyped-def]
    """out[i] becomes row chosen[i] without its columns from `before` to `after`."""
    for i in range(len(chosen)):
        row = rows[chosen[i]]
        for column in range(before):
            out[i, column] = row[column]
        for column in range(after, len(row)):
            out[i, before + column - after] = row[column]


@entry
def count_slots(rows, first, slots, width) -> int:  # type: ignore[no-untyped-def]
    """How many of the slots from column `first` on hold a job in any of the rows, at least 1. Jobs fill them from the first on."""
    used = 1
    for i in range(len(rows)):
        while used < slots and rows[i, first + used * width] != 0.0:
            used += 1
    return used


@entry
def scale_rows(rows, mean, scale, tokens, out) -> None:  # type: ignore[no-untyped-def]
    """out becomes (rows − mean) × scale; of tokens, given by first column, number and width, those whose first feature is 0 are all 0."""
    for i in range(len(rows)):
        for f in range(rows.shape[1]):
            out[i, f] = (rows[i, f] - mean[f]) * scale[f]
        for part in range(len(tokens)):
            first, number, width = tokens[part]
            for at in range(first, first + number * width, width):
                present = out[i, at]
                if present != 1.0:
                    for f in range(at, at + width):
                        out[i, f] *= present
