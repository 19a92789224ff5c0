"""What a policy is trained and evaluated on: one workload on one cluster, a task, and three blocks of windows.

TRAIN windows are for learning, VAL windows choose the best model, REPORT windows give the reported figures. The three
never share a job or a seed (`evaluation.protocol`). The default rewards are dense and exact: summed over an episode
they are the score itself (up to a constant factor), whatever the lengths of the steps, and for a window that starts warm
what its decisions cost the jobs that were there. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from queuewise.agents.train_settings import TrainSettings
from queuewise.cluster.spec import Cluster
from queuewise.envs.env_setup import EnvSetup, build_setup
from queuewise.envs.presets import preset as preset_settings
from queuewise.envs.rewards import Term
from queuewise.envs.task_settings import Metric
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings
from queuewise.evaluation.protocol import BLOCK_SEEDS, DEFAULT_SPLIT, Plan, block_jobs, block_windows, parse_split
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.seen_days import TrainedOn, identify_log, record_training
from queuewise.policies.names import parse_policy
from queuewise.policies.snapshot import Snapshot
from queuewise.reading import Notify
from queuewise.workload import Workload
from queuewise.workload.estimates import default_estimates
from queuewise.workload.models import is_model
from queuewise.workload.transform import distinct_ids

MODEL_CLUSTER = "1x8:V100-16"  # for workload models, which come without a cluster
# Without a published scheme: a queue longer than the window shows its shortest jobs, and instants without a choice are
# skipped.
OWN_TASK: dict[str, Any] = {"window_order": "sjf", "skip_forced": True}


@dataclass(frozen=True, eq=False)
class Scenario:
    """Settings, workload, cluster and task; the environments and windows follow from them."""

    settings: TrainSettings
    workload: Workload  # the log, or one sample of the model
    cluster: Cluster
    task: dict[str, Any]  # settings of the environment

    @property
    def from_model(self) -> bool:
        return is_model(self.settings.workload)

    @cached_property
    def split(self) -> tuple[float, float, float]:
        """Shares of the log's time span: TRAIN, VAL and REPORT."""
        return DEFAULT_SPLIT if self.settings.split is None else parse_split(self.settings.split)

    @cached_property
    def trained_on(self) -> tuple[TrainedOn, ...]:
        """The days of a log that a model has seen after training here."""
        if self.from_model:
            return ()
        identity = identify_log(self.workload, self.settings.workload, self.settings.reading.load_factor)
        return (record_training(self.workload, identity, self.split),)

    @cached_property
    def setup(self) -> EnvSetup:
        """The environments for training."""
        return self.task_setup("train")

    def task_setup(self, block: str) -> EnvSetup:
        """The task unchanged, including rewards and truncation, on the windows of a block."""
        return self._setup(block, self.settings.workload if self.from_model else self.workload)

    def _setup(self, block: str, workload: Any, **changes: Any) -> EnvSetup:
        s = self.settings
        sizes: dict[str, Any] = {"jobs": s.jobs, "pool": s.pool, "model_args": model_args(s), "conditions": s.world}
        return build_setup(s.env, workload=workload, cluster=self.cluster, block=block, split=self.split, **sizes, **self.task | changes)

    def evaluation_setup(self, windows: list[Workload], starts: list[Snapshot | None] | None = None) -> EnvSetup:
        """For playing these windows to the end, without rewards. `starts` are what they begin with."""
        unpaid: dict[str, Any] = {"never_cut": True, "jobs_per_limit": self.settings.jobs, "reward": (), "baseline": None}
        return self._setup("report", windows, starts=starts, start=None, **unpaid)

    def experiment(self, block: str) -> Experiment:
        """The windows of VAL or REPORT, the same for every policy."""
        s = self.settings
        number, seed = (s.val_windows, 0) if block == "val" else (s.report_windows, s.report_seed)
        overlap = not self.from_model and number * s.jobs > len(block_jobs(self.workload, self.split)[block])
        windows = block_windows(self.workload, block, number, s.jobs, seed, from_model=self.from_model, split=self.split, overlap=overlap)
        commits = self.setup.settings.dispatch == "commit"
        start = "warm" if self.setup.source.warm else "empty"
        replay = ReplaySettings("commit" if commits else "reorder", self.setup.settings.estimates, start=start, conditions=s.world)
        return Experiment(self.workload, self.cluster, Plan("blocks", windows), replay, self._drawer(block) if self.from_model else None)

    def _drawer(self, block: str) -> Callable[[int, int], Workload]:
        """Draw windows of the model as environments do, with job sizes that suit the cluster."""
        source = self.task_setup(block).source
        return lambda jobs, seed: source.window(seed - BLOCK_SEEDS[block].start).workload


def load_scenario(settings: TrainSettings, tell: Notify = lambda remark: None) -> Scenario:
    """Load the workload and its cluster, and determine the task.

    `tell` is called with what the reader skipped or filled in.
    """
    from_model = is_model(settings.workload)
    _check_split(settings, from_model)
    cluster = settings.cluster or (MODEL_CLUSTER if from_model else None)
    loaded, machine = settings.reading.load_with_cluster(settings.workload, cluster, settings.jobs if from_model else None, 0, tell)
    return scenario_for(settings, distinct_ids(loaded.workload), machine)


