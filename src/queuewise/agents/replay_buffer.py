"""Prioritised replay buffer (Schaul et al., 2016): stores states in order, computes n-step returns when it samples.

Each of E environments has a ring of C rows. A row is a state with the action, reward and discount that followed. So
every observation is stored once, in half precision, and the state after n steps is n rows further. A truncated episode
leaves one more row, its last state, without an action: returns stop there and continue with its expected value. An
episode that ended has a discount of zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from queuewise.agents.training_envs import Step
from queuewise.errors import InputError
from queuewise.sim.core.tables import F64, I64

NO_ACTION = -1
LEAST_PRIORITY = 1e-6  # so that every transition can still be drawn


class Transitions(NamedTuple):
    """B transitions of up to n steps."""

    places: I64  # [B] row numbers in the buffer
    observations: Tensor  # [B, F]
    masks: Tensor  # [B, A]
    actions: Tensor  # [B]
    returns: Tensor  # [B] discounted rewards of the steps
    next_observations: Tensor  # [B, F]
    next_masks: Tensor  # [B, A]
    discounts: Tensor  # [B] weight of the next state's value; 0 where the episode ended
    weights: Tensor  # [B] importance weights, the largest is 1


class SumTree:
    """Numbers at the leaves, their sums above: updates and proportional draws take logarithmic time."""

    def __init__(self, size: int) -> None:
        self._first = 1 << max(size - 1, 0).bit_length()  # leaf 0; node i has the children 2i and 2i + 1
        self._sums = np.zeros(2 * self._first)
        self._size = size

    @property
    def total(self) -> float:
        return float(self._sums[1])

    @property
    def leaves(self) -> F64:
        """A view; read only."""
        return self._sums[self._first : self._first + self._size]

    def set(self, places: I64, values: F64 | float) -> None:
        """Set leaves. If a place occurs twice, the last value counts."""
        nodes = places + self._first
        self._sums[nodes] = values
        while len(nodes) and nodes[0] > 1:
            nodes = nodes >> 1
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def find(self, levels: F64) -> I64:
        """Where these levels in [0, total) fall in the cumulative sum of the leaves; never a leaf that is zero."""
        nodes, left = np.ones(len(levels), np.int64), levels.copy()
        while nodes[0] < self._first:
            nodes = 2 * nodes
            right = (left >= self._sums[nodes]) & (self._sums[nodes + 1] > 0)  # sums are rounded: a level may lie beyond the last leaf
            left = np.where(right, left - self._sums[nodes], left)
            nodes = nodes + right
        return nodes - self._first


class ReplayBuffer:
    def __init__(self, rows: int, num_envs: int, size: int, num_actions: int, *, n_step: int, alpha: float = 0.0) -> None:
        """`rows` per environment. `alpha`: how much priorities count; with 0 all transitions are equally likely."""
        self.rows, self.num_envs, self.n_step, self._alpha = rows, num_envs, n_step, alpha
        places = rows * num_envs
        self._observations = torch.zeros(places, size, dtype=torch.float16)
        self._masks = torch.zeros(places, num_actions, dtype=torch.bool)
        self._actions = np.full(places, NO_ACTION, np.int32)
        self._rewards, self._discounts = np.zeros(places), np.zeros(places)
        self._cursors = np.zeros(num_envs, np.int64)  # where the next row goes
        self._written = np.zeros(num_envs, np.int64)  # rows so far
        self._priorities = SumTree(places)
        self._highest = 1.0

    # --- writing

    def add(self, observations: Tensor, masks: Tensor, actions: I64, discounts: F64, step: Step) -> None:
        """Store one step of all environments: states [E, F] and [E, A] in which these actions led to `step`."""
        self._write(np.arange(self.num_envs), observations, masks, actions, step.rewards, discounts)
        if len(step.cut):
            nothing = np.zeros(len(step.cut))
            self._write(step.cut, step.cut_observations, step.cut_masks, np.full(len(step.cut), NO_ACTION), nothing, nothing)

    def _write(self, envs: I64, observations: Tensor, masks: Tensor, actions: I64, rewards: F64, discounts: F64) -> None:
        ring, at = envs * self.rows, self._cursors[envs]
        places = ring + at
        self._observations[places], self._masks[places] = observations.half(), masks
        self._actions[places], self._rewards[places], self._discounts[places] = actions, rewards, discounts
        self._priorities.set(places, 0.0)
        complete = ring + (at - self.n_step) % self.rows  # the state n steps after these is known now
        complete = complete[(self._written[envs] >= self.n_step) & (self._actions[complete] != NO_ACTION)]
        self._priorities.set(complete, self._highest)
        self._cursors[envs] = (at + 1) % self.rows
        self._written[envs] += 1

    # --- drawing

    def draw(self, number: int, beta: float, random: torch.Generator) -> Transitions:
        """Draw transitions in proportion to their priorities, one from each of `number` equal strata.

        `beta`: the share of the bias that the weights correct.
        """
        total = self._priorities.total
        within = torch.rand(number, generator=random, dtype=torch.float64).numpy()
        places = self._priorities.find((np.arange(number) + within) / number * total)
        returns, discounts, ahead = self._n_step_returns(places)
        weights = importance(self._priorities.leaves[places] / total, beta)
        return Transitions(
            places,
            *self._states(places),
            torch.from_numpy(self._actions[places].astype(np.int64)),
            torch.from_numpy(returns).float(),
            *self._states(ahead),
            torch.from_numpy(discounts).float(),
            torch.from_numpy(weights).float(),
        )

    def _states(self, places: I64) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(places)
        return self._observations.index_select(0, chosen).float(), self._masks.index_select(0, chosen)

    def _n_step_returns(self, places: I64) -> tuple[F64, F64, I64]:
        """Discounted rewards of n steps (or up to a truncation), the remaining discount, and the place reached."""
        at, returns, left = places, np.zeros(len(places)), np.ones(len(places))
        for _ in range(self.n_step):
            acted = self._actions[at] != NO_ACTION
            returns += np.where(acted, left * self._rewards[at], 0.0)
            left = np.where(acted, left * self._discounts[at], left)
            at = np.where(acted, self._after(at), at)
        return returns, left, at

    def _after(self, places: I64) -> I64:
        ring = places // self.rows * self.rows
        return ring + (places - ring + 1) % self.rows

    def update_priorities(self, places: I64, errors: Tensor) -> None:
        """Set the priorities of drawn transitions from the learner's errors."""
        priorities = (errors.double().numpy() + LEAST_PRIORITY) ** self._alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._priorities.set(places, priorities)

    # --- state

    def discounted_returns(self, last: int) -> F64:
        """[N] returns of the last rows of every ring; rewards after the newest row count as zero."""
        running, found = np.zeros(self.num_envs), []
        rings = np.arange(self.num_envs) * self.rows
        for age in range(1, min(last, int(self._written.min()), self.rows) + 1):
            places = rings + (self._cursors - age) % self.rows
            running = self._rewards[places] + self._discounts[places] * running
            found.append(running)
        return np.concatenate(found)

    @property
    def cursors(self) -> Tensor:
        """[2, E] where the next row goes, and how many rows were written."""
        return torch.from_numpy(np.stack([self._cursors, self._written]))

    @cursors.setter
    def cursors(self, value: Tensor) -> None:
        self._cursors, self._written = value.numpy().copy()

    @property
    def priorities(self) -> Tensor:
        """[E × C + 1] priorities of all places, and the highest ever set."""
        return torch.from_numpy(np.append(self._priorities.leaves, self._highest))

    @priorities.setter
    def priorities(self, value: Tensor) -> None:
        *leaves, self._highest = value.tolist()
        self._priorities.set(np.arange(len(leaves)), np.array(leaves))


def importance(probabilities: F64, beta: float) -> F64:
    """p^−β, scaled so that the largest is 1. (Among N, the weight is (N·p)^−β; N cancels.)"""
    weights: F64 = (probabilities / probabilities.min()) ** -beta
    return weights


def rows_for(frames: int, num_envs: int, size: int, num_actions: int, limit_gib: float) -> int:
    """Rows per environment that keep `frames` states; refused if they need more than `limit_gib`."""
    each = 2 * size + num_actions + 4 + 8 + 8 + 32  # bytes per row, including its leaf
    taken = frames * each / 2**30
    if taken > limit_gib:
        fitting = int(limit_gib * 2**30 / each)
        raise InputError(
            f"a replay buffer of {frames} states of {size} numbers takes {taken:.1f} GiB, more than {limit_gib:g}",
            hint=f"set replay to {fitting} states or fewer, or raise replay_gib",
        )
    return -(-frames // num_envs)
