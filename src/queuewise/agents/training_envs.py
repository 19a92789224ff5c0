"""The environments that a learner plays in: several side by side, with flat actions and scaled observations.

`TrainingEnvs` is one worker's share of the native batch of `queuewise.envs`; it writes observations straight into the
learner's buffers. The k-th episode of environment e is a function of seed, e and k. So the windows being played and the
actions taken in them since they began are enough to restore any moment: `state` returns those few numbers per
environment instead of the memory of a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from queuewise.agents.observation_scaling import Scaler, Scaling, measure_scaling
from queuewise.agents.task_shape import TaskShape, flat_mask, split_actions
from queuewise.agents.train_settings import FilterSettings
from queuewise.envs.batch import EnvBatch
from queuewise.envs.circumstances import Circumstances
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.rewards import TERMS
from queuewise.envs.stepping import RUNS_ON, TRUNCATED
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure_from
from queuewise.evaluation.scores import parse_score, score_values
from queuewise.policies import parse_policy, simulate
from queuewise.sim.core.tables import F32, F64, I64

Bools = NDArray[np.bool_]
Draw = Callable[[np.random.Generator], int]  # draws the number of a window


class Step(NamedTuple):
    """The result of one step of E environments."""

    rewards: F64  # [E]
    ended: Bools  # [E] the observation written is the first of a new episode
    elapsed: F64  # [E] simulated seconds
    cut: I64  # [C] environments whose episode was truncated
    cut_observations: Tensor  # [C, F] their last observations, scaled
    cut_masks: Tensor  # [C, A]
    tallies: list[dict[str, float]]  # of the episodes that ended


class TrainingEnvs:
    """E environments that restart by themselves when an episode ends."""

    def __init__(self, setup: EnvSetup, num_envs: int, *, seed: int, first_env: int = 0, draw: Draw | None = None) -> None:
        """Environments `first_env` and following of a run with this seed.

        `draw` picks windows; default: all equally likely.
        """
        self.setup, self.num_envs = setup, num_envs
        self.shape = TaskShape(setup.settings.problem, setup.layout)
        self.batch = setup.batch(num_envs, threads=1)
        self.scaler: Scaler | None = None
        self._terms = RewardTermSums(self.batch)
        self._rows = torch.from_numpy(self.batch.observations)  # overwritten by every step
        self._none = torch.zeros(0, self.shape.observation_size), torch.zeros(0, self.shape.num_actions, dtype=torch.bool)
        self._seed, self._first, self._draw = seed, first_env, draw or setup.source.draw
        self._episodes = np.zeros(num_envs, np.int64)  # episodes begun so far
        self._windows = np.zeros(num_envs, np.int64)  # windows being played
        self._ages = np.zeros(num_envs, np.int64)  # actions taken in them
        self._waits = np.zeros(num_envs, np.int64)  # waits in them although something could be chosen
        self._could_choose: Bools = np.zeros(num_envs, np.bool_)
        self._actions: list[I64] = []  # the last ones, [E] each: at least as many as the oldest episode has taken
        self.begin(np.arange(num_envs))

    # --- playing

    def write(self, observations: Tensor, mask: Tensor) -> None:
        """Write the current state into [E, F] and [E, A]."""
        self._scale(self._rows, observations)
        mask.copy_(self.mask())

    def step(self, actions: Tensor, observations: Tensor, mask: Tensor) -> Step:
        """Take one step in every environment; the state after it goes into [E, F] and [E, A]."""
        chosen = actions.numpy()
        self.batch.step(split_actions(chosen, self.shape))
        self._terms.add()
        self._waits += self._could_choose & (chosen == self.shape.num_actions - 1)
        self._remember(chosen)
        rewards, elapsed = self.batch.rewards.copy(), self.batch.elapsed.copy()
        over = self.batch.outcome != RUNS_ON
        cut = np.flatnonzero(self.batch.outcome == TRUNCATED)
        cut_observations, cut_masks = self._last_states(cut)
        tallies = [self._tally(int(e)) for e in np.flatnonzero(over)]
        if over.any():
            self.begin(np.flatnonzero(over))
        self.write(observations, mask)
        return Step(rewards, over, elapsed, cut, cut_observations, cut_masks, tallies)

    def _tally(self, e: int) -> dict[str, float]:
        """Figures of the episode that environment e has ended, with the shares of its steps that were waits by choice, and illegal."""
        tally = self.batch.tally(e)
        steps = max(tally["steps"], 1.0)
        return tally | {"wait_share": float(self._waits[e]) / steps, "illegal_share": tally["illegal"] / steps} | self._terms.of(e)

    def _last_states(self, cut: I64) -> tuple[Tensor, Tensor]:
        """Last observations and masks of truncated episodes, before new ones begin. Usually there are none."""
        if not len(cut):
            return self._none
        places = torch.from_numpy(cut)
        return self._scale(self._rows[places]), self.mask()[places]

    def mask(self) -> Tensor:
        """[E, A] the flat actions that are legal now."""
        mask = flat_mask(self.batch.mask, self.shape)
        if not mask.any(1).all():
            raise InputError(
                f"environment {self._first + int((~mask.any(1)).argmax())} offers no legal action",
                hint="this is a bug in the task: please report it",
            )
        self._could_choose = np.asarray(mask[:, :-1].any(axis=1))
        return torch.from_numpy(mask)

    def _scale(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        if self.scaler is not None:
            return self.scaler.apply(rows, out)
        return rows if out is None else out.copy_(rows)

    def begin(self, envs: I64) -> None:
        """Start the next episodes of these environments, whatever they are playing."""
        if not len(envs):
            return
        for e in envs:
            self._windows[e] = self._draw(np.random.default_rng((self._seed, self._first + int(e), int(self._episodes[e]))))
        self._episodes[envs] += 1
        self._ages[envs] = self._waits[envs] = 0
        self.batch.begin(envs.tolist(), [self.setup.window(int(self._windows[e])) for e in envs])
        self._terms.begin(envs)

    def _remember(self, chosen: I64) -> None:
        self._actions.append(chosen.copy())
        self._ages += 1
        longest = int(self._ages.max())
        if len(self._actions) > 2 * longest + 64:  # only now and then, so that it costs nothing
            del self._actions[:-longest]

    # --- state

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
        """Replay the running episodes up to where they were.

        Environments with younger episodes idle until theirs begin.
        """
        self._episodes, self._windows, ages = (state[name].numpy().copy() for name in ("episodes", "windows", "ages"))
        actions = state["actions"].numpy().astype(np.int64)
        self._ages, self._actions = ages.copy(), list(actions)
        templates = [self.setup.window(int(window)) for window in self._windows]
        self._terms.forget()
        self._waits[:] = 0
        self.batch.begin(range(self.num_envs), templates)
        for number, taken in enumerate(actions):
            left = len(actions) - number
            playing = ages >= left
            again = np.flatnonzero((ages == left) | (~playing & (self.batch.outcome != RUNS_ON)))
            self.batch.begin(again.tolist(), [templates[e] for e in again])
            mask = flat_mask(self.batch.mask, self.shape)
            self._waits += playing & mask[:, :-1].any(axis=1) & (taken == self.shape.num_actions - 1)
            idle = mask.argmax(1)
            self.batch.step(split_actions(np.where(playing, taken, idle), self.shape))
        again = np.flatnonzero(ages == 0)
        self.batch.begin(again.tolist(), [templates[e] for e in again])

    def close(self) -> None:
        self.batch.close()


# --- reward terms for the metrics

WATCHED = 4  # environments whose reward terms are summed


class RewardTermSums:
    """Sums of each reward term over an episode, for the first environments of a batch: enough for the metrics."""

    def __init__(self, batch: EnvBatch) -> None:
        self._batch = batch
        self._terms = list(dict.fromkeys(term.name for term in batch.settings.reward))
        self._places = np.array([list(TERMS).index(name) for name in self._terms], np.int64)
        self._watched = range(min(WATCHED, batch.size) if len(self._terms) > 1 else 0)  # a single term is the return itself
        self._sums = np.zeros((len(self._watched), len(self._terms)))
        self._live: list[tuple[F64, F64]] = [(np.zeros(0), np.zeros(0))] * len(self._watched)  # terms of the step, weights of the episode
        self._whole = np.zeros(len(self._watched), np.bool_)  # watched since the beginning of the episode

    def begin(self, envs: I64) -> None:
        """Start over for these environments, whose episodes begin."""
        for e in envs[envs < len(self._watched)].tolist():
            self._live[e] = self._batch.episode_state(e).term, self._batch.episode(e).task.weight[self._places]
            self._sums[e] = 0.0
            self._whole[e] = True

    def forget(self) -> None:
        """Ignore the running episodes: they were not watched from the beginning."""
        self._whole[:] = False

    def add(self) -> None:
        """Add the terms of the last step. Call this after every step."""
        for e in self._watched:
            if self._whole[e]:
                term, weight = self._live[e]
                self._sums[e] += term[self._places] * weight

    def of(self, e: int) -> dict[str, float]:
        """Sums of the episode of environment e, by `reward_NAME`; empty if it was not watched."""
        if e >= len(self._watched) or not self._whole[e]:
            return {}
        return {f"reward_{name}": float(value) for name, value in zip(self._terms, self._sums[e], strict=True)}


# --- which windows are played


def window_filter(setup: EnvSetup, settings: FilterSettings, score: str) -> Draw | None:
    """A function that draws windows whose score lies in the range of the filter; None without a filter.

    Trajectory filtering (Zhang et al., RLScheduler, SC 2020): windows where even a simple heuristic does well teach
    little, and those where everything goes wrong add mostly noise.
    """
    if settings.policy is None:
        return None
    policy, formula = settings.policy, parse_score(score)
    parse_policy(policy)  # fail at once on an unknown name
    known: dict[int, float] = {}

    def rate(window: int) -> float:
        if window not in known:
            jobs = setup.source.window(window)
            options: dict[str, Any] = {"estimates": jobs.known, "conditions": setup.conditions, "start": jobs.start}
            options["dispatch"] = "commit" if setup.settings.dispatch == "commit" else "reorder"
            schedule = simulate(jobs.workload, setup.cluster, policy, **options)
            first = Circumstances(start=jobs.start).first_own(jobs.workload)
            known[window] = formula.of(score_values(measure_from(schedule, first)), f"{policy}, window {window}")
        return known[window]

    def draw(rng: np.random.Generator) -> int:
        for _ in range(settings.tries):
            window = setup.source.draw(rng)
            if settings.low <= rate(window) <= settings.high:
                break
        return window

    return draw


# --- warm-up

WARMUP_STEPS = 1024
MEASURE_EVERY = 32  # steps between the observations that are measured


def warm_up(groups: Sequence[TrainingEnvs], seed: int) -> Scaling:
    """Play randomly for a while before training; return the scaling of the observations seen.

    This also leaves the environments in different phases of their episodes, so that one update sees beginnings, full
    queues and ends.
    """
    rows = [play_randomly(envs, seed + number) for number, envs in enumerate(groups)]
    return measure_scaling(groups[0].shape.layout, np.concatenate(rows))


def play_randomly(envs: TrainingEnvs, seed: int) -> F32:
    """Take random legal actions; environment e restarts after a share e ÷ E of the steps.

    Return [N, F] observations.
    """
    random = torch.Generator().manual_seed(seed)
    rows = torch.zeros(envs.num_envs, envs.shape.observation_size)
    mask = torch.zeros(envs.num_envs, envs.shape.num_actions, dtype=torch.bool)
    begins = np.arange(envs.num_envs) * WARMUP_STEPS // envs.num_envs
    envs.write(rows, mask)
    seen = [rows.numpy().copy()]
    for number in range(WARMUP_STEPS):
        envs.begin(np.flatnonzero(begins == number))
        envs.write(rows, mask)
        envs.step(torch.multinomial(mask.float(), 1, generator=random).squeeze(1), rows, mask)
        if number % MEASURE_EVERY == 0:
            seen.append(rows.numpy().copy())
    return np.concatenate(seen)
