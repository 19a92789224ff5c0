"""Hypothesis strategies: small clusters and workloads that meet every corner of the normative page.

Clusters are small and mixed, workloads oversubscribe them, and all values come from short lists, so that ties, zero
lengths, overdue jobs, shares that almost fill a GPU and jobs that can never run are frequent instead of rare.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray

from queuewise.cluster.accounts import Account, Fairness
from queuewise.cluster.conditions import Conditions, Maintenance, Outage, Power, Preemption
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import Cluster, NodeGroup, VirtualCluster, build
from queuewise.policies import backfill, ordering, placing, preemptive
from queuewise.workload.dependencies import KINDS as DEPENDENCY_KINDS
from queuewise.workload.dependencies import Dependencies
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import ANY_PARTITION, UNKNOWN, Workload

KINDS = ("T4", "V100-16", "A100-80")
PARTITIONS = ("north", "south")
MEMBERSHIPS = (("north",), ("north",), ("south",), ("south",), ("north", "south"), ("east",), ("south", "east"))  # of nodes in partitions
KIND_SETS: tuple[tuple[str, ...], ...] = ((), ("T4",), ("V100-16", "A100-80"), ("A100-80", "H100"), ("H100",))

# What the registries name is drawn here: a new rule meets the reference without another line. Only options are chosen here.
ORDERS = tuple(ordering.ORDERS)
MIGRATING = ("defrag",)  # backfills that stop running jobs, which some conditions refuse; they are drawn with the preemptive policies
WITHOUT_DEPTH = ("drf",)  # orders by which no depth can be given: a start changes them
CONFIGS = Path(__file__).with_name("slurm_configs")  # parameters of Slurm that make a difference within seconds
SLURM = ("slurm", *(f"slurm:{path}" for path in sorted(CONFIGS.iterdir())))
BACKFILLS = tuple(SLURM[-1] if name == "slurm" else name for name in backfill.BACKFILLS if name not in MIGRATING)
WITHOUT_LOOPS = tuple(name for name in BACKFILLS if name not in SLURM)
WITH_SECOND_ORDER = tuple(name for name in WITHOUT_LOOPS if name != "none")  # backfills that take a depth and an order of their own
PLACEMENTS = (*placing.PLACEMENTS, "pack:0", "pack:1", "tier:balance")
DISPATCHES = ("reorder", "commit")
BOUNDS = ("", "", "", "~0.7s", "~2s", "~10s")
OWN_ESTIMATES = ("", "", "", ":oracle", ":requested")
SHORT_LEVELS = {"tiresias": 2, "gittins": 1, "gittins-oracle": 1}  # that jobs of a few seconds pass; 4 otherwise
PREEMPTIVE = (
    *(f"{name}:{SHORT_LEVELS.get(name, 4)}" if rule.option else name for name, rule in preemptive.PREEMPTIVE.items()),
    *MIGRATING,
    "defrag:sjf",
)
ALSO_PREEMPTIVE = (
    *(name for name, rule in preemptive.PREEMPTIVE.items() if rule.option),
    "las:0.7", "tiresias:6.5", "gittins:2.5", "defrag:random", "defrag:hrrn",
)  # fmt: skip

INTEGER_GAPS = (0.0, 0.0, 0.0, 1.0, 2.0, 5.0)
FRACTIONAL_GAPS = (0.0, 0.0, 0.1, 0.3, 1 / 3, 2.5)
INTEGER_RUNTIMES = (0.0, 1.0, 2.0, 3.0, 3.0, 7.0, 20.0)
FRACTIONAL_RUNTIMES = (0.0, 0.1, 0.2, 0.7, 1 / 3, 3.3, 17.9)

JOB_COLUMNS = (
    "submit", "runtime", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib", "requested", "kind_set", "partition", "priority", "deadline",
)  # fmt: skip
NODE_COLUMNS = (
    "speed", "node_kind", "node_gpus", "node_cpu_milli", "node_mem_mib", "node_rack", "node_partitions", "node_core_watts",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One input of a simulation."""

    workload: Workload
    cluster: Cluster
    estimate: NDArray[np.float64]
    seed: int
    kill_at_limit: bool
    guessed: bool = False  # estimates are no limits

    @property
    def known(self) -> Estimates:
        return Estimates(self.estimate, guessed=self.guessed)

    def __repr__(self) -> str:
        """Everything needed to see a failing example: all columns as lists."""
        w, c = self.workload, self.cluster
        jobs = [f"{name} = {getattr(w, name).tolist()}" for name in JOB_COLUMNS]
        nodes = [f"{name} = {getattr(c, name).tolist()}" for name in NODE_COLUMNS]
        names = [f"kind_sets = {w.kind_sets}, partitions = {w.partitions}", f"estimate = {self.estimate.tolist()}"]
        kinds = [f"kinds = {[k.name for k in c.kinds]}, partitions = {[p.name for p in c.partitions]}"]
        options = [f"node_penalty = {c.node_penalty}, rack_penalty = {c.rack_penalty}, seed = {self.seed}, kill = {self.kill_at_limit}"]
        options += [f"guessed = {self.guessed}"]
        return "Case(" + "\n  ".join(jobs + names + nodes + kinds + options) + ")"


