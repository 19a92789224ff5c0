"""Networks by name. A network is one file that lists its layers, and one line in NETWORKS. Needs no torch.

`layers` describes what a list contains, `interpreter` runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from queuewise.errors import InputError, unknown_name
from queuewise.policies.networks.layers import LayerError, Layers, NetworkSizes, ObservationShapes

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
    try:
        layers: Layers = _module(name).list_layers(problem, layout, sizes, outputs)
    except LayerError as error:
        if layout.view != "tokens":
            message = f"network {name!r} reads jobs and hosts one by one, which the view {layout.view!r} does not show"
            raise InputError(message, hint="use --net mlp, or --task.view tokens") from None
        if layout.stops:
            message = f"network {name!r} cannot preempt or migrate jobs: {error}"
            raise InputError(message, hint="use --net kernel, attn or mlp, or remove stops from the task") from None
        raise
    return layers


def problems_of(name: str) -> frozenset[str]:
    """The problems that the network can decide."""
    problems: frozenset[str] = _module(name).PROBLEMS
    return problems


def _module(name: str) -> Any:
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    return import_module(f"{__name__}.{NETWORKS[name]}")
