"""Every algorithm with every network solves a toy whose optimum is known."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from agents_setup import small_settings
from queuewise.agents.learner import Learner, make_learner
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.task_play import play_to_end
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.validation import network_choice
from queuewise.cluster import load_cluster
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.envs.env_setup import EnvSetup, build_setup
from queuewise.envs.rewards import Term
from queuewise.workload.jobs import Workload

RUNTIMES = (60.0, 600.0, 2400.0, 7200.0)
FASTER = 4.0
SOLVED = 1.005  # times the optimum
JCT = (Term(name="jct", weight=1.0, per=("jobs",)),)
PAIRS = [("job", "mlp"), ("job", "kernel"), ("job", "attn"), ("host", "mlp"), ("host", "hosts"), ("joint", "mlp"), ("joint", "joint")]
PPO = {"num_envs": 16, "steps": 32, "minibatch": 128, "learning_rate": 3e-3, "entropy": 0.003, "gae_lambda": 0.95}
REPLAY = {
    "num_envs": 6,
    "n_step": 1,
    "steps": 32,
    "first_frames": 384,
    "replay": 4096,
    "batch": 64,
    "learning_rate": 3e-3,
    "target_share": 0.02,
}
TRAINING: dict[str, dict[str, Any]] = {
    "ppo": {"ppo": PPO, "frames": 512 * 40},
    "d3qn": {"algo": "d3qn", "d3qn": REPLAY, "frames": 192 * 100},
    "sac": {"algo": "sac", "sac": REPLAY, "frames": 192 * 100},
    "d3qn-noisy": {"algo": "d3qn", "d3qn": REPLAY | {"noisy": True}, "frames": 192 * 100},
    "d3qn-distributions": {"algo": "d3qn", "d3qn": REPLAY | {"atoms": 21}, "frames": 192 * 100},
}
OPTIONS = [(name, "job", "kernel") for name in TRAINING if "-" in name]  # of an algorithm: one network is enough


def jobs(submit: list[float], runtime: list[float]) -> Workload:
    number = len(submit)
    return Workload(
        submit=np.array(submit),
        runtime=np.array(runtime),
        num_tasks=np.ones(number, np.int32),
        gpu_milli=np.full(number, 1000, np.int32),
    )


def one_gpu() -> Cluster:
    return load_cluster("1x1:V100-16")


def slow_and_fast() -> Cluster:
    groups = [NodeGroup(count=1, gpus=1, kind="T4", name="slow"), NodeGroup(count=1, gpus=1, kind="A10", name="fast")]
    return build("slow-and-fast", groups, speeds={"A10": FASTER})


def toy(problem: str) -> tuple[EnvSetup, float]:
    """The task, and the least possible mean completion time.

    job: four jobs wait for one GPU; shortest first is optimal (Smith, 1956).
    host, joint: jobs come when both nodes are free; the fast one is best.
    """
    arguments: dict[str, Any] = {"window": 4, "estimates": "oracle", "reward": JCT, "skip_forced": True, "lookahead": "off"}
    if problem == "job":
        windows = [jobs([0.0] * 4, list(order)) for order in permutations(RUNTIMES)]
        return build_setup(problem, workload=windows, cluster=one_gpu(), **arguments), float(np.cumsum(RUNTIMES).mean())
    windows = [jobs([1e5 * i for i in range(4)], list(order)) for order in permutations(RUNTIMES)]
    return build_setup(problem, workload=windows, cluster=slow_and_fast(), **arguments), float(np.mean(RUNTIMES)) / FASTER


def mean_jct(learner: Learner, setup: EnvSetup) -> float:
    """Over all windows, played greedily."""
    batch = setup.batch(setup.source.size, threads=1)
    batch.begin(range(batch.size), [setup.window(number) for number in range(batch.size)])
    choose = network_choice(learner.act, Scaler(learner.scaling, setup.layout))
    schedules = [one.schedule for one in play_to_end(batch, choose, TaskShape(setup.settings.problem, setup.layout), "learner")]
    batch.close()
    return float(np.mean([(schedule.end - schedule.workload.submit).mean() for schedule in schedules]))


def prefer_the_opposite(learner: Learner) -> None:
    last = [layer.weights for layer in learner.network.layers if layer.weights.partition(".")[0] == "score"][-1]
    with torch.no_grad():
        for parameter in learner.network.module_of[last].parameters():
            parameter.neg_()


def marked(training: str, problem: str, net: str) -> Any:
    """Learning from a replay takes minutes on a busy machine."""
    return pytest.param(training, problem, net, marks=[pytest.mark.slow] if training.startswith(("d3qn", "sac")) else [])


@pytest.mark.parametrize(
    ("training", "problem", "net"), [marked(*case) for case in [(n, *pair) for n in TRAINING if "-" not in n for pair in PAIRS] + OPTIONS]
)
def test_solves_the_toy(training: str, problem: str, net: str) -> None:
    setup, optimum = toy(problem)
    settings = small_settings(**{"net": net, "env": problem, "network": {"width": 32}, **TRAINING[training]})
    learner = make_learner(setup, settings, 1)
    before, reached = mean_jct(learner, setup), np.inf
    if before <= SOLVED * optimum:  # by luck: let it begin with the opposite
        prefer_the_opposite(learner)
        before = mean_jct(learner, setup)
    assert before > SOLVED * optimum
    while learner.frames < settings.frames and reached > SOLVED * optimum:
        for _ in range(2):
            learner.iterate()
        reached = mean_jct(learner, setup)
    learner.close()
    assert optimum * (1 - 1e-9) <= reached <= SOLVED * optimum