def _check_split(settings: TrainSettings, from_model: bool) -> None:
    """Report a mistake before reading a long log."""
    if settings.split is None:
        return
    if from_model:
        raise InputError(
            f"{settings.workload} is a workload model, which has no --split", hint="omit it: TRAIN, VAL and REPORT have their own seeds"
        )
    if min(parse_split(settings.split)) <= 0:
        raise InputError(f"--split {settings.split} leaves nothing for a part", hint="training needs all three: TRAIN, VAL and REPORT")


def model_args(settings: TrainSettings) -> dict[str, Any]:
    """The parameters that the user gave the workload model; the model checks their values."""
    for pair in settings.workload_args:
        if "=" not in pair or not is_model(settings.workload):
            raise InputError(
                f"workload_args {pair!r} is not PARAMETER=VALUE of a workload model",
                hint="for example --workload bursty --workload-args bursts=3",
            )
    return dict(pair.split("=", 1) for pair in settings.workload_args)


def scenario_for(settings: TrainSettings, workload: Workload, cluster: Cluster) -> Scenario:
    """The task of these settings on a given workload and cluster, which may differ from those they name."""
    return Scenario(settings, workload, cluster, _task(settings, workload))


def chosen_task(settings: TrainSettings) -> dict[str, Any]:
    """The settings of the environment without what follows from the workload: a published scheme, changed by what the user chose."""
    choices = settings.task.model_dump(exclude={"preset", "reward", "baseline"}, exclude_none=True)
    base = preset_settings(settings.task.preset) if settings.task.preset else OWN_TASK
    return base | _task_of_teacher(settings) | choices


def _task_of_teacher(settings: TrainSettings) -> dict[str, Any]:
    """With dispatch head: backfill, bound and estimates of the policy to imitate, so that it is one of the task's policies."""
    name = settings.ppo.imitate if settings.algo == "ppo" and settings.task.dispatch == "head" else None
    if name is None or (teacher := parse_policy(name)).backfill == "none":
        return {}
    order = teacher.backfill_order or teacher.order
    estimates = teacher.backfill_estimates if teacher.backfill_order else teacher.estimates
    task = {"backfill": f"{teacher.backfill}:{order}:{estimates}".removesuffix(":")}
    if teacher.max_wait_s < math.inf:
        task["max_wait"] = f"{teacher.max_wait_s:.15g}s"
    return task | ({"shown_estimates": teacher.estimates} if teacher.estimates else {})


def _task(settings: TrainSettings, workload: Workload) -> dict[str, Any]:
    task = chosen_task(settings)
    if settings.task.baseline is not None:
        task["baseline"] = {"policy": settings.task.baseline, "metric": metric_of(settings.score)}
    if settings.task.reward is not None:
        task["reward"] = parse_reward(settings.task.reward)
    elif "reward" not in task:
        task["reward"] = reward_for(settings.score)
    if "estimates" not in task:
        task["estimates"] = default_estimates(workload)
    task.pop("problem", None)
    return task | {"observation": "flat", "illegal": "error"}


# --- rewards

REWARD_OF: dict[str, Term] = {  # score -> the reward term that sums to it
    "bsld": Term(name="bounded_slowdown", per=("jobs",)),
    "slowdown": Term(name="slowdown", per=("jobs",)),
    "wait": Term(name="wait", per=("jobs",)),
    "jct": Term(name="jct", per=("jobs",)),
    "energy": Term(name="energy", weight=1 / 3.6e6),  # J -> kWh
    "fairness": Term(name="fairness"),
}
METRIC_OF: dict[str, Metric] = {
    "bsld": "bounded_slowdown", "slowdown": "slowdown", "wait": "wait", "jct": "jct", "util": "utilisation",
}  # fmt: skip
MAKESPAN = Term(name="elapsed", per=("span",))  # the work is given: utilisation is highest when it ends soonest


def reward_for(score: str) -> tuple[Term, ...]:
    """The terms whose sum over an episode is −score."""
    terms = []
    for weight, name in parse_score(score).terms:
        if name == "packed":
            raise InputError("score 'packed' has no reward: in the packing protocol no job ends", hint="use --score util, jct or bsld")
        term = REWARD_OF.get(name, MAKESPAN)
        terms.append(term.model_copy(update={"weight": weight * term.weight}))
    return tuple(terms)


def metric_of(score: str) -> Metric:
    """The metric by which rewards compare with a baseline: that of the first term of the score that has one."""
    for _, name in parse_score(score).terms:
        if name in METRIC_OF:
            return METRIC_OF[name]
    raise InputError(f"task.baseline cannot go by --score {score}", hint=f"use a score with one of {', '.join(METRIC_OF)}")


def parse_reward(text: str) -> tuple[Term, ...]:
    """Parse `weight*term/divisor/divisor` terms joined by +, e.g. `jct/jobs + 0.1*noop_feasible`."""
    return tuple(_parse_term(part.strip(), text) for part in text.split("+"))


def _parse_term(part: str, text: str) -> Term:
    weight, star, rest = part.rpartition("*")
    name, *per = rest.split("/")
    try:
        values: dict[str, Any] = {"name": name.strip(), "weight": float(weight) if star else 1.0, "per": [p.strip() for p in per]}
        return Term.model_validate(values)
    except ValueError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"reward {text!r}: {part!r} cannot be read ({reason})", hint="write weight*term/divisor + …; see docs/mdp.md"
        ) from None
