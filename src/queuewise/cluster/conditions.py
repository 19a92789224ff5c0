"""Conditions: what befalls a cluster during a replay, and what stopping a job costs. docs/simulator.md says what each of them does.

Times are seconds on the log's own clock (`load_conditions` converts dates); nodes are indices, names or patterns. A `Conditions` knows
nothing of a particular cluster until `outages_on` checks it against one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from queuewise.cluster.accounts import Fairness
from queuewise.cluster.dates import dates_on_clock
from queuewise.cluster.gpus import CATALOGUE
from queuewise.cluster.node_selection import find_nodes
from queuewise.cluster.reservations import Held, Reservation, check_times, held_on
from queuewise.cluster.spec import FACTORS, LARGEST, Cluster
from queuewise.config import Config, read_toml
from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import MAX_SECONDS

MOST_OUTAGES = 500_000  # random ones; as many take 5 s and 0.3 GiB
HOUR = 3600.0
YEAR = 365 * 24 * HOUR
HOURS_OF_DAY = 24
Factor = Annotated[float, Field(ge=0, le=FACTORS[1])]


def _check_node(entry: int | str) -> int | str:
    if isinstance(entry, int) and entry < 0:
        raise ValueError("nodes are numbered from 0")
    if entry == "":
        raise ValueError("a node has a number or a name")
    return entry


NodeEntry = Annotated[int | str, AfterValidator(_check_node)]  # a number, a name, or a pattern such as c20-*


class Preemption(Config):
    """What stopping and restarting a job costs."""

    mode: Literal["suspend", "kill"] = "suspend"
    quantum_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)  # a policy lets a run be for so long
    checkpoint_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    checkpoint_per_gpu_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    restart_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    restart_per_gpu_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    transfer_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)  # where the nodes are not those of the run before
    transfer_per_gpu_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    kind_factor: dict[str, Factor] = Field(default_factory=dict)  # multiplies the costs on nodes with this GPU kind
    checkpoint_every_s: float = Field(default=float("inf"), ge=0)  # of work; what a kill or a failure leaves

    def factors_on(self, cluster: Cluster) -> NDArray[np.float64]:
        """[kinds + 1] what multiplies the costs on nodes of each kind, and last on nodes without GPUs.

        A file may serve several clusters, so it may name a kind of the catalogue that this one has none of.
        """
        kinds = [kind.name for kind in cluster.kinds]
        known = {*kinds, *(kind.name for kind in CATALOGUE)}
        for name in self.kind_factor:
            if name not in known:
                raise unknown_name("GPU kind in kind_factor", name, known)
        return np.array([self.kind_factor.get(kind, 1.0) for kind in kinds] + [1.0])


class Outage(Config):
    """A node that is down (`fail`) or takes nothing new (`drain`) for a while."""

    node: NodeEntry
    start: float = Field(ge=-MAX_SECONDS, le=MAX_SECONDS)
    end: float
    kind: Literal["fail", "drain"] = "fail"

    @model_validator(mode="after")
    def _ends_after_start(self) -> Outage:
        check_times(f"outage of node {self.node}", self.start, self.end)
        return self


class Change(NamedTuple):
    """A node goes down (`fail`), takes nothing new from now on (`drain`) or is in use again (`repair`)."""

    time: float
    kind: Literal["fail", "drain", "repair"]
    node: int


class Failures(Config):
    """Random failures: exponential times between them and to repair."""

    mtbf_h: float = Field(gt=0, le=MAX_SECONDS)
    mttr_h: float = Field(gt=0, le=MAX_SECONDS)
    seed: int = Field(default=0, ge=0)


class Maintenance(Config):
    """Nodes that are drained for `notice_s` seconds and then down."""

    nodes: tuple[NodeEntry, ...] = Field(min_length=1)
    start: float = Field(ge=-MAX_SECONDS, le=MAX_SECONDS)
    end: float
    notice_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)

    @model_validator(mode="after")
    def _ends_after_start(self) -> Maintenance:
        check_times("maintenance", self.start, self.end)
        return self


class Power(Config):
    """Nodes that fall asleep, what may be drawn at most, and what energy costs."""

    sleep_after_s: float = Field(default=float("inf"), ge=0)  # a node idle for longer is asleep
    wake_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    sleep_watts: float = Field(default=0.0, ge=0, le=LARGEST)  # of a node with its GPUs
    wake_watts: float | None = Field(default=None, ge=0, le=LARGEST)  # the same while it wakes; not given: as when idle
    cap_watts: float = Field(default=float("inf"), ge=0)  # of the whole cluster
    price_per_kwh: float | None = Field(default=None, ge=-LARGEST, le=LARGEST)
    price_by_hour: tuple[float, ...] = ()  # 24 prices by hour of day, in place of price_per_kwh

    @model_validator(mode="after")
    def _a_price_for_each_hour(self) -> Power:
        if self.price_by_hour and (len(self.price_by_hour) != HOURS_OF_DAY or not np.isfinite(self.price_by_hour).all()):
            raise ValueError(f"price_by_hour must be {HOURS_OF_DAY} finite numbers, one for each hour of the day")
        return self

    @property
    def nodes_sleep(self) -> bool:
        return self.sleep_after_s < float("inf")

    @property
    def is_capped(self) -> bool:
        return self.cap_watts < float("inf")


class Conditions(Config):
    """All of it; by default nothing fails and nothing costs."""

    preemption: Preemption = Preemption()
    outages: tuple[Outage, ...] = ()
    failures: Failures | None = None
    maintenance: tuple[Maintenance, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    power: Power = Power()
    fairness: Fairness = Fairness()
    dependencies: bool = Field(default=False, strict=True)  # jobs wait for those that the log says they wait for
    resize: Literal["none", "shrink", "grow", "both"] = "none"  # whether running elastic jobs change their number of tasks
    quotas: bool = Field(default=False, strict=True)  # virtual clusters have what they are guaranteed and no more than their maximum
    requeue: bool = Field(default=True, strict=True)  # a job hit by a failure is queued again; otherwise it has failed

    def outages_on(self, cluster: Cluster, first: float, last: float) -> tuple[Outage, ...]:
        """All outages of a log that is submitted between `first` and `last`, by (start, node). Those of a node may overlap."""
        found = [outage.model_copy(update={"node": n}) for outage in self.outages for n in find_nodes(cluster, outage.node, "an outage")]
        for window in self.maintenance:
            nodes = sorted({n for entry in window.nodes for n in find_nodes(cluster, entry, "maintenance")})
            found += [outage for n in nodes for outage in _maintained(window, n)]
        if self.failures is not None:
            found += _random_failures(self.failures, cluster.num_nodes, first, last + YEAR)
        return tuple(sorted(found, key=lambda outage: (outage.start, int(outage.node))))

    def held_on(self, cluster: Cluster) -> tuple[Held, ...]:
        """All reservations with the nodes they hold."""
        return held_on(self.reservations, cluster)

    def stretched(self, first: float, factor: float) -> Conditions:
        """With all times on the clock of the log so many times as far from `first`, as `transform.stretch` moves its submissions.

        Outages, maintenance and reservations take the same share of the log's time as before. Rates of random failures stay.
        """

        def moved(entry: Outage | Maintenance | Reservation, end: float, **others: float | None) -> dict[str, float | None]:
            return {"start": first + (entry.start - first) * factor, "end": first + (end - first) * factor, **others}

        update = {
            "outages": tuple(one.model_copy(update=moved(one, one.end)) for one in self.outages),
            "maintenance": tuple(one.model_copy(update=moved(one, one.end, notice_s=one.notice_s * factor)) for one in self.maintenance),
            "reservations": tuple(one.model_copy(update=moved(one, one.until, duration_s=None)) for one in self.reservations),
        }
        return self.model_copy(update=update)


PERFECT = Conditions()


def load_conditions(path: Path, *, epoch: float = 0.0) -> Conditions:
    """Conditions from a TOML file. `epoch` is the Unix time of second 0 of the log, which dates in the file need."""
    return read_toml(path, Conditions, prepare=partial(dates_on_clock, epoch=epoch))


def node_changes(outages: Iterable[Outage]) -> list[Change]:
    """What happens to nodes under the union of these outages, node by node: down wins over drained, and drained over in use.

    The end of a failure in the middle of a drain is left out: nothing runs on the node, and it still takes nothing new.
    """
    by_node = defaultdict(list)
    for outage in outages:
        by_node[int(outage.node)].append(outage)
    return [change for n, its in by_node.items() for change in _changes_of_node(n, its)]


def _changes_of_node(n: int, outages: Iterable[Outage]) -> Iterator[Change]:
    steps: defaultdict[float, dict[str, int]] = defaultdict(lambda: {"fail": 0, "drain": 0})
    for outage in outages:
        steps[outage.start][outage.kind] += 1
        steps[outage.end][outage.kind] -= 1
    lasting = {"fail": 0, "drain": 0}
    before: Literal["fail", "drain", "repair"] = "repair"
    for time in sorted(steps.keys() - {float("inf")}):
        for kind, step in steps[time].items():
            lasting[kind] += step
        now: Literal["fail", "drain", "repair"] = "fail" if lasting["fail"] else "drain" if lasting["drain"] else "repair"
        if now != before and (before, now) != ("fail", "drain"):
            yield Change(time, now, n)
        before = now


def _maintained(window: Maintenance, n: int) -> list[Outage]:
    down = Outage(node=n, start=window.start, end=window.end)
    drained = window.start - window.notice_s
    if drained == window.start:  # no notice, or a negligible one
        return [down]
    return [Outage(node=n, start=drained, end=window.start, kind="drain"), down]


def _random_failures(failures: Failures, num_nodes: int, first: float, last: float) -> list[Outage]:
    expected = num_nodes * (last - first) / ((failures.mtbf_h + failures.mttr_h) * HOUR)
    if expected > MOST_OUTAGES:
        raise InputError(
            f"failures of a node every {failures.mtbf_h:g} h would be {expected:,.0f} outages in this workload and the year after it; "
            f"the limit is {MOST_OUTAGES:,}",
            hint="give a greater mtbf_h: the mean time between failures of one node, in hours",
        )
    found = []
    for n, seed in enumerate(np.random.SeedSequence(failures.seed).spawn(num_nodes)):
        rng = np.random.default_rng(seed)
        time = first + rng.exponential(failures.mtbf_h * HOUR)
        while time < last:
            repaired = time + rng.exponential(failures.mttr_h * HOUR)
            found.append(Outage.model_construct(node=n, start=time, end=repaired, kind="fail"))  # nothing to check, and many
            time = repaired + rng.exponential(failures.mtbf_h * HOUR)
    return found
