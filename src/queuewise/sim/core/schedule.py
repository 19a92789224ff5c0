"""The result of a simulation, per job and per piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions, Power
from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload

if TYPE_CHECKING:
    import polars as pl

    from queuewise.sim.core.rules import Rules

# Job status, in the order of a job's life. All from DONE on are final.
PENDING, QUEUED, RUNNING, DONE, REJECTED, KILLED, CANCELLED, FAILED = range(8)
STATUS_NAMES = ("pending", "queued", "running", "done", "rejected", "killed", "cancelled", "failed")
# KILLED: reached its limit under kill-at-limit. CANCELLED: a dependency can never be met. FAILED: hit by a failure and
# not queued again.

NEVER = np.inf  # `start` or `end` of a job that has not started or ended


@dataclass(frozen=True, eq=False)
class Origin:
    """How a schedule came about: with it, the state of the machine at any time can be found again."""

    rules: Rules  # of the policy, without its orders
    conditions: Conditions
    ready: NDArray[np.float64] | None  # [J] when all that the job depends on had happened; None: nobody depends on others


@dataclass(frozen=True, eq=False)
class Schedule:
    """The result of one replay. Arrays [J] follow the job index of the workload, arrays [P] list pieces.

    A piece is the part of a run that is on one node, from a start (or resume) to the next stop. A job that is never
    preempted has one piece per node, or one per task if tasks share GPUs.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    dispatch: str  # "reorder" or "commit"
    estimates: str  # how `estimate` was made
    seed: int
    estimate: NDArray[np.float64]  # [J] seconds, what the policy knew
    status: NDArray[np.int8]  # [J]
    start: NDArray[np.float64]  # [J] first start with all nodes awake, NEVER if it has not started
    end: NDArray[np.float64]  # [J] final end, NEVER if it has not ended
    preemptions: NDArray[np.int32]  # [J] how often it was stopped and queued again (by a policy or by a failure)
    piece_job: NDArray[np.int32]  # [P]
    piece_node: NDArray[np.int32]  # [P]
    piece_tasks: NDArray[np.int32]  # [P] tasks of the job on the node
    piece_gpus: NDArray[np.int64]  # [P] bit g set: GPU g of the node is used
    piece_start: NDArray[np.float64]  # [P] when the piece was placed
    piece_end: NDArray[np.float64]  # [P] NEVER while running
    engine_s: float  # wall-clock seconds inside the engine
    decisions: int  # scheduling passes made
    overstays: NDArray[np.int32] | None = None  # [J] runs still on reserved nodes when a reservation of others began; None: no reservations
    power: Power = field(default_factory=Power)  # rules of sleeping nodes, and the price of energy
    thinking: dict[str, Any] | None = None  # statistics of a policy that solves or plans (policies/thinking.py)
    origin: Origin | None = None  # None: the schedule was read from files

    @property
    def finished(self) -> NDArray[np.bool_]:
        """[J] whether the job ran to its end or was killed at its limit."""
        return (self.status == DONE) | (self.status == KILLED)

    @property
    def first_wait(self) -> NDArray[np.float64]:
        """[J] seconds from submission to first start, inf if it has not started."""
        return self.start - self.workload.submit

    @property
    def jct(self) -> NDArray[np.float64]:
        """[J] job completion time: seconds from submission to end, inf if it has not ended."""
        return self.end - self.workload.submit

    def to_frame(self) -> pl.DataFrame:
        """One row per job, with the columns of jobs.parquet (docs/formats.md)."""
        frame: pl.DataFrame = _shown().frame_of_schedule(self)
        return frame

    def __repr__(self) -> str:
        return str(_shown().line_of_schedule(self))

    def _repr_html_(self) -> str:
        return str(_shown().html_of_schedule(self))


def _shown() -> Any:
    """How results are shown: it needs metrics, which the engine does not know, so it is looked up by name."""
    return import_module("queuewise.api.shown")
