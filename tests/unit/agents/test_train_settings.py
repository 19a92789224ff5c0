"""Settings: layers, presets, rewards, and that every hyper-parameter is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from queuewise.agents.algorithm_settings import PpoSettings
from queuewise.agents.ppo import check_split
from queuewise.agents.scenario import load_scenario, parse_reward, reward_for
from queuewise.agents.train_settings import TrainSettings, layered, preset_names
from queuewise.cli.train import Train
from queuewise.config import to_toml
from queuewise.envs.rewards import Term
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError


def fields_of(model: type[BaseModel], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        found += fields_of(inner, f"{path}{name}.") if nested else [(path + name, field)]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("name", "field"), fields_of(TrainSettings))
def test_every_setting_has_help(name: str, field: Any) -> None:
    assert field.description
    assert len(field.description) > 10, name


def test_layers(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("frames = 7\n[ppo]\nclip = 0.3\nepochs = 9\n", encoding="utf-8")
    settings = layered("baseline_stable", file, ppo={"epochs": 11})
    assert (settings.frames, settings.net) == (7, "attn")  # the file's, the preset's
    assert (settings.ppo.clip, settings.ppo.epochs, settings.ppo.gamma) == (0.3, 11, 0.99)  # the file's, the change, the preset's
    assert settings.ppo.max_gradient == 0.5  # the default


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_whole(name: str) -> None:
    """Each names a task, sizes and policies that exist, and says where it comes from."""
    settings = layered(name)
    check_split(settings.ppo)
    scenario = load_scenario(settings)
    assert scenario.setup.settings.problem == settings.env
    assert len(scenario.experiment("val").plan.windows) == settings.val_windows


def test_a_resolved_configuration_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    settings = layered("lsf", filter={"policy": "sjf", "high": 150.0}, task={"scores": ["sjf", "saf"]})
    file.write_text(to_toml(settings.model_dump(mode="json")), encoding="utf-8")
    assert layered(None, file) == settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo": {"gama": 0.9}}, "unknown key ppo.gama .*did you mean 'gamma'"),
        ({"ppo": {"gamma": 1.5}}, "ppo.gamma = 1.5"),
        ({"val_windows": 1}, "val_windows = 1"),
        ({"env": "jobs"}, "env = 'jobs'"),
        ({"reading": {"formt": "swf"}}, "reading.formt = 'swf': no known field"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layered(**changes)


def test_unknown_preset() -> None:
    with pytest.raises(InputError, match="did you mean 'quick'"):
        layered("quik")


def test_rewards_follow_the_score() -> None:
    assert reward_for("bsld") == (Term(name="bounded_slowdown", weight=1.0, per=("jobs",)),)
    assert reward_for("bsld+0.5*wait") == (
        Term(name="bounded_slowdown", weight=1.0, per=("jobs",)),
        Term(name="wait", weight=0.5, per=("jobs",)),
    )
    with pytest.raises(InputError, match="'packed' has no reward"):
        reward_for("packed")


def test_flags_of_the_task_reach_the_environment() -> None:
    def task(*flags: str) -> TaskSettings:
        command = Train.parse(["--cluster", "2x4:V100-16", *flags], "queuewise train")
        return load_scenario(command.settings).setup.settings

    plain, stops = task(), task("--task.stops", "8", "--task.moves", "True", "--task.most-stops", "99", "--task.pay", "terminal")
    assert (plain.stops, plain.moves, plain.most_stops, plain.pay, plain.view) == (0, False, 256, "event", "tokens")
    assert (stops.stops, stops.moves, stops.most_stops, stops.pay, stops.view) == (8, True, 99, "terminal", "tokens")
    assert task("--net", "mlp", "--task.view", "drl-scheduler").view == "drl-scheduler"
    assert task("--net", "mlp", "--env", "host", "--task.view", "lsf").view == "lsf"
    for flags, message in (
        (("--task.moves", "True"), "moves=True needs slots for running jobs"),
        (("--task.stops", "4", "--task.dispatch", "commit"), "stops needs the job problem"),
        (("--task.stops", "4", "--task.view", "rltune"), "stops needs the job problem"),
        (("--task.view", "lsf"), "the job problem has no view 'lsf'"),
    ):
        with pytest.raises(InputError, match=message):
            task(*flags)


def test_rewards_as_written() -> None:
    assert parse_reward("jct/jobs/time_scale + 0.1*noop_feasible") == (
        Term(name="jct", weight=1.0, per=("jobs", "time_scale")),
        Term(name="noop_feasible", weight=0.1),
    )
    for text in ("jct/day", "x*jct", "jkt"):
        with pytest.raises(InputError, match=r"jct|jkt"):
            parse_reward(text)


def test_models_without_requests_show_their_runtimes_and_logs_never_do(tmp_path: Path) -> None:
    assert load_scenario(layered(workload="bursty")).setup.settings.estimates == "oracle"
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 60} -1 {100 + j} 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 200)]
    log.write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n", encoding="utf-8")
    scenario = load_scenario(layered(workload=str(log), episode_jobs=20))
    assert scenario.setup.settings.estimates == "predicted"
    with pytest.raises(InputError, match="has 150 jobs, but there are only 90"):
        _ = load_scenario(layered(workload=str(log), episode_jobs=150)).setup


def test_logs_are_read_as_every_command_reads_them(tmp_path: Path) -> None:
    """The flags of reading are among the settings, and stay with the run."""
    log = tmp_path / "mine.csv"
    rows = [f"{60 * j},{100 + j},{1 + j % 4}" for j in range(200)] + ["never,1,1"]
    log.write_text("queued,took,cards\n" + "\n".join(rows) + "\n", encoding="utf-8")
    flags = ["--workload", str(log), "--cluster", "1x8:V100-16", "--episode-jobs", "20"]
    named = ["--format", "csv", "--map", "queued=submit", "took=runtime", "cards=gpus"]
    settings = Train.parse([*flags, *named], "queuewise train").settings
    assert (settings.reading.format, settings.reading.map) == ("csv", ("queued=submit", "took=runtime", "cards=gpus"))
    remarks: list[str] = []
    scenario = load_scenario(settings, remarks.append)
    assert scenario.workload.runtime.tolist() == [100.0 + j for j in range(200)]
    assert any("1 rows were skipped" in remark for remark in remarks)
    kept = tmp_path / "config.toml"
    kept.write_text(to_toml(settings.model_dump(mode="json")), encoding="utf-8")
    assert layered(None, kept).reading == settings.reading
    with pytest.raises(InputError, match=r"mine\.csv"):
        load_scenario(Train.parse(flags, "queuewise train").settings)


def test_a_model_is_not_read() -> None:
    with pytest.raises(InputError, match="--map cannot be used"):
        load_scenario(layered(workload="bursty", reading={"map": ["a=submit"]}))


@pytest.mark.timeout(20)
def test_many_frames_are_refused_at_once_with_sizes_that_fit() -> None:
    with pytest.raises(InputError, match="100000000000 frames") as raised:
        check_split(PpoSettings(num_envs=100_000, steps=1_000_000, minibatch=2049, workers=1))
    assert raised.value.hint == "ppo.minibatch can be 1600, 2000, 2048"
    with pytest.raises(ValidationError):
        PpoSettings(steps=10**10)
