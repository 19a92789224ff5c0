"""What algorithms with a replay buffer share: playing, storing transitions, and saving and restoring their state.

One iteration: `steps` times, all environments take a step and the learner takes `updates` gradient steps on transitions
from the buffer. The unit of rewards is the deviation of returns: at first that of random play, with which the first
iteration begins. It is measured again once recent returns deviate far less, because the losses of a bad policy hide
what a good one can still gain.

A checkpoint does not hold the buffer but how to fill it again. Environments are functions of their seeds and of the
actions taken, so an earlier state of the environments and all actions since then give every observation, bit for bit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from queuewise.agents import learner
from queuewise.agents.algorithm_settings import OffPolicySettings
from queuewise.agents.learner import DivergedError, LearnerState, Statistics
from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import Scaler, Scaling, read_scaling
from queuewise.agents.replay_buffer import ReplayBuffer, rows_for
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.training_envs import Step, TrainingEnvs, warm_up, window_filter
from queuewise.agents.values import LEAST_DEVIATION, action_scores, step_discounts
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import InputError

RECENT = 4  # iterations whose returns determine the unit of rewards
FAR = 2.0  # times smaller: then the unit changes


@dataclass
class ActionLog:
    """A state of the environments, and all actions since then, up to the next such state."""

    envs: dict[str, Tensor]  # called `stage` in checkpoints
    cursors: Tensor  # of the replay buffer
    actions: list[Tensor] = field(default_factory=list)  # [E] each


class OffPolicy(ABC):
    """A learner with a replay buffer; see `Learner` for the public members."""

    decision: str
    network: Network
    modules: dict[str, nn.Module]  # everything with weights, `network` included
    optimisers: dict[str, torch.optim.Optimizer]
    rates: dict[str, float]  # learning rates of some optimisers, relative to that of the settings
    figures: ClassVar[tuple[str, ...]]  # names of the numbers that `_learn` returns

    def __init__(self, setup: EnvSetup, settings: TrainSettings, own: OffPolicySettings, seed: int, *, priority: float) -> None:
        torch.set_num_threads(1)
        check_sizes(own)
        self._own, self.total_frames = own, settings.frames
        weights, play, drawing, chance = learner.spawn_seeds(seed, 4)
        self.envs = TrainingEnvs(setup, own.num_envs, seed=play, draw=window_filter(setup, settings.filter, settings.objective))
        shape = self.envs.shape
        sizes = (own.num_envs, shape.observation_size, shape.num_actions)
        self.replay = ReplayBuffer(rows_for(own.replay, *sizes, own.replay_gib), *sizes, n_step=own.n_step, alpha=priority)
        self.random = torch.Generator().manual_seed(drawing)
        self._row = torch.zeros(own.num_envs, shape.observation_size)  # the current state
        self._mask = torch.zeros(own.num_envs, shape.num_actions, dtype=torch.bool)
        self.frames = self.iterations = self.updates = 0
        self.unit, self.centre = 1.0, 0.0  # deviation of returns in random play, and their mean in that unit
        self.rates = {}
        self._build(settings, weights)
        self.scaling = warm_up([self.envs], chance)
        self._logs = [ActionLog(self.envs.state(), self.replay.cursors)]
        self._observe()

    @abstractmethod
    def _build(self, settings: TrainSettings, seed: int) -> None:
        """Create modules and optimisers."""

    @abstractmethod
    def _begin(self) -> None:
        """Called before the first frame: derive other weights from the network's, which may have been loaded."""

    @property
    def _keeps_unit(self) -> bool:
        return False

    @abstractmethod
    def _change_unit(self, factor: float) -> None:
        """Multiply all values by `factor`, so that they stay the same in terms of rewards."""

    @abstractmethod
    def _explore(self, observations: Tensor, mask: Tensor) -> Tensor:
        """[E] actions to play."""

    @abstractmethod
    def _learn(self) -> Tensor:
        """One gradient step; returns `figures`."""

    # --- one iteration

    def iterate(self) -> Statistics:
        tallies = []
        if self.frames == 0:
            self._begin()
            tallies += self._play_randomly()
        elif not self._keeps_unit:
            self._update_unit()
        rate = self._set_rate()
        figures, play_s, learn_s = [], 0.0, 0.0
        for _ in range(self._own.steps):
            began = time.perf_counter()
            with torch.inference_mode():
                actions = self._explore(self._row, self._mask)
            tallies += self._step(actions).tallies
            played = time.perf_counter()
            for _ in range(self._own.updates):
                figures.append(self._learn())
                self.updates += 1
            play_s, learn_s = play_s + played - began, learn_s + time.perf_counter() - played
        self.iterations += 1
        means = dict(zip(self.figures, torch.stack(figures).mean(0).tolist(), strict=True))
        return (
            means
            | learner.episode_means(tallies)
            | {"schedule/learning_rate": rate, "value/unit": self.unit, "time/play_s": play_s, "time/learn_s": learn_s}
        )

    def _play_randomly(self) -> list[dict[str, float]]:
        tallies = []
        while self.frames < self._own.first_frames:
            tallies += self._step(random_actions(self._mask, self.random)).tallies
        returns = self.replay.discounted_returns(self.replay.rows)
        self.unit = max(float(returns.std()), LEAST_DEVIATION)
        self.centre = float(returns.mean()) / self.unit
        return tallies

    def _update_unit(self) -> None:
        deviation = max(float(self.replay.discounted_returns(RECENT * self._own.steps).std()), LEAST_DEVIATION)
        if deviation < self.unit / FAR:
            self._change_unit(self.unit / deviation)
            self.unit = deviation

    def _step(self, actions: Tensor) -> Step:
        """Take a step in all environments and store it."""
        before, mask = self._row.clone(), self._mask.clone()
        step = self.envs.step(actions, self._row, self._mask)
        discounts = step_discounts(step.elapsed, self._own.gamma, self.envs.setup.settings.discount_per_s)
        ended = step.ended.copy()
        ended[step.cut] = False
        self.replay.add(before, mask, actions.numpy(), np.where(ended, 0.0, discounts), step)
        self.frames += self._own.num_envs
        self._logs[-1].actions.append(actions.clone())
        if len(self._logs[-1].actions) == self.replay.rows:
            self._logs = [self._logs[-1], ActionLog(self.envs.state(), self.replay.cursors)]  # earlier rows are overwritten
        return step

    @property
    def progress(self) -> float:
        return min(self.frames / self.total_frames, 1.0)

    def _set_rate(self) -> float:
        own = self._own
        rate = learner.scheduled(own.schedule, self.progress, own.learning_rate, own.final_rate * own.learning_rate, own.warmup)
        for name, optimiser in self.optimisers.items():
            for group in optimiser.param_groups:
                group["lr"] = rate * self.rates.get(name, 1.0)
        return rate

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        """Take one step of this optimiser; return the length of the gradient."""
        if not loss.isfinite():
            raise DivergedError(
                f"the loss of the {name} is {loss.item():g} in iteration {self.iterations + 1}, gradient step {self.updates + 1}",
                hint="use a smaller learning_rate, or a smaller max_gradient",
            )
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], self._own.max_gradient)
        optimiser.step()
        return norm

    def _update_target(self, target: nn.Module, online: nn.Module) -> None:
        """Every `target_every` gradient steps, move the target by `target_share` towards the online network."""
        if (self.updates + 1) % self._own.target_every == 0:
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.lerp_(fast, self._own.target_share)

    # --- the rest of the Learner interface

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return learner.DECISIONS[self.decision](action_scores(self.network, observations, mask))

    def rescale(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self._observe()

    def _observe(self) -> None:
        self.envs.scaler = Scaler(self.scaling, self.envs.shape.layout)
        self.envs.write(self._row, self._mask)

    def state(self) -> LearnerState:
        tensors = self.scaling.tensors() | {"random": self.random.get_state(), "replay.priorities": self.replay.priorities}
        for name, module in self.modules.items():
            tensors |= learner.module_tensors(module, name)
        for name, optimiser in self.optimisers.items():
            tensors |= learner.optimiser_tensors(optimiser, f"optimiser.{name}")
        for number, log in enumerate(self._logs):
            taken = torch.stack(log.actions).int() if log.actions else torch.zeros(0, self._own.num_envs, dtype=torch.int32)
            tensors |= {f"past.{number}.actions": taken, f"past.{number}.cursors": log.cursors}
            tensors |= {f"past.{number}.stage.{name}": tensor for name, tensor in log.envs.items()}
        return LearnerState(tensors, {name: getattr(self, name) for name in ("frames", "iterations", "updates", "unit", "centre")})

    def restore(self, state: LearnerState) -> None:
        tensors = state.tensors
        for name, module in self.modules.items():
            learner.load_module(module, tensors, name)
        for name, optimiser in self.optimisers.items():
            learner.load_optimiser(optimiser, tensors, f"optimiser.{name}")
        self.scaling = read_scaling(tensors)
        self._refill_buffer(tensors)
        self.replay.priorities = tensors["replay.priorities"]
        self.random.set_state(tensors["random"])
        self._set_facts(**state.facts)

    def _refill_buffer(self, tensors: dict[str, Tensor]) -> None:
        """Take all stored actions again."""
        pasts = [learner.within(tensors, f"past.{number}") for number in range(2) if f"past.{number}.actions" in tensors]
        self.envs.restore(learner.within(pasts[0], "stage"))
        self.replay.cursors = pasts[0]["cursors"]
        self._logs = [ActionLog(learner.within(pasts[0], "stage"), pasts[0]["cursors"])]
        self._observe()
        for past in pasts:
            for actions in past["actions"].long():
                self._step(actions)

    def _set_facts(self, **facts: Any) -> None:
        for name, value in facts.items():
            setattr(self, name, value)

    def close(self) -> None:
        self.envs.close()


def random_actions(mask: Tensor, random: torch.Generator) -> Tensor:
    """[B] random legal actions, all equally likely."""
    return torch.multinomial(mask.float(), 1, generator=random).squeeze(1)


def check_sizes(own: OffPolicySettings) -> None:
    least = own.num_envs * (own.n_step + 1)
    if not least <= own.first_frames <= own.replay:
        raise InputError(
            f"first_frames {own.first_frames} does not fit a replay buffer of {own.replay} states",
            hint=f"set first_frames from {least} (num_envs × (n_step + 1)) to {own.replay}, or a larger replay",
        )
