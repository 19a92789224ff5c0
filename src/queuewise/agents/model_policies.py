"""`model:RUN` as a policy: a trained network plays a workload in the environment it was trained in. Needs no torch.

With a backfill in its name, it only gives the order of the queue. The settings of its training determine what it sees
and may do. What it knows about runtimes is what the replay lets every policy know, so all compared policies know the
same. This module is what `queuewise` registers for `model:`.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.agents.scenario import Scenario, chosen_task, load_scenario, scenario_for
from queuewise.agents.task_shape import TaskShape, read_shape
from queuewise.agents.train_settings import TrainSettings, renamed
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import Cluster
from queuewise.config import validate
from queuewise.envs.batch import EnvBatch
from queuewise.envs.bookkeeping import USAGE_HALF_LIFE_S
from queuewise.envs.circumstances import Circumstances, Ordering
from queuewise.envs.env_memory import make_template
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.episodes import Episode, lay_out_episode
from queuewise.envs.snapshot_start import usage_by_user
from queuewise.envs.stepping import RUNS_ON
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError
from queuewise.policies.interface import ReplayRequest, ShownState
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import DIGEST, find_model, read_card, read_model
from queuewise.policies.names import AS_TRAINED, Policy, parse_policy
from queuewise.policies.networks.program_table import LIKELY
from queuewise.policies.snapshot import JobId, Snapshot
from queuewise.policies.snapshot_decider import SnapshotDecider, refuse_unseen
from queuewise.policies.snapshot_jobs import Index, jobs_of
from queuewise.policies.snapshot_taking import SnapshotTaker
from queuewise.policies.user_code import explained
from queuewise.sim.core.schedule import Schedule
from queuewise.sim.core.watch import run_watched
from queuewise.workload.jobs import Workload

STEPS_AT_ONCE = 4096  # of one compiled call, which does not see Ctrl-C


def describe(policy: str) -> str:
    """One line about the model: its network, problem, algorithm and training workload."""
    parsed = parse_policy(policy)
    path = find_model(parsed.model)
    _, card = read_model(path)
    settings, shape = settings_of(card, path)
    _check_problem(policy, parsed, shape.problem)
    unchecked = "" if DIGEST in card else "; the file is of an earlier version and has no digest, so damage may go unnoticed"
    estimates = settings.task.estimates or "its workload's"
    return (
        f"{settings.net} for the {shape.problem} problem, trained by {card['algo']} for {card['frames']:,} frames "
        f"on {settings.workload} with {estimates} estimates ({path}){unchecked}"
    )


def replay(request: ReplayRequest) -> Schedule:
    """Play the workload: as the network was trained, or with the network as the order of the queue. Returns the schedule."""
    began = time.perf_counter()
    policy = parse_policy(request.policy).bounded(request.max_wait)
    setup, model = load_policy(find_model(policy.model), request.workload, request.cluster)
    _check_problem(request.policy, policy, setup.settings.problem)
    if request.dispatch == "commit" and setup.settings.dispatch != "commit" and policy.backfill == AS_TRAINED:
        raise InputError(
            f"{request.policy} was not trained to commit to jobs, which this replay requires",
            hint="use --dispatch reorder, train with --task.dispatch commit, or let it order the queue: +none, +easy, …",
        )
    circumstances = replace(
        _circumstances(policy, request.conditions, request.kill_at_limit, request.dispatch, request.seed),
        start=request.start,
        guessed=request.guessed,
    )
    episode = lay_out_episode(request.workload, setup.cluster, setup.settings, setup.layout, request.estimate, circumstances)
    batch = setup.batch(1, threads=1)
    limit = min((own.time_limit_s for own in policy.own), default=float("inf"))
    with explained(policy.own):
        batch.begin([0], [make_template(episode)])
        run_watched(partial(_play_to_end, batch, model), batch.state(0).count, limit)
    schedule = batch.schedule(0, request.policy)
    batch.close()
    return replace(schedule, estimates=request.estimates, seed=request.seed, engine_s=time.perf_counter() - began)


def decider(policy: str, *, dispatch: str, conditions: Conditions, max_wait: str | None) -> ModelDecider:
    """What decides by the model, instant by instant."""
    return ModelDecider(policy, dispatch=dispatch, conditions=conditions, max_wait=max_wait)


class ModelDecider(SnapshotDecider):
    """A trained network that decides instant by instant: an episode that starts from a snapshot of the view and consists of one instant.

    It remembers what users have used by the jobs that it has started. A network that was trained to commit to jobs only plays whole
    workloads. Waiting while nothing runs is not an option, nor is migrating a job while none waits, because a view does not show that
    more jobs will come. The limit on stops holds for one instant.
    """

    def __init__(self, policy: str, *, dispatch: str, conditions: Conditions, max_wait: str | None) -> None:
        parsed = parse_policy(policy).bounded(max_wait)
        self._path = find_model(parsed.model)
        settings, shape = settings_of(read_card(self._path), self._path)
        _check_problem(policy, parsed, shape.problem)
        task = validate(TaskSettings, chosen_task(settings), source=str(self._path))
        if parsed.backfill == AS_TRAINED and task.dispatch == "commit":
            raise InputError(f"{policy} commits to jobs, and cannot be asked again before they start", hint=f"write {policy}+easy")
        if task.own_estimates:
            raise InputError(f"{policy} goes by estimates of its own, which a view does not show", hint="replay it as a whole")
        if parsed.backfill == AS_TRAINED and task.dispatch == "head":
            refuse_unseen(task.filling.backfill)
        parsed = parsed.bounded(task.max_wait)
        # A migration is a stop and a start, except where only migrations save the work of a run.
        super().__init__(parsed, moves=bool(settings.task.moves) and conditions.preemption.mode == "kill")
        self._dispatch, self._conditions = dispatch, conditions
        self._loaded: tuple[EnvSetup, TrainedNetwork] | None = None
        self._usage: dict[str, float] | None = None
        self._decided_at = 0.0

    def reset(self, cluster: Cluster, seed: int) -> None:
        super().reset(cluster, seed)
        self._loaded = None
        self.forget()

    def forget(self) -> None:
        super().forget()
        self._usage = None

    def probabilities(self, view: ShownState) -> dict[JobId, float]:
        """How probable each waiting job is to be the next to start, by the network's scores; what is missing to 1 is that none starts."""
        if not view.snapshot().queue:
            return {}
        workload, _, batch, network = self._begin(view.snapshot(), view.index)
        if network.problem != "job" or network.outputs != 1 or int(network.table.size.decision) != LIKELY:
            batch.close()
            raise InputError(
                f"{self._path} scores actions by what they are worth, or with their nodes: that gives no probabilities of jobs",
                hint="use a network of ppo that was trained for the job problem",
            )
        scores, _ = network.scores(batch.observations[:1], batch.mask[:1])
        logits = np.where(batch.mask[0], scores[0, :, 0].astype(np.float64), -np.inf)
        likely = np.exp(logits - logits.max())
        likely /= likely.sum()
        shown = {j: float(likely[q]) for q, j in enumerate(batch.window_jobs(0).tolist()) if j >= 0}
        batch.close()
        row_of = {job_id: j for j, job_id in enumerate(workload.job_id.tolist())}
        return {one.job.job_id: shown.get(row_of[one.job.job_id], 0.0) for one in view.snapshot().queue}

    def _make_pass(self, start: Snapshot, index: Index) -> tuple[Snapshot, float]:
        workload, episode, batch, network = self._begin(start, index)
        _play_to_end(batch, network)
        taker = SnapshotTaker(workload, self._cluster, episode.rules, (), episode.world, batch.machine(0))
        self._usage = usage_by_user(workload, start.now, episode.task, batch.episode_state(0))
        self._decided_at = start.now
        return taker.take(batch.state(0), killed=episode.killed, history=False), math.inf

    def _begin(self, start: Snapshot, index: Index) -> tuple[Workload, Episode, EnvBatch, TrainedNetwork]:
        """An episode of one instant that begins with the snapshot."""
        workload, estimate = jobs_of(start, self._cluster, self._conditions, index)
        if self._loaded is None:
            self._loaded = load_policy(self._path, workload, self._cluster)
        setup, network = self._loaded
        circumstances = replace(
            _circumstances(self._policy, self._conditions, False, self._dispatch, self._seed),
            start=start, usage=self._decayed_usage(start.now), one_instant=True,
        )  # fmt: skip
        episode = lay_out_episode(workload, self._cluster, setup.settings, setup.layout, estimate, circumstances)
        batch = setup.batch(1, threads=1)
        batch.begin([0], [make_template(episode)])
        return workload, episode, batch, network

    def _decayed_usage(self, now: float) -> dict[str, float] | None:
        if self._usage is None:
            return None
        decay = 2.0 ** ((self._decided_at - now) / USAGE_HALF_LIFE_S)
        return {name: amount * decay for name, amount in self._usage.items()}


