"""Imitation: a network learns to choose as a heuristic does, before it learns from rewards (behavioural cloning by cross-entropy)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from queuewise.agents.networks.base import Network
from queuewise.agents.scaling import Scaler, Scaling
from queuewise.agents.stage import Stage
from queuewise.agents.teachers import Teacher, find_teacher
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.features import NUM_GLOBAL

ENVS = 32
BATCH = 512
RATE = 1e-3  # of Adam


@dataclass(frozen=True)
class Lessons:
    """What a heuristic did: N frames."""

    observations: Tensor  # [N, F] scaled
    masks: Tensor  # [N, A]
    actions: Tensor  # [N]


def imitate(network: Network, setup: EnvSetup, scaling: Scaling, policy: str, *, frames: int, epochs: int, seed: int) -> float:
    """Train the network on `frames` frames of the policy's play; returns the share of choices that are the same afterwards."""
    lessons = watch(find_teacher(policy, setup), setup, scaling, frames, seed)
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    for rows in _batches(len(lessons.actions), epochs, seed):
        logits, _ = network.policy(lessons.observations[rows], lessons.masks[rows])
        optimiser.zero_grad()
        functional.cross_entropy(logits, lessons.actions[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.inference_mode():
        chunks = torch.split(torch.arange(len(lessons.actions)), BATCH)
        same = [network.policy(lessons.observations[c], lessons.masks[c])[0].argmax(1) == lessons.actions[c] for c in chunks]
        return float(torch.cat(same).float().mean())


def watch(teacher: Teacher, setup: EnvSetup, scaling: Scaling, frames: int, seed: int) -> Lessons:
    """Let the teacher play."""
    stage = Stage(teacher.setup(setup), ENVS, seed=seed)
    scaler = Scaler(scaling, setup.layout)
    rows = torch.zeros(ENVS, stage.spec.observation_size)
    mask = torch.zeros(ENVS, stage.spec.num_actions, dtype=torch.bool)
    stage.write(rows, mask)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(-(-frames // ENVS)):
        actions = torch.from_numpy(teacher.choose(rows.numpy(), mask.numpy(), stage.spec))
        seen.append((scaler.apply(_without_score(rows, stage)), mask.clone(), actions))
        stage.step(actions, rows, mask)
    stage.close()
    return Lessons(*(torch.cat(column) for column in zip(*seen, strict=True)))


def _without_score(rows: Tensor, stage: Stage) -> Tensor:
    """The rows without the last feature of every job."""
    layout = stage.spec.layout
    window, features = layout.shapes["jobs"]
    first = NUM_GLOBAL + layout.units
    jobs = rows[:, first : first + window * features].view(len(rows), window, features)[:, :, :-1].flatten(1)
    return torch.cat([rows[:, :first], jobs, rows[:, first + window * features :]], dim=1)


def _batches(number: int, epochs: int, seed: int) -> Iterator[Tensor]:
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        yield from torch.split(torch.from_numpy(rng.permutation(number)), BATCH)
