"""Views of queue and machine, for tests of what decides."""

from __future__ import annotations

from queuewise import Snapshot
from queuewise.policies.interface import View


class Retold:
    """A view whose snapshots have been JSON. It shows nothing else."""

    def __init__(self, view: View) -> None:
        self._view = view

    def snapshot(self) -> Snapshot:
        return Snapshot.from_json(self._view.snapshot().to_json())

    def index(self, job_id: int) -> int:
        return self._view.index(job_id)
