"""Size and speed of networks: parameters, the time of one decision without torch, and frames per second with torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from queuewise.agents.network import Network, build_network
from queuewise.agents.observation_scaling import Scaler, identity
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.envs.features import ObservationLayout
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.networks import problems_of

BATCH = 256
LEGAL = 0.25  # share of actions that are legal, as in a busy queue


@dataclass(frozen=True)
class NetSpeed:
    network: str
    problem: str
    width: int
    parameters: int
    decision_us: float  # one observation, compiled
    forward_per_s: float  # frames, torch, batches of 256
    learn_per_s: float  # frames, forward and backward

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_networks(
    names: Sequence[str],
    widths: Sequence[int],
    layout: ObservationLayout,
    *,
    depth: int = 2,
    seconds: float = 0.2,
    problem: str | None = None,
) -> list[NetSpeed]:
    """Measure each network and width. Without `problem`, a network is measured on the first problem it can decide."""
    rows = []
    for name, decides in [(name, problems_of(name)) for name in names]:
        chosen = problem or ("job" if "job" in decides else min(decides))
        rows += [_measure(name, TaskShape(chosen, layout), NetworkSettings(width=width, depth=depth), seconds) for width in widths]
    return rows


def _measure(name: str, shape: TaskShape, sizes: NetworkSettings, seconds: float) -> NetSpeed:
    network = build_network(name, shape, sizes, seed=0)
    rows, mask = _states(shape)
    scaled = Scaler(identity(shape.layout), shape.layout).apply(torch.from_numpy(rows))
    legal = torch.from_numpy(mask)
    plain = _without_torch(name, network, shape)

    def forward() -> None:
        with torch.inference_mode():
            network.policy(scaled, legal)

    def learn() -> None:
        scores, values = network.policy(scaled, legal)
        network.zero_grad()
        (scores.log_softmax(1)[:, -1].mean() + values.square().mean()).backward()  # type: ignore[no-untyped-call]

    return NetSpeed(
        network=name,
        problem=shape.problem,
        width=sizes.width,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        decision_us=1e6 * _time(lambda: plain.act(rows[:1], mask[:1]), seconds),
        forward_per_s=BATCH / _time(forward, seconds),
        learn_per_s=BATCH / _time(learn, seconds),
    )


def _without_torch(name: str, network: Network, shape: TaskShape) -> TrainedNetwork:
    tensors = {f"network.{key}": tensor for key, tensor in network.state_dict().items()} | identity(shape.layout).tensors()
    card = {"layers": [layer.as_json() for layer in network.layers], "decision": "best"}
    return TrainedNetwork({key: tensor.numpy() for key, tensor in tensors.items()}, card, shape.problem, shape.layout, where=name)


def _states(shape: TaskShape) -> tuple[Any, Any]:
    """Full windows on a full cluster. A share of the actions is legal, and always the wait."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (BATCH, shape.observation_size)).astype(np.float32)
    for part in ("jobs", "hosts"):
        shape.layout.parts(rows)[part][:, :, 0] = 1.0  # present
    mask = rng.random((BATCH, shape.num_actions)) < LEGAL
    mask[:, -1] = True
    return rows, mask


def _time(work: Callable[[], object], seconds: float) -> float:
    """Seconds per call: the median of as many calls as fit into the time, at least three, after one to warm up."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))
