"""Judging a policy: play it greedily on the windows of an experiment and measure what it did, as any other policy is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from queuewise.agents.actions import flat_mask, split_actions
from queuewise.agents.grounds import Grounds
from queuewise.agents.scaling import Scaler, Scaling
from queuewise.agents.spec import Spec
from queuewise.envs.batch import EnvBatch
from queuewise.envs.stepping import RUNS_ON
from queuewise.evaluation.experiment import Cell, Experiment, measure_cell
from queuewise.sim.core.schedule import Schedule

Act = Callable[[Tensor, Tensor], Tensor]  # [B, F] scaled observations, [B, A] mask -> [B] flat actions
AT_A_TIME = 64  # windows played side by side


def judge_policy(act: Act, scaling: Scaling, grounds: Grounds, experiment: Experiment, name: str) -> list[Cell]:
    """One cell for each window."""
    windows = experiment.plan.windows
    cells = []
    for first in range(0, len(windows), AT_A_TIME):
        setup = grounds.judging_arena([experiment.jobs_of(window) for window in windows[first : first + AT_A_TIME]])
        batch = setup.batch(min(AT_A_TIME, len(windows) - first), threads=1)
        batch.begin(range(batch.size), [setup.window(number) for number in range(batch.size)])
        schedules = play_out(batch, act, Scaler(scaling, setup.layout), Spec(setup.settings.problem, setup.layout), name)
        batch.close()
        cells += [measure_cell(experiment, name, first + index, schedule) for index, schedule in enumerate(schedules)]
    return cells


def play_out(batch: EnvBatch, act: Act, scaler: Scaler, spec: Spec, name: str) -> Sequence[Schedule]:
    """Play every environment of the batch to the end of its episode. One that has ended idles in it until the last has."""
    schedules: dict[int, Schedule] = {}
    while len(schedules) < batch.size:
        mask = torch.from_numpy(flat_mask(batch.mask, spec))
        playing = np.array([e for e in range(batch.size) if e not in schedules])
        rows = torch.from_numpy(batch.observations[playing])
        actions = mask.int().argmax(1).numpy()
        actions[playing] = act(scaler.apply(rows), mask[torch.from_numpy(playing)]).numpy()
        batch.step(split_actions(actions, spec))
        for e in playing[batch.outcome[playing] != RUNS_ON]:
            schedules[int(e)] = batch.schedule(int(e), name)
    return [schedules[e] for e in range(batch.size)]
