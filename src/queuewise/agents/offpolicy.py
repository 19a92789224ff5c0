"""What learners from a replay share: playing, remembering, and telling and taking back their state.

One iteration: `steps` times, all environments take a step and the learner takes `updates` gradient steps on what it remembers. Rewards are
learnt in units of the deviation of returns: of play by chance, with which the first iteration begins, and again whenever that of recent
play has become far smaller, since what a bad policy loses hides what a good one can still gain.

A checkpoint does not hold the replay but how to fill it again: environments are functions of their seeds and of the actions taken, so the
state of the stage long enough ago and all actions since tell every observation, to the bit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from queuewise.agents.filtering import window_filter
from queuewise.agents.learner import (
    DECISIONS,
    Diverged,
    State,
    Statistics,
    episode_means,
    load_module,
    load_optimiser,
    module_tensors,
    optimiser_tensors,
    spawn_seeds,
    within,
)
from queuewise.agents.networks.base import Network
from queuewise.agents.replay import Replay, rows_for
from queuewise.agents.returns import LEAST_DEVIATION, step_discounts
from queuewise.agents.scaling import Scaler, Scaling, read_scaling
from queuewise.agents.schedules import scheduled
from queuewise.agents.settings import OffPolicySettings, TrainSettings
from queuewise.agents.stage import Stage, Step
from queuewise.agents.values import action_scores
from queuewise.agents.warmup import warm_up
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import InputError

RECENT = 4  # iterations whose returns tell the unit of rewards
FAR = 2.0  # times


@dataclass
class Past:
    """A moment, and the actions of all environments since, up to the next such moment."""

    stage: dict[str, Tensor]
    cursors: Tensor  # of the replay
    actions: list[Tensor] = field(default_factory=list)  # [E] each


class OffPolicy(ABC):
    decision: str
    network: Network
    modules: dict[str, nn.Module]  # all weights, those of `network` among them
    optimisers: dict[str, torch.optim.Optimizer]
    figures: ClassVar[tuple[str, ...]]  # names of what `_learn` returns

    def __init__(self, setup: EnvSetup, settings: TrainSettings, own: OffPolicySettings, seed: int, *, priority: float) -> None:
        torch.set_num_threads(1)
        check_sizes(own)
        self._own, self.total_frames = own, settings.frames
        weights, play, drawing, chance = spawn_seeds(seed, 4)
        self.stage = Stage(setup, own.num_envs, seed=play, draw=window_filter(setup, settings.filter, settings.score))
        spec = self.stage.spec
        sizes = (own.num_envs, spec.observation_size, spec.num_actions)
        self.replay = Replay(rows_for(own.replay, *sizes, own.replay_gib), *sizes, n_step=own.n_step, alpha=priority)
        self.random = torch.Generator().manual_seed(drawing)
        self._row = torch.zeros(own.num_envs, spec.observation_size)  # the present state
        self._mask = torch.zeros(own.num_envs, spec.num_actions, dtype=torch.bool)
        self.frames = self.iterations = self.updates = 0
        self.unit, self.centre = 1.0, 0.0  # deviation of returns in play by chance, and their mean in that unit
        self._build(settings, weights)
        self.scaling = warm_up([self.stage], chance)
        self._past = [Past(self.stage.state(), self.replay.cursors)]
        self._look()

    @abstractmethod
    def _build(self, settings: TrainSettings, seed: int) -> None:
        """Make modules and optimisers."""

    @abstractmethod
    def _begin(self) -> None:
        """The weights may have come from elsewhere: make what follows from them."""

    @property
    def _keeps_unit(self) -> bool:
        return False

    @abstractmethod
    def _change_unit(self, factor: float) -> None:
        """Values become so many times as large, so that they stay the same in rewards."""

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
            tallies += self._play_by_chance()
        elif not self._keeps_unit:
            self._renew_unit()
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
            | episode_means(tallies)
            | {"schedule/learning_rate": rate, "value/unit": self.unit, "time/play_s": play_s, "time/learn_s": learn_s}
        )

    def _play_by_chance(self) -> list[dict[str, float]]:
        tallies = []
        while self.frames < self._own.first_frames:
            tallies += self._step(by_chance(self._mask, self.random)).tallies
        returns = self.replay.discounted_returns(self.replay.rows)
        self.unit = max(float(returns.std()), LEAST_DEVIATION)
        self.centre = float(returns.mean()) / self.unit
        return tallies

    def _renew_unit(self) -> None:
        deviation = max(float(self.replay.discounted_returns(RECENT * self._own.steps).std()), LEAST_DEVIATION)
        if deviation < self.unit / FAR:
            self._change_unit(self.unit / deviation)
            self.unit = deviation

    def _step(self, actions: Tensor) -> Step:
        """Play and remember."""
        before, mask = self._row.clone(), self._mask.clone()
        step = self.stage.step(actions, self._row, self._mask)
        discounts = step_discounts(step.elapsed, self._own.gamma, self.stage.setup.settings.discount_per_s)
        ended = step.ended.copy()
        ended[step.cut] = False
        self.replay.add(before, mask, actions.numpy(), np.where(ended, 0.0, discounts), step)
        self.frames += self._own.num_envs
        self._past[-1].actions.append(actions.clone())
        if len(self._past[-1].actions) == self.replay.rows:
            self._past = [self._past[-1], Past(self.stage.state(), self.replay.cursors)]  # what came before is overwritten
        return step

    @property
    def progress(self) -> float:
        return min(self.frames / self.total_frames, 1.0)

    def _set_rate(self) -> float:
        own = self._own
        rate = scheduled(own.schedule, self.progress, own.learning_rate, own.final_rate * own.learning_rate, own.warmup)
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = rate
        return rate

    def _descend(self, name: str, loss: Tensor) -> Tensor:
        """A step of this optimiser; returns the length of the gradient."""
        if not loss.isfinite():
            raise Diverged(
                f"the loss of the {name} is {loss.item():g} in iteration {self.iterations + 1}, gradient step {self.updates + 1}",
                hint="give a smaller learning_rate, or a smaller max_gradient",
            )
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], self._own.max_gradient)
        optimiser.step()
        return norm

    def _follow(self, target: nn.Module, present: nn.Module) -> None:
        """Every `target_every` gradient steps, `target_share` of the way."""
        if (self.updates + 1) % self._own.target_every == 0:
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), present.parameters(), strict=True):
                    slow.lerp_(fast, self._own.target_share)

    # --- what others need

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return DECISIONS[self.decision](action_scores(self.network, observations, mask))

    def rescale(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self._look()

    def _look(self) -> None:
        self.stage.scaler = Scaler(self.scaling, self.stage.spec.layout)
        self.stage.write(self._row, self._mask)

    def state(self) -> State:
        tensors = self.scaling.tensors() | {"random": self.random.get_state(), "replay.priorities": self.replay.priorities}
        for name, module in self.modules.items():
            tensors |= module_tensors(module, name)
        for name, optimiser in self.optimisers.items():
            tensors |= optimiser_tensors(optimiser, f"optimiser.{name}")
        for number, past in enumerate(self._past):
            taken = torch.stack(past.actions).int() if past.actions else torch.zeros(0, self._own.num_envs, dtype=torch.int32)
            tensors |= {f"past.{number}.actions": taken, f"past.{number}.cursors": past.cursors}
            tensors |= {f"past.{number}.stage.{name}": tensor for name, tensor in past.stage.items()}
        return State(tensors, {name: getattr(self, name) for name in ("frames", "iterations", "updates", "unit", "centre")})

    def restore(self, state: State) -> None:
        tensors = state.tensors
        for name, module in self.modules.items():
            load_module(module, tensors, name)
        for name, optimiser in self.optimisers.items():
            load_optimiser(optimiser, tensors, f"optimiser.{name}")
        self.scaling = read_scaling(tensors)
        self._fill_again(tensors)
        self.replay.priorities = tensors["replay.priorities"]
        self.random.set_state(tensors["random"])
        self._set_facts(**state.facts)

    def _fill_again(self, tensors: dict[str, Tensor]) -> None:
        """Play what was played."""
        pasts = [within(tensors, f"past.{number}") for number in range(2) if f"past.{number}.actions" in tensors]
        self.stage.restore(within(pasts[0], "stage"))
        self.replay.cursors = pasts[0]["cursors"]
        self._past = [Past(within(pasts[0], "stage"), pasts[0]["cursors"])]
        self._look()
        for past in pasts:
            for actions in past["actions"].long():
                self._step(actions)

    def _set_facts(self, **facts: Any) -> None:
        for name, value in facts.items():
            setattr(self, name, value)

    def close(self) -> None:
        self.stage.close()


def by_chance(mask: Tensor, random: torch.Generator) -> Tensor:
    """[B] legal actions, all equally likely."""
    return torch.multinomial(mask.float(), 1, generator=random).squeeze(1)


def check_sizes(own: OffPolicySettings) -> None:
    least = own.num_envs * (own.n_step + 1)
    if not least <= own.first_frames <= own.replay:
        raise InputError(
            f"{own.first_frames} first frames cannot fill a replay of {own.replay} states",
            hint=f"give from {least} (num_envs × (n_step + 1)) to {own.replay} first_frames, or a larger replay",
        )
