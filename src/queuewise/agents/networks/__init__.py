"""Networks by name. A network is one file with one subclass of `Network`, and one line in NETWORKS."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from queuewise.errors import InputError, unknown_name

if TYPE_CHECKING:
    from queuewise.agents.networks.base import Network
    from queuewise.agents.task_shape import TaskShape
    from queuewise.agents.train_settings import NetworkSettings

NETWORKS: dict[str, str] = {  # name -> class
    "mlp": "mlp_network:MlpNetwork",
    "kernel": "kernel_network:KernelNetwork",
    "attn": "attn_network:AttnNetwork",
    "hosts": "hosts_network:HostsNetwork",
    "joint": "joint_network:JointNetwork",
}


def build_network(name: str, shape: TaskShape, settings: NetworkSettings, *, seed: int, outputs: int = 1) -> Network:
    """Build a network with random weights.

    It returns `outputs` numbers per action and for the state (1, or the atoms of a distribution).
    """
    import torch

    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    kind = network_class(name)
    if shape.problem not in kind.problems:
        fitting = [other for other in NETWORKS if shape.problem in network_class(other).problems]
        raise InputError(f"network {name!r} cannot decide the {shape.problem} problem", hint=f"use --net {' or '.join(fitting)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(shape, settings, outputs)


def network_class(name: str) -> type[Network]:
    module, _, cls = NETWORKS[name].partition(":")
    kind: type[Network] = getattr(import_module(f"{__name__}.{module}"), cls)
    return kind
