"""Inputs that several commands share, apart from the workload and the cluster (`queuewise.reading`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuewise.cluster.conditions import Conditions
    from queuewise.policies.snapshot import JobId, Snapshot
    from queuewise.workload import Loaded, Workload


def read_conditions(path: str | None, workload: Workload, load_factor: float | None = None) -> Conditions:
    """The conditions in a file, or the defaults without a file. Dates are on the clock of the workload.

    If the jobs were submitted `load_factor` times as fast, the times of the file move with them.
    """
    from queuewise.cluster.conditions import PERFECT, load_conditions

    return PERFECT if path is None else move_with_load(load_conditions(Path(path), epoch=workload.epoch), workload, load_factor)


def move_with_load(conditions: Conditions, workload: Workload, load_factor: float | None) -> Conditions:
    """The conditions of a log for the same log at another load: its outages befall the same jobs."""
    return conditions if load_factor is None or not len(workload) else conditions.stretched(float(workload.submit[0]), 1 / load_factor)


def report_reading(loaded: Loaded) -> None:
    """Print what the reader skipped and filled in."""
    from queuewise.cli.console import note

    for remark in loaded.tally.remarks():
        note(remark)


def waiting_job(snapshot: Snapshot, text: str) -> JobId:
    """The id of a waiting job as the snapshot has it, where some are numbers; the text itself if no job has it."""
    return next((one.job.job_id for one in snapshot.queue if str(one.job.job_id) == text), text)
