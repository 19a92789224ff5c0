"""Reservations: nodes that only certain users or accounts may use for a time. See docs/simulator.md, "Reservations".

A `Reservation` is an entry of a conditions file. `held_on` checks all of them against a cluster and finds their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field, model_validator

from queuewise.cluster.node_selection import find_nodes
from queuewise.cluster.spec import Cluster
from queuewise.config import Config
from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import MAX_SECONDS


def check_times(what: str, start: float, end: float) -> None:
    """Raise a ValueError unless `end` comes after `start`, and within the range of times or never."""
    if not end > start:
        raise ValueError(f"{what} ends at {end:g}, not after its start at {start:g}")
    if MAX_SECONDS < end < float("inf"):
        raise ValueError(f"{what} ends at {end:g}, which is after {MAX_SECONDS:g}; inf means never")


class Reservation(Config):
    """Nodes that run only the jobs of members from `start` until `end`."""

    name: str = ""  # for error messages
    nodes: tuple[int | str, ...] = ()  # numbers, names, names of node groups, patterns; empty: all nodes of the cluster or partition
    partition: str | None = None  # only nodes of this partition
    count: int | None = Field(default=None, ge=1)  # only the first `count` of these nodes
    start: float = Field(ge=-MAX_SECONDS, le=MAX_SECONDS)
    end: float | None = None  # inf: no end
    duration_s: float | None = Field(default=None, gt=0)  # instead of `end`
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()  # including the accounts below them

    @model_validator(mode="after")
    def _is_one(self) -> Reservation:
        if (self.end is None) == (self.duration_s is None):
            raise ValueError(f"{self.title} needs either end or duration_s")
        check_times(self.title, self.start, self.until)
        if not self.users and not self.accounts:
            raise ValueError(f"{self.title} has no members: add users or accounts, or use [[maintenance]]")
        if not self.nodes and self.partition is None and self.count is None:
            raise ValueError(f"{self.title} has no nodes: add nodes, a partition or a count")
        return self

    @property
    def title(self) -> str:
        return f"reservation {self.name!r}" if self.name else f"the reservation from {self.start:g}"

    @property
    def until(self) -> float:
        return self.end if self.end is not None else self.start + (self.duration_s or 0.0)

    def at_most_on(self, cluster: Cluster) -> Reservation | None:
        """The reservation with no more nodes than the cluster has of those that match; None if it has none."""
        matching = len(self._matching(cluster))
        return self.model_copy(update={"count": None if self.count is None else min(self.count, matching)}) if matching else None

    def nodes_on(self, cluster: Cluster) -> tuple[int, ...]:
        """The reserved nodes of the cluster, ascending."""
        chosen = self._matching(cluster)
        if not chosen or (self.count or 0) > len(chosen):
            raise InputError(
                f"{self.title} needs {self.count or 'some'} nodes, but {cluster.name} has {len(chosen)} that match",
                hint="reduce count, or choose other nodes or another partition",
            )
        return tuple(sorted(chosen)[: self.count])

    def _matching(self, cluster: Cluster) -> set[int]:
        """The nodes that may be reserved."""
        chosen = (
            {n for entry in self.nodes for n in find_nodes(cluster, entry, self.title)} if self.nodes else set(range(cluster.num_nodes))
        )
        if self.partition is not None:
            names = [partition.name for partition in cluster.partitions]
            if self.partition not in names:
                raise unknown_name(f"partition in {self.title}:", self.partition, names)
            inside = cluster.nodes_in([self.partition])
            chosen = {n for n in chosen if inside[n]}
        return chosen

    def has_member(self, user: str | None, accounts: Iterable[str]) -> bool:
        """Whether a job of this user and account belongs to a member. `accounts` are the account and those above it."""
        return user in self.users or any(account in self.accounts for account in accounts)


@dataclass(frozen=True)
class Held:
    """A reservation with its nodes on a cluster."""

    reservation: Reservation
    nodes: tuple[int, ...]

    @property
    def start(self) -> float:
        return self.reservation.start

    @property
    def end(self) -> float:
        return self.reservation.until


def held_on(reservations: Sequence[Reservation], cluster: Cluster) -> tuple[Held, ...]:
    """All reservations with their nodes, in the order of the file. Raises an error if two overlap on a node."""
    held = tuple(Held(reservation, reservation.nodes_on(cluster)) for reservation in reservations)
    by_node = sorted(((n, one.start, one.end, one.reservation.title) for one in held for n in one.nodes), key=lambda row: row[:2])
    for (n, _, end, title), (next_n, start, _, next_title) in pairwise(by_node):
        if n == next_n and start < end:
            raise InputError(
                f"node {n}: {title} ends at {end:g}, {next_title} begins at {start:g}",
                hint="reservations of a node must not overlap: list all members in one, or start the second when the first ends",
            )
    return held
