"""Playing the windows of VAL and REPORT in the task as it is trained, with its rewards and its truncation.

This is where the score `return` comes from. Networks and heuristics play alike: a heuristic takes the first job of its
order that the task lets it choose, or the host that its placement rule prefers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from queuewise.agents.imitation import RULES, Expert
from queuewise.agents.scenario import Scenario
from queuewise.agents.task_shape import TaskShape, flat_mask, split_actions
from queuewise.envs.batch import EnvBatch
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.stepping import RUNS_ON
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, Experiment, measure_cell
from queuewise.policies.names import parse_policy
from queuewise.sim.core.schedule import Schedule
from queuewise.sim.core.tables import F32, I64

Choose = Callable[[F32, NDArray[np.bool_]], I64]  # [B, F] unscaled observations, [B, A] mask -> [B] flat actions
CUT_OFF = "episodes may be truncated"  # instead of a digest of the jobs that finished
AT_A_TIME = 64  # windows played in parallel


@dataclass(frozen=True)
class Played:
    """One episode."""

    schedule: Schedule
    paid: float  # its return
    wait_share: float  # of its steps, how many were waits although something could be chosen


def play_to_end(batch: EnvBatch, choose: Choose, shape: TaskShape, name: str) -> list[Played]:
    """Play every environment of the batch to the end of its episode. Those that have ended idle until all have."""
    episodes: dict[int, Played] = {}
    waits, steps = np.zeros(batch.size), np.zeros(batch.size)
    while len(episodes) < batch.size:
        mask = flat_mask(batch.mask, shape)
        playing = np.array([e for e in range(batch.size) if e not in episodes])
        actions = mask.argmax(1)
        actions[playing] = choose(batch.observations[playing], mask[playing])
        steps[playing] += 1
        waits[playing] += (actions[playing] == shape.num_actions - 1) & mask[playing, :-1].any(axis=1)
        batch.step(split_actions(actions, shape))
        for e in playing[batch.outcome[playing] != RUNS_ON].tolist():
            episodes[e] = Played(batch.schedule(e, name), batch.tally(e)["return"], waits[e] / steps[e])
    return [episodes[e] for e in range(batch.size)]


def play_windows(
    make: Callable[[int, int], EnvSetup], choose: Callable[[EnvSetup], Choose], experiment: Experiment, name: str
) -> list[tuple[Cell, Played]]:
    """Play all windows of the experiment, some at a time. `make` sets up the windows from one number up to another."""
    cells = []
    number = len(experiment.plan.windows)
    for first in range(0, number, AT_A_TIME):
        last = min(first + AT_A_TIME, number)
        setup = make(first, last)
        batch = setup.batch(last - first, threads=1)
        batch.begin(range(batch.size), [setup.window(index) for index in range(batch.size)])
        episodes = play_to_end(batch, choose(setup), TaskShape(setup.settings.problem, setup.layout), name)
        batch.close()
        cells += [(measure_cell(experiment, name, first + index, one.schedule), one) for index, one in enumerate(episodes)]
    return cells


def with_return(cell: Cell, played: Played) -> Cell:
    """The cell with its return, and without the list of jobs that finished: returns also count those that were cut off."""
    return replace(cell, scores={**cell.scores, "return": played.paid}, finished_digest=CUT_OFF)


def setups(scenario: Scenario, experiment: Experiment, *, paid: bool) -> Callable[[int, int], EnvSetup]:
    """Set up windows of the experiment: as in training, or to be played to the end without rewards."""
    windows = experiment.plan.windows

    def make(first: int, last: int) -> EnvSetup:
        some = windows[first:last]
        jobs, starts = [experiment.jobs_of(one) for one in some], [experiment.starts.get(one) for one in some]
        return scenario.paid_setup(jobs, starts) if paid else scenario.evaluation_setup(jobs, starts)

    return make


# --- heuristics


def heuristic_cells(scenario: Scenario, experiment: Experiment, names: tuple[str, ...]) -> list[Cell]:
    """The returns of heuristics that play the task."""
    make = setups(scenario, experiment, paid=True)

    def cells_of(name: str) -> list[Cell]:
        expert = task_expert(name, scenario.setup)
        played = play_windows(lambda first, last: expert.setup(_as_tokens(make(first, last))), expert_choice(expert), experiment, name)
        return [with_return(*one) for one in played]

    return [cell for name in names for cell in cells_of(name)]


def _as_tokens(setup: EnvSetup) -> EnvSetup:
    """Heuristics read tokens, whatever the network sees."""
    settings = setup.settings.model_copy(update={"view": "tokens"})
    return replace(setup, settings=settings, layout=replace(setup.layout, view="tokens"))


def expert_choice(expert: Expert) -> Callable[[EnvSetup], Choose]:
    rng = np.random.default_rng(0)

    def choices(setup: EnvSetup) -> Choose:
        shape = TaskShape(setup.settings.problem, setup.layout)

        def choose(observations: F32, mask: NDArray[np.bool_]) -> I64:
            if (expert.rule if setup.settings.problem == "host" else expert.order) == "random":
                return _draw(rng, mask)
            return expert.choose(observations, mask, shape)

        return choose

    return choices


def _draw(rng: np.random.Generator, mask: NDArray[np.bool_]) -> I64:
    """A random legal action other than the wait, where there is one."""
    numbers = np.where(mask[:, :-1], rng.random((len(mask), mask.shape[1] - 1)), -1.0)
    drawn: I64 = np.where(mask[:, :-1].any(axis=1), numbers.argmax(1), mask.shape[1] - 1)
    return drawn


def task_expert(name: str, setup: EnvSetup) -> Expert:
    """The heuristic as a player of the task. One that backfills or places otherwise than the task is refused."""
    policy, task = parse_policy(name), setup.settings
    rules = (*RULES, "random")
    order = f"{policy.order}:{policy.estimates}" if policy.estimates else policy.order
    fills = ("none", "greedy") if task.dispatch == "mask" and task.problem == "job" else ("none", task.filling.backfill)
    places = (task.placement,) if task.problem == "job" else rules
    if policy.model or policy.decides_in_python or policy.backfill not in fills or policy.placement not in places:
        raise InputError(
            f"{name} cannot play the task, so it has no return: the task has backfill {fills[-1]} and placement {' or '.join(places)}",
            hint="name the order alone, for example --baselines fcfs sjf+greedy, or choose another --score",
        )
    blocking = task.dispatch == "mask" and policy.backfill == "none" and policy.order != "random"
    return Expert(order, blocking, policy.placement)
