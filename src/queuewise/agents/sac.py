"""SAC: soft actor-critic (Haarnoja et al., 2018) for discrete actions (Christodoulou, 2019) with masks, top to bottom.

The actor keeps a target entropy: in every state a share of the logarithm of the number of legal actions, so states with
two and with fifty choices are explored alike. The temperature, the weight of the entropy, is adjusted to reach it.
There are two critics, and the lower of their values counts. Entropy is added at the state n steps later, not at those
between. Settings: `SacSettings`.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from queuewise.agents.learner import spawn_seeds
from queuewise.agents.network import Network, build_network
from queuewise.agents.offpolicy import OffPolicy
from queuewise.agents.ppo import UNLIKELY, draw
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.values import dueling, scale_outputs
from queuewise.envs.env_setup import EnvSetup


class Sac(OffPolicy):
    decision = "likely"
    figures = ("loss/value", "loss/policy", "value/mean", "policy/entropy", "policy/entropy_target", "policy/temperature", "gradient/norm")

    def __init__(self, setup: EnvSetup, settings: TrainSettings, seed: int) -> None:
        self.settings = settings.sac
        super().__init__(setup, settings, settings.sac, seed, priority=0.0)

    def _build(self, settings: TrainSettings, seed: int) -> None:
        sac = self.settings
        networks = [build_network(settings.net, self.envs.shape, settings.network, seed=seed) for seed in spawn_seeds(seed, 3)]
        self.network, self.critics = networks[0], networks[1:]
        self.targets = [copy.deepcopy(critic).requires_grad_(False) for critic in self.critics]
        both = nn.ModuleList(self.critics)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(sac.temperature)))
        self.modules = {"network": self.network, "critics": both, "targets": nn.ModuleList(self.targets)}
        self.modules["temperature"] = nn.ParameterDict({"log": self.log_temperature})
        self.optimisers = {
            "actor": torch.optim.Adam(self.network.parameters(), lr=sac.learning_rate, eps=1e-5, fused=True),
            "critics": torch.optim.Adam(both.parameters(), lr=sac.learning_rate, eps=1e-5, fused=True),
            "temperature": torch.optim.Adam([self.log_temperature], lr=sac.learning_rate, eps=1e-5, fused=True),
        }
        own = {"actor": sac.actor_rate, "critics": sac.critic_rate, "temperature": sac.temperature_rate}
        self.rates = {name: rate / sac.learning_rate for name, rate in own.items() if rate is not None}

    def _begin(self) -> None:
        """Critics start from scratch, whatever the actor has learnt."""

    def _change_unit(self, factor: float) -> None:
        for critic in (*self.critics, *self.targets):
            scale_outputs(critic, factor)
        with torch.no_grad():
            self.log_temperature.add_(math.log(factor))

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.detach().exp()

    def _explore(self, observations: Tensor, mask: Tensor) -> Tensor:
        return draw(self.network.policy(observations, mask)[0].log_softmax(1), mask, self.random)

    def _learn(self) -> Tensor:
        batch = self.replay.draw(self.settings.batch, 0.0, self.random)
        with torch.no_grad():
            probabilities, log_probs = choices(self.network, batch.next_observations, batch.next_masks)
            lower = self._lower(self.targets, batch.next_observations, batch.next_masks)
            soft = (probabilities * (lower - self.temperature * log_probs)).sum(1)
            aims = batch.returns / self.unit + batch.discounts * soft
        rows = torch.arange(len(batch.actions))
        said = [action_values(critic, batch.observations, batch.masks)[rows, batch.actions] for critic in self.critics]
        value_loss = torch.stack([functional.smooth_l1_loss(values, aims) for values in said]).sum()
        norm = self._descend("critics", value_loss)

        probabilities, log_probs = choices(self.network, batch.observations, batch.masks)
        with torch.no_grad():
            lower = self._lower(self.critics, batch.observations, batch.masks)
        policy_loss = (probabilities * (self.temperature * log_probs - lower)).sum(1).mean()
        entropy, wanted = entropy_of(probabilities, log_probs).detach(), self._targets(batch.masks)
        if self.updates % self.settings.policy_delay == 0:
            self._descend("actor", policy_loss)
            self._descend("temperature", (self.log_temperature * (entropy - wanted)).mean())
        for target, critic in zip(self.targets, self.critics, strict=True):
            self._update_target(target, critic)
        figures = [value_loss, policy_loss, said[0].mean(), entropy.mean(), wanted.mean(), self.temperature, norm]
        return torch.stack([figure.detach() for figure in figures])

    def _targets(self, mask: Tensor) -> Tensor:
        """[B] the entropies to reach. A fixed one is at most that of a uniform choice."""
        fixed = self.settings.fixed_entropy
        if fixed is None:
            return entropy_targets(mask, self.settings.entropy)
        return entropy_targets(mask, 1.0).clamp(max=fixed)

    def _lower(self, critics: list[Network], observations: Tensor, mask: Tensor) -> Tensor:
        """[B, A] the lower value of the two critics; 0 where illegal, which adds nothing to a sum over the policy."""
        first, second = (action_values(critic, observations, mask) for critic in critics)
        return torch.min(first, second).masked_fill(~mask, 0.0)


def choices(actor: Network, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """[B, A] probabilities and their logarithms; both 0 where illegal."""
    log_probs = actor.policy(observations, mask)[0].log_softmax(1).clamp(min=UNLIKELY)
    return log_probs.exp() * mask, log_probs * mask


def action_values(critic: Network, observations: Tensor, mask: Tensor) -> Tensor:
    """[B, A] action values of one critic."""
    scores, values = critic(observations, mask)
    return dueling(scores, values, mask).squeeze(-1)


def entropy_of(probabilities: Tensor, log_probs: Tensor) -> Tensor:
    """[B] entropies."""
    return -(probabilities * log_probs).sum(1)


def entropy_targets(mask: Tensor, share: float) -> Tensor:
    """[B] share × log(number of legal actions), the entropy of a uniform choice; 0 where there is no choice."""
    return share * mask.sum(1).log()
