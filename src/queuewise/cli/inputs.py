"""Inputs that several commands share, apart from the workload and the cluster (`queuewise.reading`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuewise.cluster.conditions import Conditions
    from queuewise.workload import Loaded, Workload


def read_conditions(path: str | None, workload: Workload) -> Conditions:
    """The conditions in a file, or the defaults without a file. Dates are on the clock of the workload."""
    from queuewise.cluster.conditions import PERFECT, load_conditions

    return PERFECT if path is None else load_conditions(Path(path), epoch=workload.epoch)


def report_reading(loaded: Loaded) -> None:
    """Print what the reader skipped and filled in."""
    from queuewise.cli.console import note

    for remark in loaded.tally.remarks():
        note(remark)
