"""Trajectory filtering (Zhang et al., RLScheduler, SC 2020): only windows in which a heuristic's score lies in a band are played.

Windows where even a simple rule does well teach little, and those where everything goes wrong drown the rest in noise.
"""

from __future__ import annotations

import numpy as np

from queuewise.agents.settings import FilterSettings
from queuewise.agents.stage import Draw
from queuewise.envs.env_setup import EnvSetup
from queuewise.evaluation.measure import measure
from queuewise.evaluation.scores import parse_score, score_values
from queuewise.policies import parse_policy, simulate


def window_filter(setup: EnvSetup, settings: FilterSettings, score: str) -> Draw | None:
    """Draws windows of the setup's source that lie in the band; None without a filter."""
    if settings.policy is None:
        return None
    policy, formula = settings.policy, parse_score(score)
    parse_policy(policy)  # an unknown name is told at once
    known: dict[int, float] = {}

    def rate(window: int) -> float:
        if window not in known:
            workload, estimate = setup.source.window(window)
            dispatch = "commit" if setup.settings.dispatch == "commit" else "reorder"
            schedule = simulate(workload, setup.cluster, policy, dispatch=dispatch, estimates=estimate)
            known[window] = formula.of(score_values(measure(schedule)), f"{policy}, window {window}")
        return known[window]

    def draw(rng: np.random.Generator) -> int:
        for _ in range(settings.tries):
            window = setup.source.draw(rng)
            if settings.low <= rate(window) <= settings.high:
                break
        return window

    return draw
