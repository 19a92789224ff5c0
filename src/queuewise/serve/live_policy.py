"""`load_policy`: a policy by name that decides from snapshots. Public, needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.compiled_decider import make_decider
from queuewise.policies.interface import Migrate, Preempt, Start
from queuewise.policies.names import found_rule, parse_policy, plays_apart
from queuewise.policies.snapshot import JobId, Place, Snapshot
from queuewise.policies.snapshot_decider import SnapshotDecider
from queuewise.serve.fast_pass import FastPass
from queuewise.serve.forecast import Forecast, roll_forward
from queuewise.serve.job_positions import positions_of
from queuewise.serve.snapshot_cluster import cluster_of, with_broken_parts
from queuewise.serve.snapshot_columns import SnapshotColumns, columns_of
from queuewise.serve.waiting_reasons import Explanation, explain_wait


@dataclass(frozen=True)
class RankedStart:
    """A job to start now, and where."""

    job_id: JobId
    places: tuple[Place, ...]
    nodes: tuple[str, ...]  # their names

    def as_json(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "places": [[n, tasks, list(gpus)] for n, tasks, gpus in self.places], "nodes": list(self.nodes)}


@dataclass(frozen=True)
class Decided:
    """What to do now: iterating gives the starts, the most urgent first."""

    starts: tuple[RankedStart, ...]
    stops: tuple[JobId, ...] = ()  # running jobs to stop before, under a policy that preempts
    wake_at: float | None = None  # when the policy wants to be asked again although nothing happens; seconds on the snapshot's clock

    def __iter__(self) -> Iterator[RankedStart]:
        return iter(self.starts)

    def __len__(self) -> int:
        return len(self.starts)

    def as_json(self) -> dict[str, Any]:
        return {"starts": [start.as_json() for start in self.starts], "stops": list(self.stops), "wake_at": self.wake_at}


def load_policy(name: str, *, cluster: Cluster | None = None, conditions: Conditions = PERFECT, max_wait: str | None = None) -> LivePolicy:
    """The policy with this name, ready to decide from snapshots.

    Without a `cluster`, every snapshot must have the shapes of its nodes. `max_wait`, for example "3d", bounds the waits under a policy
    whose name has no bound.
    """
    return LivePolicy(name, cluster=cluster, conditions=conditions, max_wait=max_wait)


class LivePolicy:
    """Decides from snapshots alone: the same snapshot always gives the same answer. Not for several threads at once."""

    def __init__(self, name: str, *, cluster: Cluster | None, conditions: Conditions, max_wait: str | None) -> None:
        self.name = name
        self._given, self._conditions, self._max_wait = cluster, conditions, max_wait
        decider = make_decider(name, conditions=conditions, max_wait=max_wait)
        if not isinstance(decider, SnapshotDecider):
            raise InputError(f"{name} is a class that decides in Python, with a memory of its own", hint="use a score function of your own")
        self._decider = decider
        self._cluster: Cluster | None = None
        self._fast = None if plays_apart(name) else FastPass(parse_policy(name).bounded(max_wait), conditions=conditions)
        self.goes_by_predictions = not plays_apart(name) and any("predicted" in one for one in parse_policy(name).own_estimates)

    def decide(self, snapshot: Snapshot) -> Decided:
        """What to start now, and where: the most urgent first."""
        if (quick := self._decide_fast(snapshot)) is not None:
            return quick
        cluster, shown = self._shown(snapshot)
        positions = positions_of(shown)
        self._decider.forget()
        decisions = list(self._decider.decide(_SnapshotView(shown, positions)))
        job_at = {position: job_id for job_id, position in positions.items()}
        starts, stops = [], []
        for decision in decisions:
            if not isinstance(decision.job, int):
                raise TypeError(f"a decider of snapshots named {decision.job!r} instead of its index")
            job_id = job_at[decision.job]
            if isinstance(decision, Preempt | Migrate):
                stops.append(job_id)
            if isinstance(decision, Start | Migrate):
                starts.append(_ranked(job_id, decision.nodes, cluster))
        wake_at = self._decider.wake_at
        return Decided(tuple(starts), tuple(stops), wake_at if wake_at < float("inf") else None)

    @property
    def is_quick(self) -> bool:
        """Whether `decide_columns` takes no code of the user's own, which might not end."""
        return self._fast is not None and (found_rule(self.name) is not None or not parse_policy(self.name).own)

    def decide_columns(self, columns: SnapshotColumns, cluster: Cluster) -> Decided | None:
        """Decide without a Snapshot; what starts is known to be possible. None if the policy or the snapshot needs one."""
        found = None if self._fast is None else self._fast.decide(columns, cluster)
        if found is None:
            return None
        starts = [RankedStart(job_id, places, _names(places, cluster)) for job_id, places in found.starts]
        return Decided(tuple(starts), (), found.wake_at if found.wake_at < float("inf") else None)

    def _decide_fast(self, snapshot: Snapshot) -> Decided | None:
        if self._fast is None or (columns := columns_of(snapshot)) is None:
            return None
        return self.decide_columns(columns, cluster_of(snapshot) if self._given is None else self._given)

    def probabilities(self, snapshot: Snapshot) -> dict[JobId, float]:
        """How probable each waiting job is to be the next to start, under a decider that has a method `probabilities(view)`."""
        _, shown = self._shown(snapshot)
        of_decider = getattr(self._decider, "probabilities", None)
        if of_decider is None:
            raise InputError(f"{self.name} gives no probabilities", hint="decide gives the starts, forecast when the others follow")
        self._decider.forget()
        found: dict[JobId, float] = of_decider(_SnapshotView(shown, positions_of(shown)))
        return found

    def forecast(self, snapshot: Snapshot) -> Forecast:
        """When each waiting job would start if every job ran as long as is estimated and no other came."""
        cluster, shown = self._shown(snapshot)
        return roll_forward(shown, cluster, self.name, conditions=self._conditions, max_wait=self._max_wait)

    def explain(self, snapshot: Snapshot, job: JobId) -> Explanation:
        """Why a waiting job does or does not start now: who is ahead, what it lacks, and when it is expected to start."""
        cluster, shown = self._shown(snapshot)
        return explain_wait(shown, cluster, job, self.decide(snapshot).starts, self.forecast(snapshot))

    def _shown(self, snapshot: Snapshot) -> tuple[Cluster, Snapshot]:
        """The cluster, and the snapshot with what is broken on it. The decider is told when the cluster is another one."""
        cluster = cluster_of(snapshot) if self._given is None else self._given
        if cluster is not self._cluster:
            self._decider.reset(cluster, seed=0)
            self._cluster = cluster
        return cluster, with_broken_parts(snapshot, cluster)


class _SnapshotView:
    """As much of a View as deciders of snapshots ask for."""

    def __init__(self, snapshot: Snapshot, positions: dict[JobId, int]) -> None:
        self._snapshot, self._positions = snapshot, positions

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def index(self, job_id: JobId) -> int:
        return self._positions[job_id]


def _ranked(job_id: JobId, where: Any, cluster: Cluster) -> RankedStart:
    places = tuple(Place(*place) for place in where)
    return RankedStart(job_id, places, _names(places, cluster))


def _names(places: tuple[Place, ...], cluster: Cluster) -> tuple[str, ...]:
    """The names of the nodes, each once."""
    names = cluster.node_names
    return (names[places[0][0]],) if len(places) == 1 else tuple(dict.fromkeys([names[n] for n, _, _ in places]))
