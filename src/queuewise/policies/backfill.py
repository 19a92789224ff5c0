"""Backfill rules by name: what may start while the head waits."""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.sim.state import CONSERVATIVE, DEFRAG, EASY, EASY_STRICT, GREEDY, NO_BACKFILL


@dataclass(frozen=True)
class BackfillRule:
    code: int
    summary: str


BACKFILLS: dict[str, BackfillRule] = {
    "none": BackfillRule(NO_BACKFILL, "the head blocks the queue"),
    "greedy": BackfillRule(GREEDY, "whatever fits starts, in order; large jobs may starve"),
    "easy": BackfillRule(
        EASY, "what does not delay the head's reservation starts (Lifka 1995; on the real nodes, with the spare-resource rule)"
    ),
    "easy-strict": BackfillRule(
        EASY_STRICT, "only what ends strictly before the head's reservation starts (the RLScheduler paper's variant)"
    ),
    "conservative": BackfillRule(CONSERVATIVE, "every waiting job has a reservation that nobody behind it may delay"),
    "defrag": BackfillRule(DEFRAG, "as greedy, but first running jobs are migrated off a node if the head then fits; alone: fcfs+defrag"),
}
