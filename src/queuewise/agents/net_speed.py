"""How large and how fast networks are: parameters, time of one decision without torch, frames a second through torch, forward and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from queuewise.agents.networks import NETWORKS, build_network, network_class
from queuewise.agents.networks.base import Network
from queuewise.agents.scaling import Scaler, identity
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec
from queuewise.envs.features import ObservationLayout
from queuewise.errors import unknown_name
from queuewise.policies.learned import Learned

BATCH = 256
LEGAL = 0.25  # share of actions that are legal, as in a busy queue


@dataclass(frozen=True)
class NetSpeed:
    network: str
    problem: str
    width: int
    parameters: int
    decision_us: float  # one observation, NumPy
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
    """One row for each network and width; a network is measured on the first problem it decides, unless one is named."""
    for name in names:
        if name not in NETWORKS:
            raise unknown_name("network", name, NETWORKS)
    rows = []
    for name in names:
        decides = network_class(name).problems
        chosen = problem or ("job" if "job" in decides else min(decides))
        rows += [_measure(name, Spec(chosen, layout), NetworkSettings(width=width, depth=depth), seconds) for width in widths]
    return rows


def _measure(name: str, spec: Spec, sizes: NetworkSettings, seconds: float) -> NetSpeed:
    network = build_network(name, spec, sizes, seed=0)
    rows, mask = _states(spec)
    scaled = Scaler(identity(spec.layout), spec.layout).apply(torch.from_numpy(rows))
    legal = torch.from_numpy(mask)
    plain = _without_torch(name, network, spec, sizes)

    def forward() -> None:
        with torch.inference_mode():
            network.policy(scaled, legal)

    def learn() -> None:
        scores, values = network.policy(scaled, legal)
        network.zero_grad()
        (scores.log_softmax(1)[:, -1].mean() + values.square().mean()).backward()  # type: ignore[no-untyped-call]

    return NetSpeed(
        network=name,
        problem=spec.problem,
        width=sizes.width,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        decision_us=1e6 * _time(lambda: plain.act(rows[:1], mask[:1]), seconds),
        forward_per_s=BATCH / _time(forward, seconds),
        learn_per_s=BATCH / _time(learn, seconds),
    )


def _without_torch(name: str, network: Network, spec: Spec, sizes: NetworkSettings) -> Learned:
    tensors = {f"network.{key}": tensor for key, tensor in network.state_dict().items()} | identity(spec.layout).tensors()
    card = {"network": {"name": name, **sizes.model_dump()}, "decision": "best"}
    return Learned({key: tensor.numpy() for key, tensor in tensors.items()}, card, spec.problem, spec.layout, where=name)


def _states(spec: Spec) -> tuple[Any, Any]:
    """Full windows on a full cluster, with a share of the actions legal, and always the wait."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (BATCH, spec.observation_size)).astype(np.float32)
    for part in ("jobs", "hosts"):
        spec.layout.parts(rows)[part][:, :, 0] = 1.0  # present
    mask = rng.random((BATCH, spec.num_actions)) < LEGAL
    mask[:, -1] = True
    return rows, mask


def _time(work: Callable[[], object], seconds: float) -> float:
    """Seconds of one call: the median of as many as fit into the time, at least three, after one that is not counted."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))
