"""A network trained with preemption beats the same network without it where preemption is free."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents_setup import small_settings
from queuewise.agents.learner import make_learner
from queuewise.agents.scenario import load_scenario
from queuewise.agents.validation import evaluate_policy
from queuewise.evaluation.judging import judge
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.statistics import paired_difference

PPO = {"num_envs": 32, "steps": 64, "minibatch": 512, "epochs": 4, "learning_rate": 2e-3, "entropy": 0.003}
LONG_AND_SHORT: dict[str, Any] = {  # the load is low enough that every job can run soon, if long ones make way
    "workload": "bursty",
    "workload_args": ("arrival_span=5e4", "max_gpus=2"),
    "cluster": "1x2:V100-16",
    "episode_jobs": 30,
    "frames": 2048 * 16,
    "report_windows": 40,
    "ppo": PPO,
}


def learnt(net: str, stops: int) -> NDArray[np.float64]:
    """[40] mean bounded slowdowns on windows that were not trained on."""
    settings = small_settings(net=net, task={"window": 8, "stops": stops}, **LONG_AND_SHORT)
    scenario = load_scenario(settings)
    learner = make_learner(scenario.setup, settings, 1)
    while learner.frames < settings.frames:
        learner.iterate()
    cells = evaluate_policy(learner.act, learner.scaling, scenario, scenario.experiment("report"), "model:learner")
    learner.close()
    return np.array(judge(cells, parse_score("bsld")).per_window["model:learner"])


@pytest.mark.slow
@pytest.mark.parametrize("net", ["kernel", "attn"])
def test_preemption_pays_where_it_is_free(net: str) -> None:
    difference = paired_difference(learnt(net, stops=2), learnt(net, stops=0))
    assert difference.better()
    assert difference.diff < -0.3
