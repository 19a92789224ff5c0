"""Episodes: turn a window of jobs into the columns that kernels read.

The columns hold everything that is constant in an episode, and the initial values of what changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import HOURS_OF_DAY, PERFECT, Preemption
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.envs import columns, published, rewards
from queuewise.envs.circumstances import AS_TRAINED, Circumstances, check_log_size, most_failures
from queuewise.envs.columns import EpisodeState, Scale, Task, TaskConfig
from queuewise.envs.features import LOOKAHEADS, NUM_CLASS_LIVE, VIEWS, ObservationLayout
from queuewise.envs.fixed_features import host_tokens, job_tokens, scores_of_orders
from queuewise.envs.snapshot_start import start_episode
from queuewise.envs.task_settings import TaskSettings
from queuewise.envs.windows import known_runtimes
from queuewise.errors import InputError
from queuewise.evaluation import energy, measure, utilisation
from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.deciding import listed_order
from queuewise.policies.replaying import known_jobs, simulate
from queuewise.policies.resuming import rules_after
from queuewise.sim.backfill import NO_BACKFILL
from queuewise.sim.core.engine import limited_runtime
from queuewise.sim.core.layout import order_jobs
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.tables import F64
from queuewise.sim.placement import BY_CPU, BY_GPU, BY_MEM
from queuewise.sim.queue import COMMIT, OUTLOOK_SIZE, REORDER
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Workload

PROBLEMS = {"job": columns.JOB, "host": columns.HOST, "joint": columns.JOINT}
DISPATCHES = {"mask": columns.MASK, "commit": columns.COMMIT, "head": columns.HEAD}
LEAST_TIME_S = 60.0  # lesser waits and completion times count as this in ratios
METRICS: dict[str, tuple[int, Callable[[measure.Measurement], float]]] = {
    "wait": (columns.WAIT_MEAN, lambda m: float(measure.wait(m).mean())),
    "jct": (columns.JCT_MEAN, lambda m: float(measure.jct(m).mean())),
    "slowdown": (columns.SLOWDOWN_MEAN, lambda m: float(measure.slowdown(m).sum() / max(m.rows.size, 1))),
    "bounded_slowdown": (columns.BOUNDED_SLOWDOWN_MEAN, lambda m: float(measure.bounded_slowdown(m).mean())),
    "utilisation": (columns.UTILISATION_MEAN, lambda m: -float(utilisation.gpu_utilisation(m) or utilisation.cpu_utilisation(m) or 0.0)),
}


@dataclass(frozen=True, eq=False)
class Episode:
    """A window as columns. `machine`, `state` and `episode_state` are templates that envs copy."""

    workload: Workload
    estimate: F64
    circumstances: Circumstances
    killed: NDArray[np.bool_]  # [J] at their limit, if they run to the end
    rules: Rules
    world: World
    task: Task
    machine: Machine
    state: State
    episode_state: EpisodeState

    @property
    def first_own(self) -> int:
        return self.circumstances.first_own(self.workload)


def main_resource(cluster: Cluster) -> int:
    """The resource that utilisation is measured in: GPUs if there are any, else cores if limited, else memory."""
    if cluster.num_gpus:
        return BY_GPU
    return BY_CPU if cluster.num_cores < np.inf else BY_MEM


def num_units(cluster: Cluster) -> int:
    return cluster.num_gpus or cluster.num_nodes


def num_actions(settings: TaskSettings, layout: ObservationLayout) -> int:
    """Number of actions (joint problem: of first choices). The last is to wait."""
    return layout.num_choices("host" if settings.problem == "host" else "job") + 1


def make_rules(
    workload: Workload,
    cluster: Cluster,
    settings: TaskSettings,
    estimate: F64,
    circumstances: Circumstances = AS_TRAINED,
    failures: int = 0,
) -> Rules:
    """The rules by which the engine places jobs, orders the window and backfills. Up to `failures` runs may end by failures."""
    policy = settings.filling
    if settings.dispatch == "mask":
        policy = replace(policy, backfill="none", backfill_order="", backfill_estimates="")
    placement = circumstances.placement or settings.placement
    policy = replace(policy, placement=placement if settings.problem == "job" else "pack", max_wait_s=circumstances.bound_s(settings))
    known = Estimates(estimate, guessed=circumstances.guessed)
    jobs = known_jobs(policy, workload, cluster, known, circumstances.seed, circumstances.conditions)
    rules = policy.rules(jobs, "commit" if settings.dispatch == "commit" else "reorder")
    return replace(rules, stops=failures + circumstances.room_for_stops(settings, len(workload)))


def _lay_out_engine(
    workload: Workload, cluster: Cluster, rules: Rules, settings: TaskSettings, estimate: F64, runtime: F64, circumstances: Circumstances
) -> tuple[Rules, World, Machine, State]:
    """The engine's tables. Unless a network orders its queue, EpisodeState.waiting serves as the queue where there is no backfill."""
    conditions = circumstances.conditions
    if conditions.preemption == Preemption():
        conditions = conditions.model_copy(update={"preemption": settings.stopping})
    ordering = circumstances.ordering
    used = rules if ordering is None else replace(
        rules, order=listed_order(), backfill_order=None, backfill=BACKFILLS[ordering.backfill].code, depth=ordering.depth,
        dispatch=COMMIT if ordering.dispatch == "commit" else REORDER,
    )  # fmt: skip
    laid_out = lay_out(workload, cluster, used, runtime=runtime, estimate=estimate, conditions=conditions)
    world, machine, state = laid_out.tables
    if used.dynamic:
        assert rules.order.fixed is not None
        world = world.replace(rank=order_jobs(laid_out.classes, laid_out.trees, rules.order.fixed)[0])  # of the window
    world.policy.external_queue = int(ordering is None and rules.backfill == NO_BACKFILL)
    world.policy.external_places = int(settings.problem != "job")
    return used, world, machine, state


