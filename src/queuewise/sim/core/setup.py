"""Lay a workload, a cluster and a policy out as World, Machine and State: a simulation that has not begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions, Outage, Preemption, node_changes
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.sim import backfill, placement, preemption, queue
from queuewise.sim.conditions import DRAINED, FAILED_NODE, GROWS, REPAIRED, RESERVATION_ENDED, SHRINKS, job_dependencies, power_cap, quotas
from queuewise.sim.conditions.quotas import Tenants
from queuewise.sim.conditions.reserved_nodes import BlockedTimes
from queuewise.sim.core import layout
from queuewise.sim.core.compilation import address_of
from queuewise.sim.core.facts import cheapest_watts, fact_blocks, job_facts
from queuewise.sim.core.initial import initial_state
from queuewise.sim.core.layout import Classes, Pools, Trees
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.state import NO_LIMIT, Machine, PolicyFlags, Sizes, State, World
from queuewise.sim.core.tables import F64
from queuewise.sim.preemption.victim_lists import MOST_TASKS
from queuewise.sim.queue import FACTS, MAX_LEVELS, PARAMS_SIZE, Records, account_tree
from queuewise.workload.dependencies import NO_DEPENDENCIES, Dependencies
from queuewise.workload.history import NO_HISTORY, History
from queuewise.workload.jobs import Workload

NONE = np.zeros(1)
OUTAGE_KINDS = {"fail": FAILED_NODE, "drain": DRAINED, "repair": REPAIRED}
RESIZING = {"none": 0, "shrink": SHRINKS, "grow": GROWS, "both": SHRINKS | GROWS}
OVERHEADS = ("checkpoint", "checkpoint_per_gpu", "restart", "restart_per_gpu", "transfer", "transfer_per_gpu")  # of Costs


@dataclass(frozen=True, eq=False)
class Layout:
    """A simulation that has not begun, and what it takes to give it other orders."""

    world: World
    machine: Machine
    state: State
    classes: Classes
    trees: Trees
    facts_of_jobs: Callable[[F64 | None], Records]  # what scoring functions may know of all jobs, by an order's own estimates

    @property
    def tables(self) -> tuple[World, Machine, State]:
        return self.world, self.machine, self.state

    def order_columns(self, rules: Rules) -> dict[str, NDArray[Any]]:
        """The columns of the world that change under other rules of the same shape."""
        if rules.needs_facts:
            rules = rules.settled(lambda own_estimate: iter((self.facts_of_jobs(own_estimate),)))
        facts = self.world.facts, self.world.second_facts
        return _orders(rules, self.classes, self.trees) | _scores(len(self.world.submit), rules, facts)


def lay_out(
    workload: Workload,
    cluster: Cluster,
    rules: Rules,
    *,
    runtime: F64,
    estimate: F64,
    history: History = NO_HISTORY,
    conditions: Conditions = PERFECT,
) -> Layout:
    """The arrays of a simulation that has not begun. `history` holds the columns that scoring functions use."""
    _check_elastic(workload, rules, conditions)
    pools = Pools.of(cluster)
    held_by = _tenants(workload, cluster, rules) if conditions.quotas else Tenants.none(workload)
    blocked = BlockedTimes.of(workload, cluster, conditions, rules, estimate)
    classes = layout.classify(workload, cluster, pools, held_by, blocked)
    domain = layout.pool_domains(cluster, pools)
    if rules.rule == placement.TIER:
        classes = layout.within_one_domain(classes, pools, domain)
    budget = power_cap.budget(cluster, conditions.power, rules)
    draw = power_cap.task_draw(cluster, pools, classes)
    if budget != NO_LIMIT:
        classes = power_cap.without_those_over(classes, pools, draw, budget)
    trees = Trees.of(classes)
    facts = [np.zeros(1, FACTS)] * 2
    if rules.needs_facts:
        watts = cheapest_watts(workload, cluster, pools, classes)
        rules = rules.settled(partial(fact_blocks, workload, estimate, history, watts))
        if rules.dynamic:
            facts = _facts(rules, partial(job_facts, workload, history=history, watts=watts), estimate)
    fields: dict[str, NDArray[Any]] = {}
    fields |= _nodes(cluster)
    fields |= _classes(workload, cluster, pools, classes, alike=not conditions.power.nodes_sleep and not blocked.are_there)
    fields |= layout.partition_columns(classes, workload, cluster, pools, one_queue=rules.backfill == backfill.SLURM)
    fields["slurm"] = rules.slurm
    fields |= _orders(rules, classes, trees)
    fields |= _scores(len(workload), rules, facts)
    fields |= account_tree.world_columns(rules.accounts) | quotas.world_columns(held_by) | blocked.world_columns()
    waits_for = _dependencies(workload) if conditions.dependencies else NO_DEPENDENCIES
    fields |= job_dependencies.world_columns(waits_for, len(workload) if len(waits_for) else 0, runtime >= workload.runtime)
    fields |= _task_types(workload, cluster, classes)
    outages = conditions.outages_on(cluster, float(workload.submit[0]), float(workload.submit[-1]))
    resizes = RESIZING[conditions.resize] if conditions.resize != "none" and workload.is_elastic.any() else 0
    stops = can_stop(rules, bool(outages) or resizes > 0)
    fields |= _stopping(workload, cluster, rules, conditions, stops) | _timetable(outages, blocked)
    sizes = _sizes(workload, cluster, rules, pools, classes, trees, fields)
    restarts = stops or conditions.power.nodes_sleep
    has_places = cluster.num_nodes > 1 or cluster.num_gpus > 0
    policy = _policy(rules, conditions, bool(fields["class_by_pool"].all()), restarts, has_places)
    fields["pin_first"] = _pin_places(classes, pools, fields["class_span"]) if policy.remembers_plans else np.zeros(1, np.int64)
    policy.counts_cores = int(2 * classes.jobs[classes.milli == 0].sum() > len(workload))
    policy.resizes = resizes
    policy.has_dependencies = int(len(waits_for) > 0)
    policy.power_budget = budget
    # A job that starts with fewer tasks takes longer, and may run into a reservation.
    policy.room_is_not_enough |= int(blocked.are_there and fields["class_span"].any())
    fields["pool_domain"] = domain
    sizes.num_domains = int(domain.max()) + 1
    fields["task_draw"] = draw.ravel()
    policy.lists_victims = int(_victims_by_cut(rules, conditions.preemption, sizes, policy))
    all_by_cut = policy.lists_victims and (fields["class_by_pool"] & (fields["class_tasks"] <= MOST_TASKS)).all()
    policy.ranks_running = int(not all_by_cut or rules.keys == preemption.BY_REMAINING)
    world = World.allocate(
        _world_lengths(sizes, pools, len(fields["tenant_most"]), stops),
        **fields, sizes=sizes, policy=policy, submit=workload.submit, runtime=runtime, estimate=estimate, job_class=classes.of_job,
    )  # fmt: skip
    machine = layout.empty_machine(cluster, pools, world.pool_words, world.pool_bits)
    state = initial_state(workload, cluster, rules, classes, pools, trees, world, waits_for)

    kept: dict[int, tuple[F64 | None, Records]] = {}  # by the identity of the estimates

    def facts_of_jobs(own_estimate: F64 | None) -> Records:
        if id(own_estimate) not in kept:
            known = estimate if own_estimate is None else own_estimate
            watts = cheapest_watts(workload, cluster, pools, classes)
            kept[id(own_estimate)] = own_estimate, job_facts(workload, known, history, watts)
        return kept[id(own_estimate)][1]

    return Layout(world, machine, state, classes, trees, facts_of_jobs)


def _facts(rules: Rules, facts: Callable[..., Records], estimate: F64) -> list[Records]:
    """What the scoring functions of both orders may know about jobs. The second is unused if the estimates are those of the first."""
    first = facts(estimate=estimate if rules.order.estimate is None else rules.order.estimate)
    other = rules.backfill_order is not None and rules.backfill_order.estimate is not rules.order.estimate
    if rules.backfill_order is None or not other:
        return [first, np.zeros(1, FACTS)]
    return [first, facts(estimate=estimate if rules.backfill_order.estimate is None else rules.backfill_order.estimate)]


def _world_lengths(sizes: Sizes, pools: Pools, tenants: int, stops: bool) -> dict[str, int]:
    return {
        "jobs": int(sizes.num_jobs), "nodes": int(sizes.num_nodes), "pools": len(pools), "pool_bounds": len(pools) + 1,
        "classes": int(sizes.num_classes), "class_bounds": int(sizes.num_classes) + 1, "gpu_slots": int(sizes.gpu_stride),
        "types": int(sizes.num_types), "accounts": int(sizes.num_accounts),
        "account_bounds": int(sizes.num_accounts) + 1, "tenants": tenants, "penalties": 2, "params": PARAMS_SIZE,
        "max_levels": MAX_LEVELS, "one": 1, "stopped_jobs": int(sizes.num_jobs) if stops else 1,
    }  # fmt: skip


def _pin_places(classes: Classes, pools: Pools, span: NDArray[np.int64]) -> NDArray[np.int64]:
    """[J] where the pieces of each job's remembered reservation begin, with room for as many as it can have."""
    most = layout.pieces_of(classes, pools)[np.arange(len(classes)) + span]
    number = np.where(classes.of_job >= 0, most[classes.of_job], 0)
    return np.cumsum(number) - number


