"""Every feature of the engine, run without the compiler, makes the reference's schedules.

Compiled kernels do not check bounds: an index out of range reads what lies there. Here it raises.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agreement import PERFECT, assert_same_schedule
from effort import mixed
from fixed_workloads import crowd, gangs, mixture, stretchable
from queuewise.cluster.accounts import Account, Fairness
from queuewise.cluster.conditions import Conditions, Maintenance, Outage, Power, Preemption
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import NodeGroup, VirtualCluster, build
from queuewise.workload.dependencies import KINDS, Dependencies
from queuewise.workload.jobs import Workload
from reference.fairness import FAIR_ORDERS
from strategies import ACCOUNTS, BACKFILLS, DISPATCHES, ORDERS, PLACEMENTS, PREEMPTIVE, USERS, WITH_SECOND_ORDER, Case

COSTS = Preemption(
    quantum_s=1.0,
    checkpoint_s=0.5,
    checkpoint_per_gpu_s=0.1,
    restart_s=1.0,
    transfer_s=0.7,
    transfer_per_gpu_s=0.2,
    kind_factor={"T4": 2.0},
)
KILLING = Preemption(mode="kill", checkpoint_every_s=1.5, restart_s=0.5)
FILLED = tuple(f"{order}+{fill}" for order, fill in zip(itertools.cycle(("fcfs", "sjf", "saf")), BACKFILLS, strict=False))
LIMITED = ("sjf+easy/3:saf", "fcfs+conservative/2", "wfp3+greedy/3", "fcfs+easy-strict")
VARIED = (*FILLED, *LIMITED, "hrrn+easy@spread", "sjf+conservative@tier", "f1+easy@fgd", "fcfs@pack:0", "random@random")
MOVING = tuple(name for name in PREEMPTIVE if name.startswith(("srtf", "las:", "tiresias", "defrag")))

Owned = Callable[[Case], Case]
World = Callable[[Case], Conditions]


def unchanged(case: Case) -> Case:
    return case


def perfect(case: Case) -> Conditions:
    return PERFECT


@dataclass(frozen=True)
class Feature:
    policies: tuple[str, ...]
    worlds: tuple[World, ...] = (perfect,)
    change: Owned = unchanged
    dispatches: tuple[str, ...] = DISPATCHES
    cases: Callable[[], tuple[Case, ...]] = lambda: (gangs(), mixture(), crowd(3, 20), crowd(10, 20))  # of the last, jobs are killed


def scattered() -> tuple[Case, ...]:
    """Small jobs everywhere keep gangs of whole nodes waiting: there is much to migrate, and many to stop for one."""
    rng, num = np.random.default_rng(1), 90
    tasks, gpus = np.array([(1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 4), (6, 1)])[rng.integers(0, 8, num)].T
    submit, runtime = np.sort(rng.uniform(0, 500, num)).round(), rng.lognormal(4.0, 1.2, num).round()
    workload = Workload(submit, runtime, tasks.astype(np.int32), (gpus * 1000).astype(np.int32))
    return (Case(workload, build("many", [NodeGroup(8, gpus=8, kind="V100-16")]), workload.runtime, seed=1, kill_at_limit=False),)


def first_submission(case: Case) -> float:
    return float(case.workload.submit[0])


def closing(kind: str, *, requeue: bool) -> World:
    """Every other node closes for a while, one of them twice and one for ever."""

    def world(case: Case) -> Conditions:
        first, nodes = first_submission(case), case.cluster.num_nodes
        outages = [Outage(node=n, start=first + 1.0 + n, end=first + 4.5 + n, kind=kind) for n in range(0, nodes, 2)]  # type: ignore[arg-type]
        outages += [Outage(node=0, start=first + 6.0, end=first + 7.0), Outage(node=nodes - 1, start=first + 40.0, end=np.inf)]
        return Conditions(outages=tuple(outages), requeue=requeue, preemption=KILLING)

    return world


def maintained(case: Case) -> Conditions:
    first = first_submission(case)
    window = Maintenance(nodes=(0, 1), start=first + 4.0, end=first + 9.0, notice_s=3.0)
    return Conditions(maintenance=(window,))


def owned(case: Case) -> Case:
    rng, num = np.random.default_rng(1), len(case.workload)
    user, group = rng.choice([-1, 0, 1, 2], num).astype(np.int32), rng.choice([-1, 0, 1, 2], num).astype(np.int32)
    return dataclasses.replace(case, workload=case.workload.replace(user=user, users=USERS, group=group, groups=ACCOUNTS))


def reserved(case: Case) -> Conditions:
    nodes, first = tuple(range(case.cluster.num_nodes)), first_submission(case)
    half = Reservation(nodes=nodes[::2], start=first + 3, end=first + 9, users=("ann", "eve"))
    everything = Reservation(nodes=nodes, start=first + 9, duration_s=6.5, accounts=("red",))
    return Conditions(reservations=(half, everything))


def sharing(case: Case) -> Conditions:
    accounts = {"blue": Account(shares=3, users={"ann": 2}), "navy": Account(parent="blue"), "red": Account(shares=0)}
    return Conditions(fairness=Fairness(half_life_s=5.0, accounts=accounts))


def chained(case: Case) -> Case:
    """Every third job waits for an earlier one, some for later ones, in every way there is."""
    rng, num = np.random.default_rng(2), len(case.workload)
    kinds = sorted(KINDS.values())
    edges = [(j, int(rng.integers(j)), kinds[j % len(kinds)], float(rng.choice([0.0, 0.5, 3.0]))) for j in range(1, num) if j % 3]
    return dataclasses.replace(case, workload=case.workload.replace(dependencies=Dependencies.of(edges)))


def divided(case: Case) -> Case:
    """Two virtual clusters hold parts of the cluster; jobs of a third group have nothing guaranteed."""
    half = float(case.cluster.num_gpus // 2)
    tenants = (VirtualCluster("red", 1.0, 1.0 + half), VirtualCluster("blue", half - 1.0, half))
    return dataclasses.replace(owned(case), cluster=dataclasses.replace(case.cluster, virtual_clusters=tenants))


def capped(watts: float, sleeping: Power | None = None) -> World:
    power = sleeping or Power()
    return lambda case: Conditions(power=power.model_copy(update={"cap_watts": float(case.cluster.idle_draw.sum()) + watts}))


def sleepy(after: float, wake: float) -> World:
    return under(power=Power(sleep_after_s=after, wake_s=wake))


def stretched(case: Case) -> Case:
    return stretchable(case, 1)


def under(**changes: object) -> World:
    return lambda case: Conditions(**changes)  # type: ignore[arg-type]


FEATURES = {
    "orders": Feature(tuple(f"{order}+{fill}" for order, fill in mixed("orders", ORDERS, BACKFILLS))),
    "second orders": Feature(tuple(f"fcfs+{fill}:{order}" for order, fill in mixed("second", ORDERS, WITH_SECOND_ORDER))),
    "backfills": Feature((*(f"fcfs+{fill}" for fill in BACKFILLS), *LIMITED)),
    "placements": Feature(tuple(f"sjf+{fill}@{placement}" for placement, fill in mixed("placements", PLACEMENTS, BACKFILLS))),
    "preemption": Feature(
        (*PREEMPTIVE, *(f"{name}@{placement}" for name, placement in mixed("stops", MOVING, ("spread", "tier", "fgd", "random")))),
        (perfect, under(preemption=COSTS), under(preemption=KILLING)), dispatches=("reorder",),
    ),
    "migration": Feature(
        ("defrag@spread", "defrag:sjf@first", "defrag@random", "srtf@spread", "las:60", "priority-preempt@random", "gittins:60@tier"),
        (perfect, under(preemption=COSTS)), dispatches=("reorder",), cases=scattered,
    ),
    "elastic jobs": Feature(VARIED, change=stretched),
    "resizing": Feature(VARIED, tuple(under(resize=mode, preemption=COSTS) for mode in ("shrink", "grow", "both")), change=stretched),
    "dependencies": Feature((*VARIED, "drf+easy"), (under(dependencies=True),), change=chained),
    "dependencies and preemption": Feature(MOVING, (under(dependencies=True),), change=chained, dispatches=("reorder",)),
    "quotas": Feature((*FILLED, "drf+greedy", "wfp3+easy", "sjf+easy:largest"), (under(quotas=True),), change=divided),
    "reservations": Feature(VARIED, (reserved,), change=owned),
    "outages": Feature(VARIED, (closing("fail", requeue=True), closing("drain", requeue=True), closing("fail", requeue=False), maintained)),
    "outages and preemption": Feature(MOVING, (closing("fail", requeue=True), maintained), dispatches=("reorder",)),
    "sleeping nodes": Feature(VARIED, (sleepy(0.0, 1.0), sleepy(1.0, 2.3))),
    "sleeping nodes and preemption": Feature(
        MOVING, (under(power=Power(sleep_after_s=1.0, wake_s=2.3), preemption=COSTS),), dispatches=("reorder",)
    ),
    "power cap": Feature(VARIED, (capped(210.0), capped(480.0), capped(480.0, Power(sleep_after_s=1.0, wake_s=1.0)))),
    "fair orders": Feature(
        tuple(f"{order}+{fill}" for order in FAIR_ORDERS for fill in BACKFILLS), (perfect, sharing), change=owned
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_the_feature_without_the_compiler(name: str) -> None:
    feature = FEATURES[name]
    for number, case in enumerate(feature.cases()):
        changed = feature.change(case)
        for policy, world, dispatch in mixed(f"{name} {number}", feature.policies, feature.worlds, feature.dispatches):
            assert_same_schedule(changed, policy, dispatch, world(changed))


OWN = """
def area(job):
    return job.estimate * job.width

def waiting(job, now):
    r = max(job.estimate, 1.0)
    return -((now - job.submit + r) / r)

def lowest(node):
    return node.index
"""


@pytest.mark.parametrize(
    ("policy", "twin"), [("{}:area+easy", "saf+easy"), ("{}:waiting+greedy", "hrrn+greedy"), ("sjf@{}:lowest", "sjf@first")]
)
def test_own_scores_without_the_compiler(policy: str, twin: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(OWN, encoding="utf-8")
    for case in FEATURES["orders"].cases():
        assert_same_schedule(case, policy.format(mine), twin=twin)
