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

from queuewise.agents.train_settings import RETURN, TrainSettings
from queuewise.cluster.farm import parse_farm
from queuewise.cluster.spec import Cluster
from queuewise.envs.env_setup import EnvSetup, build_setup
from queuewise.envs.presets import preset as preset_settings
from queuewise.envs.rewards import AGAINST_BASELINE, Term
from queuewise.envs.task_settings import Metric
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings
from queuewise.evaluation.protocol import BLOCK_SEEDS, DEFAULT_SPLIT, Plan, block_jobs, block_windows, parse_split
from queuewise.evaluation.remarks import equal_requests
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.seen_days import TrainedOn, identify_log, record_training
from queuewise.policies.names import parse_policy
from queuewise.policies.snapshot import Snapshot
from queuewise.reading import Notify, parse_model_args
from queuewise.workload import Workload
from queuewise.workload.estimates import default_estimates
from queuewise.workload.models import is_model
from queuewise.workload.transform import distinct_ids

MODEL_CLUSTER = "1x8:V100-16"  # for workload models, which come without a cluster
# Without a published scheme: a queue longer than the window shows its shortest jobs, and instants without a choice are
# skipped.
OWN_TASK: dict[str, Any] = {"window_order": "sjf", "skip_forced": True}


PLAYING: dict[str, tuple[str, ...]] = {  # default baselines where the score is the return
    "mask": ("fcfs+greedy", "sjf+greedy", "largest+greedy", "random"),
    "commit": ("fcfs", "sjf", "random"),
    "head": ("fcfs", "sjf", "random"),
    "host": ("fcfs@first", "fcfs@pack", "fcfs@spread", "fcfs@random"),
}


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
        """The environments for training. With --clusters, every window has a farm of its own."""
        setup = self.task_setup("train")
        return setup if self.settings.clusters is None else setup.on_farms(parse_farm(self.settings.clusters))

    def task_setup(self, block: str) -> EnvSetup:
        """The task unchanged, including rewards and truncation, on the windows of a block."""
        return self._setup(block, self.settings.workload if self.from_model else self.workload)

    def _setup(self, block: str, workload: Any, **changes: Any) -> EnvSetup:
        s = self.settings
        sizes: dict[str, Any] = {
            "episode_jobs": s.episode_jobs,
            "pool": s.pool,
            "model_args": model_args(s),
            "conditions": s.window_conditions,
        }
        return build_setup(s.env, workload=workload, cluster=self.cluster, block=block, split=self.split, **sizes, **self.task | changes)

    def evaluation_setup(self, windows: list[Workload], starts: list[Snapshot | None] | None = None) -> EnvSetup:
        """For playing these windows to the end, without rewards. `starts` are what they begin with."""
        unpaid: dict[str, Any] = {"never_cut": True, "jobs_per_limit": self.settings.episode_jobs, "reward": (), "baseline": None}
        return self._setup("report", windows, starts=starts, start=None, **unpaid)

    def paid_setup(self, windows: list[Workload], starts: list[Snapshot | None] | None = None) -> EnvSetup:
        """For playing these windows as in training, with rewards and truncation."""
        return self._setup("report", windows, starts=starts, start=None)

    @cached_property
    def baselines(self) -> tuple[str, ...]:
        """The policies to compare with, as they play in the task: with its backfill and placement where their names have none."""
        settings = self.setup.settings
        names = self.settings.baselines
        if self.settings.objective == RETURN and names == TrainSettings().baselines:  # not all of these can play a task
            names = PLAYING["host" if settings.problem != "job" else settings.dispatch]
        return tuple(dict.fromkeys(name if name == BEST else settings.complete(name) for name in names))

    def experiment(self, block: str) -> Experiment:
        """The windows of VAL or REPORT, the same for every policy."""
        s = self.settings
        number, seed = (s.val_windows, 0) if block == "val" else (s.report_windows, s.report_seed)
        overlap = not self.from_model and number * s.episode_jobs > len(block_jobs(self.workload, self.split)[block])
        windows = block_windows(
            self.workload, block, number, s.episode_jobs, seed, from_model=self.from_model, split=self.split, overlap=overlap
        )
        commits = self.setup.settings.dispatch == "commit"
        start = "warm" if self.setup.source.warm else "empty"
        replay = ReplaySettings(
            "commit" if commits else "reorder", self.setup.settings.estimates, start=start, conditions=s.window_conditions
        )
        return Experiment(self.workload, self.cluster, Plan("blocks", windows), replay, self._drawer(block) if self.from_model else None)

    def _drawer(self, block: str) -> Callable[[int, int], Workload]:
        """Draw windows of the model as environments do, with job sizes that suit the cluster."""
        source = self.task_setup(block).source
        return lambda jobs, seed: source.window(seed - BLOCK_SEEDS[block].start).workload


