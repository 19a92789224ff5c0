"""Nodes that are kept for some ("Reservations" of the normative page)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.reservations import Held
from queuewise.workload.jobs import Workload
from reference.state import Job


def bar(jobs: Iterable[Job], workload: Workload, conditions: Conditions, reserved: Sequence[Held]) -> None:
    """Tell each job when others have which nodes."""
    for job in jobs:
        foreign = [one for one in reserved if not is_member(workload, conditions, one, job.index)]
        if foreign:
            bars = tuple(tuple((one.start, one.end) for one in foreign if n in one.nodes) for n in range(job.machine.num_nodes))
            for size in job.sizes:
                size.demand = replace(size.demand, bars=bars, length=job.estimate * size.worst_factor)


def is_member(workload: Workload, conditions: Conditions, one: Held, j: int) -> bool:
    """Whether the job's user is named, or its account, or one above it."""
    user, group = int(workload.user[j]), int(workload.group[j])
    if user >= 0 and workload.users[user] in one.reservation.users:
        return True
    account = workload.groups[group] if group >= 0 else None
    while account is not None:
        if account in one.reservation.accounts:
            return True
        entry = conditions.fairness.accounts.get(account)
        account = entry.parent if entry is not None else None
    return False
