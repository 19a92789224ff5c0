"""The interface of every algorithm, and what algorithms share: seeds, picking actions, stored tensors, schedules.

The training loop, the checkpoints and the validation use learners through this protocol only. An algorithm is one file
with one class and one line in ALGORITHMS of train_settings.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import Scaling
from queuewise.agents.train_settings import ALGORITHMS, TrainSettings
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import QueuewiseError, unknown_name

Statistics = dict[str, float]
IMITATION_S = "time/imitation_s"  # the statistic of an iteration that began with imitating a heuristic


@dataclass
class LearnerState:
    """Everything a learner needs to continue as if it had never stopped: tensors, and facts that JSON can hold."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Learner(Protocol):
    network: Network  # decides, and is stored as the trained policy
    scaling: Scaling  # of the observations it sees
    frames: int  # steps of environments so far
    decision: str  # key of DECISIONS: how an action is picked from the scores of the network

    def iterate(self) -> Statistics:
        """Play some steps and learn from them.

        Raises `DivergedError` before a loss that is not finite changes any weight.
        """

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        """[B, F] scaled observations, [B, A] mask -> [B] best flat actions."""

    def rescale(self, scaling: Scaling) -> None:
        """Use this scaling from now on (that of the weights a run starts from)."""

    def state(self) -> LearnerState: ...

    def restore(self, state: LearnerState) -> None:
        """Continue, bit for bit, from the `state` of a learner with equal settings and seed."""

    def close(self) -> None: ...


class DivergedError(QueuewiseError):
    """A loss is not finite."""


def find_algorithm(name: str) -> str:
    """Module and class of an algorithm."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def make_learner(setup: EnvSetup, settings: TrainSettings, seed: int) -> Learner:
    module, _, cls = find_algorithm(settings.algo).partition(":")
    make: Callable[[EnvSetup, TrainSettings, int], Learner] = getattr(import_module(module), cls)
    return make(setup, settings, seed)


def spawn_seeds(seed: int, number: int) -> list[int]:
    """Independent seeds, one per random stream of a learner."""
    return [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(number)]


def pick_best(scores: Tensor) -> Tensor:
    """[B, A] -> [B] the actions with the highest score, the first of equal ones: for scores that are values."""
    return scores.argmax(1)


def pick_likely(scores: Tensor) -> Tensor:
    """[B, A] logits -> [B] the likeliest action; the wait only where it is likelier than all others together.

    Similar jobs share the probability of being chosen, so the wait may be the likeliest single action of a policy that
    hardly ever waits.
    """
    chosen = scores[:, :-1].argmax(1)
    return torch.where(scores[:, -1] > scores[:, :-1].logsumexp(1), scores.shape[1] - 1, chosen)


DECISIONS: dict[str, Callable[[Tensor], Tensor]] = {"best": pick_best, "likely": pick_likely}


def episode_means(tallies: Sequence[Mapping[str, float]]) -> Statistics:
    """Means over the episodes that ended; not every figure is known for every episode."""
    names = dict.fromkeys(name for tally in tallies for name in tally)
    means = {f"episode/{name}": float(np.mean([tally[name] for tally in tallies if name in tally])) for name in names}
    return means | {"episode/number": float(len(tallies))}


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor.detach().clone() for name, tensor in module.state_dict().items()}


def load_module(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    module.load_state_dict(within(tensors, prefix))


def within(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix.`, under their names without it."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def optimiser_tensors(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Adam's moments and step counts, one name per parameter and quantity."""
    return {
        f"{prefix}.{index}.{name}": value.clone()
        for index, values in optimiser.state_dict()["state"].items()
        for name, value in values.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in within(tensors, prefix).items():
        index, _, quantity = name.partition(".")
        state.setdefault(int(index), {})[quantity] = value.clone()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


# --- schedules: how a number changes while training goes from 0 to 1

LEAST_SHARE = 1e-3  # an exponential schedule to zero ends at this share of its first value


def constant(progress: float, first: float, last: float, warmup: float) -> float:
    return first


def linear(progress: float, first: float, last: float, warmup: float) -> float:
    return first + (last - first) * progress


def exponential(progress: float, first: float, last: float, warmup: float) -> float:
    if first == 0.0:
        return 0.0
    return first * math.pow(max(last / first, LEAST_SHARE), progress)


def cosine(progress: float, first: float, last: float, warmup: float) -> float:
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_cosine(progress: float, first: float, last: float, warmup: float) -> float:
    """Rises from zero to the first value during the share `warmup` of training, then falls to the last."""
    if progress < warmup:
        return first * progress / warmup
    return cosine((progress - warmup) / (1.0 - warmup), first, last, warmup)


SCHEDULES: dict[str, Callable[[float, float, float, float], float]] = {
    "constant": constant,
    "linear": linear,
    "exponential": exponential,
    "cosine": cosine,
    "warmup_cosine": warmup_cosine,
}


def scheduled(name: str, progress: float, first: float, last: float, warmup: float = 0.0) -> float:
    """The value of a schedule at `progress`, which is clipped to [0, 1]."""
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    return SCHEDULES[name](min(max(progress, 0.0), 1.0), first, last, warmup)
