"""Networks by name. A network is one file that lists its layers, and one line in NETWORKS. Needs no torch.

`layers` describes what a list contains, `interpreter` runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from queuewise.errors import InputError, unknown_name
from queuewise.policies.networks.layers import Layers, NetworkSizes, ObservationShapes

NETWORKS: dict[str, str] = {  # name -> module with PROBLEMS and list_layers
    "mlp": "mlp_network",
    "kernel": "kernel_network",
    "attn": "attn_network",
    "hosts": "hosts_network",
    "joint": "joint_network",
}


def list_layers(name: str, problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int = 1) -> Layers:
    """The layers of a network for a problem and a layout of observations.

    It returns `outputs` numbers per action and for the state (1, or the atoms of a distribution).
    """
    if problem not in problems_of(name):
        fitting = [other for other in NETWORKS if problem in problems_of(other)]
        raise InputError(f"network {name!r} cannot decide the {problem} problem", hint=f"use --net {' or '.join(fitting)}")
    layers: Layers = _module(name).list_layers(problem, layout, sizes, outputs)
    return layers


def problems_of(name: str) -> frozenset[str]:
    """The problems that the network can decide."""
    problems: frozenset[str] = _module(name).PROBLEMS
    return problems


def _module(name: str) -> Any:
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    return import_module(f"{__name__}.{NETWORKS[name]}")
