"""The loop: run folders, resuming after a kill, warm starts, files that cannot be used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agents_setup import small_settings
from queuewise.agents.checkpoint import read_file
from queuewise.agents.observation_scaling import identity
from queuewise.agents.recording import read_rows, read_run_config
from queuewise.agents.scenario import load_scenario
from queuewise.agents.train_settings import TrainSettings, layered
from queuewise.agents.training import TrainOutcome, train
from queuewise.agents.validation import evaluate_policy
from queuewise.cli import main
from queuewise.config import parse_toml
from queuewise.errors import InputError
from queuewise.policies.model_file import read_card

QUICK = {"frames": 64 * 6, "eval_every": 2, "checkpoint_every": 1, "baselines": ("fcfs", "sjf+greedy"), "cluster": "2x4:V100-16"}
KEPT_OUT_OF_COMPARISONS = ("time/", "frames_per_s")


class Silent:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def begin(self, seed: int, settings: TrainSettings, frames: int) -> None: ...

    def iteration(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def note(self, text: str) -> None:
        self.notes.append(text)


def run_small(
    run: Path, seeds: tuple[int, ...] = (0,), *, listener: Any = None, resume: bool = False, init_from: Any = None, **changes: Any
) -> TrainOutcome:
    return train(small_settings(**QUICK | changes), seeds, run, listener or Silent(), resume=resume, init_from=init_from)


def tensors_of(run: Path, name: str = "") -> dict[str, Tensor]:
    path = run / name if name else max((run / "seed-0" / "checkpoints").iterdir())
    return read_file(path)[0]


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_leaves_its_folder(tmp_path: Path) -> None:
    outcome = run_small(tmp_path / "a", (0, 3), logs=("tensorboard",))
    assert outcome.frames == 2 * 6 * 64
    told = outcome.as_json()
    assert set(told) == {"run", "algo", "frames", "frames_per_s", "steady_frames_per_s", "imitation_s", "val_s", "val", "report"}
    assert told["imitation_s"] == 0.0 < told["val_s"]
    assert told["steady_frames_per_s"] > told["frames_per_s"]
    assert set(told["val"]) == {"agent", "fcfs", "sjf+greedy"}
    assert set(told["report"]) == {f"model:{tmp_path / 'a'}", "fcfs", "sjf+greedy"}
    assert all(entry["ci95"][0] <= entry["mean"] <= entry["ci95"][1] for entry in told["report"].values())
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["report"] == told["report"]
    rows = read_rows(tmp_path / "a" / "seed-3")
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["iteration"] for row in rows if "val/agent" in row] == [2, 4, 6]
    header, *lines = (tmp_path / "a" / "seed-3" / "metrics.csv").read_text().splitlines()
    assert len(lines) == 6
    assert set(rows[-1]) <= set(header.split(","))
    assert list((tmp_path / "a" / "seed-3" / "tensorboard").iterdir())
    best = {seed: read_card(tmp_path / "a" / f"seed-{seed}" / "best.safetensors")["progress"]["best_score"] for seed in (0, 3)}
    assert read_card(tmp_path / "a" / "best.safetensors")["progress"]["best_score"] == min(best.values()) == told["val"]["agent"]
    assert len(list((tmp_path / "a" / "seed-0" / "checkpoints").iterdir())) == 2


def test_a_finished_or_begun_run_is_not_written_over(tmp_path: Path) -> None:
    run_small(tmp_path / "a", frames=64)
    with pytest.raises(InputError, match="already holds a run"):
        run_small(tmp_path / "a")


def test_settings_that_cannot_be_leave_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="minibatches of 7 frames"):
        run_small(tmp_path / "a", ppo={"minibatch": 7})
    assert run_small(tmp_path / "a", frames=64).frames == 64


def test_a_model_read_back_scores_as_it_did(tmp_path: Path) -> None:
    """VAL of the best iteration, and a second run that starts from its weights and learns nothing (a learning rate of nearly 0)."""
    first = run_small(tmp_path / "a")
    again = run_small(tmp_path / "b", init_from=tmp_path / "a", frames=128, ppo={"learning_rate": 1e-20})
    assert again.val == first.val
    assert same(tensors_of(tmp_path / "a", "best.safetensors"), tensors_of(tmp_path / "b", "best.safetensors"))


def command(run: Path) -> list[str]:
    flags = (
        "--cluster 2x4:V100-16 --episode-jobs 30 --task.window 8 --frames 2560 --eval-every 4 --checkpoint-every 1 --val-windows 2"
        " --report-windows 2 --network.width 16 --ppo.num-envs 4 --ppo.steps 16 --ppo.minibatch 32 --baselines fcfs --logs --json"
    )
    return [sys.executable, "-m", "queuewise", "train", *flags.split(), "--out", str(run)]


def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    straight = subprocess.run(command(tmp_path / "straight"), capture_output=True, text=True, check=True)
    killed = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed" / "seed-0" / "checkpoints"
    while not checkpoints.exists() or len(list(checkpoints.glob("iteration-*5.safetensors"))) == 0:
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    for path in checkpoints.glob("iteration-*.safetensors"):
        read_file(path)  # whatever is there is whole
    assert main(["train", "--resume", str(tmp_path / "killed"), "--json"]) == 0
    assert same(tensors_of(tmp_path / "straight"), tensors_of(tmp_path / "killed"))
    assert same(tensors_of(tmp_path / "straight", "best.safetensors"), tensors_of(tmp_path / "killed", "best.safetensors"))
    rows = [read_rows(tmp_path / name / "seed-0") for name in ("straight", "killed")]
    plain = [[{k: v for k, v in row.items() if not k.startswith(KEPT_OUT_OF_COMPARISONS)} for row in each] for each in rows]
    assert plain[0] == plain[1]
    assert json.loads(straight.stdout)["frames"] == 2560


def test_a_run_is_trained_and_resumed_under_its_conditions(tmp_path: Path) -> None:
    conditions = {"failures": {"mtbf_h": 3.0, "mttr_h": 0.5}, "outages": [{"node": 1, "start": 0.0, "end": 36000.0, "kind": "drain"}]}
    listener = Silent()
    run_small(tmp_path / "run", conditions=conditions, listener=listener)
    assert read_card(tmp_path / "run" / "best.safetensors")["settings"]["conditions"] == conditions
    given = small_settings(**QUICK, conditions=conditions)
    scenario = load_scenario(given)
    assert scenario.setup.conditions == scenario.experiment("val").settings.conditions == given.conditions
    assert given.conditions.failures is not None
    (resumed, seeds) = read_run_config(tmp_path / "run")
    assert (layered(**resumed), seeds) == (given, [0])
    plain = Silent()
    run_small(tmp_path / "plain", listener=plain)
    assert [row["val/fcfs"] for row in listener.rows if "val/fcfs" in row] != [row["val/fcfs"] for row in plain.rows if "val/fcfs" in row]


def test_conditions_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainSettings] = []

    def note_settings(settings: TrainSettings, *arguments: Any, **options: Any) -> Any:
        seen.append(settings)
        raise InputError("seen", hint="this is enough")

    monkeypatch.setattr("queuewise.agents.training.train", note_settings)
    (tmp_path / "conditions.toml").write_text("quotas = true\n[power]\ncap_watts = 900\n")
    assert main(["train", "--conditions", str(tmp_path / "conditions.toml"), "--out", str(tmp_path / "run")]) == 2
    assert (seen[0].conditions.quotas, seen[0].conditions.power.cap_watts) == (True, 900)


def write_log(path: Path) -> list[str]:
    """200 jobs, one per minute, of a little more than a minute."""
    lines = [f"{n} {60 * n} -1 {60 + n % 7} 1 -1 -1 1 {100 + n % 5} -1 1 1 1 1 1 1 -1 -1" for n in range(1, 201)]
    path.write_text("\n".join(lines))
    return lines


def test_a_run_holds_its_split_and_the_days_that_its_models_have_seen(tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf")
    changes: dict[str, Any] = {"workload": str(tmp_path / "log.swf"), "cluster": "flat:2", "baselines": ("fcfs",), "frames": 64}
    run_small(tmp_path / "a", split="0.4,0.3,0.3", **changes)
    card, config = read_card(tmp_path / "a" / "best.safetensors"), parse_toml(tmp_path / "a" / "config.toml")
    assert config["contents"]["split"] == "0.4,0.3,0.3"
    assert config["trained_on"] == card["trained_on"]
    (seen,) = card["trained_on"]
    assert (seen["split"], seen["train"], seen["val"]) == ([0.4, 0.3, 0.3], [60.0, 4800.0], [4860.0, 8400.0])
    (tmp_path / "a" / "summary.json").rename(tmp_path / "summary.json")  # as if it had been killed
    with pytest.raises(InputError, match="the split changed since the run began"):
        run_small(tmp_path / "a", resume=True, **changes | {"frames": 128})
    run_small(tmp_path / "b", init_from=tmp_path / "a", **changes)
    own, before = read_card(tmp_path / "b" / "best.safetensors")["trained_on"]
    assert before == seen
    assert own["split"] == [0.45, 0.2, 0.35]
    run_small(tmp_path / "c", init_from=tmp_path / "a", frames=64)
    assert read_card(tmp_path / "c" / "best.safetensors")["trained_on"] == [seen]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"split": "0.5,0.5"}, "is not three shares"),
        ({"split": "0.5,0,0.5"}, "leaves nothing for a part"),
        ({"split": "0.4,0.3,0.3", "workload": "bursty"}, "has no --split"),
    ],
)
def test_a_split_that_means_nothing_is_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf")
    with pytest.raises(InputError, match=problem):
        load_scenario(small_settings(**{"workload": str(tmp_path / "log.swf"), "cluster": "flat:2"} | changes))


def test_windows_of_a_log_are_validated_as_they_are_trained(tmp_path: Path) -> None:
    """Also where all jobs have the same number."""
    lines = write_log(tmp_path / "log.swf")
    (tmp_path / "log.swf").write_text("\n".join(f"7 {line.partition(' ')[2]}" for line in lines))
    given: dict[str, Any] = {"workload": str(tmp_path / "log.swf"), "cluster": "flat:1"}
    for task, start in (({}, "warm"), ({"start": "empty"}, "empty"), ({"preset": "rlscheduler"}, "empty")):
        scenario = load_scenario(small_settings(**given, task=task))
        assert scenario.setup.source.warm == (start == "warm")
        experiment = scenario.experiment("val")
        assert experiment.settings.start == start
        sizes = {len(experiment.jobs_of(window)) for window in experiment.plan.windows}
        assert (min(sizes) > 30) == (start == "warm")  # on one processor the queue grows all the time
        cells = evaluate_policy(
            lambda rows, mask: mask.int().argmax(1), identity(scenario.setup.layout), scenario, experiment, "model:first"
        )
        assert [cell.metrics["jobs"] for cell in cells] == [30, 30]
        assert all(cell.metrics["completed"] == 30 for cell in cells)


def test_a_run_does_not_go_on_with_another_log(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    lines = write_log(log)
    changes: dict[str, Any] = {"workload": str(log), "cluster": "flat:4", "baselines": ("fcfs",), "checkpoint_every": 1}
    run_small(tmp_path / "a", frames=64, **changes)
    (tmp_path / "a" / "summary.json").unlink()  # as if it had been killed
    log.write_text("\n".join([*lines[:-1], lines[-1].replace(" 1 -1 -1 1 ", " 2 -1 -1 2 ")]))
    with pytest.raises(InputError, match="the workload changed since the run began"):
        run_small(tmp_path / "a", frames=192, resume=True, **changes)
    log.write_text("\n".join(lines))
    with pytest.raises(InputError, match="the cluster changed since the run began"):
        run_small(tmp_path / "a", frames=192, resume=True, **changes | {"cluster": "flat:5"})
    assert run_small(tmp_path / "a", frames=192, resume=True, **changes).frames == 192


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    run_small(tmp_path / "a", frames=64)
    model = tmp_path / "a" / "best.safetensors"
    with pytest.raises(InputError, match="holds another network: width 16 instead of 8"):
        run_small(tmp_path / "b", init_from=model, network={"width": 8})
    with pytest.raises(InputError, match="holds another network: name kernel instead of mlp"):
        run_small(tmp_path / "c", init_from=model, net="mlp")
    with pytest.raises(InputError, match="was made for another task"):
        run_small(tmp_path / "d", init_from=model, task={"scores": ("sjf",)})
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(InputError, match="is damaged or truncated"):
        run_small(tmp_path / "e", init_from=broken)
    listener = Silent()
    with pytest.raises(InputError, match="no such file"):
        run_small(tmp_path / "f", init_from=tmp_path / "nothing.safetensors", listener=listener)
    assert not [line for line in listener.notes if line.startswith("replaying")]  # a mistake is reported before the work


def test_a_model_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_small(tmp_path / "a", frames=64)
    monkeypatch.setattr("queuewise.agents.task_shape.TASK_VERSION", 2)
    with pytest.raises(InputError, match="another version of the task: version 1 instead of 2"):
        run_small(tmp_path / "b", init_from=tmp_path / "a")


def test_divergence_keeps_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from queuewise.agents.ppo import Ppo

    play = Ppo.play

    def spoil(self: Ppo, worker: Any, temperature: float) -> Any:
        tallies = play(self, worker, temperature)
        if self.iterations == 3:
            worker.rollout.rewards[0, 0] = torch.nan
        return tallies

    monkeypatch.setattr(Ppo, "play", spoil)
    listener = Silent()
    outcome = run_small(tmp_path / "a", listener=listener)
    assert any("iteration 4, epoch 1, minibatch" in note for note in listener.notes)
    assert any("iteration-00000003.safetensors" in note for note in listener.notes)
    assert outcome.frames == 3 * 64
    assert all(tensor.isfinite().all() for name, tensor in tensors_of(tmp_path / "a").items() if name.startswith("network."))


def test_early_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VAL improves twice, then only by less than the threshold; two evaluations later it is over, and the best of all is kept."""
    from queuewise.agents.validation import ValFigures, Validator

    scores = iter([10.0, 8.0, 7.9, 9.0, 1.0])
    monkeypatch.setattr(Validator, "val", lambda self, learner: ValFigures({"agent": next(scores)}, {}))
    outcome = run_small(tmp_path / "a", eval_every=1, stop={"patience": 2, "threshold": 0.1})
    assert outcome.frames == 4 * 64
    assert outcome.val == {"agent": 7.9}
    assert read_card(tmp_path / "a" / "best.safetensors")["progress"]["best_iteration"] == 3
