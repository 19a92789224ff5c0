"""Trained networks as policies: the interpreter gives torch's scores, and a replay under `model:RUN` is what torch plays in the env."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model_setup import (
    PAIRS,
    PROBLEM_OF,
    STOPPERS,
    arrays_of,
    interpreted,
    make_model,
    random_model,
    random_states,
    rewrite_model,
    settings_for,
    torch_scores,
)
from queuewise import load_cluster, simulate
from queuewise.agents import learner
from queuewise.agents.checkpoint import load_model
from queuewise.agents.model_policies import load_policy
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.task_play import play_to_end
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.validation import evaluate_policy, network_choice
from queuewise.agents.values import action_scores
from queuewise.cluster.spec import Cluster
from queuewise.envs.circumstances import Circumstances, Ordering
from queuewise.envs.env_memory import make_template
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.features import RUNNING, VIEWS, ObservationLayout
from queuewise.envs.stepping import RUNS_ON
from queuewise.errors import InputError
from queuewise.evaluation.experiment import run_experiment
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import find_model
from queuewise.policies.networks.layers import ILLEGAL
from queuewise.policies.networks.program import DECISIONS
from queuewise.sim.core.schedule import DONE, Schedule
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

LAYOUTS = [ObservationLayout(6, 4, 12), ObservationLayout(3, 5, 5, ("sjf",)), ObservationLayout(19, 2, 16)]
WITH_STOPS = [ObservationLayout(6, 4, 12, stops=3), ObservationLayout(19, 2, 16, ("sjf",), stops=5, moves=True)]
VIEWS_OF = [("job", view) for view in VIEWS if view not in ("tokens", "lsf")] + [("host", "lsf")]
SCORED = [
    *((net, problem, layout) for net, problem in PAIRS for layout in LAYOUTS),
    *((net, "job", layout) for net in STOPPERS for layout in WITH_STOPS),
    *(("mlp", problem, ObservationLayout(5, 3, 7, view=view)) for problem, view in VIEWS_OF),
]


@pytest.mark.parametrize(("net", "problem", "layout"), SCORED)
@pytest.mark.parametrize("outputs", [1, 5])
def test_scores_are_those_of_torch(net: str, problem: str, layout: ObservationLayout, outputs: int) -> None:
    shape = TaskShape(problem, layout)
    made = random_model(shape, settings_for(net, env=problem), seed=2, outputs=outputs)
    model = interpreted(made, shape)
    rows, mask = random_states(shape, 40, seed=3)
    expected = torch_scores(made, rows, mask)
    for found, wanted in zip(model.scores(rows, mask), expected, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert (expected[0][~mask] == ILLEGAL).all()
    assert mask[np.arange(len(rows)), model.act(rows, mask)].all()
    assert expected[0][mask].std() > 0.01  # else equal scores would tell nothing


@pytest.mark.parametrize(
    ("net", "problem", "layout"),
    [*((*pair, LAYOUTS[0]) for pair in PAIRS), ("kernel", "job", WITH_STOPS[1]), ("attn", "job", WITH_STOPS[0])],
)
@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("decision", sorted(DECISIONS))
def test_actions_are_those_of_torch(net: str, problem: str, layout: ObservationLayout, outputs: int, decision: str) -> None:
    """The same action wherever the two best scores differ by more than 1e-5, and hardly any that differ by less."""
    shape = TaskShape(problem, layout)
    made = random_model(shape, settings_for(net, env=problem), seed=4, outputs=outputs)
    model = interpreted(made, shape, decision)
    rows, mask = random_states(shape, 3000, seed=5, absent=False)
    with torch.inference_mode():
        scaled = Scaler(made.scaling, shape.layout).apply(torch.from_numpy(rows))
        scores = action_scores(made.network, scaled, torch.from_numpy(mask))
        wanted = learner.DECISIONS[decision](scores).numpy()
    close = margins(scores.numpy(), decision) <= 1e-5
    assert close.mean() < 1e-3
    found = model.act(rows, mask)
    np.testing.assert_array_equal(found[~close], wanted[~close])
    assert len(set(found.tolist())) > shape.num_actions // 2


def margins(scores: NDArray[np.float32], decision: str) -> NDArray[np.float64]:
    """[B] by how much the chosen action is preferred to the next."""
    exact: NDArray[np.float64] = scores.astype(np.float64)
    best = np.sort(exact if decision == "best" else exact[:, :-1], axis=1)
    found: NDArray[np.float64] = best[:, -1] - best[:, -2]
    if decision == "likely":
        together = np.logaddexp.reduce(exact[:, :-1], axis=1)
        wait = np.abs(exact[:, -1] - together)
        found = np.where(exact[:, -1] > together, wait, np.minimum(wait, found))
    return found


def test_decisions_have_the_names_of_torch() -> None:
    assert set(DECISIONS) == set(learner.DECISIONS)


def test_files_without_a_list_of_layers_play_alike() -> None:
    """Earlier versions stored the name and the sizes of the network alone."""
    for net, problem in PAIRS:
        shape, settings = TaskShape(problem, LAYOUTS[1]), settings_for(net, env=problem)
        made = random_model(shape, settings, seed=2, outputs=3)
        rows, mask = random_states(shape, 10, seed=3)
        card = {"network": {"name": net, **settings.network.model_dump()}, "decision": "best"}
        old = TrainedNetwork(arrays_of(made), card, problem, shape.layout, where="test")
        assert old.layers == made.network.layers
        np.testing.assert_array_equal(old.scores(rows, mask)[0], interpreted(made, shape).scores(rows, mask)[0])


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


STOPPING = {"window": 8, "stops": 3, "moves": True}
PLAYED: list[tuple[str, str, dict[str, Any]]] = [
    *((net, "likely", {}) for net in PROBLEM_OF),
    ("kernel", "best", {}),
    *((net, "likely", {"task": STOPPING}) for net in STOPPERS),
    ("attn", "best", {"task": STOPPING | {"moves": False, "most_stops": 7}}),
    *(("mlp", "likely", {"env": problem, "task": {"window": 8, "view": view}}) for problem, view in VIEWS_OF),
]


@pytest.mark.parametrize(("net", "decision", "changes"), PLAYED)
def test_a_replay_is_what_the_network_plays(net: str, decision: str, changes: dict[str, Any], tmp_path: Path) -> None:
    _, scenario = make_model(tmp_path / "run", net, decision=decision, **changes)
    policy = f"model:{tmp_path / 'run'}"
    workload = generate("bursty", 60, seed=11, max_gpus=4)
    schedule = simulate(workload, scenario.cluster, policy, estimates="oracle")
    assert (schedule.preemptions.sum() > 0) == ("stops" in changes.get("task", {}))
    setup = scenario.evaluation_setup([workload])
    batch = setup.batch(1, threads=1)
    batch.begin([0], [setup.window(0)])
    shape = TaskShape(setup.settings.problem, setup.layout)
    trained = load_model(tmp_path / "run" / "best.safetensors", shape)
    same(schedule, play_to_end(batch, network_choice(trained.act, Scaler(trained.scaling, setup.layout)), shape, policy)[0].schedule)
    assert (schedule.status == DONE).all()
    assert schedule.engine_s > 0
    fcfs = simulate(workload, scenario.cluster, "fcfs", estimates="oracle")
    assert not np.array_equal(fcfs.start, schedule.start)  # it decided something


def test_the_limit_on_stops_holds_for_as_many_jobs_as_an_episode_has(tmp_path: Path) -> None:
    """A replay of several episodes' jobs may stop as many times as often, and no sooner."""
    _, scenario = make_model(tmp_path, "kernel", episode_jobs=30, task=STOPPING | {"most_stops": 3})
    workload = generate("bursty", 100, seed=11, max_gpus=4)
    schedule = simulate(workload, scenario.cluster, f"model:{tmp_path}", estimates="oracle")
    assert schedule.preemptions.sum() == 3 * 4  # of 100 jobs, 30 each
    stays = zip(schedule.piece_job.tolist(), schedule.piece_end.tolist(), strict=True)
    ends = sorted({(end, job) for job, end in stays if end != schedule.end[job]})
    assert len(ends) == 12
    for number, (time, _) in enumerate(ends):
        arrived = int((workload.submit <= time).sum())
        assert number < 3 * -(-arrived // 30)


@pytest.mark.parametrize("rule", ["none", "greedy", "easy", "conservative"])
def test_as_an_order_a_model_that_stops_jobs_stops_none(rule: str, tmp_path: Path) -> None:
    """Only the scores of waiting jobs count, and running jobs are shown as ones that may not be stopped."""
    _, scenario = make_model(tmp_path, "kernel", task=STOPPING)
    workload = generate("bursty", 60, seed=11, max_gpus=4)
    schedule = simulate(workload, scenario.cluster, f"model:{tmp_path}+{rule}", estimates="oracle")
    assert schedule.finished.all()
    assert schedule.preemptions.sum() == 0
    seen = observed_in_order(tmp_path, workload, scenario.cluster, rule)
    assert seen[:, :, RUNNING.index("shown")].any()
    assert not seen[:, :, RUNNING.index("may_stop") :].any()


def observed_in_order(run: Path, workload: Workload, cluster: Cluster, rule: str) -> NDArray[np.float32]:
    """[N, P, F] running jobs as the network saw them at each decision."""
    setup, model = load_policy(find_model(run), workload, cluster)
    circumstances = Circumstances(ordering=Ordering(rule))
    episode = lay_out_episode(workload, setup.cluster, setup.settings, setup.layout, workload.runtime, circumstances)
    batch = setup.batch(1, threads=1)
    batch.begin([0], [make_template(episode)])
    seen = []
    while batch.outcome[0] == RUNS_ON:
        batch.mask[:] = False
        batch.play(model, 1)
        if batch.mask.any():
            seen.append(setup.layout.parts(batch.observations[0])["running"].copy())
    batch.close()
    return np.stack(seen)


def test_models_of_published_views_order_queues(tmp_path: Path) -> None:
    for view in (view for problem, view in VIEWS_OF if problem == "job"):
        _, scenario = make_model(tmp_path / view, "mlp", task={"window": 8, "view": view})
        workload = generate("bursty", 60, seed=11, max_gpus=4)
        found = simulate(workload, scenario.cluster, f"model:{tmp_path / view}+easy", estimates="oracle")
        assert found.finished.all()
        assert not np.array_equal(found.start, simulate(workload, scenario.cluster, "sjf+easy", estimates="oracle").start)


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
    ordered = simulate(workload, scenario.cluster, f"model:{tmp_path / 'mask'}+easy", dispatch="commit")  # the engine commits
    assert ordered.dispatch == "commit"
    assert ordered.finished.all()


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
    best.write_bytes(whole)
    rewrite_model(best, lambda arrays, card: card["task"].update(version=9))
    refused(best, "another version of the task")
    best.write_bytes(whole)
    rewrite_model(best, lambda arrays, card: arrays.pop("network.wait.0.weight"))
    refused(best, "lacks the weights 'network.wait.0.weight'")


def test_folders_of_checkpoints_mean_the_last(tmp_path: Path) -> None:
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
