"""A single Gymnasium environment: a batch of one env. docs/mdp.md describes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from queuewise.envs.batch import Bools
from queuewise.envs.env_setup import build_setup, check_reset_options
from queuewise.envs.rewards import TERMS
from queuewise.envs.spaces import LegalDiscrete, LegalPairs
from queuewise.errors import InputError, unknown_name
from queuewise.sim.core.schedule import Schedule
from queuewise.sim.core.tables import I32

RENDER_MODES = ("human", "rgb_array")


class StepTerms(dict[str, float]):
    """The terms of a step's reward, by name."""

    def __missing__(self, name: str) -> float:
        raise unknown_name("reward term", name, self)


class QueuewiseEnv(gymnasium.Env[Any, Any]):
    """An environment such as `QueuewiseEnv("job", workload="bench", cluster="16x8:V100-16", episode_jobs=256)`.

    It takes the arguments of `build_setup`. `reward` may also be a function: of the terms of a step, by name (docs/mdp.md).
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012

    def __init__(self, problem: str | None = None, *, render_mode: str | None = None, **arguments: Any) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise InputError(f"unknown render mode {render_mode!r}", hint=f"known: {', '.join(RENDER_MODES)}")
        self.render_mode = render_mode
        self._reward: Callable[[dict[str, float]], float] | None = None
        if callable(arguments.get("reward")):
            self._reward = arguments.pop("reward")
        self.setup = build_setup(problem, **arguments)
        self.batch = self.setup.batch(1, threads=1)
        self._episodes = 0  # drawn since the seed was given
        layout = self.setup.layout
        self.observation_space = layout.space(self.setup.settings.observation)
        self.action_space = (
            LegalPairs(layout.window + 1, layout.hosts, lambda: self.batch.mask[0])
            if self.batch.joint
            else LegalDiscrete(self.batch.num_actions, lambda: self.batch.mask[0], (self.batch.num_actions - 1,))
        )
        self.batch.mask[0, self.batch.num_actions - 1] = True  # before the first reset, only waiting is legal

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Option `window` (a number) or `workload` (a Workload) replaces the randomly drawn window.
        """
        super().reset(seed=seed)
        options = options or {}
        check_reset_options(options, ("window", "workload"))
        if "workload" in options:
            template = self.setup.given(options["workload"])
        elif "window" in options:
            template = self.setup.window(int(options["window"]))
        else:
            if seed is not None:
                self._episodes = 0
            template = self.setup.draw(self.np_random, self._episodes)
            self._episodes += 1
        self.batch.begin([0], [template])
        if self.render_mode == "human":
            self.render()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.batch.episode(0)  # raises if there was no reset
        chosen = np.asarray(action)
        if chosen.dtype.kind not in "iu":
            raise InputError(
                f"action {action!r} is {chosen.dtype}, not an integer", hint="give the number of an action, such as int(action)"
            )
        ended = self.batch.step(chosen.astype(np.int64).reshape((1, -1) if self.batch.joint else -1))
        info = self._info()
        if ended:
            info["episode_tally"] = self.batch.tally(0)
            info["metrics"] = self.metrics()
        if self.render_mode == "human":
            self.render()
        reward = float(self.batch.rewards[0] if self._reward is None else self._reward(self.reward_terms()))
        return self._observation(), reward, bool(self.batch.terminated[0]), bool(self.batch.truncated[0]), info

    def action_masks(self) -> Bools:
        """The mask of legal actions, as sb3-contrib expects it.

        Joint problem: then the hosts that some legal job can use.
        """
        mask = self.batch.mask[0]
        jobs = self.batch.num_actions
        if not self.batch.joint:
            return mask.copy()
        hosts = self._host_mask().any(axis=0)
        return np.concatenate([mask[:jobs], hosts if hosts.any() else ~hosts])

    def _host_mask(self) -> Bools:
        layout = self.setup.layout
        return self.batch.mask[0, layout.window + 1 :].reshape(layout.window, layout.hosts).copy()

    def _observation(self) -> Any:
        row = self.batch.observations[0].copy()
        if self.setup.settings.observation == "flat":
            return row
        return {name: part.copy() for name, part in self.setup.layout.parts(row).items()}

    def _info(self) -> dict[str, Any]:
        elapsed = float(self.batch.elapsed[0])
        info: dict[str, Any] = {
            "action_mask": self.batch.mask[0, : self.batch.num_actions].copy(),
            "elapsed_s": elapsed,
            "discount": float(np.exp(-self.setup.settings.discount_per_s * elapsed)),
            "illegal_actions": self.batch.illegal_actions(0),
        }
        if self.batch.joint:
            info["host_mask"] = self._host_mask()
        return info

    def reward_terms(self) -> dict[str, float]:
        """The terms of the last step's reward, unweighted."""
        return StepTerms(zip(TERMS, self.batch.episode_state(0).term.tolist(), strict=True))

    def window_jobs(self) -> I32:
        """[Q] index of the job in each slot of the window, -1 if the slot is empty."""
        return self.batch.window_jobs(0)

    def running_jobs(self) -> I32:
        """[P] index of the running job in each slot for jobs that may be preempted, -1 if the slot is empty."""
        return self.batch.running_jobs(0)

    def schedule(self) -> Schedule:
        """What has happened so far."""
        return self.batch.schedule(0)

    def metrics(self) -> dict[str, Any]:
        """All figures of docs/metrics.md for the window's own jobs so far, empty for an episode without jobs."""
        return self.batch.metrics(0)

    def render(self) -> NDArray[np.uint8] | None:
        from queuewise.envs import drawing

        if self.render_mode == "rgb_array":
            return drawing.picture(self.batch)
        if self.render_mode == "human":
            drawing.show(self.batch)
        return None

    def close(self) -> None:
        self.batch.close()