def _check_elastic(workload: Workload, rules: Rules, conditions: Conditions) -> None:
    if (rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill == backfill.DEFRAG or conditions.quotas) and workload.is_elastic.any():
        what, instead = ("quotas", "quotas") if conditions.quotas else ("policies that preempt or migrate", "the policy")
        raise InputError(f"{what} do not support elastic jobs", hint=f"drop {instead}, --elastic, or min_tasks and max_tasks in the log")


def _dependencies(workload: Workload) -> Dependencies:
    workload.dependencies.check(workload.job_id)
    return workload.dependencies


def _tenants(workload: Workload, cluster: Cluster, rules: Rules) -> Tenants:
    if rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill == backfill.DEFRAG or rules.depth != NO_LIMIT:
        raise InputError("quotas are for policies that do not preempt or migrate, without /D", hint="for example fcfs+easy, or no quotas")
    return Tenants.of(workload, cluster)


def _sizes(
    workload: Workload, cluster: Cluster, rules: Rules, pools: Pools, classes: Classes, trees: Trees, fields: dict[str, NDArray[Any]]
) -> Sizes:
    stride = int(cluster.node_gpus.max()) + 1
    elastic = bool((fields["class_span"] > 0).any() or (fields["class_scale"] != 1.0).any())
    uniform = not elastic and (layout.node_speed(cluster) == 1.0).all() and cluster.node_penalty == 0.0 and cluster.rack_penalty == 0.0
    sizes = Sizes()
    sizes.num_jobs = len(workload)
    sizes.num_nodes = cluster.num_nodes
    sizes.num_pools = len(pools)
    sizes.num_classes = len(classes)
    sizes.num_queues = int(fields["class_queue"].max()) + 1
    sizes.num_types = len(fields["type_gpu"])
    sizes.num_words = int(fields["pool_words"].sum()) * stride
    sizes.gpu_stride = stride
    sizes.tree_size = trees.size
    sizes.shares_gpus = int(classes.is_share.any())
    sizes.uniform_speed = int(uniform)
    sizes.num_levels = len(fields["level_bound"]) if rules.levels is not None else 0
    sizes.num_outages = len(fields["outage_time"])
    sizes.most_pieces = layout.pieces_of(classes, pools)[classes.feasible].max(initial=1)
    sizes.outlook_row = queue.OUTLOOK_SIZE + max(order.memory for order in rules.orders)
    sizes.num_accounts = len(fields["account_parent"])
    sizes.num_reservation_ends = len(fields["reservation_end"])
    sizes.num_users = int(workload.user.max(initial=-1)) + 1
    return sizes


