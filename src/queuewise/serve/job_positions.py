"""Where jobs of a snapshot would be in a log: by submission, and by id where that is the same."""

from __future__ import annotations

import re

from queuewise.policies.snapshot import JobId, Snapshot

_NUMBERS = re.compile(r"(\d+)")


def positions_of(snapshot: Snapshot) -> dict[JobId, int]:
    """Positions by id."""
    jobs = sorted((one.job for one in snapshot.jobs), key=lambda job: (job.submit, natural_key(job.job_id)))
    return {job.job_id: position for position, job in enumerate(jobs)}


def natural_key(job_id: JobId) -> tuple[tuple[int, str], ...]:
    """Ids in the order in which a reader would sort them: 9 before 10, and 7_2 before 7_11."""
    parts = _NUMBERS.split(str(job_id)) if isinstance(job_id, str) else ["", str(job_id), ""]
    return tuple((int(part), "") if position % 2 else (-1, part) for position, part in enumerate(parts))
