"""Small problems whose best answer is known by hand, for learners to find."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch

from queuewise.agents.learner import Learner
from queuewise.agents.scaling import Scaler
from queuewise.agents.stage import Stage
from queuewise.cluster.spec import NodeGroup, build
from queuewise.envs.building import Arena, build_arena
from queuewise.envs.rewards import Term
from queuewise.workload.jobs import WHOLE_GPU, Workload, constant

JCT = (Term(name="jct", per=("jobs",)),)
RUNTIMES = (100.0, 200.0, 400.0)


@dataclass(frozen=True, eq=False)
class Toy:
    arena: Arena
    best: float  # mean seconds from submission to end
    by_chance: float


def queue_toy() -> Toy:
    """Three jobs wait for one GPU: the shortest first ends at 100, 300, 700. By chance all six orders are as likely: 1400/3 on average."""
    windows = [_jobs([0.0, 0.0, 0.0], order) for order in permutations(RUNTIMES)]
    arena = build_arena("job", workload=windows, cluster="1x1:V100-16", window=3, reward=JCT, estimates="oracle", time_scale_s=400.0)
    return Toy(arena, 1100 / 3, 1400 / 3)


def place_toy(problem: str) -> Toy:
    """Jobs come one by one to two free hosts. The second is four times as fast and always best; chance takes it half the time."""
    cluster = build("toy", [NodeGroup(1, 1, "V100-16"), NodeGroup(1, 1, "A100-40")], speeds={"A100-40": 4.0})
    windows = [_jobs([0.0, 1000.0, 2000.0], order) for order in permutations(RUNTIMES)]
    arena = build_arena(problem, workload=windows, cluster=cluster, window=2, reward=JCT, estimates="oracle", time_scale_s=400.0)
    return Toy(arena, 700 / 3 / 4, 700 / 3 * (1 / 2 + 1 / 8))


def make_toy(problem: str) -> Toy:
    return queue_toy() if problem == "job" else place_toy(problem)


def _jobs(submit: list[float], runtime: tuple[float, ...]) -> Workload:
    number = len(submit)
    return Workload(
        submit=np.array(submit),
        runtime=np.array(runtime),
        num_tasks=constant(1, number, np.int32),
        gpu_milli=constant(WHOLE_GPU, number, np.int32),
        name="toy",
    )


def played(learner: Learner, toy: Toy) -> float:
    """Mean seconds from submission to end over all windows, each played greedily once."""
    order = iter(range(toy.arena.source.size))
    stage = Stage(toy.arena, toy.arena.source.size, seed=0, draw=lambda rng: next(order, 0))
    stage.scaler = Scaler(learner.scaling, toy.arena.layout)
    row, mask = (
        torch.zeros(stage.num_envs, stage.spec.observation_size),
        torch.zeros(stage.num_envs, stage.spec.num_actions, dtype=torch.bool),
    )
    stage.write(row, mask)
    first: dict[int, float] = {}
    while len(first) < stage.num_envs:
        step = stage.step(learner.act(row, mask), row, mask)
        for env, tally in zip(np.flatnonzero(step.ended), step.tallies, strict=True):
            first.setdefault(int(env), tally["mean_jct_s"])
    stage.close()
    return float(np.mean(list(first.values())))
