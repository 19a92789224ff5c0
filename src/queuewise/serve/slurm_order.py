"""The order of waiting jobs by SiteFactor: their present priorities are permuted among them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from queuewise.runs import write_text
from queuewise.serve.slurm_records import SlurmJob

LEAST = 1  # the least priority of a job that is not held


def site_changes(ranked: Sequence[SlurmJob], factors: Mapping[str, int]) -> list[str]:
    """The changes that bring jobs into this order; none if they are in it. `factors` are the SiteFactors that they have now.

    The k-th job gets the k-th highest of the priorities that all of them have without us, so none overtakes a job that is not steered.
    Equal ones are lowered by a point each, or by two where Slurm shows no exact ones, and all are raised together only if the last would
    fall too low.
    """
    if all(one.priority > other.priority for one, other in pairwise(ranked)):
        return []
    base = {job.job_id: _without_us(job, factors) for job in ranked}
    step = 1 if min(base.values()) > LEAST else 2  # what is shown as the least may be one less
    targets: list[int] = []
    for value in sorted(base.values(), reverse=True):
        targets.append(min(value, targets[-1] - step) if targets else value)
    lift = max(step - targets[-1], 0)
    wanted = {job.job_id: target + lift - base[job.job_id] for job, target in zip(ranked, targets, strict=True)}
    return [
        f"JobId={job.address} SiteFactor={wanted[job.job_id]}"
        for job in ranked
        if wanted[job.job_id] != factors.get(job.job_id, 0)
    ]  # fmt: skip


def _without_us(job: SlurmJob, factors: Mapping[str, int]) -> int:
    """The priority of a job without its SiteFactor. Slurm shows the least for all that would be lower, so that is not added to."""
    value = job.priority - factors.get(job.job_id, 0)
    return value if value > LEAST else 0


class MadeOrder:
    """The ids of jobs whose SiteFactor is ours, kept in a file: after a killed agent, the next command can take the order back."""

    def __init__(self, home: Path | None) -> None:
        self._path = None if home is None else home / "ordered_jobs.json"
        self._jobs = self._read()

    def _read(self) -> set[str]:
        try:
            found = [] if self._path is None else json.loads(self._path.read_bytes())
        except (OSError, ValueError):  # there is none, or it is no list of ours
            return set()
        return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()

    def note(self, jobs: Collection[str]) -> None:
        """Before they get their SiteFactors. An OSError means that it cannot be kept."""
        if not self._jobs.issuperset(jobs):
            self._keep(self._jobs.union(jobs))

    def forget_others(self, present: Collection[str]) -> None:
        """Jobs that Slurm has forgotten."""
        if not self._jobs.issubset(present):
            self._keep(self._jobs.intersection(present))

    def forget(self) -> None:
        if self._jobs:
            self._keep(set())

    def _keep(self, jobs: set[str]) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps(sorted(jobs)) + "\n")
        self._jobs = jobs

    def undone(self, jobs: Sequence[SlurmJob]) -> list[str]:
        """The changes that take the order back."""
        ours = [job for job in jobs if job.state == "PENDING" and job.job_id in self._jobs and job.site_factor != 0]
        return [f"JobId={job.address} SiteFactor=0" for job in ours]
