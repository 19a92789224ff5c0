"""`model:RUN` as a policy: a trained network plays a workload in the environment it was trained in. Needs no torch.

The settings of its training determine what it sees and may do. What it knows about runtimes is what the replay lets
every policy know, so all compared policies know the same. This module is the `Player` that `queuewise` registers for
`model:`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from queuewise.agents.scenario import Scenario, load_scenario, scenario_for
from queuewise.agents.task_shape import TaskShape, read_shape
from queuewise.agents.train_settings import TrainSettings
from queuewise.cluster.spec import Cluster
from queuewise.config import validate
from queuewise.envs.env_memory import make_template
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.stepping import RUNS_ON
from queuewise.errors import InputError
from queuewise.players import PlayRequest
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import find_model, read_card, read_model
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

STEPS_AT_ONCE = 4096  # of one compiled call, which does not see Ctrl-C


def describe(reference: str) -> str:
    """One line about the model: its network, problem, algorithm and training workload."""
    path = find_model(_named(reference))
    card = read_card(path)
    settings, shape = settings_of(card, path)
    estimates = settings.task.estimates or "its workload's"
    return (
        f"{settings.net} for the {shape.problem} problem, trained by {card['algo']} for {card['frames']:,} frames "
        f"on {settings.workload} with {estimates} estimates ({path})"
    )


def play(request: PlayRequest) -> Schedule:
    """Play the best action of the network at every step and return the schedule."""
    began = time.perf_counter()
    path = find_model(_named(request.policy.partition(":")[2]))
    setup, model = load_player(path, request.workload, request.cluster)
    if request.dispatch == "commit" and setup.settings.dispatch != "commit":
        raise InputError(
            f"{request.policy} was not trained to commit to jobs, which this replay requires",
            hint="use --dispatch reorder, or train with --task.dispatch commit",
        )
    batch = setup.batch(1, threads=1)
    batch.begin([0], [make_template(lay_out_episode(request.workload, setup.cluster, setup.settings, setup.layout, request.estimate))])
    while batch.outcome[0] == RUNS_ON:
        batch.play(model, STEPS_AT_ONCE)
    schedule = batch.schedule(0, request.policy)
    batch.close()
    return replace(schedule, estimates=request.estimates, seed=request.seed, engine_s=time.perf_counter() - began)


def load_player(path: Path, workload: Workload, cluster: Cluster) -> tuple[EnvSetup, TrainedNetwork]:
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
    return validate(TrainSettings, card["settings"], source=str(path)), shape


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


def _named(reference: str) -> str:
    if not reference:
        raise InputError("model: names no run", hint="write model:RUN with a folder that queuewise train wrote, e.g. model:runs/a")
    return reference
