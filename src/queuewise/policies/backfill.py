"""Backfill rules by name: what may start while the head waits."""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.sim import backfill


@dataclass(frozen=True)
class BackfillRule:
    code: int
    summary: str


SLURM = "slurm"  # what follows its name is a file, not an order
BACKFILLS: dict[str, BackfillRule] = {
    "none": BackfillRule(backfill.NO_BACKFILL, "the head blocks the queue"),
    "greedy": BackfillRule(backfill.GREEDY, "whatever fits starts, in order; large jobs may starve"),
    "easy": BackfillRule(
        backfill.EASY, "what does not delay the head's reservation starts (Lifka 1995; on the real nodes, with the spare-resource rule)"
    ),
    "easy-strict": BackfillRule(
        backfill.EASY_STRICT, "only what ends strictly before the head's reservation starts (the RLScheduler paper's variant)"
    ),
    "conservative": BackfillRule(backfill.CONSERVATIVE, "every waiting job has a reservation that nobody behind it may delay"),
    SLURM: BackfillRule(
        backfill.SLURM,
        "Slurm's loops: in order at every event, with plans for the first jobs every bf_interval; slurm:FILE has its parameters",
    ),
    "defrag": BackfillRule(
        backfill.DEFRAG, "as greedy, but first running jobs are migrated off a node if the head then fits; alone: fcfs+defrag"
    ),
}
