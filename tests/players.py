"""Heuristics as players of an environment, for tests that compare episodes with replays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.envs import QueuewiseEnv
from queuewise.policies.known import Jobs
from queuewise.policies.ordering import order_rule


def play_episode(env: QueuewiseEnv, choose: Any) -> tuple[float, int]:
    """Play from the present state to the end; returns the return and the number of steps."""
    total, steps = 0.0, 0
    while True:
        _, reward, terminated, truncated, _ = env.step(choose(env))
        total, steps = total + reward, steps + 1
        if terminated or truncated:
            return total, steps


def ranks(env: QueuewiseEnv, order: str) -> NDArray[np.float64]:
    """[J] scores of a fixed order, for the jobs of the present episode."""
    episode = env.batch.episode(0)
    rule = order_rule(order)
    assert rule.fixed is not None
    return np.asarray(rule.fixed(Jobs.of(episode.workload, episode.estimate)))


def greedy(order: str) -> Any:
    """The first job in order that fits, otherwise wait."""

    def choose(env: QueuewiseEnv) -> int:
        legal = np.flatnonzero(env.action_masks()[:-1]).tolist()
        jobs, scores = env.window_jobs(), ranks(env, order)
        return int(min(legal, key=lambda q: (scores[jobs[q]], jobs[q]))) if legal else env.batch.num_actions - 1

    return choose


def blocking(order: str) -> Any:
    """The first job in order of some queue, if it fits; otherwise wait."""

    def choose(env: QueuewiseEnv) -> int:
        mask, jobs, scores = env.action_masks(), env.window_jobs(), ranks(env, order)
        world = env.batch.episode(0).world
        heads: dict[int, int] = {}
        for q in np.flatnonzero(jobs >= 0):
            queue = int(world.class_queue[world.job_class[jobs[q]]])
            if queue not in heads or (scores[jobs[q]], jobs[q]) < (scores[jobs[heads[queue]]], jobs[heads[queue]]):
                heads[queue] = int(q)
        ready = [q for q in heads.values() if mask[q]]
        return ready[0] if ready else env.batch.num_actions - 1

    return choose


def committing(order: str) -> Any:
    """The first job in order, whether it fits or not."""

    def choose(env: QueuewiseEnv) -> int:
        jobs, scores = env.window_jobs(), ranks(env, order)
        shown = np.flatnonzero(jobs >= 0)
        return int(min(shown, key=lambda q: (scores[jobs[q]], jobs[q]))) if shown.size else env.batch.num_actions - 1

    return choose


def random_legal(seed: int) -> Any:
    rng = np.random.default_rng(seed)

    def choose(env: QueuewiseEnv) -> Any:
        jobs = env.batch.num_actions
        action = int(rng.choice(np.flatnonzero(env.batch.mask[0, :jobs])))
        if not env.batch.joint:
            return action
        if action == jobs - 1:
            return np.array([action, 0])
        hosts = env.setup.layout.hosts
        at = jobs + action * hosts
        return np.array([action, rng.choice(np.flatnonzero(env.batch.mask[0, at : at + hosts]))])

    return choose
