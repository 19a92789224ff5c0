"""Evaluation of a learned policy on VAL and REPORT windows: it plays greedily and is measured like any other policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from queuewise.agents.learner import Learner
from queuewise.agents.observation_scaling import Scaler, Scaling
from queuewise.agents.scenario import Scenario
from queuewise.agents.task_shape import TaskShape, flat_mask, split_actions
from queuewise.envs.batch import EnvBatch
from queuewise.envs.stepping import RUNS_ON
from queuewise.evaluation.experiment import Cell, Experiment, measure_cell, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.scores import Score
from queuewise.policies import simulate
from queuewise.policies.names import parse_policy
from queuewise.search.heuristics import heuristics
from queuewise.sim.core.schedule import Schedule

Act = Callable[[Tensor, Tensor], Tensor]  # [B, F] scaled observations, [B, A] mask -> [B] flat actions
AT_A_TIME = 64  # windows played in parallel
BEST = "best"  # as a baseline
KEPT = 3  # heuristics that `best` stands for
PLANNED = 6  # orders that are also tried with conservative backfill, which takes longest


def evaluate_policy(act: Act, scaling: Scaling, scenario: Scenario, experiment: Experiment, name: str) -> list[Cell]:
    """Play all windows of the experiment; return one cell per window."""
    windows = experiment.plan.windows
    cells = []
    for first in range(0, len(windows), AT_A_TIME):
        some = windows[first : first + AT_A_TIME]
        setup = scenario.evaluation_setup([experiment.jobs_of(one) for one in some], [experiment.starts.get(one) for one in some])
        batch = setup.batch(min(AT_A_TIME, len(windows) - first), threads=1)
        batch.begin(range(batch.size), [setup.window(number) for number in range(batch.size)])
        schedules = play_to_end(batch, act, Scaler(scaling, setup.layout), TaskShape(setup.settings.problem, setup.layout), name)
        batch.close()
        cells += [measure_cell(experiment, name, first + index, schedule) for index, schedule in enumerate(schedules)]
    return cells


def play_to_end(batch: EnvBatch, act: Act, scaler: Scaler, shape: TaskShape, name: str) -> Sequence[Schedule]:
    """Play every environment of the batch to the end of its episode. Those that have ended idle until all have."""
    schedules: dict[int, Schedule] = {}
    while len(schedules) < batch.size:
        mask = torch.from_numpy(flat_mask(batch.mask, shape))
        playing = np.array([e for e in range(batch.size) if e not in schedules])
        rows = torch.from_numpy(batch.observations[playing])
        actions = mask.int().argmax(1).numpy()
        actions[playing] = act(scaler.apply(rows), mask[torch.from_numpy(playing)]).numpy()
        batch.step(split_actions(actions, shape))
        for e in playing[batch.outcome[playing] != RUNS_ON]:
            schedules[int(e)] = batch.schedule(int(e), name)
    return [schedules[e] for e in range(batch.size)]


class Validator:
    """Scores on VAL: the learner beside the baselines, which are replayed once.

    Among these, `best` stands for the best of all orders and backfills.
    """

    def __init__(self, scenario: Scenario, score: Score) -> None:
        self._grounds, self._score = scenario, score
        self._experiment = scenario.experiment("val")
        named = scenario.settings.baselines
        best = _best_cells(self._experiment, score) if BEST in named else []
        known = {cell.policy for cell in best}
        self._baselines = best + baseline_cells(self._experiment, [name for name in named if name not in (BEST, *known)])

    @property
    def baselines(self) -> list[str]:
        """The names of the baselines."""
        return list(dict.fromkeys(cell.policy for cell in self._baselines))

    def val(self, learner: Learner) -> dict[str, float]:
        """Mean scores by policy. The learner is called `agent`."""
        cells = evaluate_policy(learner.act, learner.scaling, self._grounds, self._experiment, "model:agent")
        return {s.policy.removeprefix("model:"): s.mean for s in judge([*cells, *self._baselines], self._score).standings}


def _best_cells(experiment: Experiment, score: Score) -> list[Cell]:
    """The cells of the KEPT best heuristics: of all orders with EASY and greedy backfill and, of the best of these, with conservative."""
    every = [name for name in heuristics(experiment.settings.estimates or "") if _is_tried(name, experiment.settings.estimates)]
    cells = _ranked(experiment, [name for name in every if "+conservative" not in name], score)
    firsts = list(dict.fromkeys(name.partition("+")[0] for name in cells))[:PLANNED]
    cells |= _ranked(
        experiment, [name for name in every if name.partition("+conservative")[0] in firsts and "+conservative" in name], score
    )
    best = judge([cell for some in cells.values() for cell in some], score).standings[:KEPT]
    return [cell for standing in best for cell in cells[standing.policy]]


def _is_tried(name: str, estimates: str | None) -> bool:
    """Not with bounds, which short windows hardly meet, but for `wise`; by predictions only if exact runtimes are not known.

    qssf is saf by predictions.
    """
    policy = parse_policy(name)
    return "~" not in name and not policy.history and (estimates != "oracle" or not policy.own_estimates)


def _ranked(experiment: Experiment, names: Sequence[str], score: Score) -> dict[str, list[Cell]]:
    """The cells of each policy, the best policy first."""
    cells: dict[str, list[Cell]] = {}
    for cell in baseline_cells(experiment, names):
        cells.setdefault(cell.policy, []).append(cell)
    return {one.policy: cells[one.policy] for one in judge([cell for some in cells.values() for cell in some], score).standings}


def baseline_cells(experiment: Experiment, baselines: Sequence[str]) -> list[Cell]:
    return run_experiment(experiment, baselines, simulate)