def load_scenario(settings: TrainSettings, tell: Notify = lambda remark: None) -> Scenario:
    """Load the workload and its cluster, and determine the task.

    `tell` is called with what the reader skipped or filled in, and if estimates say nothing.
    """
    from_model = is_model(settings.workload)
    _check_split(settings, from_model)
    cluster = settings.cluster or _first_farm(settings) or (MODEL_CLUSTER if from_model else None)
    if from_model and settings.jobs is not None:
        raise InputError(
            f"--jobs {settings.jobs}: {settings.workload} is a workload model, not a log to take the first jobs of",
            hint=f"--episode-jobs {settings.jobs} sets the number of jobs per episode",
        )
    jobs = settings.episode_jobs if from_model else settings.jobs
    loaded, machine = settings.reading.load_with_cluster(settings.workload, cluster, jobs, 0, tell)
    found = scenario_for(settings, distinct_ids(loaded.workload), machine)
    for remark in equal_requests(found.workload, found.task["estimates"]):
        tell(remark)
    return found


def _first_farm(settings: TrainSettings) -> str | None:
    """Where VAL and REPORT play if only --clusters is given: a farm that training does not draw."""
    if settings.clusters is None:
        return None
    if parse_farm(settings.clusters).seed is not None:
        raise InputError(f"--clusters {settings.clusters} has a seed, so it is one cluster", hint="omit the seed, or use --cluster")
    return f"{settings.clusters},seed=0"


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
    return parse_model_args(settings.workload_args, settings.workload)


def scenario_for(settings: TrainSettings, workload: Workload, cluster: Cluster) -> Scenario:
    """The task of these settings on a given workload and cluster, which may differ from those they name."""
    return Scenario(settings, workload, cluster, _task(settings, workload))


def chosen_task(settings: TrainSettings) -> dict[str, Any]:
    """The settings of the environment without what follows from the workload: a published scheme, changed by what the user chose."""
    choices = settings.task.model_dump(exclude={"preset", "reward", "baseline", "baseline_metric"}, exclude_none=True)
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
    task |= {"reward": _reward(settings, task)} | _baseline(settings, task)
    if "estimates" not in task:
        task["estimates"] = default_estimates(workload)
    task.pop("problem", None)
    return task | {"observation": "flat", "illegal": "error"}


# --- rewards

BEST = "best"  # as a baseline: the best heuristics on VAL


def _reward(settings: TrainSettings, task: dict[str, Any]) -> tuple[Term, ...]:
    """What is trained: the terms that the user gave, else those by which `--score` is optimised in the task.

    A scheme that pays relative to a baseline compares by the score.
    """
    own: tuple[Term, ...] | None = task.get("reward")
    if settings.task.reward is not None:
        return parse_reward(settings.task.reward)
    if settings.objective == RETURN:
        if own is None:
            raise InputError(
                "--score return is the reward of a task, and this one has none of its own",
                hint="add --task.preset or --task.reward, or choose another --score",
            )
        return own
    if own is not None and any(term.name in AGAINST_BASELINE for term in own):
        if settings.task.baseline_metric is None:
            metric_of(settings.objective)  # refuses scores that cannot be compared
        return own
    return reward_for(settings.objective)


def _baseline(settings: TrainSettings, task: dict[str, Any]) -> dict[str, Any]:
    """The baseline of the task: that of the scheme, changed by what the user chose. It compares by the score."""
    known = task.get("baseline") or {}
    policy = settings.task.baseline or known.get("policy")
    if policy is None:
        if settings.task.baseline_metric is not None:
            raise InputError("--task.baseline-metric compares nothing without a baseline", hint="add --task.baseline fcfs, for example")
        return {}
    metric = settings.task.baseline_metric
    if metric is None and settings.objective != RETURN:
        metric = metric_of(settings.objective)
    return {"baseline": {"policy": policy, "metric": metric or known.get("metric", "bounded_slowdown")}}


REWARD_OF: dict[str, Term] = {  # score -> the reward term that sums to it
    "bsld": Term(name="bounded_slowdown", per=("jobs",)),
    "slowdown": Term(name="slowdown", per=("jobs",)),
    "wait": Term(name="wait", per=("jobs",)),
    "jct": Term(name="jct", per=("jobs",)),
    "energy": Term(name="energy", weight=1 / 3.6e6),  # J -> kWh
    "energy_cost": Term(name="energy_cost", weight=1 / 3.6e6),
    "fairness": Term(name="fairness"),
    "util": Term(name="elapsed", per=("span",)),  # the work is given: utilisation is highest when it ends soonest
}
METRIC_OF: dict[str, Metric] = {
    "bsld": "bounded_slowdown", "slowdown": "slowdown", "wait": "wait", "jct": "jct", "util": "utilisation",
}  # fmt: skip


def reward_for(score: str) -> tuple[Term, ...]:
    """The terms whose sum over an episode is −score."""
    terms = []
    for weight, name in parse_score(score).terms:
        if name not in REWARD_OF:
            why = "in the packing protocol no job ends" if name == "packed" else "it is that of a task, not a term of a sum"
            raise InputError(f"score {name!r} has no reward: {why}", hint="use --score util, jct or bsld")
        term = REWARD_OF[name]
        terms.append(term.model_copy(update={"weight": weight * term.weight}))
    return tuple(terms)


def metric_of(score: str) -> Metric:
    """The metric by which rewards compare with a baseline: that of the score, which has to be a single one that has a metric."""
    terms = parse_score(score).terms
    if len(terms) == 1 and terms[0][1] in METRIC_OF:
        return METRIC_OF[terms[0][1]]
    raise InputError(
        f"a reward relative to a baseline cannot go by --score {score}",
        hint=f"use one of {', '.join(METRIC_OF)}, or name what is compared with --task.baseline-metric",
    )


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
