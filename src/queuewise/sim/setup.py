"""Lay a workload, a cluster and a policy out as World, Machine and State: a simulation that has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions, Outage, Preemption
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.sim import accounts, dependencies, layout, tenants, wattage
from queuewise.sim.compilation import address_of
from queuewise.sim.cuts import MOST_TASKS
from queuewise.sim.facts import cheapest_watts, fact_blocks, job_facts
from queuewise.sim.initial import initial_state
from queuewise.sim.layout import Classes, Pools, Trees
from queuewise.sim.reservations import Bars
from queuewise.sim.rules import Rules
from queuewise.sim.state import (
    BACKFILL,
    BY_FIXED,
    BY_REMAINING,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    CHECKPOINT_PER_GPU,
    CONSERVATIVE,
    COSTLY,
    COSTS_SIZE,
    CUTS,
    DEFRAG,
    DEPENDENCIES,
    DEPTH,
    DISPATCH,
    DRAINED,
    DYNAMIC,
    EASY,
    EASY_STRICT,
    F64,
    FACTS,
    FAILED_NODE,
    FICKLE,
    FIXED,
    GPU_STRIDE,
    GROWS,
    I64,
    JOB_ROW,
    KEYS,
    KILLS,
    LIFTED,
    LOOKS_AROUND,
    MOST_PIECES,
    NO_LIMIT,
    NODE_SCORER,
    NOT_PREEMPTIVE,
    NUM_ACCOUNTS,
    NUM_CLASSES,
    NUM_JOBS,
    NUM_LEVELS,
    NUM_LIFTS,
    NUM_NODES,
    NUM_OUTAGES,
    NUM_POOLS,
    NUM_QUEUES,
    NUM_TYPES,
    NUM_WORDS,
    OUTLOOK_ROW,
    OUTLOOK_SIZE,
    PARAMS_SIZE,
    PICKY,
    PINS,
    POLICY_SIZE,
    POWER_BUDGET,
    PROMOTES,
    QUANTUM,
    QUOTAS,
    RANKED,
    REPAIRED,
    REQUEUES,
    RESERVES,
    RESIZES,
    RESTART,
    RESTART_PER_GPU,
    RESTARTS,
    RESTLESS,
    RULE,
    RULE_OPTION,
    SECOND_ORDER,
    SEED,
    SHARES,
    SHRINKS,
    SIZES,
    SLEEP_AFTER,
    SLEEPS,
    TIER,
    TIMED,
    TRACK_FREE_TIMES,
    TRANSFER,
    TRANSFER_PER_GPU,
    TREE_SIZE,
    UNIFORM,
    WAKE,
    Machine,
    Records,
    State,
    World,
)
from queuewise.sim.tenants import Tenants
from queuewise.workload.dependencies import NO_DEPENDENCIES, Dependencies
from queuewise.workload.jobs import Workload

NONE = np.zeros(1)
RESIZING = {"none": 0, "shrink": SHRINKS, "grow": GROWS, "both": SHRINKS | GROWS}
COSTS = {
    QUANTUM: "quantum_s", CHECKPOINT: "checkpoint_s", CHECKPOINT_PER_GPU: "checkpoint_per_gpu_s", RESTART: "restart_s",
    RESTART_PER_GPU: "restart_per_gpu_s", TRANSFER: "transfer_s", TRANSFER_PER_GPU: "transfer_per_gpu_s",
    CHECKPOINT_EVERY: "checkpoint_every_s",
}  # fmt: skip
OVERHEADS = COSTS.keys() - {QUANTUM, CHECKPOINT_EVERY}


def lay_out(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    *,
    runtime: F64,
    estimate: F64,
    predicted: F64 | None = None,
    conditions: Conditions = PERFECT,
) -> tuple[World, Machine, State]:
    """The arrays of a simulation that has not begun."""
    _check_elastic(workload, rules, conditions)
    pools = Pools.of(cluster)
    held_by = _tenants(workload, cluster, rules) if conditions.quotas else Tenants.none(workload)
    bars = Bars.of(workload, cluster, conditions, rules, estimate)
    classes = layout.classify(workload, cluster, pools, held_by, bars)
    budget = wattage.budget(cluster, conditions.power, rules)
    draw = wattage.task_draw(cluster, pools, classes)
    if budget != NO_LIMIT:
        classes = wattage.without_those_over(classes, pools, draw, budget)
    trees = Trees.of(classes)
    facts = np.zeros(1, FACTS)
    if rules.needs_facts:
        known = workload, estimate, predicted, cheapest_watts(workload, cluster, pools, classes)
        rules = rules.settled(partial(fact_blocks, *known))
        facts = job_facts(*known) if rules.dynamic else facts
    fields: dict[str, NDArray[Any]] = {}
    fields |= _nodes(cluster, pools)
    fields |= _classes(workload, cluster, pools, classes, alike=not conditions.power.nodes_sleep and not bars.are_there)
    fields |= _orders(rules, classes, trees)
    fields |= _scores(len(workload), rules, facts)
    fields |= accounts.world_columns(rules.accounts) | tenants.world_columns(held_by) | bars.world_columns()
    waits_for = _dependencies(workload) if conditions.dependencies else NO_DEPENDENCIES
    fields |= dependencies.world_columns(waits_for, len(workload) if len(waits_for) else 0, runtime >= workload.runtime)
    fields |= _task_types(workload, cluster, classes)
    outages = conditions.outages_on(cluster, float(workload.submit[0]), float(workload.submit[-1]))
    resizes = RESIZING[conditions.resize] if conditions.resize != "none" and workload.is_elastic.any() else 0
    stops = can_stop(rules, bool(outages) or resizes > 0)
    fields |= _stopping(workload, cluster, rules, conditions, stops) | _timetable(outages, bars)
    fields["sizes"] = _sizes(workload, cluster, rules, pools, classes, trees, fields)
    restarts = stops or conditions.power.nodes_sleep
    has_places = cluster.num_nodes > 1 or cluster.num_gpus > 0
    fields["policy"] = _policy(rules, conditions, bool(fields["class_by_pool"].all()), restarts, has_places)
    fields["pin_first"] = _pin_places(classes, pools, fields["class_span"]) if fields["policy"][PINS] else np.zeros(1, np.int64)
    fields["policy"][RESIZES] = resizes
    fields["policy"][DEPENDENCIES] = int(len(waits_for) > 0)
    fields["policy"][POWER_BUDGET] = budget
    fields["policy"][PICKY] |= bars.are_there and fields["class_span"].any()  # with fewer tasks it takes longer, and may be barred
    fields["task_draw"] = draw.ravel()
    fields["policy"][CUTS] = int(_victims_by_cut(rules, conditions.preemption, fields["sizes"], fields["policy"]))
    all_by_cut = fields["policy"][CUTS] and (fields["class_by_pool"] & (fields["class_tasks"] <= MOST_TASKS)).all()
    fields["policy"][RANKED] = int(not all_by_cut or rules.keys == BY_REMAINING)
    fields = {name: np.require(array, requirements="C") for name, array in fields.items()}
    fields["submit"] = np.require(workload.submit, np.float64, "C")
    fields |= _job_rows(runtime, estimate, classes)
    world = World(**fields)
    return (
        world,
        layout.empty_machine(cluster, pools, world.pool_words, world.pool_bits),
        initial_state(workload, cluster, rules, classes, pools, trees, world, runtime, estimate, waits_for),
    )


def _pin_places(classes: Classes, pools: Pools, span: I64) -> I64:
    """[J] where the pieces of each job's pin begin, with room for as many as it can have."""
    most = layout.pieces_of(classes, pools)[np.arange(len(classes)) + span]
    number = np.where(classes.of_job >= 0, most[classes.of_job], 0)
    return np.cumsum(number) - number


