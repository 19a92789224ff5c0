"""The native batch as a vector environment of Stable-Baselines3: `PPO("MlpPolicy", VecEnv(16, workload="bursty"))`.

One compiled call steps all environments, as in `QueuewiseVectorEnv`. Masks of sb3-contrib's MaskablePPO are supported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.envs.vector import QueuewiseVectorEnv
from queuewise.errors import InputError, optional_imports

with optional_imports("stable_baselines3"):
    from stable_baselines3.common.vec_env import VecEnv as _VecEnv

Indices = int | Iterable[int] | None


class VecEnv(_VecEnv):
    """E environments. It takes the arguments of `QueuewiseVectorEnv`: problem, workload, cluster, episode_jobs, reward, …"""

    def __init__(self, num_envs: int = 1, problem: str | None = None, **arguments: Any) -> None:
        self.envs = QueuewiseVectorEnv(num_envs, problem, **{"copy": True, **arguments})  # SB3 keeps observations of the step before
        self._mask: dict[str, NDArray[np.bool_]] = {}
        self._actions: NDArray[Any] = np.zeros(num_envs, np.int64)
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        super().__init__(num_envs, self.envs.single_observation_space, self.envs.single_action_space)

    def reset(self) -> Any:
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observation, info = self.envs.reset(seed=seeds)
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0.0, 0
        self._remember(info)
        return observation

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        observation, rewards, terminated, truncated, info = self.envs.step(self._actions)
        self._remember(info)
        self._returns += rewards
        self._lengths += 1
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for e in dones.nonzero()[0].tolist():
            infos[e]["terminal_observation"] = info["final_obs"][e]
            infos[e]["TimeLimit.truncated"] = bool(truncated[e] and not terminated[e])
            infos[e]["episode"] = {"r": float(self._returns[e]), "l": int(self._lengths[e])}
            infos[e]["tally"] = {name: float(values[e]) for name, values in info["final_info"]["episode_tally"].items()}
            self._returns[e], self._lengths[e] = 0.0, 0
        return observation, rewards.astype(np.float32), dones, infos

    def _remember(self, info: dict[str, Any]) -> None:
        self._mask = {name: info[name].copy() for name in ("action_mask", "host_mask") if name in info}

    def action_masks(self) -> NDArray[np.bool_]:
        """[E, A] legal actions, as sb3-contrib asks for them. Joint problem: then the hosts that some legal job can use."""
        mask = self._mask["action_mask"].astype(bool)
        if "host_mask" not in self._mask:
            return mask
        hosts = self._mask["host_mask"].any(axis=1).astype(bool)
        return np.concatenate([mask, np.where(hosts.any(axis=1, keepdims=True), hosts, True)], axis=1)

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        if attr_name == "action_masks":
            return [self.action_masks for _ in self._get_indices(indices)]
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        raise InputError(f"environments of one batch share {attr_name}", hint="give it when the VecEnv is made")

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any) -> list[Any]:
        if method_name != "action_masks":
            raise InputError(f"environments of one batch have no method {method_name} of their own", hint="only action_masks can be called")
        masks = self.action_masks()
        return [masks[e] for e in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[Any]:
        return [None] * self.num_envs