def can_stop(rules: Rules, conditions_stop: bool) -> bool:
    """Whether a job may be stopped before its end: by the policy, by somebody outside the engine, or under these conditions."""
    return rules.keys != preemption.NOT_PREEMPTIVE or rules.backfill == backfill.DEFRAG or rules.stops > 0 or conditions_stop


def _stopping(workload: Workload, cluster: Cluster, rules: Rules, conditions: Conditions, stops: bool) -> dict[str, NDArray[Any]]:
    """What stopping costs, and levels of service."""
    of_stops = {name: getattr(conditions.preemption, f"{name}_s") for name in (*OVERHEADS, "quantum", "checkpoint_every")}
    costs = preemption.Costs(**of_stops, sleep_after=conditions.power.sleep_after_s, wake=conditions.power.wake_s)
    levels = rules.levels
    return {
        "costs": costs,
        "node_cost": conditions.preemption.factors_on(cluster)[cluster.node_kind],
        "width": workload.size if stops else NONE,
        "level_bound": NONE if levels is None else levels.bound,
    }


def _timetable(outages: Sequence[Outage], blocked: BlockedTimes) -> dict[str, NDArray[Any]]:
    """Outages, repairs and ends of reservations in the order in which they happen."""
    happen = [(change.time, OUTAGE_KINDS[change.kind], change.node) for change in node_changes(outages)]
    happen += [(time, RESERVATION_ENDED, 0) for time in blocked.ends.tolist()]
    happen.sort(key=lambda event: (event[0], event[1] != REPAIRED, event[1] == RESERVATION_ENDED, event[2]))
    time, kind, node = zip(*happen, strict=True) if happen else ((), (), ())
    return {
        "outage_time": np.array(time, np.float64), "outage_kind": np.array(kind, np.int64), "outage_node": np.array(node, np.int64),
    }  # fmt: skip


