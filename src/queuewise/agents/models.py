"""A trained model read back: weights, scaling, and the task it decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from queuewise.agents.checkpoint import check_card, read_file
from queuewise.agents.learner import DECISIONS, load_module
from queuewise.agents.networks import build_network
from queuewise.agents.networks.base import Network
from queuewise.agents.scaling import Scaling, read_scaling
from queuewise.agents.settings import TrainSettings
from queuewise.agents.spec import Spec
from queuewise.agents.values import action_scores
from queuewise.config import validate


@dataclass(frozen=True, eq=False)
class Model:
    network: Network
    scaling: Scaling
    card: dict[str, Any]

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        """[B, F] scaled observations, [B, A] mask -> [B] flat actions."""
        with torch.inference_mode():
            return DECISIONS[self.card["decision"]](action_scores(self.network, observations, mask))


def load_model(path: Path, spec: Spec) -> Model:
    """A model for a task of this shape: windows and hosts may differ in number from those it was trained with, except for the `mlp`."""
    tensors, card = read_file(path)
    settings = validate(TrainSettings, card["settings"], source=str(path))
    check_card(card, settings, spec, where=str(path), same_size=settings.net == "mlp")
    network = build_network(settings.net, spec, settings.network, seed=0, outputs=settings.outputs)
    load_module(network, tensors, "network")
    return Model(network.eval(), read_scaling(tensors), card)
