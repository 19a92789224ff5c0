"""A state in which nothing has happened: how long its columns are, and the few whose first values are computed."""

from __future__ import annotations

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.sim.backfill import CONSERVATIVE, PLAN_BANDS, SLURM
from queuewise.sim.core import layout
from queuewise.sim.core.facts import node_facts
from queuewise.sim.core.layout import Classes, Pools, Trees
from queuewise.sim.core.rules import Levels, Rules
from queuewise.sim.core.state import Counts, State, World
from queuewise.sim.core.tables import F64
from queuewise.sim.placement import BY_SCORE, DEMAND_SIZE, NODE_FACTS
from queuewise.sim.preemption import FIRST_COMPUTATION, NOT_PREEMPTIVE
from queuewise.sim.queue import CORES, GPUS, MEM_MIB, NODES, USER_SIZE
from queuewise.workload.dependencies import Dependencies
from queuewise.workload.jobs import Workload

RUNS_OF_PREEMPTED = 5  # per job: room in the log before it must be copied; memory that is not written to costs nothing


def initial_state(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    classes: Classes,
    pools: Pools,
    trees: Trees,
    world: World,
    waits_for: Dependencies,
) -> State:
    """Also notes in the world how much room the log of pieces has."""
    pieces = _most_pieces(classes, pools, world)
    world.sizes.log_size = _log_size(rules, pieces, world)
    lengths = _lengths(rules, classes, trees, world, pieces, dependent=len(waits_for) > 0)
    begin = float(workload.submit[0])
    stoppable = lengths["stoppable_jobs"]
    services = rules.levels.services if rules.levels is not None else None
    return State.allocate(
        lengths,
        count=_counts(rules.levels, cluster.num_nodes * world.policy.lists_victims),
        level_key=np.arange(float(lengths["level_keys"])),
        service=np.zeros(lengths["services"]) if services is None or not len(services) else services,
        remaining=world.runtime[:stoppable],
        remaining_estimate=world.estimate[:stoppable],
        queue_first=np.concatenate([[0], np.cumsum(np.bincount(world.class_queue, minlength=lengths["queues"]))]),
        outlook=_outlook(cluster, int(world.sizes.outlook_row)),
        users=np.zeros(int(world.sizes.num_users) * USER_SIZE if world.policy.reads_users else USER_SIZE),
        usage_time=np.full(lengths["accounts"], begin),
        children=rules.accounts.children,
        idle_since=np.full(lengths["sleeping_nodes"], begin),
        unmet=np.bincount(waits_for.job, minlength=lengths["dependent_jobs"]),
        stale_nodes=np.arange(lengths["listed_nodes"]),
        node_facts=node_facts(cluster) if rules.rule == BY_SCORE else np.zeros(1, NODE_FACTS),
    )


def _counts(levels: Levels | None, stale: int) -> Counts:
    if levels is not None and levels.services is not None:
        return Counts(num_stale=stale, services=len(levels.services), learn_at=len(levels.services))
    if levels is not None and levels.learns:
        return Counts(num_stale=stale, learn_at=FIRST_COMPUTATION)
    return Counts(num_stale=stale)


def _most_pieces(classes: Classes, pools: Pools, world: World) -> int:
    """The most pieces that all jobs together have if each runs once, and one more."""
    per_job = layout.pieces_of(classes, pools)[np.arange(len(classes)) + world.class_span]
    return int((per_job * classes.jobs)[classes.feasible].sum()) + 1


def _log_size(rules: Rules, pieces: int, world: World) -> int:
    size = pieces + rules.stops * int(world.sizes.most_pieces)
    return size * RUNS_OF_PREEMPTED if rules.keys != NOT_PREEMPTIVE else size


def _lengths(rules: Rules, classes: Classes, trees: Trees, world: World, pieces: int, *, dependent: bool) -> dict[str, int]:
    """Lengths of the state's columns by the names that their declarations use. Columns of features that are not used have length 1."""
    jobs, nodes, stride = int(world.sizes.num_jobs), int(world.sizes.num_nodes), int(world.sizes.gpu_stride)
    queues, accounts = int(world.sizes.num_queues), int(world.sizes.num_accounts)
    gpus = max(stride - 1, 1)
    stoppable = jobs if world.policy.can_restart else 1
    preemptive = rules.keys != NOT_PREEMPTIVE
    levels = int(world.sizes.num_levels) + 1
    known = 0 if rules.levels is None or rules.levels.services is None else len(rules.levels.services)
    keyed = jobs if preemptive else 1
    listed = nodes if world.policy.lists_victims else 1
    placed = int(classes.tasks[classes.feasible].max(initial=1)) + 1
    pinned = bool(world.policy.remembers_plans)
    return {
        "jobs": jobs, "nodes": nodes, "classes": len(classes), "queues": queues, "queue_bounds": queues + 1, "orders": len(rules.orders),
        "accounts": accounts, "resources": 3, "tenants": len(world.tenant_most), "placed": placed, "demand": DEMAND_SIZE,
        "log": int(world.sizes.log_size), "scratch": max(jobs, placed, levels), "scratch_jobs": max(min(rules.depth, jobs), 1),
        "tree": trees.size * len(rules.orders) if not preemptive and not rules.dynamic else 1,
        "scanned_jobs": jobs if rules.dynamic else 1, "held_jobs": jobs if world.policy.holds else 1,
        "stoppable_jobs": stoppable, "victim_slots": stoppable + 1,
        "keyed_jobs": keyed, "heap_slots": 2 * keyed, "room": len(classes) * nodes if preemptive else 1,
        "listed_nodes": listed, "listed_gpu_slots": listed * stride, "listed_gpus": listed * gpus,
        "level_keys": levels, "services": max(jobs if world.policy.learns_keys else 0, known, 1),
        "sleeping_nodes": nodes if world.policy.nodes_sleep else 1,
        "dependent_jobs": jobs if dependent else 1,
        "scored_nodes": nodes if rules.rule == BY_SCORE else 1,
        "tracked_gpus": gpus * nodes if world.policy.tracks_free_times else 1,
        "lined_jobs": jobs if world.policy.lines_up else 1,
        "pinned_jobs": jobs if pinned else 1, "pinned_pieces": pieces if pinned else 1,
        "plan_bands": len(classes) * PLAN_BANDS if rules.backfill in (CONSERVATIVE, SLURM) else 1,
    }  # fmt: skip


def _outlook(cluster: Cluster, row: int) -> F64:
    """[2*row] two rows with what does not change in them: the totals."""
    rows = np.zeros((2, row))
    rows[:, NODES], rows[:, GPUS], rows[:, CORES], rows[:, MEM_MIB] = (
        cluster.num_nodes,
        cluster.num_gpus,
        cluster.num_cores,
        cluster.mem_gib * 1024,
    )
    return rows.ravel()
