"""What every algorithm is to the rest: play and learn a little, tell all of its state, take it back, choose an action.

The training loop, checkpoints and examination know learners by this protocol alone. An algorithm is one file with one class and one line in
ALGORITHMS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from queuewise.agents.networks.base import Network
from queuewise.agents.scaling import Scaling
from queuewise.agents.settings import TrainSettings
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import QueuewiseError, unknown_name

ALGORITHMS: dict[str, str] = {  # name -> class, made by (setup, settings, seed)
    "ppo": "queuewise.agents.ppo:Ppo",
    "d3qn": "queuewise.agents.d3qn:D3qn",
    "sac": "queuewise.agents.sac:Sac",
}
Statistics = dict[str, float]


@dataclass
class State:
    """Everything a learner needs to go on as if nothing had happened: arrays, and facts that JSON can hold."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Learner(Protocol):
    network: Network  # what decides, and is kept as the trained policy
    scaling: Scaling  # of the observations it sees
    frames: int  # steps of environments so far
    decision: str  # in DECISIONS: how an action is picked from the network's scores

    def iterate(self) -> Statistics:
        """Collect some play and learn from it. Raises `Diverged` before a loss that is no number changes any weight."""

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        """[B, F] scaled observations, [B, A] mask -> [B] the flat actions it thinks best."""

    def rescale(self, scaling: Scaling) -> None:
        """See observations by this scaling from now on (that of the weights a run starts from)."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None:
        """Go on from `state`, which a learner with equal settings and seed told: to the bit."""

    def close(self) -> None: ...


class Diverged(QueuewiseError):
    """A loss is no number any more."""


def make_learner(setup: EnvSetup, settings: TrainSettings, seed: int) -> Learner:
    if settings.algo not in ALGORITHMS:
        raise unknown_name("algorithm", settings.algo, ALGORITHMS)
    module, _, cls = ALGORITHMS[settings.algo].partition(":")
    make: Callable[[EnvSetup, TrainSettings, int], Learner] = getattr(import_module(module), cls)
    return make(setup, settings, seed)


def spawn_seeds(seed: int, number: int) -> list[int]:
    """Independent seeds, one for each random thing of a learner."""
    return [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(number)]


def pick_best(scores: Tensor) -> Tensor:
    """[B, A] -> [B] the actions of the highest score, the first of equal ones: for scores that are values."""
    return scores.argmax(1)


def pick_likely(scores: Tensor) -> Tensor:
    """[B, A] logits -> [B] the likeliest choice; to wait only where that is likelier than all else together.

    Many like jobs share what is likely between them: the wait may be the likeliest single action of a policy that hardly ever waits.
    """
    chosen = scores[:, :-1].argmax(1)
    return torch.where(scores[:, -1] > scores[:, :-1].logsumexp(1), scores.shape[1] - 1, chosen)


DECISIONS: dict[str, Callable[[Tensor], Tensor]] = {"best": pick_best, "likely": pick_likely}


def episode_means(tallies: Sequence[Mapping[str, float]]) -> Statistics:
    """Means over the episodes that ended; some figures are known of some of them only."""
    names = dict.fromkeys(name for tally in tallies for name in tally)
    means = {f"episode/{name}": float(np.mean([tally[name] for tally in tallies if name in tally])) for name in names}
    return means | {"episode/number": float(len(tallies))}


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor.detach().clone() for name, tensor in module.state_dict().items()}


def load_module(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    module.load_state_dict(within(tensors, prefix))


def within(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with `prefix.`, without it."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def optimiser_tensors(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Adam's moments and step counts, one name a parameter and quantity."""
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
