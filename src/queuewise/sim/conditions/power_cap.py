"""The power cap: all jobs together may draw the cap minus what idle nodes draw.

docs/simulator.md, "Power cap", defines the rules. Power is counted in whole milliwatts, so sums are exact. The first
part prepares the arrays that kernels need. The second part contains the kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from queuewise.cluster.conditions import Power
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.sim import backfill, preemption
from queuewise.sim.core.compilation import inline
from queuewise.sim.core.layout import Classes, Pools
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.state import NO_LIMIT, Machine, World
from queuewise.sim.core.tables import F64, I64

MILLI = 1000


def budget(cluster: Cluster, power: Power, rules: Rules) -> int:
    """Milliwatts that all jobs together may draw in addition to idle nodes, NO_LIMIT without a cap."""
    if not power.is_capped:
        return NO_LIMIT
    if rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill == backfill.DEFRAG:
        raise InputError(
            "a power cap needs a policy that does not preempt or migrate",
            hint="choose such a policy, for example fcfs+easy, or omit cap_watts",
        )
    idle = cluster.idle_draw
    if not _active_watts(cluster).any():
        raise InputError(f"cluster {cluster.name!r} does not define what jobs draw", hint="give GPU kinds or core_watts, or omit cap_watts")
    if idle.sum() > power.cap_watts:
        raise InputError(
            f"cluster {cluster.name!r} draws {idle.sum():,g} W without any job, more than the cap of {power.cap_watts:,g} W",
            hint="raise cap_watts",
        )
    if power.nodes_sleep and max(power.sleep_watts, power.wake_watts or 0.0) > idle.min():
        raise InputError(
            "with a power cap, no node may draw more asleep or waking than idle",
            hint=f"give at most {idle.min():,g} W, the least idle draw of a node, as sleep_watts and wake_watts",
        )
    return int(np.floor((power.cap_watts - idle.sum()) * MILLI))


def _active_watts(cluster: Cluster) -> F64:
    """[N, 2] watts that a GPU and a core of the node draw in use, in addition to idle."""
    gpu = np.array([kind.peak_watts - kind.idle_watts for kind in cluster.kinds] + [0.0])[cluster.node_kind]
    return np.column_stack([gpu, cluster.node_core_watts])


def task_draw(cluster: Cluster, pools: Pools, classes: Classes) -> I64:
    """[C, P] milliwatts that one task draws, rounded up."""
    gpu, core = _active_watts(cluster)[pools.example].T
    return np.ceil(classes.milli[:, None] * gpu + classes.cpu[:, None] * core).astype(np.int64)


def without_those_over(classes: Classes, pools: Pools, draw: I64, most: int) -> Classes:
    """Reject jobs that alone could draw more than `most` milliwatts, if placed where their tasks draw the most."""
    room = classes.empty_slots * np.diff(pools.first)  # [C, P] tasks that fit in the empty pool
    dearest_first = np.argsort(-np.where(classes.allows, draw, -1), axis=1, kind="stable")
    room, draw = np.take_along_axis(room, dearest_first, axis=1), np.take_along_axis(draw, dearest_first, axis=1)
    before = np.cumsum(room, axis=1) - room
    tasks = np.clip(classes.tasks[:, None] - before, 0, room)
    feasible = classes.feasible & ((tasks * draw).sum(axis=1) <= most)
    return replace(classes, feasible=feasible, of_job=np.where(feasible[classes.of_job], classes.of_job, np.int32(-1)))


@inline
def is_capped(w: World) -> bool:
    return w.policy.power_budget != NO_LIMIT


@inline
def draw_of(w: World, c: int, n: int, tasks: int) -> int:
    """Milliwatts that tasks of class c draw on node n. Valid only with a cap."""
    return tasks * w.task_draw[c * w.sizes.num_pools + w.node_pool[n]]


@inline
def draw(w: World, m: Machine, c: int, n: int, tasks: int) -> None:
    """Add the draw of tasks of class c on node n. A negative number of tasks subtracts it."""
    if is_capped(w):
        m.drawn[0] += draw_of(w, c, n, tasks)


@inline
def is_over_cap(w: World, m: Machine) -> bool:
    return is_capped(w) and m.drawn[0] > w.policy.power_budget