def _circumstances(policy: Policy, conditions: Conditions, kill_at_limit: bool, dispatch: str, seed: int) -> Circumstances:
    ordering = Ordering(policy.backfill, policy.depth, dispatch) if policy.backfill != AS_TRAINED else None
    return Circumstances(conditions, kill_at_limit, policy.max_wait_s, policy.placement, ordering, seed)


def _play_to_end(batch: EnvBatch, model: TrainedNetwork) -> None:
    while batch.outcome[0] == RUNS_ON:
        batch.play(model, STEPS_AT_ONCE)


def _check_problem(name: str, policy: Policy, problem: str) -> None:
    if problem != "job" and (policy.backfill, policy.placement) != (AS_TRAINED, AS_TRAINED):
        raise InputError(
            f"{name}: the model was trained for the {problem} problem and chooses nodes itself",
            hint=f"write model:{policy.model}, or use a model that was trained with --env job",
        )


def load_policy(path: Path, workload: Workload, cluster: Cluster) -> tuple[EnvSetup, TrainedNetwork]:
    """The environment in which the model plays this workload to its end, and the model."""
    arrays, card = read_model(path)
    settings, trained = settings_of(card, path)
    scenario = scenario_for(_fitting(settings, trained, cluster, path), workload, cluster)
    setup = scenario.evaluation_setup([workload])
    return setup, TrainedNetwork(arrays, card, setup.settings.problem, setup.layout, where=str(path))


