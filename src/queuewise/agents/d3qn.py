"""D3QN: double (van Hasselt et al., 2016) dueling (Wang et al., 2016) deep Q-learning with action masks, top to bottom.

n-step targets from a prioritised replay buffer; explores with ε or with noisy weights (Fortunato et al., 2018); learns
means of returns or their distributions. Settings: `D3qnSettings`. The network's scores are the advantages: the legal
action with the highest score is the best.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from queuewise.agents.network import Network, build_network
from queuewise.agents.offpolicy import OffPolicy, random_actions
from queuewise.agents.replay_buffer import Transitions
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.values import dueling, expectation, project, scale_outputs
from queuewise.envs.env_setup import EnvSetup

FIRST_DEVIATION = 0.5  # initial deviation of a layer's noise, times √inputs


class NoisyWeights(nn.Module):
    """Learned noise on the linear layers of a network: the deviations.

    The network itself keeps the means; they decide once training is over.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        first = [FIRST_DEVIATION / math.sqrt(layer.in_features) for _, layer in self._layers]
        self.weights = nn.ParameterList(torch.full_like(layer.weight, size) for (_, layer), size in zip(self._layers, first, strict=True))
        self.biases = nn.ParameterList(
            torch.full((layer.out_features,), size) for (_, layer), size in zip(self._layers, first, strict=True)
        )

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        """Draw weights by name. The noise is the product of one draw per input and one per output."""
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
    """Scores and values with the network's own weights, or with the given ones in their place."""
    if weights is None:
        return network.forward(observations, mask)
    result: tuple[Tensor, Tensor] = functional_call(network, weights, (observations, mask))
    return result


Weights = dict[str, Tensor] | None  # in place of the network's own


class D3qn(OffPolicy):
    decision = "best"
    figures = ("loss/value", "value/mean", "value/target", "gradient/norm", "schedule/epsilon", "schedule/importance")

    def __init__(self, setup: EnvSetup, settings: TrainSettings, seed: int) -> None:
        self.settings = settings.d3qn
        super().__init__(setup, settings, settings.d3qn, seed, priority=settings.d3qn.priority)

    def _build(self, settings: TrainSettings, seed: int) -> None:
        self.network = build_network(settings.net, self.envs.shape, settings.network, seed=seed, outputs=settings.outputs)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.modules = {"network": self.network, "target": self.target}
        self.noise = NoisyWeights(self.network) if self.settings.noisy else None
        if self.noise is not None:
            self.modules["noise"] = self.noise
        learning = [p for module in self.modules.values() for p in module.parameters() if p.requires_grad]
        self.optimisers = {"network": torch.optim.Adam(learning, lr=self.settings.learning_rate, eps=1e-5, fused=True)}

    def _begin(self) -> None:
        self.target.load_state_dict(self.network.state_dict())

    @property
    def _keeps_unit(self) -> bool:
        return self.settings.atoms > 1  # the points of the distributions are fixed

    def _change_unit(self, factor: float) -> None:
        scale_outputs(self.network, factor)
        scale_outputs(self.target, factor)

    # --- playing

    @property
    def epsilon(self) -> float:
        d3qn = self.settings
        if d3qn.explore_frames is not None and not d3qn.noisy:
            return d3qn.final_epsilon + (d3qn.epsilon - d3qn.final_epsilon) * math.exp(-self.frames / d3qn.explore_frames)
        return 0.0 if d3qn.noisy else d3qn.epsilon + (d3qn.final_epsilon - d3qn.epsilon) * min(self.progress / d3qn.explore, 1.0)

    @property
    def importance(self) -> float:
        return self.settings.importance + (1.0 - self.settings.importance) * self.progress

    def _explore(self, observations: Tensor, mask: Tensor) -> Tensor:
        if self.noise is not None:
            outputs = evaluate(self.network, self.noise.draw(self.random), observations, mask)
            return self._means(dueling(*outputs, mask), mask).argmax(1)
        explores = torch.rand(len(mask), generator=self.random) < self.epsilon
        return torch.where(explores, random_actions(mask, self.random), self.act(observations, mask))

    # --- learning

    def _learn(self) -> Tensor:
        batch = self.replay.draw(self.settings.batch, self.importance, self.random)
        losses, errors, expected, aim = self._losses(batch)
        norm = self._descend("network", (batch.weights * losses).mean())
        self.replay.update_priorities(batch.places, errors)
        self._update_target(self.target, self.network)
        return torch.stack([losses.detach().mean(), expected, aim, norm, torch.tensor(self.epsilon), torch.tensor(self.importance)])

    def _losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[B] losses, [B] absolute errors, and the means of the predictions and of the targets."""
        outputs = self._outputs(self.network, self._noise(), batch.observations, batch.masks)
        rows = torch.arange(len(batch.actions))
        chosen = outputs[rows, batch.actions]  # [B, K]
        with torch.no_grad():
            ahead = self._outputs(self.network, self._noise(), batch.next_observations, batch.next_masks)
            best = self._means(ahead, batch.next_masks).argmax(1)  # double: chosen by the online network, valued by the target
            judged = self._outputs(self.target, None, batch.next_observations, batch.next_masks)[rows, best]
        if self.settings.atoms == 1:
            expected = chosen.squeeze(1)
            aims = batch.returns / self.unit + batch.discounts * judged.squeeze(1)
            return (
                functional.smooth_l1_loss(expected, aims, reduction="none"),
                (expected - aims).detach().abs(),
                expected.mean(),
                aims.mean(),
            )
        points = torch.linspace(*self.support, self.settings.atoms)
        moved = (batch.returns / self.unit).unsqueeze(1) + batch.discounts.unsqueeze(1) * points
        aim = project(moved, judged.softmax(1), *self.support)
        divergence = functional.kl_div(chosen.log_softmax(1), aim, reduction="none").sum(1)
        return divergence, divergence.detach().clamp(min=0.0), (chosen.softmax(1) @ points).mean(), (aim @ points).mean()

    def _noise(self) -> Weights:
        return None if self.noise is None else self.noise.draw(self.random)

    def _outputs(self, network: Network, weights: Weights, observations: Tensor, mask: Tensor) -> Tensor:
        """[B, A, K] action values, or the logits of their distributions."""
        return dueling(*evaluate(network, weights, observations, mask), mask)

    def _means(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """[B, A] mean action values."""
        return outputs.squeeze(-1) if self.settings.atoms == 1 else expectation(outputs, mask, *self.support)

    @property
    def support(self) -> tuple[float, float]:
        """The first and last point of the distributions."""
        return self.centre - self.settings.support, self.centre + self.settings.support
