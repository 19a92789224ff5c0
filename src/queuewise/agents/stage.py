"""Where a learner plays: some environments side by side, with flat actions, scaled rows written straight into the learner's buffers.

A stage is one worker's share of the native batch of `queuewise.envs`. The k-th episode of environment e is a function of seed, e and k, so
a stage is put back to any moment by the windows being played and the actions taken in them since they began: that is what `state` tells,
a few numbers an environment instead of the memory of a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from queuewise.agents.actions import flat_mask, split_actions
from queuewise.agents.scaling import Scaler
from queuewise.agents.spec import Spec
from queuewise.agents.terms import TermSums
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.stepping import RUNS_ON, TRUNCATED
from queuewise.errors import InputError
from queuewise.sim.core.tables import F64, I64

Bools = NDArray[np.bool_]
Draw = Callable[[np.random.Generator], int]  # of a window's number


class Step(NamedTuple):
    """What E environments answered."""

    rewards: F64  # [E]
    ended: Bools  # [E] the row written is the first of a new episode
    elapsed: F64  # [E] simulated seconds
    cut: I64  # [C] environments whose episode was cut off: it would have gone on
    cut_observations: Tensor  # [C, F] the last observation of those, scaled
    cut_masks: Tensor  # [C, A]
    tallies: list[dict[str, float]]  # of the episodes that ended


class Stage:
    def __init__(self, setup: EnvSetup, num_envs: int, *, seed: int, first_env: int = 0, draw: Draw | None = None) -> None:
        """Environments `first_env` … of the run with this seed. `draw` picks windows; default: any of the source, equally likely."""
        self.setup, self.num_envs = setup, num_envs
        self.spec = Spec(setup.settings.problem, setup.layout)
        self.batch = setup.batch(num_envs, threads=1)
        self.scaler: Scaler | None = None
        self._terms = TermSums(self.batch)
        self._rows = torch.from_numpy(self.batch.observations)  # written by every step
        self._none = torch.zeros(0, self.spec.observation_size), torch.zeros(0, self.spec.num_actions, dtype=torch.bool)
        self._seed, self._first, self._draw = seed, first_env, draw or setup.source.draw
        self._episodes = np.zeros(num_envs, np.int64)  # begun so far
        self._windows = np.zeros(num_envs, np.int64)  # being played
        self._ages = np.zeros(num_envs, np.int64)  # actions taken in them
        self._actions: list[I64] = []  # the last ones, [E] each: as many as the oldest episode has taken
        self.begin(np.arange(num_envs))

    # --- playing

    def write(self, observations: Tensor, mask: Tensor) -> None:
        """The present state into [E, F] and [E, A]."""
        self._scale(self._rows, observations)
        mask.copy_(self.mask())

    def step(self, actions: Tensor, observations: Tensor, mask: Tensor) -> Step:
        """One step of every environment; the state after it goes into [E, F] and [E, A]."""
        chosen = actions.numpy()
        self.batch.step(split_actions(chosen, self.spec))
        self._terms.add()
        self._remember(chosen)
        rewards, elapsed = self.batch.rewards.copy(), self.batch.elapsed.copy()
        over = self.batch.outcome != RUNS_ON
        cut = np.flatnonzero(self.batch.outcome == TRUNCATED)
        cut_observations, cut_masks = self._lasts(cut)
        tallies = [self.batch.tally(int(e)) | self._terms.of(int(e)) for e in np.flatnonzero(over)]
        if over.any():
            self.begin(np.flatnonzero(over))
        self.write(observations, mask)
        return Step(rewards, over, elapsed, cut, cut_observations, cut_masks, tallies)

    def _lasts(self, cut: I64) -> tuple[Tensor, Tensor]:
        """Observations and masks of these environments, before they begin anew. Mostly there are none."""
        if not len(cut):
            return self._none
        places = torch.from_numpy(cut)
        return self._scale(self._rows[places]), self.mask()[places]

    def mask(self) -> Tensor:
        """[E, A] legal flat actions now."""
        mask = flat_mask(self.batch.mask, self.spec)
        if not mask.any(1).all():
            raise InputError(
                f"environment {self._first + int((~mask.any(1)).argmax())} offers no legal action", hint="the task is at fault: report it"
            )
        return torch.from_numpy(mask)

    def _scale(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        if self.scaler is not None:
            return self.scaler.apply(rows, out)
        return rows if out is None else out.copy_(rows)

    def begin(self, envs: I64) -> None:
        """Leave what these environments play, and go to the beginnings of their next episodes."""
        if not len(envs):
            return
        for e in envs:
            self._windows[e] = self._draw(np.random.default_rng((self._seed, self._first + int(e), int(self._episodes[e]))))
        self._episodes[envs] += 1
        self._ages[envs] = 0
        self.batch.begin(envs.tolist(), [self.setup.window(int(self._windows[e])) for e in envs])
        self._terms.begin(envs)

    def _remember(self, chosen: I64) -> None:
        self._actions.append(chosen.copy())
        self._ages += 1
        longest = int(self._ages.max())
        if len(self._actions) > 2 * longest + 64:  # now and then, so that it costs nothing
            del self._actions[:-longest]

    # --- keeping

    def state(self) -> dict[str, Tensor]:
        longest = int(self._ages.max(initial=0))
        recent = np.stack(self._actions[len(self._actions) - longest :]) if longest else np.zeros((0, self.num_envs), np.int64)
        return {
            "episodes": torch.from_numpy(self._episodes.copy()),
            "windows": torch.from_numpy(self._windows.copy()),
            "ages": torch.from_numpy(self._ages.copy()),
            "actions": torch.from_numpy(recent.astype(np.int32)),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Play the running episodes again up to where they were. An environment with a younger one idles in its first steps until then."""
        self._episodes, self._windows, ages = (state[name].numpy().copy() for name in ("episodes", "windows", "ages"))
        actions = state["actions"].numpy().astype(np.int64)
        self._ages, self._actions = ages.copy(), list(actions)
        templates = [self.setup.window(int(window)) for window in self._windows]
        self._terms.forget()
        self.batch.begin(range(self.num_envs), templates)
        for number, taken in enumerate(actions):
            left = len(actions) - number
            playing = ages >= left
            again = np.flatnonzero((ages == left) | (~playing & (self.batch.outcome != RUNS_ON)))
            self.batch.begin(again.tolist(), [templates[e] for e in again])
            idle = flat_mask(self.batch.mask, self.spec).argmax(1)
            self.batch.step(split_actions(np.where(playing, taken, idle), self.spec))
        again = np.flatnonzero(ages == 0)
        self.batch.begin(again.tolist(), [templates[e] for e in again])

    def close(self) -> None:
        self.batch.close()