def _check_elastic(workload: Workload, rules: Rules, conditions: Conditions) -> None:
    if (rules.keys != NOT_PREEMPTIVE or rules.backfill == DEFRAG or conditions.quotas) and workload.is_elastic.any():
        what, instead = ("quotas", "quotas") if conditions.quotas else ("policies that preempt or migrate", "the policy")
        raise InputError(f"{what} know no elastic jobs", hint=f"give up {instead}, or --elastic, or min_tasks and max_tasks in the log")


def _dependencies(workload: Workload) -> Dependencies:
    workload.dependencies.check(workload.job_id)
    return workload.dependencies


def _tenants(workload: Workload, cluster: Cluster, rules: Rules) -> Tenants:
    if rules.keys != NOT_PREEMPTIVE or rules.backfill == DEFRAG or rules.depth != NO_LIMIT:
        raise InputError("quotas are for policies that do not preempt or migrate, without /D", hint="for example fcfs+easy, or no quotas")
    return Tenants.of(workload, cluster)


def _sizes(
    workload: Workload, cluster: Cluster, rules: Rules, pools: Pools, classes: Classes, trees: Trees, fields: dict[str, NDArray[Any]]
) -> I64:
    stride = int(cluster.node_gpus.max()) + 1
    elastic = bool((fields["class_span"] > 0).any() or (fields["class_scale"] != 1.0).any())
    uniform = not elastic and (layout.node_speed(cluster) == 1.0).all() and cluster.node_penalty == 0.0 and cluster.rack_penalty == 0.0
    sizes = np.zeros(SIZES, np.int64)
    sizes[NUM_JOBS] = len(workload)
    sizes[NUM_NODES] = cluster.num_nodes
    sizes[NUM_POOLS] = len(pools)
    sizes[NUM_CLASSES] = len(classes)
    sizes[NUM_QUEUES] = int(fields["class_queue"].max()) + 1
    sizes[NUM_TYPES] = len(fields["type_gpu"])
    sizes[NUM_WORDS] = int(fields["pool_words"].sum()) * stride
    sizes[GPU_STRIDE] = stride
    sizes[TREE_SIZE] = trees.size
    sizes[SHARES] = int(classes.is_share.any())
    sizes[UNIFORM] = int(uniform)
    sizes[NUM_LEVELS] = len(fields["level_bound"]) if rules.levels is not None else 0
    sizes[NUM_OUTAGES] = len(fields["outage_time"])
    sizes[MOST_PIECES] = layout.pieces_of(classes, pools)[classes.feasible].max(initial=1)
    sizes[OUTLOOK_ROW] = OUTLOOK_SIZE + max(order.memory for order in rules.orders)
    sizes[NUM_ACCOUNTS] = len(fields["account_parent"])
    sizes[NUM_LIFTS] = len(fields["lift_time"])
    return sizes


