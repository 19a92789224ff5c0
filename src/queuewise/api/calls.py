"""The functions of `queuewise`: `simulate`, `simulate_many`, `evaluate`, `compare`, `validate`, `report`, `train`, `name_policy`.

They do what the commands of the same names do, and return objects. Names are taken wherever objects are (`given`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from queuewise.api.checked_options import as_count, as_estimates, as_same, check_types, check_windows, in_python_words
from queuewise.api.given import (
    GivenCluster,
    GivenPolicy,
    GivenWorkload,
    OnePolicy,
    as_cluster,
    as_conditions,
    as_log,
    as_policies,
    as_policy,
    wrong_type,
)
from queuewise.api.replays import Schedules
from queuewise.api.written_functions import without_cache, write_function, written_files
from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError, optional_imports, unknown_name
from queuewise.evaluation import log_validation, many
from queuewise.evaluation.experiment import Cell, run_experiment
from queuewise.evaluation.judging import Result, judge
from queuewise.evaluation.planning import PlanOptions, plan_experiment
from queuewise.evaluation.results import join_runs, write_results
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.seen_days import find_seen
from queuewise.evaluation.statistics import SAME
from queuewise.evaluation.units import check_score
from queuewise.policies import replaying
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.policies.snapshot import Snapshot
from queuewise.reading import args_on_cluster
from queuewise.runs import write_text
from queuewise.sim.core.schedule import Schedule
from queuewise.workload import Loaded, load_workload
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Floats, Workload

if TYPE_CHECKING:
    from queuewise.agents.training import ProgressListener, TrainOutcome

GivenConditions = Conditions | str | os.PathLike[str] | None


@overload
def simulate(workload: GivenWorkload, cluster: GivenCluster, policy: list[Any] | tuple[Any, ...], **options: Any) -> Schedules: ...
@overload
def simulate(workload: GivenWorkload, cluster: GivenCluster = None, policy: Any = None, **options: Any) -> Schedule: ...
@in_python_words  # type: ignore[misc]  # the options are spelt out here, for help and for errors
def simulate(
    workload: GivenWorkload,
    cluster: GivenCluster = None,
    policy: OnePolicy | Sequence[OnePolicy] | None = None,
    *,
    jobs: int | None = None,
    dispatch: str = "reorder",
    estimates: str | Sequence[float] | Floats | Estimates | None = None,
    seed: int = 0,
    kill_at_limit: bool = False,
    conditions: GivenConditions = None,
    max_wait: str | None = None,
    params: Sequence[float] | None = None,
    start: Snapshot | None = None,
    budgets: Budgets = USUAL_BUDGETS,
) -> Schedule | Schedules:
    """Replay a workload under a policy and return its schedule; under a list of policies, return `Schedules` by name.

    `workload` is a path, the name of a model, a data frame or a Workload. `cluster` is a name, a file or a Cluster; None is that of the
    log. `policy` is a name, a function that scores a job (the least goes first), a class with `decide`, or a list of these.

    `jobs` takes the first so many jobs, or draws them from a model. `estimates` names what policies know about runtimes, or is an array
    [J] of seconds; by default it is requested, predicted or oracle, as the log has it. `conditions` is a file or Conditions. `max_wait`,
    for example "3d", bounds the waits under policies without a bound. `params` are numbers for the policy's own function. With a snapshot
    as `start`, the replay begins with its jobs. `budgets` limit the work of policies that solve or plan.
    """
    if policy is None:
        raise InputError("no policy is given", hint="for example simulate('bursty', '4x8:V100-16', 'sjf+easy')")
    check_types(budgets=budgets, kill_at_limit=kill_at_limit, start=start)
    policies, estimates = as_policies(policy), as_estimates(estimates)
    log = as_log(workload, jobs, seed)
    machine, known = as_cluster(cluster, log), as_conditions(conditions, log.workload)

    def replay(one: GivenPolicy) -> Schedule:
        schedule = replaying.simulate(
            log.workload, machine, one.for_replay(), dispatch=dispatch, estimates=estimates, seed=seed, kill_at_limit=kill_at_limit,
            conditions=known, max_wait=max_wait, params=params, start=start, budgets=budgets,
        )  # fmt: skip
        return schedule if schedule.policy == one.label else dataclasses.replace(schedule, policy=one.label)

    if isinstance(policy, list | tuple):
        return Schedules((one.label, replay(one)) for one in policies)
    return replay(policies[0])


@in_python_words
def simulate_many(
    workload: GivenWorkload,
    cluster: GivenCluster,
    candidates: Sequence[str | Callable[..., Any] | tuple[str | Callable[..., Any], Iterable[float]]],
    *,
    windows: Sequence[tuple[int, int]],
    jobs: int | None = None,
    start: Literal["empty"] | Sequence[Snapshot] = "empty",
    dispatch: str = "reorder",
    estimates: str | Floats | Estimates | None = None,
    conditions: GivenConditions = None,
    kill_at_limit: bool = False,
    seed: int = 0,
    max_wait: str | None = None,
    threads: int | None = None,
    per_job: bool = False,
) -> many.ManyReplays:
    """Replay every window `(first_job, num_jobs)` of the workload under every candidate, on all cores.

    A candidate is a policy, or `(policy, params)` with the parameters of its score function. See `queuewise.evaluation.many` for the
    options and the figures that are returned.
    """
    check_types(kill_at_limit=kill_at_limit)
    check_windows(windows)
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise InputError(f"candidates is {candidates!r:.60}", hint="pass a list, for example ['fcfs', 'sjf+easy']")
    log = as_log(workload, jobs, seed)

    def name(one: Any) -> Any:
        if isinstance(one, tuple) and len(one) == 2 and not isinstance(one[0], str):
            return name(one[0]), one[1]
        if isinstance(one, str | tuple):
            return one
        if (named := as_policy(one).name) is None:
            raise InputError(
                f"{one!r} decides in Python, which simulate_many cannot", hint="pass names or score functions, or use simulate"
            )
        return named

    return many.simulate_many(
        log.workload, as_cluster(cluster, log), [name(one) for one in candidates], windows=windows, start=start, dispatch=dispatch,
        estimates=as_estimates(estimates), conditions=as_conditions(conditions, log.workload), kill_at_limit=kill_at_limit, seed=seed,
        max_wait=max_wait, threads=threads, per_job=per_job,
    )  # fmt: skip


@in_python_words
def evaluate(
    workload: GivenWorkload,
    cluster: GivenCluster,
    policies: OnePolicy | Sequence[OnePolicy],
    *,
    score: str | None = None,
    jobs: int | None = None,
    seed: int = 0,
    conditions: GivenConditions = None,
    same: float | str = SAME,
    threads: int | None = None,
    out: str | os.PathLike[str] | None = None,
    seen: bool = False,
    on_cell: Callable[[Cell], None] = lambda cell: None,
    **plan: Any,
) -> Result:
    """Compare policies on the same days or windows of a workload, with 95 % confidence intervals.

    Logs are compared day by day on their last part, models on random windows, unless `protocol` says otherwise. `plan` are the other
    options of `queuewise evaluate`: protocol, windows, window_jobs, block, split, shakes, estimates, dispatch, max_wait and so on
    (`queuewise.evaluation.planning.PlanOptions`). `out` writes a run folder and resumes one that was interrupted.
    """
    known = [field.name for field in dataclasses.fields(PlanOptions) if field.name not in ("conditions", "seed")]
    if unknown := [name for name in plan if name not in known]:
        raise unknown_name(
            "option of evaluate", unknown[0], [*known, "score", "jobs", "seed", "conditions", "same", "threads", "out", "seen"]
        )
    check_types(score=score, budgets=plan.get("budgets", USUAL_BUDGETS), kill_at_limit=plan.get("kill_at_limit", False))
    threads, same = as_count("threads", threads), as_same(same)
    counts: dict[str, Any] = {name: as_count(name, plan[name]) for name in ("windows", "window_jobs", "shakes") if name in plan}
    given = as_policies(policies)
    log = as_log(workload, jobs, seed)
    options = PlanOptions(**plan | counts, seed=seed, conditions=as_conditions(conditions, log.workload))
    names = [one.label if one.name is None else without_cache(one.name) for one in given]
    full_names = {name: one.name for name, one in zip(names, given, strict=True) if one.name is not None}
    machine = as_cluster(cluster, log)

    def draw(number: int, window_seed: int) -> Workload:
        return load_workload(log.source, jobs=number, seed=window_seed, args=args_on_cluster(log.source, machine)).workload

    experiment = plan_experiment(log.workload, machine, [one.name for one in given if one.name], options, draw if log.from_model else None)
    wanted = parse_score(score or ("packed" if experiment.plan.protocol == "packing" else "bsld"))
    if experiment.plan.protocol == "days":
        check_score(wanted)
    found = find_seen(names, experiment.workload, log.source, None, experiment.plan.counted(len(experiment.workload)))
    if not seen and not experiment.workload.generated:
        found.refuse()
    makers = {one.label: one.make for one in given if one.make is not None}
    own = [one.label for name, one in zip(names, given, strict=True) if one.label != name or one.make is not None]

    def simulator(part: Workload, nodes: Any, name: str, **settings: Any) -> Schedule:
        schedule = replaying.simulate(part, nodes, makers[name]() if name in makers else full_names[name], **settings)
        return dataclasses.replace(schedule, policy=name)

    folder = None if out is None else Path(out)
    files = _files_to_keep(given) if folder is not None else []
    cells = run_experiment(
        experiment, names, simulator, folder=folder, on_cell=on_cell, threads=threads, seen=tuple(found.seen), full_names=full_names
    )
    if not any(cell.metrics["completed"] for cell in cells):
        raise InputError(
            f"no job that counts can run on {experiment.cluster.name}", hint="; ".join(cells[0].rejections) or "check the cluster"
        )
    labels = dict(zip(names, [one.label for one in given], strict=True))
    result = judge([cell.renamed(labels[cell.policy]) for cell in cells], wanted, same=same, own=own)
    if folder is not None:
        for file in files:
            write_text(folder / file.name, file.read_text(encoding="utf-8"))
        write_results(folder, cells, judge(cells, wanted, same=same))
    return result


def _files_to_keep(policies: Iterable[GivenPolicy]) -> list[Path]:
    """The files of functions that go into a run folder, so that the names of its policies refer to something."""
    files: dict[str, Path] = {}
    for one in policies:
        if one.name is None:
            raise InputError(f"{one.label} has no file, so its run cannot be kept", hint="write it to a file and pass 'FILE.py:NAME'")
        for file in written_files(one.name):
            if files.setdefault(file.name, file) != file:
                raise InputError(f"two functions are called {file.stem}", hint="give them different names")
    return list(files.values())


@in_python_words
def compare(*runs: str | os.PathLike[str], score: str = "bsld", same: float | str = SAME) -> Result:
    """Compare the policies of run folders that `evaluate` wrote for the same days or windows."""
    if not runs or not all(isinstance(run, str | os.PathLike) for run in runs):
        raise InputError("compare needs run folders", hint="for example compare('runs/a', 'runs/b'), which evaluate(…, out=…) wrote")
    check_types(score=score)
    return judge(join_runs([Path(run) for run in runs]), parse_score(score), same=as_same(same))


@in_python_words
def validate(
    log: GivenWorkload,
    cluster: GivenCluster = None,
    policy: str | None = None,
    *,
    conditions: GivenConditions = None,
    **options: Any,
) -> log_validation.Validation:
    """Replay a log and compare the waits with those that it records. See `queuewise.evaluation.log_validation.validate`."""
    if not isinstance(log, str | os.PathLike | Loaded):
        raise InputError(f"log is {type(log).__name__}", hint="pass the path of a log: what is compared is recorded there")
    if policy is not None and not isinstance(policy, str):
        raise wrong_type("policy", policy)
    machine = os.fspath(cluster) if isinstance(cluster, os.PathLike) else cluster
    if conditions is not None:
        epoch_of = log if isinstance(log, Loaded) else as_log(log).loaded
        options["conditions"] = as_conditions(conditions, epoch_of.workload)
    return log_validation.validate(log, machine, policy, **options)


def report(run: str | os.PathLike[str], *, window: int = 0, figures: bool = True, exports: Literal["best", "all", "none"] = "best") -> Path:
    """Write report.html, figures and tables into a run folder. Returns the path of the page."""
    from queuewise.report.html import Exports, write_report

    if not isinstance(run, str | os.PathLike):
        raise InputError(f"run is {type(run).__name__}", hint="pass the path of a run folder, which evaluate(…, out=…) wrote")
    if exports not in get_args(Exports):
        raise unknown_name("exports", str(exports), get_args(Exports))
    return write_report(Path(run), window=window, figures=figures, exports=exports)


@in_python_words
def train(
    workload: str | os.PathLike[str],
    cluster: str | os.PathLike[str] | None = None,
    *,
    preset: str | None = None,
    out: str | os.PathLike[str],
    seeds: Sequence[int] = (0,),
    resume: bool = False,
    init_from: str | os.PathLike[str] | None = None,
    conditions: GivenConditions = None,
    listener: ProgressListener | None = None,
    **settings: Any,
) -> TrainOutcome:
    """Train a policy, and compare it with heuristics on windows that it has not seen. The result's policy is `model:OUT`.

    `settings` are those of `queuewise train`, for example frames=200_000 or ppo={"steps": 64}; they override the preset.
    """
    with optional_imports():
        from queuewise.agents import training
        from queuewise.agents.display import Display
        from queuewise.agents.train_settings import layered

    for role, value in (("workload", workload), ("cluster", cluster)):
        if not isinstance(value, str | os.PathLike | None):
            raise InputError(f"{role} is {type(value).__name__}", hint=f"train stores names: pass the path or the name of the {role}")
    given = {"workload": os.fspath(workload)} | ({} if cluster is None else {"cluster": os.fspath(cluster)})
    chosen = layered(preset, None, **given, **settings)
    if conditions is not None:
        chosen = chosen.model_copy(update={"conditions": as_conditions(conditions, as_log(workload).workload)})
    with Display(chosen) as display:
        return training.train(
            chosen, list(seeds), Path(out), listener or display, resume=resume, init_from=None if init_from is None else Path(init_from)
        )


def name_policy(function: Callable[..., Any], rest: str = "") -> str:
    """The name of a policy that sorts by this function. `rest` is what follows in the name, for example "+easy~3d@pack"."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{function!r} is no function", hint="pass a function of job, as docs/policies.md describes it")
    name = write_function(function, rest)
    as_policy(name)
    return name
