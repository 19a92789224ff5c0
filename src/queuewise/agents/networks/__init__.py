"""Networks by name. A network is one file with one class derived from `Network`; its line in NETWORKS registers it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from queuewise.errors import InputError, unknown_name

if TYPE_CHECKING:
    from queuewise.agents.networks.base import Network
    from queuewise.agents.settings import NetworkSettings
    from queuewise.agents.spec import Spec

NETWORKS: dict[str, str] = {  # name -> class
    "mlp": "mlp:Mlp",
    "kernel": "kernel:Kernel",
    "attn": "attn:Attention",
    "hosts": "hosts:Hosts",
    "joint": "joint:Joint",
}


def build_network(name: str, spec: Spec, settings: NetworkSettings, *, seed: int, outputs: int = 1) -> Network:
    """A network with weights drawn by `seed`. `outputs` numbers for each action and for the state (1, or the atoms of a distribution)."""
    import torch

    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    kind = network_class(name)
    if spec.problem not in kind.problems:
        fitting = [other for other in NETWORKS if spec.problem in network_class(other).problems]
        raise InputError(f"network {name!r} cannot decide the {spec.problem} problem", hint=f"use --net {' or '.join(fitting)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(spec, settings, outputs)


def network_class(name: str) -> type[Network]:
    module, _, cls = NETWORKS[name].partition(":")
    kind: type[Network] = getattr(import_module(f"{__name__}.{module}"), cls)
    return kind