def lay_out_episode(
    workload: Workload,
    cluster: Cluster,
    settings: TaskSettings,
    layout: ObservationLayout,
    estimate: F64,
    circumstances: Circumstances = AS_TRAINED,
) -> Episode:
    if workload.is_elastic.any():
        raise InputError(
            "environments, and models that play in them, do not support elastic jobs: a network does not see how many tasks a job may have",
            hint="omit --elastic, or min_tasks and max_tasks in the log",
        )
    empty = len(workload) == 0
    if empty:  # the engine needs at least one job; with num_jobs = 0 it is never read
        workload = Workload(submit=np.zeros(1), runtime=np.zeros(1), num_tasks=np.ones(1, np.int32), cpu_milli=np.ones(1, np.int32))
        estimate = np.zeros(1)
        circumstances = replace(circumstances, conditions=PERFECT)
    runtime, killed = limited_runtime(workload, circumstances.kill_at_limit)
    until = np.inf if settings.never_cut else _horizon(workload, cluster, settings, runtime)
    failures = most_failures(workload, cluster, circumstances.conditions, until)
    check_log_size(workload, cluster, failures, circumstances.room_for_stops(settings, len(workload)))
    rules = rules_after(circumstances.start, make_rules(workload, cluster, settings, estimate, circumstances, failures))
    rules, world, machine, state = _lay_out_engine(workload, cluster, rules, settings, estimate, runtime, circumstances)
    if empty:
        world.sizes.num_jobs = 0
        workload, estimate, runtime, killed = workload.take(slice(0, 0)), estimate[:0], runtime[:0], killed[:0]
    users = int(workload.user.max(initial=-1)) + 1
    task = _task(workload, cluster, settings, layout, estimate, runtime, world, circumstances)
    episode_state = _episode_state(world, settings, layout, users)
    if circumstances.start is not None:
        state = start_episode(circumstances.start, circumstances.usage, workload, world, machine, state, task, episode_state)
    return Episode(workload, estimate, circumstances, killed, rules, world, task, machine, state, episode_state)


def _episode_state(world: World, settings: TaskSettings, layout: ObservationLayout, users: int) -> EpisodeState:
    num_jobs, num_classes, num_nodes = int(world.sizes.num_jobs), int(world.sizes.num_classes), int(world.sizes.num_nodes)
    lengths = {
        "terms": rewards.NUM_TERMS, "resources": columns.RESOURCES, "job_slots": num_jobs + 1, "nodes": num_nodes, "window": layout.window,
        "classes": num_classes, "class_live": NUM_CLASS_LIVE, "users": users + 1, "outlook": OUTLOOK_SIZE,
        "units": layout.units, "sorted_units": layout.units if settings.lookahead == "sorted" else 1,
        "touched_words": num_nodes // columns.TOUCHED_BITS + 1,
        "pooled_classes": num_classes if layout.view == "rltune" else 1, "pool_values": published.POOL_VALUES,
        "stop_slots": max(layout.stops, 1), "stopped_jobs": num_jobs + 1 if world.policy.can_restart else 1,
    }  # fmt: skip
    return EpisodeState.allocate(lengths)


