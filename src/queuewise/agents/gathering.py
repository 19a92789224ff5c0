"""Frames of a rollout, gathered for a minibatch without the slots of the window that none of them uses: most of a row, most of the time."""

from __future__ import annotations

from queuewise.sim.compilation import entry


@entry
def gather_rows(rows, chosen, before, after, out) -> None:  # type: ignore[no-untyped-def]
    """out[i] becomes row chosen[i] without its columns from `before` to `after`."""
    for i in range(len(chosen)):
        row = rows[chosen[i]]
        for column in range(before):
            out[i, column] = row[column]
        for column in range(after, len(row)):
            out[i, before + column - after] = row[column]
