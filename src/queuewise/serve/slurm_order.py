"""The order of waiting jobs by SiteFactor: their present priorities are permuted among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from queuewise.serve.slurm_records import SlurmJob


def site_changes(ranked: Sequence[SlurmJob], factors: Mapping[str, int]) -> list[str]:
    """The changes that bring jobs into this order; none if they are in it. `factors` are the SiteFactors that they have now.

    The k-th job gets the k-th highest of the priorities that all of them have without us, so none overtakes a job that is not steered.
    Equal ones are lowered by a point each, and all are raised together only if the last would fall below 1.
    """
    if all(one.priority > other.priority for one, other in pairwise(ranked)):
        return []
    base = {job.job_id: job.priority - factors.get(job.job_id, 0) for job in ranked}
    targets: list[int] = []
    for value in sorted(base.values(), reverse=True):
        targets.append(min(value, targets[-1] - 1) if targets else value)
    lift = max(1 - targets[-1], 0)
    wanted = {job.job_id: target + lift - base[job.job_id] for job, target in zip(ranked, targets, strict=True)}
    return [
        f"JobId={job.address} SiteFactor={wanted[job.job_id]}"
        for job in ranked
        if wanted[job.job_id] != factors.get(job.job_id, 0)
    ]  # fmt: skip
