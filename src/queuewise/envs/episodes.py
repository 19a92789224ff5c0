"""Episodes: which jobs are played, and everything of an episode that does not change while it is played.

A `Source` draws windows (one random number each, so equal seeds play equal windows whatever else happens); `lay_out_episode` turns a
window into the arrays kernels read, and into templates from which envs are reset by copying bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.envs import published, rewards, table
from queuewise.envs.features import LONGEST_S, LOOKAHEADS, NUM_CLASS_LIVE, NUM_JOB_FIXED, VIEWS, Layout
from queuewise.envs.settings import TaskSettings
from queuewise.envs.table import F32, F64, Play, Task
from queuewise.errors import InputError
from queuewise.evaluation import energy, measure, usage
from queuewise.evaluation.protocol import BLOCK_SEEDS, block_jobs
from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.ordering import Jobs, order_rule
from queuewise.policies.placing import parse_placement
from queuewise.policies.replay import simulate
from queuewise.sim import state as engine
from queuewise.sim.facts import job_facts
from queuewise.sim.rules import Rules
from queuewise.sim.setup import lay_out
from queuewise.sim.state import FACTS, Machine, State, World
from queuewise.workload.estimates import estimate as estimate_runtimes
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate, is_model, model_parameters

PROBLEMS = {"job": table.JOB, "host": table.HOST, "joint": table.JOINT}
MANY_TASKS = 1024.0  # as many tasks are shown as 1
METRICS: dict[str, tuple[int, Callable[[measure.Measurement], float]]] = {
    "wait": (table.WAIT_MEAN, lambda m: float(measure.wait(m).mean())),
    "jct": (table.JCT_MEAN, lambda m: float(measure.jct(m).mean())),
    "slowdown": (table.SLOWDOWN_MEAN, lambda m: float(measure.slowdown(m).sum() / max(m.rows.size, 1))),
    "bounded_slowdown": (table.BOUNDED_SLOWDOWN_MEAN, lambda m: float(measure.bounded_slowdown(m).mean())),
    "utilisation": (table.UTILISATION_MEAN, lambda m: -float(usage.gpu_utilisation(m) or usage.cpu_utilisation(m) or 0.0)),
}


@dataclass(frozen=True, eq=False)
class Episode:
    """A window laid out. `machine`, `state` and `play` are templates: envs copy them."""

    workload: Workload
    estimate: F64
    rules: Rules
    world: World
    task: Task
    machine: Machine
    state: State
    play: Play


class Source:
    """Where windows come from. `size` is how many there are; `draw` picks one of them."""

    size: int

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.size))

    def window(self, number: int) -> tuple[Workload, F64]:
        """The jobs of a window and what is known of their runtimes."""
        raise NotImplementedError


class ModelSource(Source):
    """Every window is drawn from a workload model with a seed of its own, out of the block's range of seeds."""

    def __init__(self, name: str, cluster: Cluster, jobs: int | None, block: str, estimates: str, pool: int | None, args: dict[str, Any]):
        self._name, self._jobs, self._estimates, self._seeds = name, jobs, estimates, BLOCK_SEEDS[block]
        sizes = {"gpus": cluster.num_gpus, "cores": cluster.num_cores}
        known = model_parameters(name)
        fitting = {key: int(value) for key, value in sizes.items() if key in known and 0 < value < np.inf}
        self._args = fitting | args
        self.size = min(pool or len(self._seeds), len(self._seeds))

    def window(self, number: int) -> tuple[Workload, F64]:
        workload = generate(self._name, self._jobs, self._seeds[number], **self._args)
        return workload, estimate_runtimes(workload, self._estimates, self._seeds[number]).values


