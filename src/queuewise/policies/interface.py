"""The one interface of everything that decides: `Decider` gets a view of queue and machine and returns decisions.

`make_decider` gives the decider of every name.

A class of a user's own (`mine.py:MyPolicy`) implements it directly, and may do anything that Python can. It takes tens
of microseconds per decision. Named policies implement it by the engine (`compiled_decider`), trained models by their
environment (`agents/model_policies.py`); their replays do not take this way, but run compiled as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import Cluster
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.policies.records import Job, Node
from queuewise.policies.snapshot import JobId, Place, Snapshot
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Floats, Workload


class Running(NamedTuple):
    """A running job."""

    job: Job
    start: float  # of this run; seconds on the log's clock
    expected_end: float  # by its estimate; if it has run longer: later, or now if estimates are limits
    tasks: Mapping[int, int]  # node -> tasks of the job there


Where = Mapping[int, int] | Sequence[Place]  # all tasks of a job: node -> tasks, or which GPUs they get as well


@dataclass(frozen=True)
class Start:
    """The decision to start a waiting job now, either where the placement rule puts it or on the given nodes."""

    job: Job | int  # the job, or its index
    nodes: Where | None = None


@dataclass(frozen=True)
class Preempt:
    """The decision to stop a running job now and queue it again, at the costs that the conditions set."""

    job: Job | int


@dataclass(frozen=True)
class Migrate:
    """The decision to move a running job: it is stopped as by `suspend` and continues elsewhere at once.

    It goes where the placement rule puts it, or to the given nodes.
    """

    job: Job | int
    nodes: Where | None = None  # what it holds now counts as free


Decision = Start | Preempt | Migrate


class ShownState(Protocol):
    """As much of a View as deciders of snapshots ask for."""

    def snapshot(self) -> Snapshot:
        """All of it as plain values, which can be written as JSON (docs/snapshots.md)."""

    def index(self, job_id: JobId) -> int:
        """The index of the job with this id of the log."""


class View(ShownState, Protocol):
    """What a policy may know when it decides. It is live: once a decision is yielded, the view shows its effect."""

    @property
    def now(self) -> float:
        """Seconds on the log's clock."""

    @property
    def queue(self) -> tuple[Job, ...]:
        """The waiting jobs, in order of submission."""

    @property
    def running(self) -> tuple[Running, ...]:
        """The running jobs, in order of submission."""

    def nodes(self, job: Job | None = None) -> tuple[Node, ...]:
        """All nodes with their free resources.

        `slots` is the number of tasks of the job that the node can take now; 0 without a job.
        """

    def fits(self, job: Job) -> bool:
        """Whether the placement rule finds a place for the job now."""

    def remaining(self, job: Job) -> float:
        """The estimated remaining work of the job, in seconds; for a running job, as of the start of its run."""


class Decider(Protocol):
    """A complete policy. A class is named `FILE.py:NAME`, and one object is created, without arguments, for every replay.

    An attribute `wake_at`, if there is one, says when it wants to be asked again, even if nothing happens before.
    """

    def reset(self, cluster: Cluster, seed: int) -> None:
        """Called once, before the first decision. Optional."""

    def decide(self, view: View) -> Iterable[Decision]:
        """Called once at every instant at which something happened.

        Decisions are carried out in order, as they are yielded.
        """


class ReplayRequest(NamedTuple):
    """What to replay, and under which rules."""

    workload: Workload
    cluster: Cluster
    policy: str  # the whole name
    dispatch: str
    estimate: Floats  # [J] seconds: what is known of the runtimes
    estimates: str  # how that was made
    guessed: bool  # and whether jobs that outlive it are expected to go on
    seed: int
    kill_at_limit: bool
    conditions: Conditions
    max_wait: str | None  # for a name without a bound on waiting
    start: Snapshot | None  # None: an empty cluster
    budgets: Budgets = USUAL_BUDGETS


class PrefixedPolicies(Protocol):
    """What stands for the names with a prefix, such as `model:RUN` (queuewise/prefixes.py)."""

    def describe(self, policy: str) -> str:
        """Return one line about what the name stands for; raise an InputError if it cannot be used."""

    def decider(self, policy: str, *, dispatch: str, conditions: Conditions, max_wait: str | None) -> Decider:
        """What decides by the policy, instant by instant."""

    def replay(self, request: ReplayRequest) -> Schedule:
        """Replay a whole workload: the same decisions as those of `decider`, but faster."""