def _task(
    workload: Workload, cluster: Cluster, settings: TaskSettings, layout: ObservationLayout, estimate: F64, runtime: F64, world: World,
    circumstances: Circumstances,
) -> Task:  # fmt: skip
    resource = main_resource(cluster)
    amount, node_amount = _amounts(workload, cluster)
    capacity = float(node_amount.sum()) or 1.0
    can_run = world.job_class[: len(workload)] >= 0
    work = workload.size * runtime
    horizon, shown_horizon = (_horizon(workload, cluster, settings, seconds, can_run) for seconds in (runtime, estimate))
    first = _beginning(workload, circumstances)
    own = can_run.copy()
    own[: circumstances.first_own(workload)] = False
    base = _base_value(workload, cluster, settings, estimate, circumstances)
    divisors = {
        "jobs": float(own.sum()), "work": float(work[own].sum()), "span": horizon - first,
        "horizon": horizon - (0.0 if workload.generated else first),
        "priority": float(workload.priority[own].sum()), "time_scale": settings.time_scale_s, "baseline": max(base),
    }  # fmt: skip
    flops = utilisation.node_tflops(cluster)
    units = cluster.node_gpus if cluster.num_gpus else np.ones(cluster.num_nodes, np.int64)
    score, score_kind, facts = scores_of_orders(workload, cluster, settings, estimate, circumstances.seed)
    weight = rewards.weights(settings.reward, divisors)
    config = _config(settings, layout, resource, circumstances)
    config.num_users = int(workload.user.max(initial=-1)) + 1
    config.has_deadlines = int((workload.deadline < np.inf).any())
    config.num_weighted = int(np.count_nonzero(weight))
    config.observation_view = VIEWS.index(settings.view)
    config.one_instant = int(circumstances.one_instant)
    prices = energy.prices_per_kwh(circumstances.conditions.power)
    config.has_prices = int(prices is not None)
    lengths = {
        "resources": columns.RESOURCES, "terms": len(weight), "some_jobs": max(len(workload), 1), "nodes": cluster.num_nodes,
        "node_bounds": cluster.num_nodes + 1, "hours": HOURS_OF_DAY,
    }  # fmt: skip
    return Task.allocate(
        lengths,
        config=config,
        scale=_scale(workload, cluster, settings, horizon, shown_horizon, first, capacity, flops, node_amount, base, circumstances),
        total=np.array(_totals(cluster)),
        weight=weight,
        weighted=np.concatenate([np.flatnonzero(weight), np.zeros(1, np.int64)]),
        token=job_tokens(workload, cluster, _shown_estimate(workload, cluster, settings, estimate, circumstances.seed), world),
        host_token=host_tokens(cluster),
        **_job_columns(workload, amount, work),
        unit_first=np.concatenate([[0], np.cumsum(units)]),
        node_flops=flops,
        node_inverse=_node_inverse(cluster),
        node_amount=node_amount,
        score=score,
        score_kind=score_kind,
        facts=facts,
        published=published.lay_out_view(settings.view, workload, cluster, estimate, settings.time_scale_s),
        class_group=published.pool_groups(world, settings.view),
        **({} if prices is None else {"price": prices}),
    )


def _shown_estimate(workload: Workload, cluster: Cluster, settings: TaskSettings, estimate: F64, seed: int) -> F64:
    """[J] what observations show of the runtimes."""
    return estimate if settings.shown_estimates is None else known_runtimes(workload, cluster, settings.shown_estimates, seed).values


def _beginning(workload: Workload, circumstances: Circumstances) -> float:
    if circumstances.start is not None:
        return circumstances.start.now
    return float(workload.submit[0]) if len(workload) else 0.0


def _job_columns(workload: Workload, amount: F64, work: F64) -> dict[str, Any]:
    if not len(workload):
        return {}
    return {
        "job_size": workload.size,
        "job_amount": amount,
        "job_work": work,
        "priority": workload.priority,
        "deadline": np.where(np.isnan(workload.deadline), np.inf, workload.deadline),
        "job_user": workload.user,
    }


def _totals(cluster: Cluster) -> tuple[float, float, float]:
    """GPU milli, CPU milli and MiB of the cluster, 0 if unlimited."""
    cores = cluster.num_cores * 1000.0 if cluster.num_cores < np.inf else 0.0
    return cluster.num_gpus * 1000.0, cores, cluster.mem_gib * 1024.0 if cluster.mem_gib < np.inf else 0.0


def _node_inverse(cluster: Cluster) -> F64:
    held = np.column_stack([cluster.node_gpus * 1000.0, cluster.node_cpu_milli, cluster.node_mem_mib])
    return np.where(held > 0, 1.0 / np.maximum(held, 1.0), 0.0).ravel()


