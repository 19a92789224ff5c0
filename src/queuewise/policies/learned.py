"""Trained networks without torch: the layers of a model's card, run by the compiled interpreter.

Letters: B observations, F their size, A actions, K outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.policies.model_file import Arrays
from queuewise.policies.networks import list_layers
from queuewise.policies.networks.interpreter import decide
from queuewise.policies.networks.layers import LayerError, Layers, ObservationShapes, read_layers
from queuewise.policies.networks.program import DECISIONS, compile_network
from queuewise.policies.networks.program_table import NetworkProgram
from queuewise.sim.core.tables import addresses_of

Bools = NDArray[np.bool_]


def layers_of(card: Mapping[str, Any], arrays: Mapping[str, Any], problem: str, layout: ObservationShapes, *, where: str) -> Layers:
    """The layers of a model: those of its card or, in files of earlier versions, those of the network that it names."""
    if "layers" in card:
        return read_layers(card["layers"], where=where)
    network = card["network"]
    values = [name for name in arrays if name.startswith("network.value.") and name.endswith("weight")]
    last = max(values, key=_number_in, default="network.value.weight")
    if last not in arrays:
        raise lacks(last, where)
    sizes = SimpleNamespace(hidden=(network["width"],) * network["depth"], **network)
    return list_layers(network["name"], problem, layout, sizes, outputs=len(arrays[last]))


def _number_in(name: str) -> int:
    """The number in `network.value.4.weight`; 0 for a single layer, whose name has none."""
    part = name.split(".")[2]
    return int(part) if part.isdigit() else 0


def lacks(name: str, where: str) -> InputError:
    return InputError(f"lacks the weights {name!r}", where=where, hint="use another model, or train again")


class TrainedNetwork:
    """A trained network for observations of one layout."""

    def __init__(self, arrays: Arrays, card: Mapping[str, Any], problem: str, layout: ObservationShapes, *, where: str) -> None:
        self.arrays, self.problem, self.layout = arrays, problem, layout
        self._where = where
        if card.get("decision") not in DECISIONS:
            raise InputError(f"picks actions in an unknown way: {card.get('decision')}", where=where, hint="train again with this version")
        self.layers = layers_of(card, arrays, problem, layout, where=where)
        whole = [self.array(f"network.{layer.weights}.weight") for layer in self.layers if layer.op == "whole"]
        wanted = whole[0].shape[1] if whole else layout.size
        if wanted != layout.size:
            raise InputError(
                f"sees observations of {wanted} numbers, but here they have {layout.size}",
                where=where,
                hint="an mlp fits only the cluster and the window it was trained with; train another network",
            )
        try:
            self.table: NetworkProgram = compile_network(self.layers, self.array, problem, layout, card["decision"])
        except LayerError as error:
            raise InputError(str(error), where=where, hint="use the version of queuewise that wrote it, or train again") from None

    @cached_property
    def call(self) -> Any:
        """What `decide` is given."""
        return addresses_of(self.table)

    @property
    def outputs(self) -> int:
        """K, the numbers per action."""
        return int(self.table.size.outputs)

    def array(self, name: str) -> NDArray[np.float32]:
        if name not in self.arrays:
            raise lacks(name, self._where)
        return self.arrays[name]

    def scores(self, observations: NDArray[np.float32], mask: Bools) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[B, F] observations as the environment gives them and [B, A] mask -> [B, A, K] scores and [B, K] values."""
        observations = np.ascontiguousarray(observations)
        scores = np.empty((*mask.shape, self.outputs), np.float32)
        values = np.empty((len(mask), self.outputs), np.float32)
        for b, (observation, legal) in enumerate(zip(observations, mask.view(np.int8), strict=True)):
            decide(self.call, observation, legal[:-1], legal[-1] != 0, True)
            scores[b] = self.table.score.reshape(scores.shape[1:])
            values[b] = self.table.value
        return scores, values

    def act(self, observations: NDArray[np.float32], mask: Bools) -> NDArray[np.int64]:
        """[B] the flat actions that the model chooses."""
        rows = zip(np.ascontiguousarray(observations), mask.view(np.int8), strict=True)
        return np.array([decide(self.call, observation, legal[:-1], legal[-1] != 0, False) for observation, legal in rows], np.int64)