class LogSource(Source):
    """Windows of consecutive jobs of one block of a log; `jobs=None` is the whole block, `block=None` the whole log."""

    def __init__(self, workload: Workload, jobs: int | None, block: str | None, estimates: str, pool: int | None) -> None:
        self._workload = workload
        self._estimate = estimate_runtimes(workload, estimates).values if len(workload) else np.zeros(0)
        self._rows = range(len(workload)) if block is None else block_jobs(workload)[block]
        self._jobs = len(self._rows) if jobs is None else jobs
        if self._jobs > len(self._rows):
            raise InputError(
                f"an episode of {self._jobs} jobs does not fit into {len(self._rows)} jobs", hint="give a smaller number of jobs, or None"
            )
        windows = len(self._rows) - self._jobs + 1
        self.size = min(pool or windows, windows)
        self._step = max(windows // self.size, 1)

    def window(self, number: int) -> tuple[Workload, F64]:
        first = self._rows.start + number * self._step
        rows = slice(first, first + self._jobs)
        return self._workload.take(rows), self._estimate[rows]


class ListSource(Source):
    """Given windows."""

    def __init__(self, workloads: Sequence[Workload], estimates: str) -> None:
        self._workloads, self._estimates = workloads, estimates
        self.size = len(workloads)

    def window(self, number: int) -> tuple[Workload, F64]:
        workload = self._workloads[number]
        return workload, estimate_runtimes(workload, self._estimates).values if len(workload) else np.zeros(0)


def make_source(
    workload: str | Workload | Sequence[Workload],
    cluster: Cluster,
    settings: TaskSettings,
    *,
    jobs: int | None,
    block: str | None,
    pool: int | None,
    model_args: dict[str, Any] | None,
) -> Source:
    """A source for a model's name, the path of a log, a workload, or a list of windows. `pool` limits the number of different windows."""
    if isinstance(workload, str):
        if is_model(workload):
            return ModelSource(workload, cluster, jobs, block or "train", settings.estimates, pool, model_args or {})
        from queuewise.workload import load_workload

        return LogSource(load_workload(workload).workload, jobs, block, settings.estimates, pool)
    if isinstance(workload, Workload):
        return LogSource(workload, jobs, block, settings.estimates, pool)
    if not len(workload):
        raise InputError("the list of windows is empty", hint="give at least one workload")
    return ListSource(workload, settings.estimates)


def main_resource(cluster: Cluster) -> int:
    """What utilisation is measured in: GPUs, otherwise cores, otherwise memory."""
    if cluster.num_gpus:
        return engine.BY_GPU
    return engine.BY_CPU if cluster.num_cores < np.inf else engine.BY_MEM


def num_units(cluster: Cluster) -> int:
    return cluster.num_gpus or cluster.num_nodes


def num_actions(settings: TaskSettings, layout: Layout) -> int:
    """Of the first choice of an action: a host, or a job of the window, one to preempt, one to migrate; the wait is the last."""
    if settings.problem == "host":
        return layout.hosts + 1
    return layout.window + layout.stops * (2 if settings.moves else 1) + 1


def make_rules(workload: Workload, settings: TaskSettings, estimate: F64) -> Rules:
    """The policy's numbers by which the engine places jobs, orders the window and fills the shade."""
    order = order_rule(settings.window_order)
    if order.fixed is None:
        raise InputError(
            f"window_order {settings.window_order!r} changes with time",
            hint="the window needs an order that does not: fcfs, sjf, priority, …",
        )
    rule, option = parse_placement(settings.placement if settings.problem == "job" else "pack")
    commits = settings.dispatch == "commit"
    return Rules(
        order=order.make(Jobs(workload, estimate, 0)),
        backfill=BACKFILLS[settings.backfill].code if commits else engine.NO_BACKFILL,
        rule=rule,
        rule_option=option,
        dispatch=engine.COMMIT if commits else engine.REORDER,
        stops=settings.most_stops if settings.stops else 0,
    )


def lay_out_episode(workload: Workload, cluster: Cluster, settings: TaskSettings, layout: Layout, estimate: F64) -> Episode:
    if workload.is_elastic.any():
        raise InputError("environments know no elastic jobs", hint="leave out --elastic, or min_tasks and max_tasks in the log")
    empty = len(workload) == 0
    if empty:  # the engine lays out at least one job; with a size of zero nobody ever looks at it
        workload = Workload(submit=np.zeros(1), runtime=np.zeros(1), num_tasks=np.ones(1, np.int32), cpu_milli=np.ones(1, np.int32))
        estimate = np.zeros(1)
    rules = make_rules(workload, settings, estimate)
    conditions = Conditions(preemption=settings.stopping)
    world, machine, state = lay_out(workload, cluster, rules, runtime=workload.runtime, estimate=estimate, conditions=conditions)
    world.policy[engine.UNQUEUED] = int(rules.backfill == engine.NO_BACKFILL)  # Play.waiting is queue enough
    if empty:
        world.sizes[engine.NUM_JOBS] = 0
        workload, estimate = workload.take(slice(0, 0)), estimate[:0]
    users = int(workload.user.max(initial=-1)) + 1
    task = _task(workload, cluster, settings, layout, estimate, world)
    return Episode(workload, estimate, rules, world, task, machine, state, _play(world, settings, layout, users))


def _play(world: World, settings: TaskSettings, layout: Layout, users: int) -> Play:
    num_jobs, num_classes, num_nodes = (int(world.sizes[i]) for i in (engine.NUM_JOBS, engine.NUM_CLASSES, engine.NUM_NODES))
    pools = num_classes if layout.view == "rltune" else 1
    return Play(
        number=np.zeros(table.NUMBER_SIZE, np.int64),
        scalar=np.zeros(table.SCALAR_SIZE),
        term=np.zeros(rewards.NUM_TERMS),
        waiting=np.zeros(num_jobs + 1, np.int32),
        running=np.zeros(num_jobs + 1, np.int32),
        running_end=np.zeros(num_jobs + 1),
        class_stamp=np.zeros(num_classes, np.int64),
        class_live=np.zeros(num_classes * NUM_CLASS_LIVE, np.float32),
        node_until=np.full(num_nodes, table.FREE),
        node_load=np.zeros(num_nodes),
        unit_until=np.full(layout.units, table.FREE),
        unit_sorted=np.full(layout.units if settings.lookahead == "sorted" else 1, table.FREE),
        touched=np.zeros(num_nodes // table.TOUCHED_BITS + 1, np.int64),
        row_job=np.zeros(layout.window, np.int32),
        row_class=np.zeros(layout.window, np.int32),
        row_submit=np.zeros(layout.window),
        usage=np.zeros(users + 1),
        user_slowdown=np.zeros(users + 1),
        user_ended=np.zeros(users + 1),
        score=np.zeros(layout.window),
        order=np.zeros(engine.OUTLOOK_SIZE),
        class_pool_stamp=np.zeros(pools, np.int64),
        class_pool=np.zeros(pools * published.POOL_VALUES),
        group_demand=np.zeros(pools),
        stop_job=np.zeros(max(layout.stops, 1), np.int32),
        served=np.zeros(num_jobs + 1 if layout.stops else 1),
    )


def _task(workload: Workload, cluster: Cluster, settings: TaskSettings, layout: Layout, estimate: F64, world: World) -> Task:
    resource = main_resource(cluster)
    demand = (workload.gpu_milli, workload.cpu_milli, workload.mem_mib)[resource]
    amount = workload.num_tasks.astype(np.float64) * demand
    held = (cluster.node_gpus * 1000, cluster.node_cpu_milli, cluster.node_mem_mib)[resource]
    node_amount = np.where(held == UNLIMITED, 0, held).astype(np.float64)
    capacity = float(node_amount.sum()) or 1.0
    can_run = world.job_class[: len(workload)] >= 0
    work = workload.size * workload.runtime
    horizon = _horizon(workload, settings, amount, capacity, can_run)
    first = float(workload.submit[0]) if len(workload) else 0.0
    divisors = {
        "jobs": float(can_run.sum()), "work": float(work[can_run].sum()), "span": horizon - first,
        "priority": float(workload.priority[can_run].sum()), "time_scale": settings.time_scale_s,
    }  # fmt: skip
    flops = usage.node_tflops(cluster)
    units = cluster.node_gpus if cluster.num_gpus else np.ones(cluster.num_nodes, np.int64)
    score, score_kind, facts = _scores(workload, settings, estimate)
    rows = np.zeros(max(len(workload), 1), table.TASK_ROW)
    rows["deadline"] = np.inf
    columns = (
        workload.size,
        amount,
        work,
        workload.priority,
        np.where(np.isnan(workload.deadline), np.inf, workload.deadline),
        workload.user,
    )
    for name, column in zip(table.TASK_ROW.names or (), columns, strict=True):
        rows[name][: len(workload)] = column
    weight = rewards.weights(settings.reward, divisors)
    config = _config(settings, layout, resource)
    config[table.NUM_USERS] = int(workload.user.max(initial=-1)) + 1
    config[table.DEADLINES] = int((rows["deadline"] < np.inf).any())
    config[table.NUM_WEIGHTED] = np.count_nonzero(weight)
    config[table.VIEW] = VIEWS.index(settings.view)
    return Task(
        config=config,
        scale=_scale(workload, cluster, settings, horizon, first, capacity, flops, node_amount, estimate),
        weight=weight,
        weighted=np.concatenate([np.flatnonzero(weight), np.zeros(1, np.int64)]),
        token=_job_tokens(workload, cluster, estimate, world),
        host_token=_host_tokens(cluster),
        **{name: rows[name] for name in table.TASK_ROW.names or ()},
        unit_first=np.concatenate([[0], np.cumsum(units)]).astype(np.int64),
        node_flops=flops,
        node_inverse=_node_inverse(cluster),
        node_amount=node_amount,
        score=score,
        score_kind=score_kind,
        facts=facts,
        published=published.lay_out_view(settings.view, workload, cluster, estimate, settings.time_scale_s),
        class_group=published.pool_groups(world, settings.view),
    )


def _node_inverse(cluster: Cluster) -> F64:
    held = np.column_stack([cluster.node_gpus * 1000.0, cluster.node_cpu_milli, cluster.node_mem_mib])
    return np.where(held > 0, 1.0 / np.maximum(held, 1.0), 0.0).ravel()


def _at_least_one(column: Any) -> F64:
    """A contiguous float64 column of length one or more."""
    return np.ascontiguousarray(column, np.float64) if len(column) else np.zeros(1)


def _horizon(workload: Workload, settings: TaskSettings, amount: F64, capacity: float, can_run: Any) -> float:
    """Last submission + factor × what all the work takes at full use, or what the longest job takes."""
    if not can_run.any():
        return float(workload.submit[-1]) if len(workload) else 0.0
    busy = float((amount * workload.runtime)[can_run].sum()) / capacity
    longest = float(workload.runtime[can_run].max())
    return float(workload.submit[-1]) + settings.horizon_factor * max(busy, longest)


def _config(settings: TaskSettings, layout: Layout, resource: int) -> Any:
    config = np.zeros(table.CONFIG_SIZE, np.int64)
    config[table.PROBLEM] = PROBLEMS[settings.problem]
    config[table.DISPATCH] = table.COMMIT if settings.dispatch == "commit" else table.MASK
    config[table.WINDOW] = layout.window
    config[table.HOST_SLOTS] = layout.hosts
    config[table.LOOKAHEAD] = LOOKAHEADS.index(settings.lookahead)
    config[table.UNITS] = layout.units
    config[table.NUM_SCORES] = len(layout.scores)
    config[table.SKIP_FORCED] = int(settings.skip_forced)
    config[table.BLOCKING] = int(settings.problem == "host" and settings.backfill == "none")
    config[table.MAX_STEPS] = table.NO_CAP if settings.max_steps is None else settings.max_steps
    config[table.TERMINAL] = int(settings.pay == "terminal")
    config[table.RELATIVE_TO] = METRICS[settings.baseline.metric][0] if settings.baseline else table.NOTHING
    config[table.RESOURCE] = resource
    config[table.STOP_SLOTS] = layout.stops
    config[table.MOVE_SLOTS] = layout.stops if settings.moves else 0
    config[table.MOST_STOPS] = settings.most_stops
    config[table.WAIT_ACTION] = num_actions(settings, layout) - 1
    return config


def _scale(
    workload: Workload, cluster: Cluster, settings: TaskSettings, horizon: float, first: float, capacity: float,
    flops: F64, node_amount: F64, estimate: F64,
) -> F64:  # fmt: skip
    scale = np.zeros(table.SCALE_SIZE)
    scale[table.HORIZON] = horizon
    scale[table.TIME_SCALE] = settings.time_scale_s
    scale[table.EPOCH] = workload.epoch
    scale[table.DECAY] = settings.discount_per_s
    scale[table.ALL_GPU] = cluster.num_gpus * 1000.0
    scale[table.ALL_CPU] = cluster.num_cores * 1000.0 if cluster.num_cores < np.inf else 0.0
    scale[table.ALL_MEM] = cluster.mem_gib * 1024.0 if cluster.mem_gib < np.inf else 0.0
    scale[table.CAPACITY] = capacity
    scale[table.ALL_FLOPS] = float(cluster.node_gpus @ flops) or 1.0
    scale[table.IDLE_WATTS] = energy.idle_watts(cluster)
    scale[table.FIRST_SUBMIT] = first
    scale[table.NUM_LOADED] = float((node_amount > 0).sum())
    if settings.baseline and len(workload):
        schedule = simulate(workload, cluster, settings.baseline.policy, dispatch=_baseline_dispatch(settings), estimates=estimate)
        if schedule.finished.any():
            scale[table.BASE_VALUE] = METRICS[settings.baseline.metric][1](measure.measure(schedule))
    return scale


def _baseline_dispatch(settings: TaskSettings) -> str:
    return "commit" if settings.dispatch == "commit" else "reorder"


def _scores(workload: Workload, settings: TaskSettings, estimate: F64) -> tuple[F64, Any, Any]:
    """Scores of the heuristics that are features: fixed ones as numbers, live ones as facts to score by."""
    jobs = Jobs(workload, estimate, 0)
    rules = [order_rule(name) for name in settings.scores]
    if unfit := [name for name, rule in zip(settings.scores, rules, strict=True) if rule.fair]:
        raise InputError(f"the score {unfit[0]!r} depends on what users have had and cannot be a feature", hint="take another order")
    fixed = [rule.fixed(jobs) if rule.fixed is not None else np.zeros(len(workload)) for rule in rules]
    kinds = np.array([-1 if rule.fixed is not None else rule.live for rule in rules] or [-1], np.int64)
    live = (kinds >= 0).any() and len(workload) > 0
    facts = job_facts(workload, estimate, None, np.ones(len(workload))) if live else np.zeros(1, FACTS)
    return _at_least_one(np.concatenate(fixed) if fixed else np.zeros(1)), kinds, facts


def _share(values: Any, most: float) -> F64:
    return np.minimum(np.asarray(values, np.float64) / most, 1.0) if most > 0 else np.zeros(len(values))


def _limited_max(amounts: Any) -> float:
    limited = amounts[amounts != UNLIMITED]
    return float(limited.max(initial=0))


def _job_tokens(workload: Workload, cluster: Cluster, estimate: F64, world: World) -> F32:
    """[J*S] what is known of every job and never changes."""
    num = len(workload)
    if num == 0:
        return np.zeros(NUM_JOB_FIXED, np.float32)
    pools = np.bincount(world.node_pool)
    allowed = world.class_allows.reshape(-1, len(pools)) @ pools / cluster.num_nodes
    total = float(cluster.num_gpus or (cluster.num_cores if cluster.num_cores < np.inf else 0) or cluster.num_nodes)
    columns = {
        "present": np.ones(num),
        "estimate": _share(np.log1p(estimate), float(np.log1p(LONGEST_S))),
        "size": _share(workload.size, total),
        "tasks": _share(np.log1p(workload.num_tasks), float(np.log1p(MANY_TASKS))),
        "gpu": _share(workload.gpu_milli, float(cluster.node_gpus.max()) * 1000.0),
        "cpu": _share(workload.cpu_milli, _limited_max(cluster.node_cpu_milli)),
        "mem": _share(workload.mem_mib, _limited_max(cluster.node_mem_mib)),
        "priority": workload.priority / (np.abs(workload.priority) + 1.0),
        "allowed": np.where(world.job_class >= 0, allowed[world.job_class], 0.0),
    }
    return np.ascontiguousarray(np.column_stack(list(columns.values())), np.float32).ravel()


def _host_tokens(cluster: Cluster) -> F32:
    """[N*S] what never changes of every node."""
    columns = {
        "host_present": np.ones(cluster.num_nodes),
        "gpu_total": _share(cluster.node_gpus, float(cluster.node_gpus.max())),
        "cores_norm": np.where(
            cluster.node_cpu_milli == UNLIMITED, 0.0, _share(cluster.node_cpu_milli, _limited_max(cluster.node_cpu_milli))
        ),
        "mem_norm": np.where(cluster.node_mem_mib == UNLIMITED, 0.0, _share(cluster.node_mem_mib, _limited_max(cluster.node_mem_mib))),
        "kind": (cluster.node_kind + 1) / max(len(cluster.kinds), 1),
        "speed": usage.per_node(cluster, list(cluster.speed)) / max(float(cluster.speed.max(initial=0.0)), 1e-9),
    }
    return np.ascontiguousarray(np.column_stack(list(columns.values())), np.float32).ravel()
