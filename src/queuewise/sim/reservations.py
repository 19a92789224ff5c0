"""Reservations in arrays: which nodes are barred for whom, and when. docs/simulator.md, "Reservations"; kernels are in bars.py.

Jobs that are members of the same reservations make a *crowd*. How long a job is counts for jobs that something bars, so its estimate is
part of its demand class then.
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
from queuewise.sim.rules import Rules
from queuewise.sim.state import DEFRAG, F64, I32, I64, NOT_PREEMPTIVE
from queuewise.workload.jobs import Workload, constant


@dataclass(frozen=True, eq=False)
class Bars:
    """For each crowd and node, the times when others have it reserved."""

    crowd: I32  # [J]
    length: I32  # [J] index into `estimates`
    estimates: F64  # distinct estimates of jobs that something bars
    first: I64  # [V*N+1] offsets into the next two: of crowd v and node n at v*N + n
    start: F64  # [B] ascending for each crowd and node, disjoint
    end: F64  # [B]
    lifts: F64  # [L] ends of reservations, ascending, each once

    @classmethod
    def none(cls, workload: Workload) -> Bars:
        """Everybody may use everything."""
        nobody: I32 = constant(0, len(workload), np.int32)
        return cls(nobody, nobody, np.zeros(1), np.zeros(2, np.int64), np.zeros(1), np.zeros(1), np.zeros(0))

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, conditions: Conditions, rules: Rules, estimate: F64) -> Bars:
        held = conditions.held_on(cluster)
        if not held:
            return cls.none(workload)
        if rules.keys != NOT_PREEMPTIVE or rules.backfill == DEFRAG:
            raise InputError(
                "reservations are for policies that do not preempt or migrate", hint="for example fcfs+easy, or no [[reservations]]"
            )
        member = members(workload, conditions, held)
        sets, crowd = np.unique(member, axis=0, return_inverse=True)
        barred = ~member.all(axis=1)
        estimates, length = np.unique(np.where(barred, estimate, 0.0), return_inverse=True)
        rows = [
            sorted((one.start, one.end) for one, inside in zip(held, crowd_is_in, strict=True) if not inside and n in one.nodes)
            for crowd_is_in in sets.tolist()
            for n in range(cluster.num_nodes)
        ]
        times = np.array([time for row in rows for time in row], np.float64).reshape(-1, 2)
        ends = np.unique([one.end for one in held])
        return cls(
            crowd.ravel().astype(np.int32), length.ravel().astype(np.int32), estimates,
            np.concatenate([[0], np.cumsum([len(row) for row in rows])]), times[:, 0].copy(), times[:, 1].copy(), ends[np.isfinite(ends)],
        )  # fmt: skip

    @property
    def are_there(self) -> bool:
        return len(self.first) > 2

    def world_columns(self) -> dict[str, NDArray[Any]]:
        return {"bar_first": self.first.astype(np.int64), "bar_start": self.start, "bar_end": self.end, "lift_time": self.lifts}


def members(workload: Workload, conditions: Conditions, held: Sequence[Held]) -> NDArray[np.bool_]:
    """[J, R] whose jobs may use what is reserved: of a named user, or of a named account or one below it."""
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
                raise unknown_name(f"{kind} in {one.reservation.title}, of whom {workload.name} has no job:", name, known)


def count_overstays(workload: Workload, cluster: Cluster, conditions: Conditions, pieces: tuple[NDArray[Any], ...]) -> I32 | None:
    """[J] how often a run of the job, which is no member's, was still on reserved nodes when the reservation began; None without any.

    `pieces`: job, node, start and end of each.
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