def can_stop(rules: Rules, conditions_stop: bool) -> bool:
    """Whether a job may be stopped before its end: by the policy, by somebody outside the engine, or under these conditions."""
    return rules.keys != NOT_PREEMPTIVE or rules.backfill == DEFRAG or rules.stops > 0 or conditions_stop


def _stopping(workload: Workload, cluster: Cluster, rules: Rules, conditions: Conditions, stops: bool) -> dict[str, NDArray[Any]]:
    """What stopping costs, and levels of service."""
    costs = np.zeros(COSTS_SIZE)
    for slot, name in COSTS.items():
        costs[slot] = getattr(conditions.preemption, name)
    costs[SLEEP_AFTER], costs[WAKE] = conditions.power.sleep_after_s, conditions.power.wake_s
    levels = rules.levels
    return {
        "costs": costs,
        "node_cost": conditions.preemption.factors_on(cluster)[cluster.node_kind],
        "width": workload.size if stops else NONE,
        "level_bound": NONE if levels is None else levels.bound,
        "level_key": NONE if levels is None else _ranks(levels.key),
    }


def _timetable(outages: Sequence[Outage], bars: Bars) -> dict[str, NDArray[Any]]:
    """Outages, repairs and ends of reservations in the order in which they happen."""
    happen = [(outage.start, DRAINED if outage.kind == "drain" else FAILED_NODE, outage.node) for outage in outages]
    happen += [(outage.end, REPAIRED, outage.node) for outage in outages]
    happen += [(time, LIFTED, 0) for time in bars.lifts.tolist()]
    happen.sort(key=lambda event: (event[0], event[1] != REPAIRED, event[1] == LIFTED, event[2]))
    time, kind, node = zip(*happen, strict=True) if happen else ((), (), ())
    return {
        "outage_time": np.array(time, np.float64), "outage_kind": np.array(kind, np.int64), "outage_node": np.array(node, np.int64),
    }  # fmt: skip


def _job_rows(runtime: F64, estimate: F64, classes: Classes) -> dict[str, NDArray[Any]]:
    rows = np.empty(len(runtime), JOB_ROW)
    rows["runtime"], rows["estimate"], rows["job_class"] = runtime, estimate, classes.of_job
    return {name: rows[name] for name in JOB_ROW.names or ()}


