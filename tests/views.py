"""Views of queue and machine, for tests of what decides."""

from __future__ import annotations

from queuewise import Snapshot
from queuewise.policies.interface import View
from reference.state import Machine, queues_of_partitions
from strategies import Case


def has_queues_joined_by_jobs(case: Case) -> bool:
    """Whether jobs of several partitions make one queue of these, as long as they are in the view."""
    machine = Machine.of(case.cluster)
    by_nodes = queues_of_partitions(case.workload.take(slice(0, 0)), machine)
    return queues_of_partitions(case.workload, machine) != by_nodes


class Retold:
    """A view whose snapshots have been JSON. It shows nothing else."""

    def __init__(self, view: View) -> None:
        self._view = view

    def snapshot(self) -> Snapshot:
        return Snapshot.from_json(self._view.snapshot().to_json())

    def index(self, job_id: int) -> int:
        return self._view.index(job_id)
