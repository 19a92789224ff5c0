"""What happened: the result of a simulation, job by job and piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Power
from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload

# Job status. The order is the life of a job; everything from DONE on is final.
PENDING, QUEUED, RUNNING, DONE, REJECTED, KILLED, CANCELLED, FAILED = range(8)
STATUS_NAMES = ("pending", "queued", "running", "done", "rejected", "killed", "cancelled", "failed")
#   KILLED: ran into its limit under kill-at-limit. CANCELLED: a dependency can never be met. FAILED: hit by a failure and not queued again.

NEVER = np.inf  # in `start` and `end` of a job that has not started or ended


@dataclass(frozen=True, eq=False)
class Schedule:
    """One replay. Arrays [J] follow the workload's job index, arrays [P] list pieces.

    A piece is the stay of some tasks of one job on one node between a start (or resume) and the next stop. A job that
    is never preempted has one piece per node, or per task where tasks share GPUs.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    dispatch: str  # "reorder" or "commit"
    estimates: str  # how `estimate` was made
    seed: int
    estimate: NDArray[np.float64]  # [J] seconds, what the policy knew
    status: NDArray[np.int8]  # [J]
    start: NDArray[np.float64]  # [J] first start, all its nodes awake; NEVER if it did not
    end: NDArray[np.float64]  # [J] final end, NEVER if it has not
    preemptions: NDArray[np.int32]  # [J] times stopped and put back (by a policy or by a failure)
    piece_job: NDArray[np.int32]  # [P]
    piece_node: NDArray[np.int32]  # [P]
    piece_tasks: NDArray[np.int32]  # [P] tasks of the job on the node
    piece_gpus: NDArray[np.int64]  # [P] bit g set: GPU g of the node is used
    piece_start: NDArray[np.float64]  # [P] when it was placed
    piece_end: NDArray[np.float64]  # [P] NEVER while running
    engine_s: float  # wall-clock seconds inside the engine
    decisions: int  # scheduling passes made
    overstays: NDArray[np.int32] | None = None  # [J] runs still on nodes reserved for others when that began; None: no reservations
    power: Power = field(default_factory=Power)  # when nodes slept, and what energy costs

    @property
    def finished(self) -> NDArray[np.bool_]:
        """[J] ran to an end."""
        return (self.status == DONE) | (self.status == KILLED)

    @property
    def first_wait(self) -> NDArray[np.float64]:
        """[J] seconds from submission to first start, inf if never started."""
        return self.start - self.workload.submit

    @property
    def jct(self) -> NDArray[np.float64]:
        """[J] job completion time: seconds from submission to end, inf if not ended."""
        return self.end - self.workload.submit
