"""Values of actions from the scores and values of a network (Wang et al., 2016), and their means where it gives distributions.

B states, A actions, K numbers each: 1, or the logits of K equally spaced points.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from queuewise.agents.networks.base import ILLEGAL, Network

HEADS = ("score", "wait", "value")  # of networks


def action_scores(network: Network, observations: Tensor, mask: Tensor) -> Tensor:
    """[B, A] what an action is picked by: the network's scores, or the means of its distributions."""
    scores, values = network(observations, mask)
    return scores.squeeze(-1) if network.outputs == 1 else expectation(dueling(scores, values, mask), mask)


def dueling(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """[B, A, K] the state's value plus how far an action is above the mean of the legal ones; ILLEGAL where the mask is false."""
    illegal = ~mask.unsqueeze(-1)
    mean = scores.masked_fill(illegal, 0.0).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
    return (values.unsqueeze(1) + scores - mean).masked_fill(illegal, ILLEGAL)


def expectation(logits: Tensor, mask: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """[B, A] means of distributions over points from `low` to `high`; ILLEGAL where the mask is false."""
    points = torch.linspace(low, high, logits.shape[-1])
    return (logits.softmax(-1) @ points).masked_fill(~mask, ILLEGAL)


def project(points: Tensor, probabilities: Tensor, low: float, high: float) -> Tensor:
    """[B, K] probabilities of moved points [B, K] on the fixed ones from `low` to `high`: each gives to the two beside it, in proportion to
    its nearness (Bellemare et al., 2017)."""
    number = points.shape[1]
    places = (points.clamp(low, high) - low) * ((number - 1) / (high - low))
    nearness = (1.0 - (places.unsqueeze(2) - torch.arange(number)).abs()).clamp(min=0.0)  # [B, from, to]
    return (probabilities.unsqueeze(2) * nearness).sum(1)


def scale_outputs(network: Network, factor: float) -> None:
    """Make all scores and values so many times as large: every head ends in a linear layer."""
    heads = [
        [layer for layer in head.modules() if isinstance(layer, nn.Linear)] for name, head in network.named_children() if name in HEADS
    ]
    with torch.no_grad():
        for *_, last in heads:
            for parameter in last.parameters():
                parameter.mul_(factor)
