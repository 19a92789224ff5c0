"""Stages: states told and taken back, scaling, flat actions, filters, teachers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agents_setup import small_setup
from queuewise.agents.imitation import find_expert, imitate, record_demonstrations
from queuewise.agents.learner import pick_best, pick_likely
from queuewise.agents.network import build_network
from queuewise.agents.observation_scaling import Scaler, identity, measure_scaling, read_scaling
from queuewise.agents.ppo import draw
from queuewise.agents.task_shape import TaskShape, split_actions
from queuewise.agents.train_settings import FilterSettings, NetworkSettings
from queuewise.agents.training_envs import TrainingEnvs, play_randomly, window_filter
from queuewise.envs.features import RUNNING, ObservationLayout
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure
from queuewise.evaluation.scores import score_values
from queuewise.policies import simulate
from queuewise.policies.networks.layers import ILLEGAL


def play_on(envs: TrainingEnvs, steps: int, seed: int) -> list[torch.Tensor]:
    """Random legal steps; everything that the stage answered."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.zeros(envs.num_envs, envs.shape.observation_size)
    mask = torch.zeros(envs.num_envs, envs.shape.num_actions, dtype=torch.bool)
    envs.write(rows, mask)
    seen = [rows.clone(), mask.clone()]
    for _ in range(steps):
        step = envs.step(torch.multinomial(mask.float(), 1, generator=random).squeeze(1), rows, mask)
        seen += [rows.clone(), mask.clone(), torch.from_numpy(step.rewards), torch.from_numpy(step.ended)]
    return seen


