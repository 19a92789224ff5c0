"""Fairness between users, and how often a job is overtaken.

A user's value is the mean bounded slowdown of that user's finished jobs. Jobs without a user are excluded. The metrics are None if no job
has a user.
"""

from __future__ import annotations

import numpy as np

from queuewise.evaluation.measure import Floats, Measurement, bounded_slowdown
from queuewise.workload.jobs import UNKNOWN


def user_slowdowns(m: Measurement) -> Floats | None:
    """[users with a finished job] mean bounded slowdown, or None."""
    user = m.schedule.workload.user[m.rows]
    named = user != UNKNOWN
    if not named.any():
        return None
    count = np.bincount(user[named])
    total = np.bincount(user[named], weights=bounded_slowdown(m)[named])
    return np.asarray(total[count > 0] / count[count > 0])


def jain_index(m: Measurement) -> float | None:
    """(Σx)² ÷ (n·Σx²) over users' mean bounded slowdowns: 1 if all are equal, 1/n if one user has all of it (Jain, Chiu, Hawe, 1984)."""
    x = user_slowdowns(m)
    return None if x is None else float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def gini(m: Measurement) -> float | None:
    """Gini coefficient of users' mean bounded slowdowns: 0 if all are equal."""
    x = user_slowdowns(m)
    if x is None:
        return None
    rank = np.arange(1, len(x) + 1)
    return float((2 * rank - len(x) - 1) @ np.sort(x) / (len(x) * x.sum()))


def max_over_mean_user_slowdown(m: Measurement) -> float | None:
    """Largest of the users' mean bounded slowdowns ÷ the mean over users."""
    x = user_slowdowns(m)
    return None if x is None else float(x.max() / x.mean())


def unfair_starts(m: Measurement) -> int:
    """Finished jobs that were overtaken by a later job of at least the same size (`Workload.size`), in the same partition, where both or
    neither use GPUs. Such a job could have used the resources that the other one got. Backfilling a smaller job does not count."""
    from queuewise.evaluation.overtaking import count_overtaken  # compiled: keeps importing the metrics fast

    schedule, workload = m.schedule, m.schedule.workload
    submit, start = workload.submit[m.rows], schedule.start[m.rows]
    pool = workload.partition[m.rows].astype(np.int64) * 2 + (workload.gpu_milli[m.rows] > 0)
    size_rank = np.unique(workload.size[m.rows], return_inverse=True)[1].ravel()
    rows_of = (np.flatnonzero(pool == p) for p in np.unique(pool))
    return sum(int(count_overtaken(submit[rows], start[rows], size_rank[rows])) for rows in rows_of)