@lru_cache(maxsize=8)
def _nodes(cluster: Cluster) -> dict[str, NDArray[Any]]:
    """The columns that only the cluster defines. Many short replays on one cluster need them once."""
    pools = Pools.of(cluster)
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
        "class_by_pool": by_pool.astype(np.int64),
        "class_min_nodes": layout.fewest_nodes(classes, pools),
        "class_rack_nodes": layout.nodes_in_a_rack(classes, cluster, pools),
        "class_worst": worst,
        "class_membership": classes.membership,
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
    if not rules.dynamic and rules.keys == preemption.NOT_PREEMPTIVE:
        indexes = [layout.order_jobs(classes, trees, order.fixed) for order in rules.orders if order.fixed is not None]
        for name, parts in zip(("rank", "leaf", "leaf_job"), zip(*indexes, strict=True), strict=True):
            fields[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return fields


def _scores(num_jobs: int, rules: Rules, facts: Sequence[Records]) -> dict[str, NDArray[Any]]:
    fields: dict[str, NDArray[Any]] = {
        "facts": facts[0], "second_facts": facts[1], "fixed_score": NONE, "wait_bound": np.array([rules.max_wait_s]),
        "params": _padded(rules.orders[0].params), "second_params": _padded(rules.orders[-1].params),
        "node_params": _padded(rules.node_params),
        "scored_by": np.array([order.fair or int(order.fixed is None) for order in rules.orders] + [queue.FIXED]),
    }  # fmt: skip
    if rules.keys == preemption.BY_FIXED and rules.order.fixed is not None:
        fields["fixed_score"] = _ranks(rules.order.fixed)
    if rules.dynamic:
        fields["fixed_score"] = np.concatenate([np.full(num_jobs, np.nan) if o.fixed is None else o.fixed for o in rules.orders])
    return fields


def _ranks(keys: F64) -> F64:
    """The place of each key among the distinct ones."""
    return np.unique(keys, return_inverse=True)[1].astype(np.float64)


def _padded(params: F64) -> F64:
    padded = np.zeros(queue.PARAMS_SIZE)
    padded[: len(params)] = params
    return padded


def _task_types(workload: Workload, cluster: Cluster, classes: Classes) -> dict[str, NDArray[Any]]:
    """Distinct task demands with the number of their tasks, for fragmentation."""
    example, number = layout.unique_rows([classes.milli, classes.cpu, classes.mem, classes.kind_set])
    weight = np.zeros(len(example), np.int64)
    np.add.at(weight, number, classes.submitted * classes.jobs)
    masks = np.array([_kind_mask(cluster, names) for names in workload.kind_sets], np.int64)
    return {
        "type_gpu": classes.milli[example], "type_cpu": classes.cpu[example], "type_mem": classes.mem[example],
        "type_kinds": masks[classes.kind_set[example]], "type_weight": weight,
    }  # fmt: skip


def _kind_mask(cluster: Cluster, names: tuple[str, ...]) -> int:
    return sum(1 << k for k, kind in enumerate(cluster.kinds) if not names or kind.name in names)


def _policy(rules: Rules, conditions: Conditions, all_by_pool: bool, restarts: bool, has_places: bool) -> PolicyFlags:
    policy = PolicyFlags()
    policy.dispatch = rules.dispatch
    policy.guesses = int(rules.guessed)
    policy.has_quotas = int(conditions.quotas)
    policy.nodes_sleep = int(conditions.power.nodes_sleep)
    policy.backfill = rules.backfill
    policy.placement = rules.rule
    policy.placement_option = rules.rule_option
    policy.scans_queue = int(rules.dynamic)
    policy.depth = rules.depth
    policy.second_order = len(rules.orders) - 1
    policy.seed = int(np.uint64(rules.seed & 0xFFFFFFFFFFFFFFFF).astype(np.int64))
    policy.has_reservations = int(bool(conditions.reservations))
    policy.fit_may_return = int(rules.rule == placement.TIER or conditions.power.is_capped)
    policy.remembers_plans = int(rules.backfill == backfill.CONSERVATIVE)
    plans = rules.backfill in (backfill.CONSERVATIVE, backfill.SLURM)
    policy.plans_all = int(plans and has_places)
    looks_ahead = rules.solver is not None and rules.solver.lookahead > 1 and rules.keys == preemption.NOT_PREEMPTIVE
    policy.lines_up = int((plans or looks_ahead) and not rules.dynamic and not (conditions.quotas and policy.remembers_plans))
    policy.time_sensitive = int(
        rules.dynamic or conditions.quotas or conditions.power.is_capped or bool(conditions.reservations)
        or rules.backfill in (backfill.CONSERVATIVE, backfill.DEFRAG, backfill.SLURM)
    )  # fmt: skip
    policy.room_is_not_enough = int(policy.fit_may_return or rules.rule_option != NO_LIMIT)
    plain_rule = rules.rule_option == NO_LIMIT and not policy.fit_may_return
    policy.tracks_free_times = int(rules.backfill in (backfill.EASY, backfill.EASY_STRICT) and all_by_pool and plain_rule and not restarts)
    policy.preemption_key = rules.keys
    policy.can_restart = int(restarts)
    policy.stop_loses_progress = int(conditions.preemption.mode == "kill")
    policy.restart_takes_time = int(any(getattr(conditions.preemption, f"{name}_s") for name in OVERHEADS))
    policy.requeues_failed = int(conditions.requeue)
    policy.levels_by_time = int(rules.levels is not None and rules.levels.by_time)
    policy.learns_keys = int(rules.levels is not None and rules.levels.learns)
    policy.promotes = int(rules.levels is not None and rules.levels.promotes)
    policy.reads_cluster = int(any(order.looks_around for order in rules.orders))
    policy.scores_fairly = int(any(order.fair != queue.FIXED for order in rules.orders))
    policy.reads_users = int(any(order.looks_at_users for order in rules.orders))
    policy.second_facts = int(rules.backfill_order is not None and rules.backfill_order.estimate is not rules.order.estimate)
    policy.bounds_waits = int(rules.max_wait_s < np.inf)
    policy.holds = int(rules.order.hold is not None)
    if rules.solver is not None:
        policy.solver, policy.solver_number = rules.solver.address, rules.solver.number
    policy.node_scorer = 0 if rules.node_scorer is None else address_of(rules.node_scorer)
    return policy


def _victims_by_cut(rules: Rules, costs: Preemption, sizes: Sizes, policy: PolicyFlags) -> bool:
    """Whether victims go in an order that time does not change, and whole GPUs are all that counts (victim_lists.py)."""
    if (
        rules.keys == preemption.NOT_PREEMPTIVE
        or rules.rule == placement.TIER
        or rules.rule_option != NO_LIMIT
        or sizes.shares_gpus
        or costs.quantum_s > 0
        or rules.max_wait_s < np.inf
    ):
        return False
    return rules.keys != preemption.BY_REMAINING or bool(sizes.uniform_speed and not policy.restart_takes_time)
