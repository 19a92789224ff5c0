"""A native Gymnasium VectorEnv: one compiled call steps all envs, on several threads.

After `reset(seed=seed)`, env e behaves exactly like a single env seeded with `seed + e`, for any number of envs and
threads. The autoreset mode is SAME_STEP: when an episode ends, `step` returns the first observation of the next
episode, and `info["final_obs"]` holds the last observation of the ended one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from queuewise.envs import columns
from queuewise.envs.env_memory import Template
from queuewise.envs.env_setup import build_setup, check_reset_options
from queuewise.envs.rewards import REWARD_EXAMPLE
from queuewise.errors import InputError
from queuewise.sim.core.tables import F32


class QueuewiseVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """E envs. In addition to the arguments of `build_setup`, it takes:

    - threads: how many threads step the envs (default: one per core).
    - copy: whether to return copies of observations. Otherwise there are two buffers, which steps write to in turn: what a
      step returns is overwritten by the next step but one.
    - metrics: whether the final info contains all figures of docs/metrics.md (a few milliseconds per episode).
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        problem: str | None = None,
        *,
        threads: int | None = None,
        copy: bool = False,
        metrics: bool = False,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        for name, number in (("num_envs", num_envs), ("threads", threads)):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise InputError(f"{name} is {number!r}", hint=f"give an integer {name} of 1 or more")
        if callable(arguments.get("reward")):
            raise InputError("a batch is paid by compiled code, which cannot call a function", hint=REWARD_EXAMPLE)
        self.num_envs, self.render_mode = num_envs, render_mode
        self._copy, self._metrics = copy, metrics
        self.setup = build_setup(problem, **arguments)
        self.batch = self.setup.batch(num_envs, threads, turns=not copy)
        layout = self.setup.layout
        self._flat = self.setup.settings.observation == "flat"
        self.single_observation_space = layout.space(self.setup.settings.observation)
        self.single_action_space = (
            gymnasium.spaces.MultiDiscrete([layout.window + 1, layout.hosts])
            if self.batch.joint
            else gymnasium.spaces.Discrete(self.batch.num_actions)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators = [np.random.default_rng() for _ in range(num_envs)]
        self._episodes = [0] * num_envs  # drawn since the seed was given
        self._next: list[Template | None] = [None] * num_envs  # windows already drawn

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every env. Option `windows` (one number per env) replaces the randomly drawn windows."""
        check_reset_options(options or {}, ("windows",))
        seeds = [None if seed is None else seed + e for e in range(self.num_envs)] if isinstance(seed, int | None) else list(seed)
        for e, own in enumerate(seeds):
            if own is not None:
                self._generators[e] = seeding.np_random(own)[0]
                self._next[e], self._episodes[e] = None, 0
        chosen = (options or {}).get("windows")
        all_envs = range(self.num_envs)
        templates = [self._draw(e) for e in all_envs] if chosen is None else [self.setup.window(int(n)) for n in chosen]
        self.batch.begin(all_envs, templates)
        self._draw_next_windows(all_envs)
        return self._observation(self.batch.observations), self._info()

    def _draw(self, e: int) -> Template:
        template = self._next[e]
        if template is None:
            template = self.setup.draw(self._generators[e], self._episodes[e])
            self._episodes[e] += 1
        self._next[e] = None
        return template

    def _draw_next_windows(self, envs: Iterable[int]) -> None:
        """Draw the next windows of these envs.

        With `metrics` this is not done, because the final state must be kept.
        """
        if not self._metrics:
            for e in envs:
                self._next[e] = template = self._draw(e)
                self.batch.prepare(e, template)
                self.setup.foresee(self._episodes[e])

    def step(self, actions: NDArray[Any], out: F32 | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every env.

        If `out` [E, F] float32 is given, flat observations are written to it, and a view of it is returned.
        """
        batch = self.batch
        ended = batch.step(actions, out)
        rewards, elapsed, terminated, truncated = batch.rewards, batch.elapsed, batch.terminated, batch.truncated
        rewards, elapsed, terminated, truncated = rewards.copy(), elapsed.copy(), terminated.copy(), truncated.copy()
        final = self._begin_next_episodes(terminated | truncated, out) if ended else {}
        info = self._info()  # of the state after the next episodes have begun
        info["elapsed_s"] = elapsed
        info.update(final)
        return self._observation(batch.observations if out is None else out, own=out is not None), rewards, terminated, truncated, info

    def _begin_next_episodes(self, over: NDArray[np.bool_], out: F32 | None) -> dict[str, Any]:
        """Collect the final infos of these episodes and begin the next ones."""
        rows = self.batch.observations if out is None else out
        ended: list[int] = over.nonzero()[0].tolist()
        waiting = []
        final_obs = np.empty(self.num_envs, object)
        for e in ended:
            if self.batch.went_on(e):
                self._next[e] = None
                final_obs[e] = self._one(self.batch.finals[e].copy())
            else:
                waiting.append(e)
                final_obs[e] = self._one(rows[e].copy())
        tallies = dict(zip(columns.TALLY, np.where(over, self.batch.tallies, 0.0), strict=True))
        final_info: dict[str, Any] = {"episode_tally": tallies, "_episode_tally": over}
        if self._metrics:
            final_info |= {"metrics": self._final_metrics(ended), "_metrics": over}
        if waiting:
            self.batch.begin(waiting, [self._draw(e) for e in waiting], out)
        self._draw_next_windows(ended)
        return {"final_obs": final_obs, "_final_obs": over, "final_info": final_info, "_final_info": over}

    def _final_metrics(self, ended: list[int]) -> NDArray[np.object_]:
        metrics = np.empty(self.num_envs, object)
        for e in ended:
            metrics[e] = self.batch.metrics(e) or None
        return metrics

    def _one(self, row: F32) -> Any:
        return row if self._flat else self.setup.layout.parts(row)

    def _observation(self, rows: F32, own: bool = False) -> Any:
        rows = rows.copy() if self._copy and not own else rows
        return rows if self._flat else self.setup.layout.parts(rows)

    def _info(self) -> dict[str, Any]:
        batch = self.batch
        mask = batch.mask.copy()
        if not batch.joint:
            return {"action_mask": mask}
        layout = self.setup.layout
        pairs = mask[:, batch.num_actions :].reshape(self.num_envs, layout.window, layout.hosts)
        return {"action_mask": mask[:, : batch.num_actions], "host_mask": pairs}

    def action_masks(self) -> NDArray[np.bool_]:
        """[E, A] the mask of legal actions."""
        return self.batch.mask[:, : self.batch.num_actions].copy()

    def legal_actions(self, seed: int | None = None) -> NDArray[np.int64]:
        """Random legal actions, drawn by compiled code.

        Valid until the next step or call. `seed` restarts the generators.
        """
        return self.batch.draw_legal(seed)

    def close_extras(self, **kwargs: Any) -> None:
        self.batch.close()
        self.setup.close()