def _some(requested: Any) -> Any:
    """Requests, at least one: estimates by request are refused where there are none."""
    if len(requested) and np.isnan(requested).all():
        requested[0] = 4.0
    return requested


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to six nodes of up to three groups: with and without GPUs, of several kinds, racks and partitions, which may overlap."""
    memberships = draw(st.sampled_from((MEMBERSHIPS, tuple((name,) for name in PARTITIONS))))
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from((0, 1, 2, 2, 3, 4)))
        groups.append(
            NodeGroup(
                count=draw(st.integers(1, 2)),
                gpus=gpus,
                kind=draw(st.sampled_from(KINDS)) if gpus else "",
                cpus=draw(st.sampled_from((2.0, 4.0, 6.0, float("inf")) if gpus else (2.0, 4.0, 6.0))),
                mem_gib=draw(st.sampled_from((2.0, 4.0, float("inf")))),
                partitions=draw(st.sampled_from(memberships)),
                nodes_per_rack=draw(st.integers(0, 2)),
                core_watts=draw(st.sampled_from((0.0, 5.0, 7.5))),
            )
        )
    present = sorted({group.kind for group in groups if group.gpus})
    speeds = {kind: draw(st.sampled_from((1.0, 0.5, 2.0, 1.7))) for kind in present}
    penalties = st.sampled_from((0.0, 0.0, 0.25, 0.3))
    return build("drawn", groups, speeds=speeds, node_penalty=draw(penalties), rack_penalty=draw(penalties))


def column(draw: st.DrawFn, num_jobs: int, values: tuple[Any, ...], dtype: type[np.generic]) -> NDArray[Any]:
    return np.array(draw(st.lists(st.sampled_from(values), min_size=num_jobs, max_size=num_jobs)), dtype=dtype)


@st.composite
def workloads(draw: st.DrawFn, *, max_jobs: int = 20) -> Workload:
    """Up to max_jobs jobs of every shape, submitted in bursts."""
    num = draw(st.integers(1, max_jobs))
    fractional = draw(st.booleans())
    gaps = column(draw, num, FRACTIONAL_GAPS if fractional else INTEGER_GAPS, np.float64)
    gpu = column(draw, num, draw(st.sampled_from(((0, 300, 500, 700, 1000, 1000, 2000), (1000, 1000, 2000, 3000, 4000), (0,)))), np.int32)
    cpu = column(draw, num, draw(st.sampled_from(((0, 500, 1000, 2000), (1000,), (0,)))), np.int32)
    mem = column(draw, num, draw(st.sampled_from(((0, 512, 1024, 1500), (0,)))), np.int32)
    cpu = np.where((gpu == 0) & (cpu == 0) & (mem == 0), np.int32(1000), cpu)
    partition_choices = draw(st.sampled_from(((ANY_PARTITION,), (0, 1), (0, 1, 2), (ANY_PARTITION, 0, 1), (0, 1, 3, 4), (0, 3, 4, 5))))
    return Workload(
        submit=draw(st.sampled_from((0.0, 0.0, 100.0, -3.0))) + np.cumsum(gaps),
        runtime=column(draw, num, FRACTIONAL_RUNTIMES if fractional else INTEGER_RUNTIMES, np.float64),
        num_tasks=column(draw, num, draw(st.sampled_from(((1, 1, 1, 2, 3, 4, 6), (1,)))), np.int32),
        gpu_milli=gpu,
        cpu_milli=cpu.astype(np.int32),
        mem_mib=mem,
        requested=_some(column(draw, num, (np.nan, 0.0, 1.0, 4.0, 25.0), np.float64)),
        kind_set=column(draw, num, draw(st.sampled_from(((0,), (0, 0, 1, 2, 3, 4)))), np.int32),
        partition=column(draw, num, partition_choices, np.int32),
        priority=column(draw, num, (0.0, 1.0, 2.5), np.float64),
        deadline=column(draw, num, (np.nan, 5.0, 30.0), np.float64),
        kind_sets=KIND_SETS,
        partitions=(*draw(st.permutations(PARTITIONS)), "nowhere", "east", "north,east", "east, nowhere"),
    )


@st.composite
def estimates(draw: st.DrawFn, workload: Workload) -> NDArray[np.float64]:
    """The truth, or anything from far below it to far above it."""
    if draw(st.booleans()):
        return workload.runtime
    factors: NDArray[np.float64] = column(draw, len(workload), (0.0, 0.5, 1.0, 1.0, 2.0, 10.0), np.float64)
    return workload.runtime * factors + draw(st.sampled_from((0.0, 0.0, 1.0)))


@st.composite
def cases(draw: st.DrawFn, *, max_jobs: int = 20) -> Case:
    workload = draw(workloads(max_jobs=max_jobs))
    known = draw(estimates(workload)), draw(st.integers(0, 2**40)), draw(st.booleans()), draw(st.booleans())
    return Case(workload, draw(clusters()), *known)


@st.composite
def policies(draw: st.DrawFn) -> str:
    """A policy name, with every optional part present or absent."""
    order = draw(st.sampled_from(ORDERS))
    name = order + draw(st.sampled_from(OWN_ESTIMATES))
    if draw(st.integers(0, 5)):
        rule = draw(st.sampled_from(BACKFILLS))
        if rule in SLURM:
            name += "+" + draw(st.sampled_from(SLURM))
        elif rule not in WITH_SECOND_ORDER:
            name += f"+{rule}"
        else:
            second = draw(st.sampled_from(("", "", *ORDERS)))
            depth = "" if (second or order) in WITHOUT_DEPTH else draw(st.sampled_from(("", "", "/1", "/3")))
            name += f"+{rule}{depth}" + (f":{second}{draw(st.sampled_from(OWN_ESTIMATES))}" if second else "")
    name += draw(st.sampled_from(BOUNDS))
    if draw(st.integers(0, 5)):
        name += "@" + draw(st.sampled_from(PLACEMENTS))
    return name


# --- conditions


@st.composite
def preemptive_policies(draw: st.DrawFn) -> str:
    name: str = draw(st.sampled_from(PREEMPTIVE + ALSO_PREEMPTIVE))
    return name + draw(st.sampled_from(BOUNDS)) + draw(st.sampled_from(("", *(f"@{placement}" for placement in PLACEMENTS))))


@st.composite
def stopping_costs(draw: st.DrawFn) -> Preemption:
    """Free, or with every cost there is."""
    if draw(st.integers(0, 3)) == 0:
        return Preemption()
    seconds = st.sampled_from((0.0, 0.0, 1.0, 0.3))
    per_gpu = st.sampled_from((0.0, 0.0, 0.5))
    return Preemption(
        mode=draw(st.sampled_from(("suspend", "kill"))),
        quantum_s=draw(st.sampled_from((0.0, 0.0, 0.7, 2.0, 5.0))),
        checkpoint_s=draw(seconds),
        checkpoint_per_gpu_s=draw(per_gpu),
        restart_s=draw(seconds),
        restart_per_gpu_s=draw(per_gpu),
        transfer_s=draw(seconds),
        transfer_per_gpu_s=draw(per_gpu),
        kind_factor=draw(st.sampled_from(({}, {"T4": 2.0}, {"T4": 0.5, "V100-16": 0.25, "A100-80": 3.3}))),
        checkpoint_every_s=draw(st.sampled_from((float("inf"), 0.0, 0.7, 1.0, 3.0))),
    )


@st.composite
def powers(draw: st.DrawFn) -> Power:
    """Nodes that sleep soon, or at once; waking takes no time, or longer than most jobs."""
    return Power(
        sleep_after_s=draw(st.sampled_from((0.0, 0.0, 0.7, 1.0, 4.0))),
        wake_s=draw(st.sampled_from((0.0, 0.3, 1.0, 3.0, 9.0))),
        sleep_watts=draw(st.sampled_from((0.0, 4.0, 30.0))),
        wake_watts=draw(st.sampled_from((None, 0.0, 250.0))),
    )


@st.composite
def caps(draw: st.DrawFn, cluster: Cluster) -> Power:
    """So much that every job fits, or so little that few do; with and without sleep (not above the least idle draw)."""
    watts = float(cluster.idle_draw.sum()) + draw(st.sampled_from((0.0, 7.5, 60.0, 140.0, 200.0, 400.0, 700.0, 1500.0)))
    if draw(st.booleans()):
        return Power(cap_watts=watts)
    return Power(cap_watts=watts, sleep_after_s=draw(st.sampled_from((0.0, 1.0))), wake_s=draw(st.sampled_from((0.0, 1.0, 3.0))))


@st.composite
def outages(draw: st.DrawFn, num_nodes: int, first: float) -> list[Outage]:
    """Nodes that fail or drain, often at the same times, one after the other or during each other, sometimes for ever."""
    found = []
    for n in range(num_nodes):
        time = first + draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0, 3.3)))
        for _ in range(draw(st.integers(0, 3))):
            time += draw(st.sampled_from((0.0, 1.0, 2.0, 5.0, 0.3)))
            end = time + draw(st.sampled_from((1.0, 2.0, 0.7, 10.0, 10.0, 10.0, float("inf"))))
            found.append(Outage(node=n, start=time, end=end, kind=draw(st.sampled_from(("fail", "drain")))))
            time = draw(st.sampled_from((time, end))) if end < float("inf") else time
    return found


@st.composite
def conditions(draw: st.DrawFn, case: Case) -> Conditions:
    """Costs of stopping with or without outages."""
    first = float(case.workload.submit[0])
    num_nodes = case.cluster.num_nodes
    if draw(st.booleans()):
        return Conditions(preemption=draw(stopping_costs()))
    if draw(st.integers(0, 4)) == 0:
        start = first + draw(st.sampled_from((0.0, 2.0, 4.5)))
        nodes = tuple(sorted(draw(st.sets(st.integers(0, num_nodes - 1), min_size=1))))
        window = Maintenance(
            nodes=nodes, start=start, end=start + draw(st.sampled_from((1.0, 6.0))), notice_s=draw(st.sampled_from((0.0, 3.0)))
        )
        return Conditions(preemption=draw(stopping_costs()), maintenance=(window,), requeue=draw(st.booleans()))
    found = tuple(draw(outages(num_nodes, first)))
    return Conditions(preemption=draw(stopping_costs()), outages=found, requeue=draw(st.sampled_from((True, True, False))))


@st.composite
def troubled_cases(draw: st.DrawFn, *, max_jobs: int = 20) -> tuple[Case, Conditions]:
    case = draw(cases(max_jobs=max_jobs))
    return case, draw(conditions(case))


USERS, ACCOUNTS = ("ann", "bob", "eve"), ("red", "blue", "navy")
BELOW_BLUE = Fairness(accounts={"blue": Account(), "navy": Account(parent="blue")})


@st.composite
def owned(draw: st.DrawFn, case: Case) -> Case:
    """The same jobs, of some users and accounts."""
    num = len(case.workload)
    user, group = column(draw, num, (-1, 0, 0, 1, 2), np.int32), column(draw, num, (-1, 0, 1, 2), np.int32)
    return dataclasses.replace(case, workload=case.workload.replace(user=user, users=USERS, group=group, groups=ACCOUNTS))


@st.composite
def reservations(draw: st.DrawFn, num_nodes: int, first: float) -> tuple[Reservation, ...]:
    """Of some nodes for some users and accounts: one after the other, beside each other, rarely for ever."""
    found: list[Reservation] = []
    free_from = dict.fromkeys(range(num_nodes), first)
    for _ in range(draw(st.integers(1, 3))):
        nodes = sorted(draw(st.sets(st.integers(0, num_nodes - 1), min_size=1)))
        start = max(free_from[n] for n in nodes) + draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0, 3.3, 6.0)) if not found else st.just(0.0))
        end = start + draw(st.sampled_from((1.0, 2.0, 0.7, 4.0, 10.0, 10.0, float("inf"))))
        users = draw(st.sampled_from(((), ("ann",), ("bob", "eve"))))
        accounts = draw(st.sampled_from(((), ("blue",), ("red", "navy")))) if users else ("red",)
        found.append(Reservation(nodes=tuple(nodes), start=start, end=end, users=users, accounts=accounts))
        if end == float("inf"):
            break
        free_from |= dict.fromkeys(nodes, end)
    return tuple(found)


@st.composite
def reserved_cases(draw: st.DrawFn, *, max_jobs: int = 20) -> tuple[Case, Conditions]:
    """Reservations, often among outages."""
    case, troubles = draw(troubled_cases(max_jobs=max_jobs))
    case = draw(owned(case))
    held = draw(reservations(case.cluster.num_nodes, float(case.workload.submit[0])))
    return case, troubles.model_copy(update={"reservations": held, "fairness": BELOW_BLUE})


SCALINGS = ("linear", "amdahl:0.2", "power:0.5", "table:1=1,2=1.5,4=2,9=2.25")


@st.composite
def elastic(draw: st.DrawFn, case: Case) -> Case:
    """The same jobs, most of which may have fewer or more tasks."""
    num, tasks = len(case.workload), case.workload.num_tasks
    fewer, more = column(draw, num, (0, 0, 1, 2, 5), np.int32), column(draw, num, (0, 0, 1, 2, 4), np.int32)
    workload = case.workload.replace(
        min_tasks=np.maximum(tasks - fewer, 1), max_tasks=tasks + more, scaling=column(draw, num, (0, 1, 2, 3), np.int32), scalings=SCALINGS
    )
    return dataclasses.replace(case, workload=workload)


TENANTS = ("vision", "speech", "guests")


@st.composite
def shared_cases(draw: st.DrawFn) -> Case:
    """A case on a cluster of which two virtual clusters hold parts; jobs of others, and of nobody, come too."""
    case = draw(cases())
    gpus = case.cluster.num_gpus
    assume(gpus > 0)
    first = draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, float(gpus))))
    assume(first <= gpus)
    second = draw(st.sampled_from((0.0, 1.0, gpus - first)))
    assume(first + second <= gpus)
    extra = st.sampled_from((0.0, 0.3, 1.0, 2.0, float("inf")))
    tenants = (VirtualCluster("vision", first, first + draw(extra)), VirtualCluster("speech", second, second + draw(extra)))
    group = column(draw, len(case.workload), (0, 0, 1, 1, 2, UNKNOWN), np.int32)
    assume(bool(np.isin(group, (0, 1)).any()))
    users = column(draw, len(case.workload), (0, 1), np.int32)
    workload = case.workload.replace(group=group, groups=TENANTS, user=users, users=("ada", "ben"))
    return dataclasses.replace(case, workload=workload, cluster=dataclasses.replace(case.cluster, virtual_clusters=tenants))


@st.composite
def linked_cases(draw: st.DrawFn) -> Case:
    """A case whose jobs wait for others, submitted before or after them, in no circle."""
    case = draw(cases(max_jobs=12))
    num = len(case.workload)
    rank = draw(st.permutations(range(num)))
    ends = st.tuples(st.integers(0, num - 1), st.integers(0, num - 1))
    pairs = draw(st.lists(ends, max_size=2 * num, unique=True))
    kinds, delays = st.sampled_from(sorted(DEPENDENCY_KINDS.values())), st.sampled_from((0.0, 0.0, 0.5, 3.0))
    edges = [(job, on, draw(kinds), draw(delays)) for job, on in pairs if rank[on] < rank[job]]
    return dataclasses.replace(case, workload=case.workload.replace(dependencies=Dependencies.of(edges)))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Case, Conditions]:
    """A case and one of the conditions that there are, or several."""
    kind = draw(st.sampled_from(("none", "troubles", "reservations", "quotas", "dependencies", "sleep", "cap")))
    if kind == "troubles":
        return draw(troubled_cases(max_jobs=12))
    if kind == "reservations":
        return draw(reserved_cases(max_jobs=12))
    if kind == "quotas":
        return draw(shared_cases()), Conditions(quotas=True)
    if kind == "dependencies":
        case = draw(linked_cases())
        found = draw(outages(case.cluster.num_nodes, float(case.workload.submit[0]))) if draw(st.booleans()) else ()
        return case, Conditions(dependencies=True, outages=tuple(found), requeue=draw(st.booleans()))
    case = draw(cases(max_jobs=12))
    if kind == "none":
        return case, Conditions()
    if kind == "cap":
        assume(case.cluster.num_gpus or case.cluster.node_core_watts.any())
    return case, Conditions(power=draw(powers() if kind == "sleep" else caps(case.cluster)))


CROWDING = 4.0


def crowded(case: Case) -> Case:
    """The same with jobs so long that some wait while others run; none has length zero."""
    w = case.workload
    longer = w.replace(runtime=CROWDING * np.maximum(w.runtime, 1.0), requested=CROWDING * np.maximum(w.requested, 1.0))
    return dataclasses.replace(case, workload=longer, estimate=CROWDING * np.maximum(case.estimate, 1.0))
