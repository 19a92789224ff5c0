"""Imitation: a network learns to choose as a heuristic does, before it learns from rewards (behavioural cloning).

The heuristic, here called the expert, chooses from what an observation shows. Job problem: `order` starts the first job
of the order and waits until it fits, `order+greedy` starts the first job that fits. With dispatch head, `order+easy` names
the first job of the order; the task backfills. Host problem: the placement rules
`first`, `pack` (least free) and `spread` (greatest free share), as in `fcfs@pack`. Joint problem: both. Names are those
of policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import Scaler, Scaling
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.training_envs import TrainingEnvs
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.features import NUM_GLOBAL
from queuewise.errors import InputError
from queuewise.policies.names import Policy, parse_policy
from queuewise.sim.core.tables import F32, F64, I64

ENVS = 32
BATCH = 512
RATE = 1e-3  # of Adam


@dataclass(frozen=True)
class Demonstrations:
    """What the expert saw and chose: N frames."""

    observations: Tensor  # [N, F] scaled
    masks: Tensor  # [N, A]
    actions: Tensor  # [N]


def imitate(network: Network, setup: EnvSetup, scaling: Scaling, policy: str, *, frames: int, epochs: int, seed: int) -> float:
    """Train the network on `frames` frames of the policy's play; return the share of choices they agree on."""
    demonstrations = record_demonstrations(find_expert(policy, setup), setup, scaling, frames, seed)
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    for rows in _batches(len(demonstrations.actions), epochs, seed):
        logits, _ = network.policy(demonstrations.observations[rows], demonstrations.masks[rows])
        optimiser.zero_grad()
        functional.cross_entropy(logits, demonstrations.actions[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.inference_mode():
        chunks = torch.split(torch.arange(len(demonstrations.actions)), BATCH)
        same = [
            network.policy(demonstrations.observations[c], demonstrations.masks[c])[0].argmax(1) == demonstrations.actions[c]
            for c in chunks
        ]
        return float(torch.cat(same).float().mean())


def record_demonstrations(expert: Expert, setup: EnvSetup, scaling: Scaling, frames: int, seed: int) -> Demonstrations:
    """Let the expert play."""
    envs = TrainingEnvs(expert.setup(setup), ENVS, seed=seed)
    scaler = Scaler(scaling, setup.layout)
    rows = torch.zeros(ENVS, envs.shape.observation_size)
    mask = torch.zeros(ENVS, envs.shape.num_actions, dtype=torch.bool)
    envs.write(rows, mask)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(-(-frames // ENVS)):
        actions = torch.from_numpy(expert.choose(rows.numpy(), mask.numpy(), envs.shape))
        seen.append((scaler.apply(_without_score(rows, envs)), mask.clone(), actions))
        envs.step(actions, rows, mask)
    envs.close()
    return Demonstrations(*(torch.cat(column) for column in zip(*seen, strict=True)))


def _without_score(rows: Tensor, envs: TrainingEnvs) -> Tensor:
    """The rows without the last feature of each job."""
    layout = envs.shape.layout
    window, features = layout.shapes["jobs"]
    first = NUM_GLOBAL + layout.units
    jobs = rows[:, first : first + window * features].view(len(rows), window, features)[:, :, :-1].flatten(1)
    return torch.cat([rows[:, :first], jobs, rows[:, first + window * features :]], dim=1)


def _batches(number: int, epochs: int, seed: int) -> Iterator[Tensor]:
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        yield from torch.split(torch.from_numpy(rng.permutation(number)), BATCH)


# --- experts

RULES = ("first", "pack", "spread")
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Expert:
    """A heuristic that plays the environment."""

    order: str
    blocking: bool  # the first job of the order blocks the others
    rule: str

    def setup(self, setup: EnvSetup) -> EnvSetup:
        """The same task, with the score of the order as one more feature of each job, the last."""
        scores = (*setup.layout.scores, self.order)
        settings = setup.settings.model_copy(update={"scores": scores})
        return EnvSetup(setup.cluster, settings, setup.source, replace(setup.layout, scores=scores), setup.conditions)

    def choose(self, observations: F32, mask: Bools, shape: TaskShape) -> I64:
        """[E] flat actions for [E, F] unscaled observations of `setup` and [E, A] flat masks."""
        parts = shape.layout.parts(observations)
        wait, everyone = shape.num_actions - 1, np.arange(len(mask))
        if shape.problem == "host":
            return np.where(mask[:, :-1].any(axis=1), self._preference(shape, parts["hosts"], mask[:, :-1]).argmin(1), wait)
        starts_at = shape.layout.window if shape.problem == "job" else shape.num_actions - 1  # it never preempts
        pairs = mask[:, :starts_at].reshape(len(mask), shape.layout.window, -1)  # [E, Q, H], or [E, Q, 1]
        fits = np.asarray(pairs.any(axis=2))
        candidates = parts["jobs"][:, :, 0] > 0 if self.blocking else fits
        slot = np.where(candidates, parts["jobs"][:, :, -1], np.inf).argmin(1)
        starts = fits[everyone, slot]
        if shape.problem == "job":
            return np.where(starts, slot, wait)
        host = self._preference(shape, parts["hosts"], pairs[everyone, slot]).argmin(1)
        return np.where(starts, slot * shape.layout.hosts + host, wait)

    def _preference(self, shape: TaskShape, hosts: F32, legal: Bools) -> F64:
        """[E, H] the host with the lowest number is taken; infinite where illegal."""
        column = {name: hosts[:, :, index].astype(np.float64) for index, name in enumerate(shape.layout.host_features)}
        has_gpus = column["gpu_total"] > 0
        share = np.where(has_gpus, column["gpu_free"], 1.0 - column["core_util"])
        amount = np.round(share * np.where(has_gpus, column["gpu_total"], column["cores_norm"]), 6)  # ties go to the first
        order = {"first": np.zeros_like(share), "pack": amount, "spread": -share}[self.rule]
        return np.where(legal, order, np.inf)


def find_expert(name: str, setup: EnvSetup) -> Expert:
    """The expert of this name for this task."""
    policy = parse_policy(name)
    order = f"{policy.order}:{policy.estimates}" if policy.estimates else policy.order
    if setup.layout.view != "tokens":
        raise InputError(
            f"{name} cannot be imitated in the view {setup.layout.view!r}: a heuristic chooses by the features of jobs and hosts",
            hint="use --task.view tokens, or omit --ppo.imitate",
        )
    if setup.settings.dispatch == "head":
        _check_filling(name, order, policy, setup.settings.filling)
        return Expert(order, blocking=False, rule=policy.placement)
    if policy.backfill not in ("none", "greedy"):
        raise InputError(
            f"{name} cannot be imitated: its backfill is neither none nor greedy", hint="imitate sjf or sjf+greedy, for example"
        )
    if setup.settings.dispatch == "commit" and policy.backfill == "greedy":
        raise InputError(
            f"{name} cannot be imitated with dispatch commit: with it, every job may be chosen", hint=f"imitate {policy.order}"
        )
    if setup.settings.problem != "job" and policy.placement not in RULES:
        raise InputError(
            f"{name} cannot be imitated: observations do not show what its placement needs", hint=f"use one of @{', @'.join(RULES)}"
        )
    return Expert(order, policy.backfill == "none", policy.placement)


def _check_filling(name: str, order: str, policy: Policy, task: Policy) -> None:
    """Refuse a policy that fills in behind the head otherwise than the task does."""
    second = (policy.backfill_order, policy.backfill_estimates) if policy.backfill_order else (policy.order, policy.estimates)
    of_task = (task.backfill_order, task.backfill_estimates) if task.backfill_order else (task.order, task.estimates)
    if policy.backfill != "none" and (policy.backfill, policy.depth, *second) != (task.backfill, task.depth, *of_task):
        raise InputError(
            f"{name} cannot be imitated: the task backfills otherwise", hint=f"omit --task.backfill, or imitate the order alone: {order}"
        )
