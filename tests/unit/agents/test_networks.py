"""Networks: masks are kept, rows may be permuted, and sizes may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from agents_setup import small_setup
from model_setup import STOPPERS
from queuewise.agents.network import Network, build_network
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.agents.training_envs import TrainingEnvs, play_randomly
from queuewise.envs.features import GLOBAL, NUM_GLOBAL, ObservationLayout
from queuewise.errors import InputError
from queuewise.policies.networks import NETWORKS, problems_of
from queuewise.policies.networks.layers import ILLEGAL, LayerList

PAIRS = [(name, problem) for name in NETWORKS for problem in sorted(problems_of(name))]
TOKEN_PAIRS = [pair for pair in PAIRS if pair[0] != "mlp"]
STOPS: dict[str, Any] = {"stops": 3}
MOVES: dict[str, Any] = {"stops": 3, "moves": True}
CASES = [*((*pair, {}) for pair in PAIRS), *((name, "job", changes) for name in STOPPERS for changes in (STOPS, MOVES))]
SIZES = NetworkSettings(width=16, heads=2)


def played(problem: str, **changes: Any) -> tuple[TaskShape, Tensor, Tensor]:
    """States met in play, with their masks."""
    envs = TrainingEnvs(small_setup(problem, **changes), 3, seed=1)
    play_randomly(envs, 1)
    rows, masks = [], []
    for _ in range(12):
        row, mask = torch.zeros(3, envs.shape.observation_size), torch.zeros(3, envs.shape.num_actions, dtype=torch.bool)
        envs.write(row, mask)
        envs.step(torch.multinomial(mask.float(), 1).squeeze(1), torch.zeros_like(row), torch.zeros_like(mask))
        rows.append(row)
        masks.append(mask)
    return envs.shape, torch.cat(rows), torch.cat(masks)


def network_for(name: str, shape: TaskShape, outputs: int = 1) -> Network:
    """With weights large enough that scores differ."""
    network = build_network(name, shape, SIZES, seed=3, outputs=outputs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())), alpha=0.2)
    return network


@pytest.mark.parametrize(("name", "problem", "changes"), CASES)
@pytest.mark.parametrize("outputs", [1, 5])
def test_shapes_and_masks(name: str, problem: str, changes: dict[str, Any], outputs: int) -> None:
    shape, rows, masks = played(problem, **changes)
    scores, values = network_for(name, shape, outputs)(rows, masks)
    assert scores.shape == (len(rows), shape.num_actions, outputs)
    assert values.shape == (len(rows), outputs)
    assert (scores[~masks] == ILLEGAL).all()
    assert (scores[masks].abs() < 1e3).all()
    assert scores[masks].std() > 0.01


@pytest.mark.parametrize(("name", "problem", "changes"), CASES)
def test_every_weight_learns(name: str, problem: str, changes: dict[str, Any]) -> None:
    shape, rows, masks = played(problem, **changes)
    network = network_for(name, shape)
    logits, values = network.policy(rows, masks)
    (logits[masks].square().sum() + values.square().sum()).backward()  # type: ignore[no-untyped-call]
    assert [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize(("name", "problem"), TOKEN_PAIRS)
def test_permuting_jobs_and_hosts_permutes_the_scores(name: str, problem: str) -> None:
    shape, rows, masks = played(problem)
    network = network_for(name, shape)
    window, hosts = shape.layout.window, shape.layout.hosts
    queued = torch.from_numpy((shape.layout.parts(rows.numpy())["jobs"][:, :, 0] > 0).sum(1))
    longest = int(queued.max())
    assert longest > 2
    rows, masks = rows[queued == longest], masks[queued == longest]  # jobs fill the slots from the first on, permuted or not
    jobs, places = torch.cat([torch.arange(longest).flip(0), torch.arange(longest, window)]), torch.arange(hosts).flip(0)
    scores, values = network.policy(rows, masks)
    order = {
        "job": jobs,
        "host": places,
        "joint": (jobs.unsqueeze(1) * hosts + places).flatten(),
    }[problem]
    actions = torch.cat([order, torch.tensor([shape.num_actions - 1])])
    moved, moved_values = network.policy(permuted(rows, shape.layout, jobs, places), masks[:, actions])
    assert torch.allclose(moved, scores[:, actions], atol=1e-5)
    assert torch.allclose(moved_values, values, atol=1e-5)
    assert not torch.allclose(moved, scores, atol=1e-3)


def permuted(rows: Tensor, layout: ObservationLayout, jobs: Tensor, hosts: Tensor) -> Tensor:
    first = NUM_GLOBAL + layout.units
    (window, fj), (number, fh) = layout.shapes["jobs"], layout.shapes["hosts"]
    middle = first + window * fj
    shown = rows[:, first:middle].view(-1, window, fj)[:, jobs].flatten(1)
    places = rows[:, middle:].view(-1, number, fh)[:, hosts].flatten(1)
    return torch.cat([rows[:, :first], shown, places], dim=1)


@pytest.mark.parametrize(("name", "problem"), TOKEN_PAIRS)
def test_weights_serve_other_windows_and_numbers_of_hosts(name: str, problem: str) -> None:
    """Empty slots and hosts that are not there change nothing: the same weights score the same choices."""
    shape, rows, masks = played(problem)
    network = network_for(name, shape)
    layout = ObservationLayout(shape.layout.window + 3, shape.layout.hosts + 2, shape.layout.units)
    larger = build_network(name, TaskShape(problem, layout), SIZES, seed=0)
    larger.load_state_dict(network.state_dict())
    (window, fj), (number, fh) = shape.layout.shapes["jobs"], shape.layout.shapes["hosts"]
    first = NUM_GLOBAL + shape.layout.units
    parts = [rows[:, :first], rows[:, first : first + window * fj], torch.zeros(len(rows), 3 * fj)]
    wide = torch.cat([*parts, rows[:, first + window * fj :], torch.zeros(len(rows), 2 * fh)], dim=1)
    grids = {"job": (window, 1, 3, 0), "host": (1, number, 0, 2), "joint": (window, number, 3, 2)}
    slots, hosts, more_slots, more_hosts = grids[problem]
    pad = torch.nn.functional.pad
    choices = pad(masks[:, :-1].view(-1, slots, hosts), (0, more_hosts, 0, more_slots)).flatten(1)
    wide_masks = torch.cat([choices, masks[:, -1:]], dim=1)
    scores, values = network.policy(rows, masks)
    wide_scores, wide_values = larger.policy(wide, wide_masks)
    assert torch.allclose(wide_scores[wide_masks], scores[masks], atol=1e-5)
    assert torch.allclose(wide_values, values, atol=1e-5)


def test_equal_seeds_build_equal_weights_and_leave_the_random_stream_alone() -> None:
    shape = TaskShape("job", ObservationLayout(4, 2, 8))
    torch.manual_seed(9)
    expected = torch.rand(1)
    torch.manual_seed(9)
    first, again, other = (build_network("kernel", shape, SIZES, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["job.weight"], other["job.weight"])


@pytest.mark.parametrize("problem", ["host", "joint"])
def test_a_network_for_another_problem_is_refused(problem: str) -> None:
    with pytest.raises(InputError, match=f"cannot decide the {problem} problem .*--net mlp or"):
        build_network("kernel", TaskShape(problem, ObservationLayout(4, 2, 8)), SIZES, seed=0)


def test_heads_divide_the_width() -> None:
    with pytest.raises(InputError, match="3 heads do not divide a width of 16"):
        build_network("attn", TaskShape("job", ObservationLayout(4, 2, 8)), NetworkSettings(width=16, heads=3), seed=0)


def test_unknown_network() -> None:
    with pytest.raises(InputError, match="did you mean 'kernel'"):
        build_network("kernl", TaskShape("job", ObservationLayout(4, 2, 8)), SIZES, seed=0)


@pytest.mark.parametrize("name", ["kernel", "attn"])
@pytest.mark.parametrize("changes", [STOPS, MOVES])
def test_permuting_running_jobs_permutes_the_scores_of_stopping_and_moving_them(name: str, changes: dict[str, Any]) -> None:
    shape, rows, masks = played("job", **changes)
    layout, network = shape.layout, network_for(name, shape)
    changed, order = rows.clone(), torch.arange(3).flip(0)
    running = torch.from_numpy(layout.parts(changed.numpy())["running"])
    assert (running[:, :, 0] > 0).all(1).any()
    running.copy_(running[:, order].clone())
    blocks = [layout.window + 3 * number + order for number in range(1 + layout.moves)]
    actions = torch.cat([torch.arange(layout.window), *blocks, torch.tensor([shape.num_actions - 1])])
    masks[:, layout.window : -1] = True  # whatever they are: each is scored by its own row
    scores, values = network.policy(rows, masks)
    moved, moved_values = network.policy(changed, masks)
    assert torch.allclose(moved, scores[:, actions], atol=1e-5)
    assert torch.allclose(moved_values, values, atol=1e-5)
    assert not torch.allclose(moved, scores, atol=1e-3)


@pytest.mark.parametrize("name", ["kernel", "attn"])
def test_weights_serve_other_numbers_of_running_jobs(name: str) -> None:
    """Rows without a running job change nothing."""
    shape, rows, masks = played("job", **MOVES)
    network = network_for(name, shape)
    layout = replace(shape.layout, stops=5)
    larger = build_network(name, TaskShape("job", layout), SIZES, seed=0)
    larger.load_state_dict(network.state_dict())
    wide = torch.cat([rows, torch.zeros(len(rows), layout.size - shape.layout.size)], dim=1)
    window, none = layout.window, torch.zeros(len(rows), 2, dtype=torch.bool)
    parts = [masks[:, :window], masks[:, window : window + 3], none, masks[:, window + 3 : -1], none, masks[:, -1:]]
    wide_masks = torch.cat(parts, dim=1)
    (scores, values), (wide_scores, wide_values) = network.policy(rows, masks), larger.policy(wide, wide_masks)
    assert torch.allclose(wide_scores[wide_masks], scores[masks], atol=1e-5)
    assert torch.allclose(wide_values, values, atol=1e-5)


def test_networks_without_stops_have_no_weights_for_them() -> None:
    for name in ("kernel", "attn"):
        plain, stops = (build_network(name, TaskShape("job", ObservationLayout(4, 2, 8, stops=p)), SIZES, seed=0) for p in (0, 2))
        added = {"stop.weight", "stop.bias"} | ({"run.weight", "run.bias"} if name == "attn" else set())
        assert set(stops.state_dict()) - set(plain.state_dict()) == added


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "mlp"])
def test_networks_that_read_tokens_refuse_published_views(name: str) -> None:
    problem = min(problems_of(name))
    layout = ObservationLayout(4, 2, 8, view="lsf" if problem == "host" else "rltune")
    with pytest.raises(InputError, match=f"network '{name}' reads jobs and hosts one by one, which the view '.*' does not show") as caught:
        build_network(name, TaskShape(problem, layout), SIZES, seed=0)
    assert "--net mlp" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_network_that_scores_waiting_jobs_alone_refuses_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops come after the window's slots and would be taken for rows that are not there."""

    def choose_jobs(net: LayerList, width: int) -> str:
        return net.linear("job", net.choose("jobs"), width)

    monkeypatch.setattr(LayerList, "options", choose_jobs)
    with pytest.raises(InputError, match=r"'kernel' cannot preempt .* chooses from jobs, but the task offers jobs\+running"):
        build_network("kernel", TaskShape("job", ObservationLayout(4, 2, 8, stops=2)), SIZES, seed=0)


def test_scores_of_hosts_see_nothing_that_counts_the_cluster() -> None:
    """Counting features change the value, and no score."""
    shape = TaskShape("host", ObservationLayout(window=3, hosts=4, units=1))
    network = build_network("hosts", shape, NetworkSettings(width=8), seed=1)
    rows, masks = torch.rand(5, shape.observation_size), torch.ones(5, shape.num_actions, dtype=torch.bool)
    for name, part in (("running", "global"), ("queue_length", "global"), ("size", "jobs"), ("ways", "jobs")):
        changed = rows.clone().numpy()
        names = {"global": GLOBAL, "jobs": shape.layout.job_features}[part]
        shape.layout.parts(changed)[part][..., names.index(name)] += 0.5
        (scores, values), (other_scores, other_values) = network(rows, masks), network(torch.from_numpy(changed), masks)
        assert torch.equal(scores, other_scores), name
        assert not torch.equal(values, other_values), name


def test_networks_that_would_not_fit_say_what_they_need() -> None:
    shape = TaskShape("job", ObservationLayout(8, 4, 4))
    with pytest.raises(InputError, match=r"weights would need about .* GiB of memory"):
        build_network("mlp", shape, NetworkSettings(width=65_536, depth=10), seed=0)