def training_scenario(path: Path) -> tuple[Scenario, TrainedNetwork]:
    """The scenario that the model was trained on, and the model."""
    arrays, card = read_model(path)
    settings, _ = settings_of(card, path)
    scenario = load_scenario(settings)
    return scenario, TrainedNetwork(arrays, card, scenario.setup.settings.problem, scenario.setup.layout, where=str(path))


def settings_of(card: dict[str, Any], path: Path) -> tuple[TrainSettings, TaskShape]:
    """Settings and shape of the task that a model was trained for; a task of another version is refused."""
    shape = read_shape(card["task"], where=str(path))
    return validate(TrainSettings, renamed(card["settings"]), source=str(path)), shape


def _fitting(settings: TrainSettings, trained: TaskShape, cluster: Cluster, path: Path) -> TrainSettings:
    """The settings with as many host rows as there are hosts.

    An mlp keeps its number of rows and fits no larger cluster.
    """
    if settings.net != "mlp":
        return settings.model_copy(update={"task": settings.task.model_copy(update={"host_slots": None})})
    if cluster.num_nodes > trained.layout.hosts:
        raise InputError(
            f"sees {trained.layout.hosts} hosts, but {cluster.name} has {cluster.num_nodes}",
            where=str(path),
            hint="an mlp fits only the cluster it was trained with; train another network",
        )
    return settings
