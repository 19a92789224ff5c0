"""Results are of contents, not of names: what has changed since is not taken for what it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.cluster.conditions import Conditions
from queuewise.config import parse_toml
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.identity import digest_policy, digest_workload
from queuewise.evaluation.protocol import make_plan
from queuewise.runs import file_name
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.dependencies import Dependencies
from stand_in import busy_days, line_up, small_cluster

JOBS = busy_days(300)
SCORE = "def score(job):\n    return job.estimate\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SCORE, encoding="utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "best.safetensors"
    path.write_bytes(b"weights")
    return path


class Counting:
    """The stand-in scheduler under any policy's name, counting its replays."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, workload: Any, cluster: Any, policy: str, **settings: Any) -> Schedule:
        self.replays += 1
        return dataclasses.replace(line_up(workload, cluster, "line", **settings), policy=policy)


def experiment(**settings: Any) -> Experiment:
    return Experiment(JOBS, small_cluster(), make_plan("windows", JOBS, num_windows=2, window_jobs=100, seed=0), ReplaySettings(**settings))


def replays(policies: list[str], folder: Path, setup: Experiment | None = None) -> int:
    simulator = Counting()
    run_experiment(setup or experiment(), policies, simulator, folder=folder)
    return simulator.replays


def test_a_rule_is_its_name() -> None:
    assert digest_policy("sjf+easy@pack") == digest_policy("fcfs") == ""


@pytest.mark.parametrize("name", ["{}:score", "fcfs+easy:{}:score", "{}:score+greedy@spread"])
def test_an_own_policy_is_its_text(own: Path, name: str) -> None:
    before = digest_policy(name.format(own))
    assert before == digest_policy(name.format(own)) != ""
    own.write_text(SCORE.replace("job.estimate", "-job.estimate"), encoding="utf-8")
    assert digest_policy(name.format(own)) != before


def test_modules_beside_an_own_policy_are_part_of_it(own: Path) -> None:
    own.write_text("from next_to_mine import WEIGHT\n" + SCORE.replace("return", "return WEIGHT *"), encoding="utf-8")
    neighbour = own.parent / "next_to_mine.py"
    neighbour.write_text("import next_to_mine\nWEIGHT = 1.0\n", encoding="utf-8")  # imports may go in circles
    before = digest_policy(f"{own}:score")
    neighbour.write_text("import next_to_mine\nWEIGHT = 2.0\n", encoding="utf-8")
    assert digest_policy(f"{own}:score") != before


def test_an_unchanged_policy_is_not_replayed_again(own: Path, model: Path, tmp_path: Path) -> None:
    policies = [f"{own}:score", f"model:{model.parent}", "fcfs"]
    assert replays(policies, tmp_path / "out") == 6
    assert replays(policies, tmp_path / "out") == 0


def test_results_of_a_changed_policy_are_refused(own: Path, tmp_path: Path) -> None:
    policy = f"{own}:score"
    replays([policy], tmp_path / "out")
    own.write_text(SCORE.replace("job.estimate", "-job.estimate"), encoding="utf-8")
    with pytest.raises(InputError, match=r"contains results of an earlier version of .*mine\.py:score") as refused:
        replays(["fcfs", policy], tmp_path / "out")
    assert refused.value.where == str(tmp_path / "out" / file_name(policy))  # the policy's folder, all windows of it
    assert "another --out" in (refused.value.hint or "")
    assert replays(["fcfs"], tmp_path / "out") == 2  # the refusal came before any work, and others may go on
    own.write_text(SCORE, encoding="utf-8")
    assert replays([policy], tmp_path / "out") == 0


def test_results_of_a_model_trained_anew_are_refused(model: Path, tmp_path: Path) -> None:
    policy = f"model:{model.parent}"
    replays([policy], tmp_path / "out")
    model.write_bytes(b"other weights")
    with pytest.raises(InputError, match="contains results of an earlier version"):
        replays([policy], tmp_path / "out")


def test_other_conditions_in_the_file_are_refused(tmp_path: Path) -> None:
    replays(["fcfs"], tmp_path / "out", experiment(conditions=Conditions(requeue=False)))
    stored = parse_toml(tmp_path / "out" / "config.toml")["conditions"]
    assert json.loads(stored["world"]) == {"requeue": False}  # the keys of existing run folders stay valid
    with pytest.raises(InputError, match="other settings: conditions differ"):
        replays(["fcfs"], tmp_path / "out", experiment(conditions=Conditions(quotas=True)))


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": JOBS.runtime + 1},
        {"groups": ("a",), "group": np.zeros(len(JOBS), np.int32)},
        {"partitions": ("gpu",)},
        {"epoch": 86_400.0},
        {"dependencies": Dependencies.of([(1, 0, 0, 0.0)])},
    ],
)
def test_another_log_of_the_same_name_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    other = dataclasses.replace(JOBS, **change)
    assert digest_workload(other) != digest_workload(JOBS)
    replays(["fcfs"], tmp_path)
    with pytest.raises(InputError, match="other settings: workload_digest differ"):
        replays(["fcfs"], tmp_path, dataclasses.replace(experiment(), workload=other))