@pytest.mark.parametrize("problem", ["job", "host", "joint"])
def test_a_state_is_told_and_taken_back(problem: str) -> None:
    """After episodes of all ages, two stages in the same state go on alike, over the ends of episodes."""
    setup = small_setup(problem, episode_jobs=12)
    envs = TrainingEnvs(setup, 5, seed=4)
    ended = sum(int(part.sum()) for part in play_on(envs, 130, seed=1)[5::4])
    assert ended > 2
    other = TrainingEnvs(setup, 5, seed=4)
    other.restore(envs.state())
    first, second = play_on(envs, 90, seed=2), play_on(other, 90, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert {name: tensor.tolist() for name, tensor in envs.state().items()} == {name: t.tolist() for name, t in other.state().items()}


def test_episodes_depend_on_seed_and_environment_alone() -> None:
    """Four environments in one stage play what they play in two stages of two."""
    setup = small_setup()
    whole = TrainingEnvs(setup, 4, seed=9)
    halves = [TrainingEnvs(setup, 2, seed=9, first_env=first) for first in (0, 2)]
    windows = whole.state()["windows"].tolist()
    assert windows == halves[0].state()["windows"].tolist() + halves[1].state()["windows"].tolist()
    assert len(set(windows)) == 4
    assert TrainingEnvs(setup, 4, seed=10).state()["windows"].tolist() != windows


def test_scaling_centres_features_and_leaves_unused_rows_alone() -> None:
    envs = TrainingEnvs(small_setup(host_slots=3), 8, seed=1)
    layout = envs.shape.layout
    seen = play_randomly(envs, 2)
    scaled = Scaler(measure_scaling(layout, seen), layout).apply(torch.from_numpy(seen)).numpy()
    before, after = layout.parts(seen), layout.parts(scaled)
    used = before["jobs"][:, :, 0] > 0
    assert not after["jobs"][~used].any()
    assert not after["hosts"][:, 2].any()
    index = layout.job_features.index("estimate")
    values = after["jobs"][used][:, index]
    assert (values.mean(), values.std()) == pytest.approx((0.0, 1.0), abs=1e-3)
    for flag in ("present", "current"):
        place = layout.job_features.index(flag)
        assert (after["jobs"][:, :, place] == before["jobs"][:, :, place]).all()
    constant = layout.job_features.index("allowed")  # always 1 here: shifted, not stretched
    assert np.abs(after["jobs"][used][:, constant]).max() < 1e-6


def test_flags_of_running_jobs_are_not_scaled() -> None:
    envs = TrainingEnvs(small_setup(stops=3, moves=True), 8, seed=1)
    layout = envs.shape.layout
    seen = play_randomly(envs, 2)
    scaling = measure_scaling(layout, seen)
    before, after = (layout.parts(rows)["running"] for rows in (seen, Scaler(scaling, layout).apply(torch.from_numpy(seen)).numpy()))
    used = before[:, :, 0] > 0
    assert not after[~used].any()
    for flag in ("shown", "may_stop", "may_move"):
        place = RUNNING.index(flag)
        np.testing.assert_array_equal(after[:, :, place], before[:, :, place])
        assert 0 < before[:, :, place].mean() < 1
    values = after[used][:, RUNNING.index("left")]
    assert (values.mean(), values.std()) == pytest.approx((0.0, 1.0), abs=1e-3)
    again = read_scaling(scaling.tensors())
    assert again.mean.keys() == layout.shapes.keys()


def test_every_number_of_a_published_view_has_a_scale_of_its_own() -> None:
    envs = TrainingEnvs(small_setup(view="gpu-optimizer"), 8, seed=1)
    seen = play_randomly(envs, 2)
    scaled = Scaler(measure_scaling(envs.shape.layout, seen), envs.shape.layout).apply(torch.from_numpy(seen)).numpy()
    varied = seen.std(0) > 0.02
    assert varied.sum() > 20
    np.testing.assert_allclose(scaled.std(0)[varied], 1.0, atol=1e-3)


def test_flat_actions_of_the_joint_problem() -> None:
    shape = TaskShape("joint", ObservationLayout(window=3, hosts=4, units=1))
    assert shape.num_actions == 13
    assert split_actions(np.array([0, 5, 11, 12]), shape).tolist() == [[0, 0], [1, 1], [2, 3], [3, 0]]


def test_actions_are_drawn_as_often_as_they_are_likely_and_never_illegal_ones() -> None:
    mask = torch.tensor([False, True, True, False, True]).expand(40_000, 5)
    logits = torch.tensor([ILLEGAL, 0.0, 1.0, ILLEGAL, -1.0]).expand(40_000, 5)
    drawn = draw(logits.log_softmax(1), mask, torch.Generator().manual_seed(1))
    shares = torch.bincount(drawn, minlength=5) / len(drawn)
    assert shares[[0, 3]].tolist() == [0.0, 0.0]
    assert shares.tolist() == pytest.approx(logits[0].softmax(0).tolist(), abs=0.01)


def test_to_wait_must_be_likelier_than_all_else_together() -> None:
    scores = torch.tensor([[1.0, 1.0, 1.5], [1.0, 1.0, 1.8], [ILLEGAL, ILLEGAL, -3.0], [-5.0, ILLEGAL, ILLEGAL]])
    assert pick_best(scores).tolist() == [2, 2, 2, 0]
    assert pick_likely(scores).tolist() == [0, 2, 2, 0]  # log 2 above the others is the point


@pytest.mark.parametrize(
    ("problem", "policy", "net", "task"),
    [
        ("job", "sjf+greedy", "kernel", {}),
        ("job", "sjf", "kernel", {}),
        ("job", "sjf+greedy", "kernel", {"stops": 3, "moves": True}),
        ("host", "fcfs@spread", "hosts", {}),
        ("joint", "sjf+greedy@pack", "joint", {}),
    ],
)
def test_a_heuristic_can_be_imitated(problem: str, policy: str, net: str, task: dict[str, Any]) -> None:
    setup = small_setup(problem, **task)
    shape = TaskShape(problem, setup.layout)
    network = build_network(net, shape, NetworkSettings(width=32), seed=0)
    demonstrations = record_demonstrations(find_expert(policy, setup), setup, identity(setup.layout), 3000, 1)
    assert demonstrations.masks.gather(1, demonstrations.actions.unsqueeze(1)).all()
    scaling = measure_scaling(setup.layout, demonstrations.observations.numpy())
    before = network.policy(demonstrations.observations, demonstrations.masks)[0].argmax(1) == demonstrations.actions
    epochs = 24 if task else 8  # where there are stops, there is more that the expert never does
    taught = imitate(network, setup, scaling, policy, frames=3000, epochs=epochs, seed=1)
    assert taught > 0.9
    assert taught > float(before.float().mean()) + 0.05


@pytest.mark.parametrize(("policy", "score"), [("sjf+greedy", "jct"), ("fcfs", "wait")])
def test_a_teacher_plays_what_the_policy_of_its_name_does(policy: str, score: str) -> None:
    """With a window for all jobs, episode and replay are the same schedule."""
    setup = small_setup(window=30, pool=1)
    expert = find_expert(policy, setup)
    taught = expert.setup(setup)
    batch, shape = taught.batch(1, threads=1), TaskShape("job", taught.layout)
    batch.begin([0], [taught.window(0)])
    while not batch.outcome[0]:
        batch.step(expert.choose(batch.observations, batch.mask, shape))
    workload, estimate, _ = setup.source.window(0)
    expected = score_values(measure(simulate(workload, setup.cluster, policy, estimates=estimate)))
    assert score_values(measure(batch.schedule(0)))[score] == pytest.approx(expected[score])


@pytest.mark.parametrize(
    ("problem", "policy", "settings"),
    [
        ("job", "fcfs+easy", {}),
        ("host", "fcfs@fgd", {}),
        ("job", "sjf+greedy", {"dispatch": "commit"}),
        ("job", "sjf+greedy", {"view": "rltune"}),
    ],
)
def test_what_cannot_be_imitated(problem: str, policy: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be imitated"):
        find_expert(policy, small_setup(problem, **settings))


def test_filtered_windows_lie_in_the_band() -> None:
    setup = small_setup(pool=40)

    def score(window: int) -> float:
        workload, estimate, _ = setup.source.window(window)
        return float(score_values(measure(simulate(workload, setup.cluster, "sjf", estimates=estimate)))["bsld"] or 0.0)

    scores = [score(window) for window in range(40)]
    low, high = np.quantile(scores, [0.3, 0.7])
    choose = window_filter(setup, FilterSettings(policy="sjf", low=float(low), high=float(high), tries=200), "bsld")
    assert choose is not None
    drawn = {choose(np.random.default_rng(seed)) for seed in range(60)}
    assert len(drawn) > 5
    assert all(low <= scores[window] <= high for window in drawn)
    assert window_filter(setup, FilterSettings(), "bsld") is None


def test_rows_of_another_shape_are_not_scaled() -> None:
    layout = small_setup().layout
    scaler = Scaler(identity(layout), layout)
    for rows, out in ((torch.zeros(2, layout.size - 1), None), (torch.zeros(2, layout.size), torch.zeros(1, layout.size))):
        with pytest.raises(ValueError, match="cannot be scaled"):
            scaler.apply(rows, out)