def _nodes(cluster: Cluster, pools: Pools) -> dict[str, NDArray[Any]]:
    stride = int(cluster.node_gpus.max()) + 1
    sizes = np.diff(pools.first)
    words = -(-sizes // 64)
    gpu_watts = np.array([kind.peak_watts - kind.idle_watts for kind in cluster.kinds] + [0.0])
    free, per_task = np.divmod(np.arange(stride * stride), stride)
    return {
        "node_pool": pools.of_node,
        "node_slot": pools.slot,
        "node_place": np.argsort(pools.nodes),
        "node_gpus": cluster.node_gpus,
        "node_cpu": cluster.node_cpu_milli,
        "node_mem": cluster.node_mem_mib,
        "node_rack": cluster.node_rack,
        "node_speed": layout.node_speed(cluster),
        "node_gpu_watts": gpu_watts[cluster.node_kind],
        "node_core_watts": cluster.node_core_watts,
        "node_kind": cluster.node_kind,
        "pool_first": pools.first,
        "pool_nodes": pools.nodes,
        "pool_gpus": cluster.node_gpus[pools.example],
        "pool_words": words,
        "pool_bits": np.concatenate([[0], np.cumsum(words * stride)[:-1]]),
        "penalty": np.array([cluster.node_penalty, cluster.rack_penalty]),
        "divide": free // np.maximum(per_task, 1),
    }


def _classes(workload: Workload, cluster: Cluster, pools: Pools, classes: Classes, *, alike: bool) -> dict[str, NDArray[Any]]:
    """`alike`: nothing tells nodes of a pool apart but what is free there."""
    by_pool = layout.answered_by_pool(classes, cluster, pools) & alike
    scale = layout.time_scales(classes, workload)
    worst = layout.worst_factor(classes, cluster, pools) * scale
    counts = classes.allows.sum(axis=1)
    return {
        "class_tasks": classes.tasks,
        "class_span": layout.spans(classes),
        "class_scale": scale,
        "class_gpus": classes.whole_gpus,
        "class_milli": classes.milli,
        "class_cpu": classes.cpu,
        "class_mem": classes.mem,
        "class_primary": classes.primary,
        "class_tenant": classes.tenant,
        "class_queue": layout.number_queues(classes, workload, cluster),
        "class_by_pool": by_pool.astype(np.int64),
        "class_min_nodes": layout.fewest_nodes(classes, pools),
        "class_rack_nodes": layout.nodes_in_a_rack(classes, cluster, pools),
        "class_worst": worst,
        "class_crowd": classes.crowd,
        "class_length": classes.estimate * worst,
        "class_pool_first": np.concatenate([[0], np.cumsum(counts)]),
        "class_pools": np.nonzero(classes.allows)[1],
        "class_allows": classes.allows.astype(np.int64).ravel(),
    }


def _orders(rules: Rules, classes: Classes, trees: Trees) -> dict[str, NDArray[Any]]:
    nothing = np.zeros(1, np.int32)
    fields: dict[str, NDArray[Any]] = {
        "rank": nothing, "leaf": nothing, "leaf_job": nothing,
        "class_first": trees.class_first, "tree_levels": trees.levels, "tree_level": trees.level,
    }  # fmt: skip
    if not rules.dynamic and rules.keys == NOT_PREEMPTIVE:
        indexes = [layout.order_jobs(classes, trees, order.fixed) for order in rules.orders if order.fixed is not None]
        for name, parts in zip(("rank", "leaf", "leaf_job"), zip(*indexes, strict=True), strict=True):
            fields[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return fields


def _scores(num_jobs: int, rules: Rules, facts: Records) -> dict[str, NDArray[Any]]:
    fields: dict[str, NDArray[Any]] = {
        "facts": facts, "fixed_score": NONE,
        "params": _padded(rules.orders[0].params), "second_params": _padded(rules.orders[-1].params),
        "scored_by": np.array([order.fair or int(order.fixed is None) for order in rules.orders] + [FIXED]),
    }  # fmt: skip
    if rules.keys == BY_FIXED and rules.order.fixed is not None:
        fields["fixed_score"] = _ranks(rules.order.fixed)
    if rules.dynamic:
        fields["fixed_score"] = np.concatenate([np.full(num_jobs, np.nan) if o.fixed is None else o.fixed for o in rules.orders])
    return fields


def _ranks(keys: F64) -> F64:
    """The place of each key among the distinct ones."""
    return np.unique(keys, return_inverse=True)[1].astype(np.float64)


def _padded(params: F64) -> F64:
    padded = np.zeros(PARAMS_SIZE)
    padded[: len(params)] = params
    return padded


def _task_types(workload: Workload, cluster: Cluster, classes: Classes) -> dict[str, NDArray[Any]]:
    """Distinct task demands with the number of their tasks, for fragmentation."""
    demands = np.column_stack([classes.milli, classes.cpu, classes.mem, classes.kind_set])
    types, inverse = np.unique(demands, axis=0, return_inverse=True)
    weight = np.zeros(len(types), np.int64)
    np.add.at(weight, inverse.ravel(), classes.submitted * classes.jobs)
    masks = np.array([_kind_mask(cluster, names) for names in workload.kind_sets], np.int64)
    return {
        "type_gpu": types[:, 0].copy(), "type_cpu": types[:, 1].copy(), "type_mem": types[:, 2].copy(),
        "type_kinds": masks[types[:, 3]], "type_weight": weight,
    }  # fmt: skip


def _kind_mask(cluster: Cluster, names: tuple[str, ...]) -> int:
    return sum(1 << k for k, kind in enumerate(cluster.kinds) if not names or kind.name in names)


def _policy(rules: Rules, conditions: Conditions, all_by_pool: bool, restarts: bool, has_places: bool) -> I64:
    policy = np.zeros(POLICY_SIZE, np.int64)
    policy[DISPATCH] = rules.dispatch
    policy[QUOTAS] = int(conditions.quotas)
    policy[SLEEPS] = int(conditions.power.nodes_sleep)
    policy[BACKFILL] = rules.backfill
    policy[RULE] = rules.rule
    policy[RULE_OPTION] = rules.rule_option
    policy[DYNAMIC] = int(rules.dynamic)
    policy[DEPTH] = rules.depth
    policy[SECOND_ORDER] = len(rules.orders) - 1
    policy[SEED] = np.uint64(rules.seed & 0xFFFFFFFFFFFFFFFF).astype(np.int64)
    policy[RESERVES] = int(bool(conditions.reservations))
    policy[FICKLE] = int(rules.rule == TIER or conditions.power.is_capped)
    policy[PINS] = int(rules.backfill == CONSERVATIVE and has_places)
    policy[RESTLESS] = int(
        rules.dynamic or conditions.quotas or conditions.power.is_capped or bool(conditions.reservations)
        or rules.backfill in (CONSERVATIVE, DEFRAG)
    )  # fmt: skip
    policy[PICKY] = int(policy[FICKLE] or rules.rule_option != NO_LIMIT)
    plain_rule = rules.rule_option == NO_LIMIT and not policy[FICKLE]
    policy[TRACK_FREE_TIMES] = int(rules.backfill in (EASY, EASY_STRICT) and all_by_pool and plain_rule and not restarts)
    policy[KEYS] = rules.keys
    policy[RESTARTS] = int(restarts)
    policy[KILLS] = int(conditions.preemption.mode == "kill")
    policy[COSTLY] = int(any(getattr(conditions.preemption, COSTS[slot]) for slot in OVERHEADS))
    policy[REQUEUES] = int(conditions.requeue)
    policy[TIMED] = int(rules.levels is not None and rules.levels.by_time)
    policy[PROMOTES] = int(rules.levels is not None and rules.levels.promotes)
    policy[LOOKS_AROUND] = int(any(order.looks_around for order in rules.orders))
    policy[NODE_SCORER] = 0 if rules.node_scorer is None else address_of(rules.node_scorer)
    return policy


def _victims_by_cut(rules: Rules, costs: Preemption, sizes: I64, policy: I64) -> bool:
    """Whether victims go in an order that time does not change, and whole GPUs are all that counts (cuts.py)."""
    if rules.keys == NOT_PREEMPTIVE or rules.rule == TIER or rules.rule_option != NO_LIMIT or sizes[SHARES] or costs.quantum_s > 0:
        return False
    return rules.keys != BY_REMAINING or bool(sizes[UNIFORM] and not policy[COSTLY])
