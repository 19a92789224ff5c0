"""Evaluation of a learned policy on VAL and REPORT windows: it is measured like any other policy, or by the return of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from queuewise.agents.learner import Learner
from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import Scaler, Scaling
from queuewise.agents.scenario import BEST, Scenario
from queuewise.agents.task_play import Choose, Played, heuristic_cells, play_windows, setups, with_return
from queuewise.agents.train_settings import RETURN
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, Experiment, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.scores import Score
from queuewise.policies import simulate
from queuewise.policies.names import parse_policy
from queuewise.search.heuristics import heuristics

Act = Callable[[Tensor, Tensor], Tensor]  # [B, F] scaled observations, [B, A] mask -> [B] flat actions
KEPT = 3  # heuristics that `best` stands for
PLANNED = 6  # orders that are also tried with conservative backfill, which takes longest
SHOWN = ("gpu_utilisation", "cpu_utilisation", "flops_utilisation", "makespan_s", "load_imbalance", "completion_rate")  # beside the score


def network_choice(act: Act, scaler: Scaler) -> Choose:
    """The choices of a network."""
    return lambda rows, mask: act(scaler.apply(torch.from_numpy(rows)), torch.from_numpy(mask)).numpy()


def play_policy(act: Act, scaling: Scaling, scenario: Scenario, experiment: Experiment, name: str) -> list[tuple[Cell, Played]]:
    """Play all windows of the experiment; return a cell and what was paid per window.

    Unless the score is the return, windows are played to the end, without rewards.
    """

    def choices(setup: EnvSetup) -> Choose:
        return network_choice(act, Scaler(scaling, setup.layout))

    paid = scenario.settings.objective == RETURN
    played = play_windows(setups(scenario, experiment, paid=paid), choices, experiment, name)
    return [(with_return(*one) if paid else one[0], one[1]) for one in played]


def evaluate_policy(act: Act, scaling: Scaling, scenario: Scenario, experiment: Experiment, name: str) -> list[Cell]:
    """The cells alone."""
    return [cell for cell, _ in play_policy(act, scaling, scenario, experiment, name)]


@dataclass(frozen=True)
class ValFigures:
    """What one evaluation on VAL found."""

    means: dict[str, float]  # scores by policy; the learner is called `agent`
    others: dict[str, float]  # of the learner: least and greatest block, share of waits, and figures beside the score

    def as_row(self) -> dict[str, float]:
        return {f"val/{policy}": score for policy, score in self.means.items()} | {
            f"val_agent/{name}": x for name, x in self.others.items()
        }


class Validator:
    """Scores on VAL: the learner beside the baselines, which are replayed once.

    Among these, `best` stands for the best of all orders and backfills.
    """

    def __init__(self, scenario: Scenario, score: Score) -> None:
        self._scenario, self._score = scenario, score
        self._experiment = scenario.experiment("val")
        named = scenario.baselines
        best = _best_cells(self._experiment, score) if BEST in named and not self._pays else []
        known = {cell.policy for cell in best}
        self._baselines = best + self.baseline_cells(self._experiment, [name for name in named if name not in (BEST, *known)])
        _check_contention(self._baselines, score)

    @property
    def _pays(self) -> bool:
        return self._scenario.settings.objective == RETURN

    def baseline_cells(self, experiment: Experiment, names: Sequence[str]) -> list[Cell]:
        """Replays of the policies; if the score is the return, they play the task."""
        if self._pays:
            return heuristic_cells(self._scenario, experiment, tuple(names))
        return run_experiment(experiment, names, simulate)

    @property
    def baselines(self) -> list[str]:
        """The names of the baselines."""
        return list(dict.fromkeys(cell.policy for cell in self._baselines))

    def val(self, learner: Learner) -> ValFigures:
        """Mean scores by policy, and more about the learner."""
        act = acting(learner, self._scenario.settings.eval_actions)
        played = play_policy(act, learner.scaling, self._scenario, self._experiment, "model:agent")
        cells = [cell for cell, _ in played]
        means = {s.policy.removeprefix("model:"): s.mean for s in judge([*cells, *self._baselines], self._score).standings}
        others = {"wait_share": float(np.mean([one.wait_share for _, one in played]))} | self._blocks(cells)
        for name in SHOWN:
            values = [cell.metrics[name] for cell in cells if cell.metrics.get(name) is not None]
            others |= {name: float(np.mean(values))} if values else {}
        return ValFigures(means, others)

    def _blocks(self, cells: Sequence[Cell]) -> dict[str, float]:
        """The least and the greatest mean over blocks of VAL windows."""
        number = self._scenario.settings.val_blocks
        if number == 1:
            return {}
        if number > len(cells):
            raise InputError(f"{len(cells)} VAL windows cannot be divided into {number} blocks", hint="use more --val-windows")
        scores = np.array([self._score.of(cell.scores, f"VAL window {cell.window}") for cell in cells])
        means = [float(block.mean()) for block in np.array_split(scores, number)]
        return {"block_min": min(means), "block_max": max(means)}


class Actor(Protocol):
    """A learner, or a trained model."""

    @property
    def network(self) -> Network: ...

    @property
    def decision(self) -> str: ...

    def act(self, observations: Tensor, mask: Tensor) -> Tensor: ...


def acting(learner: Actor, actions: str) -> Act:
    """How the learner acts: greedily, or by its probabilities."""
    if actions == "greedy":
        return learner.act
    if learner.decision != "likely":
        raise InputError(
            "--eval-actions sampled: this algorithm has values, not probabilities of actions", hint="use greedy, or --algo ppo"
        )
    random = torch.Generator().manual_seed(0)

    def sample(observations: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.multinomial(learner.network.policy(observations, mask)[0].softmax(1), 1, generator=random).squeeze(1)

    return sample


def _check_contention(cells: Sequence[Cell], score: Score) -> None:
    """Refuse to train where nothing is at stake: all baselines are alike on VAL, in every window."""
    by_policy: dict[str, list[float]] = {}
    for cell in cells:
        by_policy.setdefault(cell.policy, []).append(score.of(cell.scores, f"{cell.policy}, VAL window {cell.window}"))
    scores = np.array(list(by_policy.values()))
    if len(scores) < 2 or np.ptp(scores, axis=0).max() > 1e-9 * max(float(np.abs(scores).max()), 1e-9):
        return
    waits = [cell.metrics["wait_s"]["max"] or 0.0 for cell in cells]
    why = "no job waits at all" if max(waits) == 0 else "the choice makes no difference"
    raise InputError(
        f"nothing to learn: {', '.join(by_policy)} tie on VAL, with {score.name} {scores.mean():.4g}: {why}",
        hint="raise the load (--workload-args load=1.1, or --load-factor for a log), use a smaller --cluster or one that limits what the "
        "jobs ask for, or longer --episode-jobs",
    )


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
    for cell in run_experiment(experiment, names, simulate):
        cells.setdefault(cell.policy, []).append(cell)
    return {one.policy: cells[one.policy] for one in judge([cell for some in cells.values() for cell in some], score).standings}
