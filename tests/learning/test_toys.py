"""Learners find the best answer of problems that have a known one."""

from __future__ import annotations

from typing import Any

import pytest

from queuewise.agents.learner import make_learner
from queuewise.agents.networks import NETWORKS, network_class
from queuewise.agents.settings import layered
from toys import make_toy, played

OFF_POLICY = {"num_envs": 6, "steps": 32, "first_frames": 384, "replay": 4096, "batch": 64, "learning_rate": 2e-3, "target_share": 0.02}
LEARNERS: dict[str, dict[str, Any]] = {
    "d3qn": {"algo": "d3qn", "d3qn": OFF_POLICY},
    "noisy": {"algo": "d3qn", "d3qn": OFF_POLICY | {"noisy": True}},
    "distributions": {"algo": "d3qn", "d3qn": OFF_POLICY | {"atoms": 21}},
    "sac": {"algo": "sac", "sac": OFF_POLICY | {"learning_rate": 3e-3}},
}
ITERATIONS = 40
PAIRS = [(name, problem) for name in NETWORKS for problem in sorted(network_class(name).problems)]
CASES = [(learner, *pair) for learner in ("d3qn", "sac") for pair in PAIRS] + [
    (learner, "kernel", "job") for learner in ("noisy", "distributions")
]


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuewise.agents.warmup.STEPS", 64)


@pytest.mark.parametrize(("name", "net", "problem"), CASES)
def test_the_best_answer_is_found(name: str, net: str, problem: str) -> None:
    toy = make_toy(problem)
    settings = layered(net=net, env=problem, network={"width": 16}, frames=384 + ITERATIONS * 192, **LEARNERS[name])
    learner = make_learner(toy.arena, settings, 0)
    for _ in range(ITERATIONS):
        learner.iterate()
        if played(learner, toy) == pytest.approx(toy.best):
            break
    learner.close()
    assert played(learner, toy) == pytest.approx(toy.best)
    assert toy.best < 0.8 * toy.by_chance
