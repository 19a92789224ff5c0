"""A state in which nothing has happened: the columns that change in the course of a simulation, as they are at first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.sim import accounts, dependencies, layout
from queuewise.sim.facts import node_facts
from queuewise.sim.layout import Classes, Pools, Trees
from queuewise.sim.pins import UNSETTLED
from queuewise.sim.rules import Rules
from queuewise.sim.schedule import NEVER, PENDING
from queuewise.sim.state import (
    BY_SCORE,
    CLOCK_SIZE,
    CONSERVATIVE,
    CORES,
    COUNT_SIZE,
    CUTS,
    DEMAND_SIZE,
    F64,
    GPU_STRIDE,
    GPUS,
    LIFE_ROW,
    LOG_SIZE,
    MEM_MIB,
    MOST_PIECES,
    NODE_FACTS,
    NODES,
    NOT_PREEMPTIVE,
    NUM_QUEUES,
    OUTLOOK_ROW,
    PINS,
    PLAN_BANDS,
    RESTARTS,
    RUN_ROW,
    SLEEPS,
    STALE,
    STOP_AT,
    TRACK_FREE_TIMES,
    State,
    World,
)
from queuewise.workload.dependencies import Dependencies
from queuewise.workload.jobs import Workload

RUNS_OF_PREEMPTED = 5  # a job, for which the log has room before it must be copied; memory that is not written to costs nothing


def initial_state(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    classes: Classes,
    pools: Pools,
    trees: Trees,
    world: World,
    runtime: F64,
    estimate: F64,
    waits_for: Dependencies,
) -> State:
    """Also notes in the world how much room the log of pieces has."""
    num_jobs, num_nodes, num_classes = len(workload), len(pools.of_node), len(classes)
    num_queues = int(world.sizes[NUM_QUEUES])
    listed = num_jobs if rules.dynamic else 1
    stoppable = num_jobs if world.policy[RESTARTS] else 1
    keyed = num_jobs if rules.keys != NOT_PREEMPTIVE else 1
    sleepers = num_nodes if world.policy[SLEEPS] else 1
    planted = rules.keys == NOT_PREEMPTIVE and not rules.dynamic
    placed = int(classes.tasks[classes.feasible].max(initial=1)) + 1
    most_pieces = layout.pieces_of(classes, pools)[np.arange(num_classes) + world.class_span]
    log = int((most_pieces * classes.jobs)[classes.feasible].sum()) + 1
    pinned, pins = (num_jobs, log) if world.policy[PINS] else (1, 1)
    log += rules.stops * int(world.sizes[MOST_PIECES])
    log *= RUNS_OF_PREEMPTED if keyed > 1 else 1
    world.sizes[LOG_SIZE] = log
    per_queue = np.bincount(world.class_queue, minlength=num_queues)
    gpus = int(world.sizes[GPU_STRIDE]) - 1
    return State(
        clock=np.array([np.inf if entry == STOP_AT else 0.0 for entry in range(CLOCK_SIZE)]),
        count=np.array([num_nodes * world.policy[CUTS] if entry == STALE else 0 for entry in range(COUNT_SIZE)]),
        **_life_rows(num_jobs),
        **_run_rows(stoppable, runtime, estimate),
        idle_since=np.full(sleepers, workload.submit[0]),
        awake_at=np.full(sleepers, -np.inf),
        node_pieces=np.zeros(sleepers, np.int64),
        **accounts.state_columns(rules.accounts, float(workload.submit[0])),
        **dependencies.state_columns(waits_for, num_jobs if len(waits_for) else 1),
        tenant_used=np.zeros(len(world.tenant_most), np.int64),
        event_time=np.empty(num_jobs),
        event_code=np.empty(num_jobs, np.int64),
        tree=np.full(trees.size * len(rules.orders) if planted else 1, np.inf),
        head_leaf=np.full(num_classes * len(rules.orders), -1, np.int64),
        head_rank=np.zeros(num_classes * len(rules.orders), np.int64),
        class_pending=np.zeros(num_classes, np.int64),
        active=np.zeros(num_classes, np.int64),
        active_slot=np.zeros(num_classes, np.int64),
        queue_first=np.concatenate([[0], np.cumsum(per_queue)]),
        queue_active=np.zeros(num_queues, np.int64),
        head=np.full(num_queues, -1, np.int64),
        dirty=np.zeros(num_queues, np.int64),
        newcomer=np.full(num_queues, -1, np.int64),
        pending=np.empty(listed, np.int32),
        pending_slot=np.empty(listed, np.int32),
        outlook=_outlook(cluster, int(world.sizes[OUTLOOK_ROW])),
        score=np.empty(listed),
        second_score=np.empty(listed),
        heap_job=np.empty(2 * keyed, np.int64),
        heap_key=np.empty(2 * keyed),
        heap_slot=np.empty(keyed, np.int32),
        aside=np.zeros(num_classes, np.int64),
        room=np.empty(num_classes * num_nodes if keyed > 1 else 1, np.int64),
        room_slots=np.zeros(num_classes, np.int64),
        room_key=np.full(num_classes, np.inf),
        victim_key=np.empty(stoppable + 1),
        victim_job=np.empty(stoppable, np.int64),
        gain=np.zeros(num_nodes, np.int64),
        taken=np.empty(keyed, np.int64),
        frontier=np.empty(keyed, np.int64),
        **_cut_columns(num_nodes, gpus, bool(world.policy[CUTS])),
        stretch=np.zeros(num_classes),
        running=np.empty(num_jobs, np.int32),
        shadow_head=np.full(num_queues, -1, np.int64),
        shadow_stamp=np.zeros(num_queues, np.int64),
        shadow_time=np.full(num_queues, np.inf),
        shadow_slack=np.zeros(num_queues, np.int64),
        free_times=np.full(max(gpus, 1) * num_nodes if world.policy[TRACK_FREE_TIMES] else 1, -np.inf),
        planned=np.empty(num_classes * PLAN_BANDS if rules.backfill == CONSERVATIVE else 1),
        pin_start=np.full(pinned, np.inf),
        pin_pieces=np.zeros(pinned, np.int32),
        pin_node=np.zeros(pins, np.int32),
        pin_tasks=np.zeros(pins, np.int32),
        pin_gpus=np.zeros(pins, np.int64),
        plan_stamp=np.full(num_queues, UNSETTLED, np.int64),
        scratch=np.empty(max(num_jobs, placed, rules.depth)),
        scratch_jobs=np.empty(max(rules.depth, 1), np.int64),
        scratch_nodes=np.empty(num_nodes, np.int64),
        node_facts=node_facts(cluster) if rules.rule == BY_SCORE else np.zeros(1, NODE_FACTS),
        node_score=np.zeros(num_nodes if rules.rule == BY_SCORE else 1),
        demand=np.zeros(DEMAND_SIZE),
        place_node=np.empty(placed, np.int64),
        place_tasks=np.empty(placed, np.int64),
        place_gpus=np.empty(placed, np.int64),
        piece_job=np.empty(log, np.int32),
        piece_node=np.empty(log, np.int32),
        piece_tasks=np.empty(log, np.int32),
        piece_gpus=np.empty(log, np.int64),
        piece_start=np.empty(log),
        piece_end=np.empty(log),
    )


def _life_rows(num_jobs: int) -> dict[str, NDArray[Any]]:
    rows = np.zeros(num_jobs, LIFE_ROW)
    rows["start"], rows["end"], rows["event_slot"], rows["status"] = NEVER, NEVER, -1, PENDING
    return {name: rows[name] for name in LIFE_ROW.names or ()}


def _run_rows(number: int, runtime: F64, estimate: F64) -> dict[str, NDArray[Any]]:
    rows = np.zeros(number, RUN_ROW)
    rows["remaining"], rows["remaining_estimate"] = runtime[:number], estimate[:number]
    return {name: rows[name] for name in RUN_ROW.names or ()}


def _cut_columns(nodes: int, gpus: int, used: bool) -> dict[str, NDArray[Any]]:
    listed = nodes if used else 1
    return {
        "gpu_job": np.full(listed * (gpus + 1), -1, np.int32),
        "gpu_turn": np.full(listed * (gpus + 1), -np.inf),
        "cut_turn": np.full(listed * max(gpus, 1), -np.inf), "cut_job": np.full(listed * max(gpus, 1), -1, np.int32),
        "stale": np.ones(listed, np.int8), "stale_nodes": np.arange(listed),
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
