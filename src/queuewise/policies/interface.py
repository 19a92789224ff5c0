"""The interface of a whole policy in Python: `mine.py:MyPolicy` names a class that implements `Decider`.

Such a policy may do anything that Python can, and takes tens of microseconds a decision where compiled ones take one or less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from queuewise.cluster.spec import Cluster
from queuewise.policies.records import Job, Node


class Running(NamedTuple):
    """A running job."""

    job: Job
    start: float  # of this run; seconds on the log's clock
    expected_end: float  # by its estimate; now, if it has outlived it
    tasks: Mapping[int, int]  # node -> tasks of the job there


@dataclass(frozen=True)
class Start:
    """The decision to start a waiting job now: where the placement rule puts it, or with so many tasks on each of these nodes."""

    job: Job | int  # the job, or its index
    nodes: Mapping[int, int] | None = None  # node -> tasks, all tasks of the job


@dataclass(frozen=True)
class Preempt:
    """The decision to stop a running job now and queue it again, at the costs that the conditions name."""

    job: Job | int


@dataclass(frozen=True)
class Migrate:
    """The decision to let a running job, stopped as by `suspend`, go on elsewhere: where the placement rule puts it, or on these nodes."""

    job: Job | int
    nodes: Mapping[int, int] | None = None  # node -> tasks, all tasks of the job; what it holds now counts as free


class View(Protocol):
    """What a policy may know at a decision. It follows the decisions: once one is yielded, the next look sees it done."""

    @property
    def now(self) -> float:
        """Seconds on the log's clock."""

    @property
    def queue(self) -> tuple[Job, ...]:
        """The jobs that wait, in order of submission."""

    @property
    def running(self) -> tuple[Running, ...]:
        """The jobs that run, in order of submission."""

    def nodes(self, job: Job | None = None) -> tuple[Node, ...]:
        """Every node with what is free on it. `slots` tells how many tasks of the job it can take now, 0 without a job."""

    def fits(self, job: Job) -> bool:
        """Whether the placement rule finds a place for the job now."""

    def remaining(self, job: Job) -> float:
        """Seconds: the estimate of what the job has still to do. That of a running job is as of the start of its run."""


class Decider(Protocol):
    """A whole policy. One is made, without arguments, for every replay."""

    def reset(self, cluster: Cluster, seed: int) -> None:
        """Called once, before the first decision. It may be left out."""

    def decide(self, view: View) -> Iterable[Start | Preempt | Migrate]:
        """Called once at every instant at which anything happened; decisions are carried out in their order, as they are yielded."""
