"""Noise on weights, whose size is learnt (Fortunato et al., 2018). The network itself keeps the plain weights, the means: they decide once
training is over."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call

from queuewise.agents.networks.base import Network

FIRST = 0.5  # deviation of a layer's noise at the beginning, times √inputs


class NoisyWeights(nn.Module):
    """The deviations of all linear layers of a network."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        first = [FIRST / math.sqrt(layer.in_features) for _, layer in self._layers]
        self.weights = nn.ParameterList(torch.full_like(layer.weight, size) for (_, layer), size in zip(self._layers, first, strict=True))
        self.biases = nn.ParameterList(
            torch.full((layer.out_features,), size) for (_, layer), size in zip(self._layers, first, strict=True)
        )

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        """Weights by name, with noise that is the product of one for each input and one for each output."""
        drawn: dict[str, Tensor] = {}
        for (name, layer), weight, bias in zip(self._layers, self.weights, self.biases, strict=True):
            before, after = _noise(layer.in_features, random), _noise(layer.out_features, random)
            drawn[f"{name}.weight"] = layer.weight + weight * torch.outer(after, before)
            if layer.bias is not None:
                drawn[f"{name}.bias"] = layer.bias + bias * after
        return drawn


def _noise(number: int, random: torch.Generator) -> Tensor:
    normal = torch.randn(number, generator=random)
    return normal.sign() * normal.abs().sqrt()


def evaluate(network: Network, weights: dict[str, Tensor] | None, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and values by the network's weights, or by those given in their place."""
    if weights is None:
        return network.forward(observations, mask)
    result: tuple[Tensor, Tensor] = functional_call(network, weights, (observations, mask))
    return result
