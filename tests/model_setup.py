"""Models as `queuewise train` leaves them, with random weights: quick to make, and as good as trained ones for everything but results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents_setup import small_settings
from queuewise.agents.checkpoint import make_card, write_model
from queuewise.agents.network import Network, build_network
from queuewise.agents.observation_scaling import PARTS, Scaling, identity
from queuewise.agents.scenario import Scenario, load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings

PROBLEM_OF = {"mlp": "job", "kernel": "job", "attn": "job", "hosts": "host", "joint": "joint"}


@dataclass
class Made:
    """As much of a learner as is kept."""

    network: Network
    scaling: Scaling


def settings_for(net: str, **changes: Any) -> TrainSettings:
    base: dict[str, Any] = {"env": PROBLEM_OF[net], "net": net, "cluster": "2x4:V100-16", "network": {"width": 16, "heads": 2}}
    return small_settings(**base | changes)


def make_model(home: Path, net: str, *, seed: int = 5, decision: str = "likely", **changes: Any) -> tuple[Made, Scenario]:
    """`home/best.safetensors`, and what was written there."""
    scenario = load_scenario(settings_for(net, **changes))
    shape = TaskShape(scenario.settings.env, scenario.setup.layout)
    made = random_model(shape, scenario.settings, seed)
    home.mkdir(parents=True, exist_ok=True)
    card = make_card(scenario.settings, shape, seed, frames=1024, score=scenario.settings.score, progress={}, decision=decision)
    write_model(home / "best.safetensors", made, card)  # type: ignore[arg-type]
    return made, scenario


def random_model(shape: TaskShape, settings: TrainSettings, seed: int, outputs: int = 1) -> Made:
    """Weights large enough that scores differ, and a scaling that does something."""
    random = torch.Generator().manual_seed(seed)
    network = build_network(settings.net, shape, settings.network, seed=seed, outputs=outputs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.2)
    plain = identity(shape.layout)
    mean = {part: 0.3 * torch.rand(plain.mean[part].shape, generator=random) for part in PARTS}
    scale = {part: 0.5 + torch.rand(plain.scale[part].shape, generator=random) for part in PARTS}
    names = {"jobs": shape.layout.job_features, "hosts": shape.layout.host_features}
    for part, features in names.items():
        for flag in (index for index, name in enumerate(features) if name in ("present", "host_present", "current")):
            mean[part][flag], scale[part][flag] = 0.0, 1.0
    return Made(network, Scaling(mean, scale))
