"""`model:RUN` as a policy: a trained network plays a whole workload, seeing and deciding as it did in training. Needs no torch.

What it sees and may do is settled by the settings it was trained with. What it knows of runtimes is what the replay lets policies know,
so that all compared policies know the same.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from queuewise.agents.actions import flat_mask, split_actions
from queuewise.agents.grounds import Grounds, grounds_of, make_grounds
from queuewise.agents.settings import TrainSettings
from queuewise.agents.spec import Spec, read_spec
from queuewise.cluster.spec import Cluster
from queuewise.config import validate
from queuewise.envs.env_memory import make_template
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.stepping import RUNS_ON
from queuewise.errors import InputError
from queuewise.policies.learned import Learned
from queuewise.policies.model_file import find_model, read_card, read_model
from queuewise.policies.players import Replay
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload


def describe(reference: str) -> str:
    path = find_model(_named(reference))
    card = read_card(path)
    settings, spec = settings_of(card, path)
    estimates = settings.task.estimates or "its workload's"
    return (
        f"{settings.net} for the {spec.problem} problem, trained by {card['algo']} for {card['frames']:,} frames "
        f"on {settings.workload} with {estimates} estimates ({path})"
    )


def play(wanted: Replay) -> Schedule:
    """The schedule of the network's best actions, one after the other."""
    began = time.perf_counter()
    path = find_model(_named(wanted.policy.partition(":")[2]))
    setup, model = load_player(path, wanted.workload, wanted.cluster)
    if wanted.dispatch == "commit" and setup.settings.dispatch != "commit":
        raise InputError(
            f"{wanted.policy} was not trained to commit to jobs, and the replay asks for it",
            hint="use --dispatch reorder, or train with --task.dispatch commit",
        )
    batch = setup.batch(1, threads=1)
    batch.begin([0], [make_template(lay_out_episode(wanted.workload, setup.cluster, setup.settings, setup.layout, wanted.estimate))])
    spec = Spec(setup.settings.problem, setup.layout)
    while batch.outcome[0] == RUNS_ON:
        batch.step(split_actions(model.act(batch.observations, flat_mask(batch.mask, spec)), spec))
    schedule = batch.schedule(0, wanted.policy)
    batch.close()
    return replace(schedule, estimates=wanted.estimates, seed=wanted.seed, engine_s=time.perf_counter() - began)


def load_player(path: Path, workload: Workload, cluster: Cluster) -> tuple[EnvSetup, Learned]:
    """The model, and the environment in which it plays this workload to its end."""
    arrays, card = read_model(path)
    settings, trained = settings_of(card, path)
    grounds = grounds_of(_fitting(settings, trained, cluster, path), workload, cluster)
    setup = grounds.judging_arena([workload])
    return setup, Learned(arrays, card, setup.settings.problem, setup.layout, where=str(path))


def training_grounds(path: Path) -> tuple[Grounds, Learned]:
    """The model, and the grounds it was trained on."""
    arrays, card = read_model(path)
    settings, _ = settings_of(card, path)
    grounds = make_grounds(settings)
    return grounds, Learned(arrays, card, grounds.setup.settings.problem, grounds.setup.layout, where=str(path))


def settings_of(card: dict[str, Any], path: Path) -> tuple[TrainSettings, Spec]:
    """Settings and shape of the task that a model was trained for; another version's task is refused."""
    spec = read_spec(card["task"], where=str(path))
    return validate(TrainSettings, card["settings"], source=str(path)), spec


def _fitting(settings: TrainSettings, trained: Spec, cluster: Cluster, path: Path) -> TrainSettings:
    """The settings with as many rows for hosts as there are; an mlp keeps its own number and fits no larger cluster."""
    if settings.net != "mlp":
        return settings.model_copy(update={"task": settings.task.model_copy(update={"host_slots": None})})
    if cluster.num_nodes > trained.layout.hosts:
        raise InputError(
            f"sees {trained.layout.hosts} hosts, and {cluster.name} has {cluster.num_nodes}",
            where=str(path),
            hint="an mlp fits the cluster it was trained with; train another network to change it",
        )
    return settings


def _named(reference: str) -> str:
    if not reference:
        raise InputError("model: names no run", hint="write model:RUN with a folder that queuewise train wrote, e.g. model:runs/a")
    return reference
