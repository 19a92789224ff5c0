"""What policies are trained and evaluated on: parameters of the workload model, and windows of REPORT that were never used."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from agents_setup import small_settings
from queuewise.agents.scenario import load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.workers import Rollout
from queuewise.envs.features import ObservationLayout
from queuewise.errors import InputError


def test_parameters_of_the_model_reach_every_block() -> None:
    few = load_scenario(small_settings(workload_args=("max_gpus=2",)))
    for block in ("train", "val", "report"):
        drawn = [few.task_setup(block).source.window(number)[0] for number in range(3)]
        assert max(float((jobs.num_tasks * jobs.gpu_milli / 1000).max()) for jobs in drawn) <= 2.0
    window = few.experiment("report").plan.windows[0]
    jobs = few.experiment("report").jobs_of(window)
    assert float((jobs.num_tasks * jobs.gpu_milli / 1000).max()) <= 2.0


def test_every_report_seed_stands_for_other_windows() -> None:
    plans = [load_scenario(small_settings(report_seed=number)).experiment("report").plan for number in (0, 1, 7)]
    seeds = [{window.seed for window in plan.windows} for plan in plans]
    assert [len(chosen) for chosen in seeds] == [2, 2, 2]
    assert len(set.union(*seeds)) == 6


@pytest.mark.parametrize("pair", ["max_gpus", "unheard_of=3"])
def test_parameters_that_mean_nothing_are_refused(pair: str) -> None:
    window = load_scenario(small_settings()).experiment("val").plan.windows[0]
    with pytest.raises(InputError, match=pair.partition("=")[0]):
        load_scenario(small_settings(workload_args=(pair,))).experiment("val").jobs_of(window)


def test_pieces_of_a_minibatch_hold_frames_of_like_queues() -> None:
    rollout = Rollout(steps=4, num_envs=2, shape=TaskShape("job", ObservationLayout(9, 2, 3, ())))
    rollout.shown = torch.tensor([5, 0, 3, 9, 1, 7, 2, 8], dtype=torch.int16)
    chosen = torch.tensor([7, 3, 2, 0, 4, 1])
    pieces = rollout.by_length(chosen, 3)
    assert [sorted(rollout.shown[piece].tolist()) for piece in pieces] == [[0, 1], [3, 5], [8, 9]]
    assert rollout.by_length(chosen, 1)[0] is chosen


def test_pieces_of_a_large_minibatch_are_halves_of_what_is_left() -> None:
    rollout = Rollout(steps=1500, num_envs=2, shape=TaskShape("job", ObservationLayout(9, 2, 3, ())))
    rollout.shown = torch.randint(0, 10, (3000,), generator=torch.Generator().manual_seed(0)).to(torch.int16)
    chosen = torch.randperm(3000, generator=torch.Generator().manual_seed(1))
    pieces = rollout.by_length(chosen, 1)
    assert [len(piece) for piece in pieces] == [1500, 750, 375, 256, 119]
    assert torch.equal(torch.cat(list(pieces)).sort().values, torch.arange(3000))
    assert all(rollout.shown[a].max() <= rollout.shown[b].min() for a, b in pairwise(pieces))
    assert [len(piece) for piece in rollout.by_length(chosen, 4)] == [750, 750, 750, 375, 256, 119]
