"""Before training: environments are played by chance for a while. That tells the scale of the features, and leaves the environments in
different phases of their episodes, so that one update sees beginnings, queues and ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from queuewise.agents.scaling import Scaling, measure_scaling
from queuewise.agents.stage import Stage
from queuewise.sim.core.tables import F32

STEPS = 1024
EVERY = 32  # steps between observations that are measured


def warm_up(stages: Sequence[Stage], seed: int) -> Scaling:
    """Play the stages by chance; the scaling of what was seen."""
    rows = [play_by_chance(stage, seed + number) for number, stage in enumerate(stages)]
    return measure_scaling(stages[0].spec.layout, np.concatenate(rows))


def play_by_chance(stage: Stage, seed: int) -> F32:
    """Pick any legal action, equally likely; environment e begins anew after a share e ÷ E of the steps. [N, F] some of what was seen."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.zeros(stage.num_envs, stage.spec.observation_size)
    mask = torch.zeros(stage.num_envs, stage.spec.num_actions, dtype=torch.bool)
    begins = np.arange(stage.num_envs) * STEPS // stage.num_envs
    stage.write(rows, mask)
    seen = [rows.numpy().copy()]
    for number in range(STEPS):
        stage.begin(np.flatnonzero(begins == number))
        stage.write(rows, mask)
        stage.step(torch.multinomial(mask.float(), 1, generator=random).squeeze(1), rows, mask)
        if number % EVERY == 0:
            seen.append(rows.numpy().copy())
    return np.concatenate(seen)
