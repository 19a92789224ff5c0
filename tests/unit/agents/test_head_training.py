"""Training with dispatch head: what the teacher brings along, that it plays its own policy, and that a model plays as in its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents_setup import small_settings
from queuewise.agents.imitation import Expert, find_expert
from queuewise.agents.model_policies import ModelDecider, load_policy
from queuewise.agents.scenario import Scenario, chosen_task, scenario_for
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.training import train
from queuewise.agents.validation import Validator
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT
from queuewise.envs.env_setup import EnvSetup
from queuewise.envs.stepping import RUNS_ON
from queuewise.errors import InputError
from queuewise.evaluation.experiment import run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.scores import parse_score
from queuewise.policies import simulate
from queuewise.policies.model_file import find_model
from queuewise.policies.snapshot import Snapshot
from queuewise.sim.core.schedule import Schedule
from queuewise.workload import load_workload
from queuewise.workload.jobs import Workload
from stand_in import busy_days

FLAT = load_cluster("flat:16")
TASK: dict[str, Any] = {"dispatch": "head", "window": 64}


def requested_log(num_jobs: int = 300) -> Workload:
    log = busy_days(num_jobs, load=1.3)
    rng = np.random.default_rng(2)
    return log.replace(gpu_milli=np.zeros(num_jobs, np.int32), requested=np.ceil(log.runtime * rng.choice([1.0, 1.5, 4.0, 20.0], num_jobs)))


def scenario_of(teacher: str | None = None, **changes: Any) -> Scenario:
    changes["task"] = TASK | changes.get("task", {})
    ppo = {} if teacher is None else {"imitate": teacher}
    return scenario_for(small_settings(**{"workload": "log.swf", "episode_jobs": 40, "ppo": ppo} | changes), requested_log(), FLAT)


def test_a_teacher_brings_its_backfill_bound_and_estimates() -> None:
    task = chosen_task(scenario_of("wise").settings)
    assert {name: task[name] for name in ("backfill", "max_wait", "shown_estimates")} == {
        "backfill": "easy:sjf:predicted", "max_wait": "259200s", "shown_estimates": "predicted",
    }  # fmt: skip
    assert chosen_task(scenario_of("saf+easy").settings)["backfill"] == "easy:saf"
    assert "backfill" not in chosen_task(scenario_of("saf").settings)
    kept = scenario_of("aged:predicted", task={"backfill": "conservative", "max_wait": "1d"}).setup.settings
    assert (kept.filling.backfill, kept.max_wait_s, kept.shown_estimates) == ("conservative", 86400.0, None)


def play_expert(expert: Expert, setup: EnvSetup, window: int) -> tuple[Schedule, Workload, Snapshot | None]:
    watched = expert.setup(setup)
    shape = TaskShape("job", watched.layout)
    batch = watched.batch(1, threads=1)
    batch.begin([0], [watched.window(window)])
    while batch.outcome[0] == RUNS_ON:
        batch.step(expert.choose(batch.observations, batch.mask, shape))
    episode = batch.episode(0)
    return batch.schedule(0), episode.workload, episode.circumstances.start


@pytest.mark.parametrize("teacher", ["wise", "saf+easy", "aged+easy:sjf~2h", "wfp3+conservative"])
def test_a_teacher_plays_its_own_policy(teacher: str) -> None:
    setup = scenario_of(teacher, task={"window": 200}).setup
    expert = find_expert(teacher, setup)
    for window in (5, 60):
        played, jobs, start = play_expert(expert, setup, window)
        assert start is not None
        replayed = simulate(jobs, FLAT, teacher, estimates="requested", start=start)
        np.testing.assert_array_equal(played.start, replayed.start)


@pytest.mark.parametrize("backfill", ["conservative", "easy", "easy:saf:predicted"])
def test_a_teacher_that_backfills_otherwise_is_refused(backfill: str) -> None:
    setup = scenario_of("saf+easy", task={"backfill": backfill}).setup
    with pytest.raises(InputError, match="the task backfills otherwise"):
        find_expert("saf+easy", setup)
    assert find_expert("saf", setup).order == "saf"


def write_swf(log: Workload, path: Path) -> None:
    rows = enumerate(zip(log.submit, log.runtime, log.num_tasks, log.requested, strict=True), 1)
    lines = [f"{n} {s:.0f} -1 {r:.0f} {k} -1 -1 {k} {q:.0f} -1 1 {n % 7} 1 1 1 1 -1 -1" for n, (s, r, k, q) in rows]
    path.write_text("\n".join(lines))


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def begin(self, seed: int, settings: Any, frames: int) -> None: ...

    def iteration(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_trained_model_plays_as_in_its_task(tmp_path: Path) -> None:
    """In `simulate`, from a warm start, with the bound, backfill and estimates of its training."""
    write_swf(requested_log(), tmp_path / "log.swf")
    settings = small_settings(
        workload=str(tmp_path / "log.swf"), cluster="flat:16", episode_jobs=40, frames=128, baselines=("wise", "fcfs"),
        ppo={"imitate": "wise", "imitate_frames": 3000, "imitate_epochs": 12},
        task=TASK | {"baseline": "wise", "reward": "bounded_slowdown/jobs/baseline"},
    )  # fmt: skip
    notes = Notes()
    outcome = train(settings, (0,), tmp_path / "run", notes)
    assert set(outcome.val) == {"agent", "wise", "fcfs+easy:sjf:predicted"}  # with the backfill of the task
    assert all({"policy/kl", "policy/clip_fraction"} <= set(row) for row in notes.rows)
    assert notes.rows[0]["imitation/same"] > 0.6
    log = load_workload(tmp_path / "log.swf").workload
    scenario = scenario_for(settings, log, FLAT)
    for window in (20, 60):
        jobs = scenario.setup.source.window(window)
        assert jobs.start is not None
        setup, network = load_policy(find_model(tmp_path / "run"), jobs.workload, FLAT)
        task, batch = scenario.setup, scenario.setup.batch(1, threads=1)
        assert (setup.settings.filling, setup.settings.max_wait) == (task.settings.filling, "259200s")
        batch.begin([0], [task.window(window)])
        while batch.outcome[0] == RUNS_ON:
            batch.step(network.act(batch.observations, batch.mask))
        replayed = simulate(jobs.workload, FLAT, f"model:{tmp_path / 'run'}", estimates="requested", start=jobs.start)
        np.testing.assert_array_equal(batch.schedule(0).start, replayed.start)
    with pytest.raises(InputError, match="estimates of its own"):
        ModelDecider(f"model:{tmp_path / 'run'}", dispatch="reorder", conditions=PERFECT, max_wait=None)


def test_best_stands_for_the_best_of_all_orders_and_backfills_on_val() -> None:
    scenario = scenario_of(val_windows=3, baselines=("best", "fcfs+easy"))
    validator = Validator(scenario, parse_score("bsld"))
    assert len(validator.baselines) == 4
    assert validator.baselines[-1] == "fcfs+easy"
    others = ["sjf+easy", "saf+easy", "saf:predicted+easy", "saf+greedy", "wise", "f1+easy", "hrrn+greedy", "unicep+easy", "smallest+easy"]
    cells = run_experiment(scenario.experiment("val"), [*validator.baselines, *others], simulate)
    means = {standing.policy: standing.mean for standing in judge(cells, parse_score("bsld")).standings}
    assert means[validator.baselines[0]] == min(means.values())
    assert max(means[name] for name in validator.baselines[:3]) <= min(means[name] for name in set(others) - set(validator.baselines))


def test_a_baseline_of_rewards_goes_by_the_score() -> None:
    assert scenario_of(score="wait", task={"baseline": "fcfs+easy"}).task["baseline"] == {"policy": "fcfs+easy", "metric": "wait"}
    with pytest.raises(InputError, match="cannot go by --score energy"):
        scenario_of(score="energy", task={"baseline": "fcfs+easy"})
