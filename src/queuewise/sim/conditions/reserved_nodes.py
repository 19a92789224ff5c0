"""Reserved nodes: which nodes are blocked for which jobs, and when.

docs/simulator.md, "Reservations", defines the rules. The first part prepares the arrays that kernels need. The second
part contains the kernels, which are called wherever the slots of a node are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.reservations import Held
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError, unknown_name
from queuewise.sim import backfill, preemption
from queuewise.sim.core.compilation import inline, noinline
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.state import World
from queuewise.sim.core.tables import F64, I32, I64
from queuewise.workload.jobs import Workload, constant


@dataclass(frozen=True, eq=False)
class BlockedTimes:
    """For each membership and node, the times for which others have reserved the node."""

    membership: I32  # [J]
    length: I32  # [J] index into `estimates`
    estimates: F64  # distinct estimates of jobs for which some node is blocked
    first: I64  # [V*N+1] offsets into the next two; membership v and node n at v*N + n
    start: F64  # [B] ascending and disjoint for each membership and node
    end: F64  # [B]
    ends: F64  # [L] distinct ends of reservations, ascending

    @classmethod
    def none(cls, workload: Workload) -> BlockedTimes:
        """No reservations."""
        nobody: I32 = constant(0, len(workload), np.int32)
        return cls(nobody, nobody, np.zeros(1), np.zeros(2, np.int64), np.zeros(1), np.zeros(1), np.zeros(0))

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, conditions: Conditions, rules: Rules, estimate: F64) -> BlockedTimes:
        held = conditions.held_on(cluster)
        if not held:
            return cls.none(workload)
        if rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill == backfill.DEFRAG:
            raise InputError(
                "reservations need a policy that does not preempt or migrate",
                hint="choose such a policy, for example fcfs+easy, or omit [[reservations]]",
            )
        member = members(workload, conditions, held)
        sets, membership = np.unique(member, axis=0, return_inverse=True)
        blocked = ~member.all(axis=1)
        estimates, length = np.unique(np.where(blocked, estimate, 0.0), return_inverse=True)
        rows = [
            sorted((one.start, one.end) for one, inside in zip(held, member_of, strict=True) if not inside and n in one.nodes)
            for member_of in sets.tolist()
            for n in range(cluster.num_nodes)
        ]
        times = np.array([time for row in rows for time in row], np.float64).reshape(-1, 2)
        ends = np.unique([one.end for one in held])
        return cls(
            membership.ravel().astype(np.int32), length.ravel().astype(np.int32), estimates,
            np.concatenate([[0], np.cumsum([len(row) for row in rows])]), times[:, 0].copy(), times[:, 1].copy(), ends[np.isfinite(ends)],
        )  # fmt: skip

    @property
    def are_there(self) -> bool:
        return len(self.first) > 2

    def world_columns(self) -> dict[str, NDArray[Any]]:
        return {
            "blocked_first": self.first.astype(np.int64),
            "blocked_start": self.start,
            "blocked_end": self.end,
            "reservation_end": self.ends,
        }


def members(workload: Workload, conditions: Conditions, held: Sequence[Held]) -> NDArray[np.bool_]:
    """[J, R] whether the job may use the reserved nodes: its user, its account or an account above that is named."""
    for one in held:
        _check_names(workload, conditions, one)
    above = conditions.fairness.parents(workload.groups)
    lines = []
    for name in workload.groups:
        line, parent = [name], above[name]
        while parent is not None:
            line.append(parent)
            parent = above[parent]
        lines.append(line)
    pairs, of_job = np.unique(np.column_stack([workload.user, workload.group]), axis=0, return_inverse=True)
    inside = [
        [one.reservation.has_member(workload.users[user] if user >= 0 else None, lines[group] if group >= 0 else ()) for one in held]
        for user, group in pairs.tolist()
    ]
    return np.array(inside, bool)[of_job.ravel()]


def _check_names(workload: Workload, conditions: Conditions, one: Held) -> None:
    accounts = {*workload.groups, *conditions.fairness.accounts}
    for kind, names, known in (("user", one.reservation.users, workload.users), ("account", one.reservation.accounts, accounts)):
        for name in names:
            if name not in known:
                raise unknown_name(f"{kind} in {one.reservation.title} without a job in {workload.name}:", name, known)


def count_overstays(workload: Workload, cluster: Cluster, conditions: Conditions, pieces: tuple[NDArray[Any], ...]) -> I32 | None:
    """[J] how many runs of the job were still on reserved nodes when a reservation began, None without reservations.

    Runs of members do not count. `pieces`: job, node, start and end of each piece.
    """
    held = conditions.held_on(cluster)
    if not held:
        return None
    number = np.zeros(len(workload), np.int32)
    job, node, start, end = pieces
    member = members(workload, conditions, held)
    for r, one in enumerate(held):
        stays = np.isin(node, one.nodes) & (start < one.start) & (end > one.start) & ~member[job, r]
        runs = np.unique(np.column_stack([job[stays], start[stays]]), axis=0)
        np.add.at(number, runs[:, 0].astype(np.int64), 1)
    return number


@noinline
def _is_blocked(w: World, c: int, n: int, time: float) -> bool:
    row = w.class_membership[c] * w.sizes.num_nodes + n
    until = time + w.class_length[c]
    for k in range(w.blocked_first[row], w.blocked_first[row + 1]):
        if time < w.blocked_end[k] and (w.blocked_start[k] <= time or w.blocked_start[k] < until):
            return True
    return False


@inline
def is_blocked(w: World, c: int, n: int, time: float) -> bool:
    """Whether others have reserved node n for some part of a run of class c that starts at `time`."""
    return w.policy.has_reservations != 0 and _is_blocked(w, c, n, time)


@inline
def first_reservation_end_after(w: World, time: float) -> int:
    """Index of the first end of a reservation after `time`; num_reservation_ends if there is none."""
    i = 0
    while i < w.sizes.num_reservation_ends and w.reservation_end[i] <= time:
        i += 1
    return i
