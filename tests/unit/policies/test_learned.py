"""Trained networks as policies: NumPy gives torch's scores, and a replay under `model:RUN` is what the network plays in its environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model_setup import PROBLEM_OF, make_model, random_model, settings_for
from queuewise import load_cluster, simulate
from queuewise.agents import learner
from queuewise.agents.checkpoint import load_model
from queuewise.agents.networks import NETWORKS, network_class
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.validation import evaluate_policy, play_to_end
from queuewise.envs.features import ObservationLayout
from queuewise.errors import InputError
from queuewise.evaluation.experiment import run_experiment
from queuewise.policies.learned import DECISIONS, ILLEGAL, PASSES, TrainedNetwork
from queuewise.sim.core.schedule import DONE, Schedule
from queuewise.workload.models import generate

PAIRS = [(name, problem) for name in NETWORKS for problem in sorted(network_class(name).problems)]
LAYOUTS = [ObservationLayout(6, 4, 12), ObservationLayout(3, 5, 5, ("sjf",)), ObservationLayout(9, 2, 16)]


def random_states(shape: TaskShape, number: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Observations with some rows unused and one job being placed, and masks with some legal action each."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (number, shape.layout.size)).astype(np.float32)
    parts = shape.layout.parts(rows)
    for part in ("jobs", "hosts"):
        used = rng.integers(1, parts[part].shape[1] + 1, number)
        for row, first_unused in zip(parts[part], used, strict=True):
            row[:, 0] = 1.0
            row[first_unused:] = 0.0
    current = shape.layout.job_features.index("current")
    parts["jobs"][:, :, current] = 0.0
    parts["jobs"][: number // 2, 0, current] = 0.5
    rows = np.concatenate([part.reshape(number, -1) for part in parts.values()], axis=1)
    mask = rng.random((number, shape.num_actions)) < 0.4
    mask[np.arange(number), rng.integers(shape.num_actions, size=number)] = True
    mask[0] = False  # nothing but the wait
    mask[0, -1] = True
    return rows, mask


def test_every_network_has_a_pass() -> None:
    assert set(PASSES) == set(NETWORKS)


@pytest.mark.parametrize(("net", "problem"), PAIRS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_are_those_of_torch(net: str, problem: str, layout: ObservationLayout) -> None:
    shape, settings = TaskShape(problem, layout), settings_for(net, env=problem)
    made = random_model(shape, settings, seed=2)
    tensors = {f"network.{name}": tensor for name, tensor in made.network.state_dict().items()} | made.scaling.tensors()
    card = {"network": {"name": net, **settings.network.model_dump()}, "decision": "best"}
    model = TrainedNetwork({name: tensor.numpy() for name, tensor in tensors.items()}, card, problem, layout, where="test")
    rows, mask = random_states(shape, 40, seed=3)
    with torch.inference_mode():
        scaled = Scaler(made.scaling, layout).apply(torch.from_numpy(rows))
        expected = [output.numpy() for output in made.network(scaled, torch.from_numpy(mask))]
    for found, wanted in zip(model.scores(rows, mask), expected, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    one_by_one = np.concatenate([model.scores(rows[i : i + 1], mask[i : i + 1])[0] for i in range(len(rows))])
    np.testing.assert_allclose(one_by_one, expected[0], rtol=1e-5, atol=1e-5)
    assert (expected[0][~mask] == ILLEGAL).all()
    assert mask[np.arange(len(rows)), model.act(rows, mask)].all()
    assert expected[0][mask].std() > 0.01  # else equal scores would tell nothing


def test_decisions_are_those_of_torch() -> None:
    scores = np.random.default_rng(1).normal(0, 2, (500, 6)).astype(np.float32)
    scores[:100, :-1] = ILLEGAL
    scores[100:200, -1] = ILLEGAL
    assert set(DECISIONS) == set(learner.DECISIONS)
    for name, decide in DECISIONS.items():
        np.testing.assert_array_equal(decide(scores), learner.DECISIONS[name](torch.from_numpy(scores)).numpy())
    assert 0 < (DECISIONS["likely"](scores[200:]) == 5).sum() < (DECISIONS["best"](scores[200:]) == 5).sum()


def test_distributions_are_decided_by_their_means() -> None:
    layout, settings = LAYOUTS[0], settings_for("kernel")
    shape, atoms = TaskShape("job", layout), 7
    made = random_model(shape, settings, seed=2, outputs=atoms)
    tensors = {f"network.{name}": tensor for name, tensor in made.network.state_dict().items()} | made.scaling.tensors()
    card = {"network": {"name": "kernel", **settings.network.model_dump()}, "decision": "best"}
    model = TrainedNetwork({name: tensor.numpy() for name, tensor in tensors.items()}, card, "job", layout, where="test")
    rows, mask = random_states(shape, 60, seed=3)
    chosen = model.act(rows, mask)
    with torch.inference_mode():
        scaled = Scaler(made.scaling, layout).apply(torch.from_numpy(rows))
        for scores, value, legal, action in zip(*made.network(scaled, torch.from_numpy(mask)), mask, chosen, strict=True):
            actions = np.flatnonzero(legal)
            logits = value + scores[actions] - scores[actions].mean(0)
            means = logits.softmax(1) @ torch.linspace(-3.0, 5.0, atoms)  # any even points
            assert means[actions == action].item() == pytest.approx(float(means.max()), abs=1e-5)  # unused rows are alike
    assert len(set(chosen.tolist())) > 2


def same(a: Schedule, b: Schedule) -> None:
    for column in (
        "status",
        "start",
        "end",
        "piece_job",
        "piece_node",
        "piece_tasks",
        "piece_gpus",
        "piece_start",
        "piece_end",
        "estimate",
    ):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), err_msg=column)
    assert (a.policy, a.dispatch, a.estimates) == (b.policy, b.dispatch, b.estimates)


@pytest.mark.parametrize(("net", "decision"), [*((net, "likely") for net in PROBLEM_OF), ("kernel", "best")])
def test_a_replay_is_what_the_network_plays(net: str, decision: str, tmp_path: Path) -> None:
    _, scenario = make_model(tmp_path / "run", net, decision=decision)
    policy = f"model:{tmp_path / 'run'}"
    workload = generate("bursty", 60, seed=11, max_gpus=4)
    schedule = simulate(workload, scenario.cluster, policy, estimates="oracle")
    setup = scenario.evaluation_setup([workload])
    batch = setup.batch(1, threads=1)
    batch.begin([0], [setup.window(0)])
    shape = TaskShape(setup.settings.problem, setup.layout)
    trained = load_model(tmp_path / "run" / "best.safetensors", shape)
    same(schedule, play_to_end(batch, trained.act, Scaler(trained.scaling, setup.layout), shape, policy)[0])
    assert (schedule.status == DONE).all()
    assert schedule.engine_s > 0
    fcfs = simulate(workload, scenario.cluster, "fcfs", estimates="oracle")
    assert not np.array_equal(fcfs.start, schedule.start)  # it decided something


def test_it_knows_what_the_replay_lets_policies_know(tmp_path: Path) -> None:
    _, scenario = make_model(tmp_path, "kernel", task={"estimates": "oracle"})
    workload = generate("bursty", 60, seed=11, max_gpus=4)
    noisy = simulate(workload, scenario.cluster, f"model:{tmp_path}", estimates="noisy:1", seed=4)
    known = simulate(workload, scenario.cluster, "fcfs", estimates="noisy:1", seed=4).estimate
    np.testing.assert_array_equal(noisy.estimate, known)
    assert (noisy.estimates, noisy.seed) == ("noisy:1", 4)
    given = simulate(workload, scenario.cluster, f"model:{tmp_path}", estimates=known)
    np.testing.assert_array_equal(given.start, noisy.start)
    oracle = simulate(workload, scenario.cluster, f"model:{tmp_path}", estimates="oracle")
    assert not np.array_equal(oracle.start, noisy.start)


def test_token_networks_play_on_larger_clusters_and_an_mlp_does_not(tmp_path: Path) -> None:
    larger = load_cluster("5x4:V100-16")
    workload = generate("bursty", 40, seed=2, max_gpus=4)
    for net in ("kernel", "attn", "hosts", "joint"):
        make_model(tmp_path / net, net, task={"window": 8, "host_slots": 3})
        assert (simulate(workload, larger, f"model:{tmp_path / net}").status == DONE).all()
    make_model(tmp_path / "mlp", "mlp")
    with pytest.raises(InputError, match=r"sees 2 hosts, but .* has 5"):
        simulate(workload, larger, f"model:{tmp_path / 'mlp'}")
    with pytest.raises(InputError, match="sees observations of") as caught:
        simulate(workload, load_cluster("2x2:V100-16"), f"model:{tmp_path / 'mlp'}")
    assert "trained with" in caught.value.hint


def test_a_workload_without_jobs_and_jobs_that_can_never_run(tmp_path: Path) -> None:
    make_model(tmp_path, "kernel")
    workload = generate("bursty", 40, seed=2)
    policy, cluster = f"model:{tmp_path}", load_cluster("2x1:V100-16")
    schedule = simulate(workload, cluster, policy)
    np.testing.assert_array_equal(schedule.status, simulate(workload, cluster, "sjf+greedy").status)
    assert (schedule.status != DONE).any()
    assert len(simulate(workload.take(slice(0, 0)), cluster, policy).start) == 0


def test_commit_is_for_models_that_commit(tmp_path: Path) -> None:
    workload = generate("bursty", 40, seed=2, max_gpus=4)
    _, scenario = make_model(tmp_path / "mask", "kernel")
    with pytest.raises(InputError, match="was not trained to commit"):
        simulate(workload, scenario.cluster, f"model:{tmp_path / 'mask'}", dispatch="commit")
    make_model(tmp_path / "commit", "kernel", task={"window": 8, "dispatch": "commit", "backfill": "easy"})
    assert simulate(workload, scenario.cluster, f"model:{tmp_path / 'commit'}", dispatch="commit").dispatch == "commit"
    with pytest.raises(InputError, match="faultless machine"):
        simulate(workload, scenario.cluster, f"model:{tmp_path / 'mask'}", kill_at_limit=True)


def test_what_cannot_be_played_is_told(tmp_path: Path) -> None:
    _, scenario = make_model(tmp_path / "run", "kernel")
    best = tmp_path / "run" / "best.safetensors"
    workload = generate("bursty", 5, seed=2, max_gpus=4)

    def refused(reference: object, message: str) -> InputError:
        with pytest.raises(InputError, match=message) as caught:
            simulate(workload, scenario.cluster, f"model:{reference}")
        assert caught.value.hint
        assert "\n" not in str(caught.value)
        return caught.value

    refused("", "names no run")
    refused(tmp_path / "nothing", "there is no such run")
    refused(tmp_path, "holds no trained model")
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "best.safetensors").write_bytes(best.read_bytes())
    assert str(tmp_path / "seed-3") in refused(tmp_path, "holds no trained model").hint
    whole = best.read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        best.write_bytes(whole[:length])
        refused(tmp_path / "run", "damaged or truncated")
    best.write_bytes(whole.replace(b'\\"version\\": 1', b'\\"version\\": 9'))
    refused(best, "another version of the task")
    best.write_bytes(whole.replace(b"network.wait.0.weight", b"network.wall.0.weight"))
    refused(best, "lacks the weights 'network.wait.0.weight'")


def test_folders_of_checkpoints_mean_the_last(tmp_path: Path) -> None:
    from queuewise.policies.model_file import find_model

    for number in (2, 11):
        (tmp_path / f"iteration-{number:08d}.safetensors").touch()
    assert find_model(tmp_path).name == "iteration-00000011.safetensors"
    (tmp_path / "best.safetensors").touch()
    assert find_model(tmp_path).name == "best.safetensors"


@pytest.mark.parametrize("package", ["queuewise", "queuewise.policies"])
def test_a_fresh_process_plays_without_torch(package: str, tmp_path: Path) -> None:
    make_model(tmp_path, "attn")
    script = (
        "import sys, json; sys.modules['torch'] = None\n"
        f"from {package} import simulate\n"
        "from queuewise import load_cluster\n"
        "from queuewise.workload.models import generate\n"
        "assert not any(name.startswith('queuewise.agents') for name in sys.modules)\n"
        f"s = simulate(generate('bursty', 20, seed=1, max_gpus=4), load_cluster('2x4:V100-16'), 'model:{tmp_path}')\n"
        "print(json.dumps(s.start.tolist()))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    here = simulate(generate("bursty", 20, seed=1, max_gpus=4), load_cluster("2x4:V100-16"), f"model:{tmp_path}")
    assert json.loads(printed) == here.start.tolist()


def test_the_command_plays_a_model_in_a_fresh_process_without_torch(tmp_path: Path) -> None:
    make_model(tmp_path, "kernel")
    script = (
        "import sys\n"
        "from queuewise.cli import main\n"
        "command = ['simulate', '--workload', 'bursty', '--jobs', '20', '--cluster', '2x8:V100-16', '--json']\n"
        f"assert main([*command, '--policy', 'model:{tmp_path}']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    (summary,) = json.loads(printed)
    assert summary["policy"] == f"model:{tmp_path}"


def test_evaluating_a_model_gives_what_training_reports(tmp_path: Path) -> None:
    _, scenario = make_model(tmp_path, "kernel")
    policy, experiment = f"model:{tmp_path}", scenario.experiment("report")
    trained = load_model(tmp_path / "best.safetensors", TaskShape("job", scenario.setup.layout))
    reported = evaluate_policy(trained.act, trained.scaling, scenario, experiment, policy)
    evaluated = run_experiment(experiment, [policy], simulate)
    assert [cell.scores for cell in evaluated] == [cell.scores for cell in reported]
    assert len(evaluated) == 2
