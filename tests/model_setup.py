"""Models as `queuewise train` leaves them, with random weights: quick to make, and as good as trained ones for everything but results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from agents_setup import small_settings
from queuewise.agents.checkpoint import make_card, write_model
from queuewise.agents.network import Network, build_network
from queuewise.agents.observation_scaling import FLAGS, Scaler, Scaling, identity
from queuewise.agents.scenario import Scenario, load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings
from queuewise.evaluation.seen_days import CARD_KEY
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import DIGEST, KEY, digests, read_card
from queuewise.policies.networks import NETWORKS, problems_of

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
    made = random_model(shape, scenario.settings, seed, scenario.settings.outputs)
    home.mkdir(parents=True, exist_ok=True)
    seen = {CARD_KEY: [one.model_dump(mode="json") for one in scenario.trained_on]}
    card = make_card(scenario.settings, shape, seed, frames=1024, score=scenario.settings.score, progress={}, decision=decision, **seen)
    write_model(home / "best.safetensors", made, card)  # type: ignore[arg-type]
    return made, scenario


Arrays = dict[str, Any]
Card = dict[str, Any]


def rewrite_model(path: Path, change: Callable[[Arrays, Card], object], *, digest: bool = True) -> None:
    """Write the file again with other contents, and with the digests that belong to them, or none as earlier versions."""
    arrays, card = dict(load_file(path)), read_card(path)
    change(arrays, card)
    card.pop(DIGEST, None)
    if digest:
        card[DIGEST] = digests(arrays, card)
    save_file(arrays, path, {KEY: json.dumps(card)})


def random_model(shape: TaskShape, settings: TrainSettings, seed: int, outputs: int = 1) -> Made:
    """Weights large enough that scores differ, and a scaling that does something."""
    random = torch.Generator().manual_seed(seed)
    network = build_network(settings.net, shape, settings.network, seed=seed, outputs=outputs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.2)
    plain = identity(shape.layout)
    mean = {part: 0.3 * torch.rand(vector.shape, generator=random) for part, vector in plain.mean.items()}
    scale = {part: 0.5 + torch.rand(vector.shape, generator=random) for part, vector in plain.scale.items()}
    layout = shape.layout
    names = {"jobs": layout.job_features, "hosts": layout.host_features, "running": layout.running_features}
    for part in mean.keys() & names:
        for flag in (index for index, name in enumerate(names[part]) if name in FLAGS):
            mean[part][flag], scale[part][flag] = 0.0, 1.0
    return Made(network, Scaling(mean, scale))


PAIRS = [(name, problem) for name in NETWORKS for problem in sorted(problems_of(name))]
EAGER = (("kernel", 6), ("kernel", 9), ("kernel", 13), ("attn", 2), ("attn", 7), ("attn", 11))  # seeds whose weights stop many jobs
STOPPERS = ("mlp", "kernel", "attn")  # networks that can preempt and migrate


def random_states(shape: TaskShape, number: int, seed: int, *, absent: bool = True) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Observations with some rows unused and one job being placed, and masks: in the first only the wait, in the second one other action.

    Jobs that are not there, waiting or running, cannot be chosen. Unless `absent`, neither can hosts: rows that are not there have equal
    scores.
    """
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (number, shape.layout.size)).astype(np.float32)
    if shape.layout.view != "tokens":
        return rows, _some_masks(rng, np.ones((number, shape.num_actions - 1), np.bool_))
    parts = shape.layout.parts(rows)
    for part in ("jobs", "hosts", *(["running"] if shape.layout.stops else [])):
        used = rng.integers(1, parts[part].shape[1] + 1, number)
        for row, first_unused in zip(parts[part], used, strict=True):
            row[:, 0] = 1.0
            row[first_unused:] = 0.0
    current = shape.layout.job_features.index("current")
    parts["jobs"][:, :, current] = 0.0
    parts["jobs"][: number // 2, 0, current] = 0.5
    rows = np.concatenate([part.reshape(number, -1) for part in parts.values()], axis=1)
    jobs, hosts = parts["jobs"][:, :, 0] > 0, parts["hosts"][:, :, 0] > 0
    hosts = np.ones_like(hosts) if absent else hosts
    there = {"job": jobs, "host": hosts, "joint": (jobs[:, :, None] & hosts[:, None]).reshape(number, -1)}[shape.problem]
    running = [parts["running"][:, :, 0] > 0] * (1 + shape.layout.moves) if shape.layout.stops else []
    return rows, _some_masks(rng, np.concatenate([there, *running], axis=1))


def _some_masks(rng: np.random.Generator, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    mask = rng.random((len(there), there.shape[1] + 1)) < 0.4
    mask[:, :-1] &= there
    mask[~mask.any(1), -1] = True
    mask[:2] = False
    mask[0, -1] = mask[1, 0] = True
    return mask


def arrays_of(made: Made) -> dict[str, NDArray[np.float32]]:
    tensors = {f"network.{name}": tensor for name, tensor in made.network.state_dict().items()} | made.scaling.tensors()
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def interpreted(made: Made, shape: TaskShape, decision: str = "best") -> TrainedNetwork:
    """The network without torch."""
    card = {"layers": [layer.as_json() for layer in made.network.layers], "decision": decision}
    return TrainedNetwork(arrays_of(made), card, shape.problem, shape.layout, where="test")


def torch_scores(made: Made, rows: NDArray[np.float32], mask: NDArray[np.bool_]) -> list[NDArray[np.float32]]:
    """Scores and values of torch."""
    with torch.inference_mode():
        scaled = Scaler(made.scaling, made.network.shape.layout).apply(torch.from_numpy(rows))
        return [output.numpy() for output in made.network(scaled, torch.from_numpy(mask))]