def _amounts(workload: Workload, cluster: Cluster) -> tuple[F64, F64]:
    """[J] what each job holds of the cluster's main resource, and [N] how much of it each node has (0: none or unlimited)."""
    resource = main_resource(cluster)
    demand = (workload.gpu_milli, workload.cpu_milli, workload.mem_mib)[resource]
    held = (cluster.node_gpus * 1000, cluster.node_cpu_milli, cluster.node_mem_mib)[resource]
    return workload.num_tasks.astype(np.float64) * demand, np.where(held == UNLIMITED, 0, held).astype(np.float64)


def _horizon(workload: Workload, cluster: Cluster, settings: TaskSettings, runtime: F64, can_run: Any = True) -> float:
    """Last submission + factor × the longer of: the time all work takes at full utilisation, the longest runtime."""
    if settings.horizon_factor == np.inf:
        return np.inf
    can_run = np.full(len(workload), True) & can_run
    if not can_run.any():
        return float(workload.submit[-1]) if len(workload) else 0.0
    amount, node_amount = _amounts(workload, cluster)
    busy = float((amount * runtime)[can_run].sum()) / (float(node_amount.sum()) or 1.0)
    longest = float(runtime[can_run].max())
    return float(workload.submit[-1]) + settings.horizon_factor * max(busy, longest)


def _config(settings: TaskSettings, layout: ObservationLayout, resource: int, circumstances: Circumstances) -> TaskConfig:
    config = TaskConfig()
    config.problem = PROBLEMS[settings.problem]
    config.dispatch = DISPATCHES[settings.dispatch] if circumstances.ordering is None else columns.BY_ENGINE
    config.window = layout.window
    config.host_slots = layout.hosts
    config.lookahead = LOOKAHEADS.index(settings.lookahead)
    config.units = layout.units
    config.num_scores = len(layout.scores)
    config.skip_forced = int(settings.skip_forced)
    config.blocking = int(settings.problem == "host" and settings.filling.backfill == "none")
    config.max_steps = columns.NO_CAP if settings.max_steps is None or settings.never_cut else settings.max_steps
    config.terminal = int(settings.pay == "terminal")
    config.relative_to = METRICS[settings.baseline.metric][0] if settings.baseline else columns.NOTHING
    config.resource = resource
    config.stop_slots = layout.stops
    config.move_slots = layout.stops if layout.moves else 0
    config.most_stops = circumstances.most_stops(settings)
    config.jobs_per_limit = settings.jobs_per_limit
    config.one_event = int(settings.one_event)
    config.wait_action = num_actions(settings, layout) - 1
    return config


def _scale(
    workload: Workload, cluster: Cluster, settings: TaskSettings, horizon: float, shown_horizon: float, first: float, capacity: float,
    flops: F64, node_amount: F64, base: tuple[float, float], circumstances: Circumstances,
) -> Scale:  # fmt: skip
    scale = Scale()
    scale.horizon = np.inf if settings.never_cut else horizon
    scale.shown_horizon = shown_horizon
    scale.time_scale = settings.time_scale_s
    scale.epoch = workload.epoch
    scale.decay = settings.discount_per_s
    scale.capacity = capacity
    scale.all_flops = float(cluster.node_gpus @ flops) or 1.0
    scale.idle_watts = energy.idle_watts(cluster)
    scale.first_time = first
    scale.began = -np.inf if circumstances.start is None else circumstances.start.now
    scale.num_loaded = float((node_amount > 0).sum())
    scale.base_value, scale.least_value = base
    return scale


def _base_value(
    workload: Workload, cluster: Cluster, settings: TaskSettings, estimate: F64, circumstances: Circumstances
) -> tuple[float, float]:
    """The baseline's figure for the window's own jobs, 0 without a baseline or jobs; and the least that ratios count."""
    if settings.baseline is None:
        return 0.0, 1.0
    metric = settings.baseline.metric
    least = LEAST_TIME_S if metric in ("wait", "jct") else 1.0
    if not len(workload):
        return 0.0, least
    schedule = simulate(
        workload, cluster, settings.complete(settings.baseline.policy), dispatch="commit" if settings.dispatch == "commit" else "reorder",
        estimates=Estimates(estimate, guessed=circumstances.guessed), kill_at_limit=circumstances.kill_at_limit,
        conditions=circumstances.conditions, start=circumstances.start,
    )  # fmt: skip
    first_own = circumstances.first_own(workload)
    if not schedule.finished[first_own:].any():
        return 0.0, least
    return METRICS[metric][1](measure.measure_from(schedule, first_own)), least
