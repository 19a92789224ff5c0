"""Models on the command line: simulate and evaluate take them, diagnose and bench-nets look at them, and what is wrong is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_setup import PROBLEM_OF, make_model, rewrite_model
from queuewise.agents.diagnosis import findings
from queuewise.cli import main

BURSTY = ("--workload", "bursty", "--jobs", "40", "--cluster", "2x4:V100-16")


def test_models_are_simulated_and_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "run", "kernel")
    model = f"model:{tmp_path / 'run'}"
    assert main(["simulate", *BURSTY, "--policy", "fcfs", "--policy", model, "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["policy"] for row in json.loads(out)] == ["fcfs", model]
    assert "kernel for the job problem, trained by ppo for 1,024 frames" in err
    command = ["evaluate", *BURSTY, "--policy", "fcfs", "--policy", model, "--windows", "2", "--window-jobs", "20"]
    assert main([*command, "--out", str(tmp_path / "a"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["policy"] for row in rows} == {"fcfs", model}
    assert all(row["vs_best_baseline"]["baseline"] == "fcfs" for row in rows if row["policy"] == model)
    assert main(["compare", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize("command", ["simulate", "evaluate", "diagnose", "export"])
def test_what_is_wrong_is_told_in_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if command == "export":
        pytest.importorskip("onnx")
    make_model(tmp_path / "run", "kernel")
    best = tmp_path / "run" / "best.safetensors"

    def refused(run: Path, message: str) -> None:
        more = {"diagnose": [str(run)], "export": [str(run), "--out", str(tmp_path / "a.onnx")]}
        assert main([command, *more.get(command, [*BURSTY, "--policy", f"model:{run}"])]) == 2
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert out == ""
        assert len(lines) == 2, err
        assert lines[0].startswith("error: ")
        assert message in lines[0]
        assert lines[1].startswith("hint: ")

    refused(tmp_path / "nothing", "there is no such run or model")
    whole = best.read_bytes()
    best.write_bytes(whole)
    rewrite_model(best, lambda arrays, card: card["task"].update(version=9))
    refused(tmp_path / "run", "another version of the task")
    best.write_bytes(whole[:-9])
    refused(tmp_path / "run", "damaged or truncated")


@pytest.mark.parametrize("net", [*PROBLEM_OF])
def test_diagnosis_of_every_network(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "run", net, episode_jobs=12)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"iteration": 1, "frames": 64, "policy/kl": 0.02, "gradient/norm": 0.5}\n')
    assert main(["diagnose", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 2
    taken = sum(found["actions"]["slots"] or found["actions"]["hosts"])
    assert 0 < taken <= found["frames"]
    assert 1 <= found["masks"]["legal_mean"] <= found["masks"]["legal_most"]
    assert 0 <= found["value"]["explained_variance"] <= 1
    came = [group["came"] for group in found["value"]["calibration"]]
    assert min(came) < max(came) <= 0  # returns are costs, and they differ
    assert found["units"]["total"] == sum(layer["units"] for layer in found["units"]["layers"]) > 0
    assert found["gradient"]["finite"]
    assert found["gradient"]["norm"] == pytest.approx(float(np.sqrt(sum(norm**2 for norm in found["gradient"]["parts"].values()))))
    assert found["training"] == {"policy/kl": 0.02, "policy/kl_median": 0.02, "gradient/norm": 0.5, "iterations": 1}
    assert found["verdict"][0].startswith("Values ")
    assert main(["diagnose", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert f"- {found['verdict'][0]}" in capsys.readouterr().out


def test_diagnosis_counts_stops_and_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "run", "kernel", episode_jobs=12, task={"window": 8, "stops": 3, "moves": True})
    assert main(["diagnose", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    actions = found["actions"]
    assert [len(actions[what]) for what in ("slots", "stops", "moves")] == [8, 3, 3]
    assert sum(actions["stops"]) > 0
    assert sum(actions["moves"]) > 0
    assert sum(actions["slots"]) == 2 * 12 + sum(actions["stops"])  # every job that is stopped starts again; one that moves, at once
    assert main(["diagnose", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "stops taken, first 8" in capsys.readouterr().out


def test_the_verdict_names_what_is_wrong() -> None:
    sound: dict[str, dict[str, Any]] = {
        "value": {"explained_variance": 0.8},
        "actions": {"entropy_share": 0.4, "waits": 0.1, "could_wait": 2000, "slots": [5, 4, 3], "hosts": None},
        "masks": {"cut_episodes": 0, "forced_share": 0.2},
        "units": {"dead_share": 0.1},
        "gradient": {"finite": True, "without": []},
        "training": {"policy/kl_median": 4e-3, "policy/clip_fraction_median": 0.0},
    }
    assert findings(**sound) == ["Values predict returns well (explained variance 0.80).", "Nothing else is unusual."]
    for part, key, odd, word in (
        ("value", "explained_variance", 0.0, "hardly predict"),
        ("actions", "entropy_share", 0.99, "almost at random"),
        ("actions", "entropy_share", 0.0, "settled"),
        ("actions", "waits", 0.97, "It waits in 97%"),
        ("actions", "slots", [0, 0, 99], "nearly always takes number 2"),
        ("actions", "waits", 0.0, "never waits, in 2,000 cases"),
        ("training", "policy/kl_median", 2e-5, "hardly changed it (KL divergence 2e-05"),
        ("masks", "cut_episodes", 3, "3 episodes were truncated"),
        ("masks", "forced_share", 0.9, "leave no choice"),
        ("units", "dead_share", 0.75, "75% of its units"),
        ("gradient", "finite", False, "not finite"),
        ("gradient", "without", ["job.weight"], "their gradients are zero: job.weight"),
    ):
        assert word in " ".join(findings(**sound | {part: sound[part] | {key: odd}}))
    few = {"actions": {"waits": 0.0, "could_wait": 20}, "training": {"policy/kl_median": 2e-5, "policy/clip_fraction_median": 0.2}}
    assert findings(**sound | {part: sound[part] | some for part, some in few.items()}) == findings(**sound)
    assert findings(**sound | {"training": {"iterations": 0}}) == findings(**sound)
    values = {"actions": {"entropy_share": None}, "value": {"explained_variance": None}}
    told = findings(**sound | {part: sound[part] | unknown for part, unknown in values.items()})
    assert told == ["Its critic is not stored with it: nothing is known about its values.", "Nothing else is unusual."]


def test_networks_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--window", "4", "--hosts", "2", "--gpus", "8", "--seconds", "0"]
    assert main(["bench-nets", "--widths", "8", "16", *sizes, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["network"], row["width"]) for row in rows] == [(net, width) for net in PROBLEM_OF for width in (8, 16)]
    # kernel, width 8: a job's 16 features, a summary of 11 + 8 + 2 × 16 + 2 × 12 = 75; scorer 8-8-1, wait 75-8-1, value 75-8-8-1
    assert rows[2]["parameters"] == (16 * 8 + 8) + 75 * 8 + (72 + 9) + (75 * 8 + 8 + 9) + (75 * 8 + 8 + 72 + 9)
    assert all(row["decision_us"] > 0 and row["forward_per_s"] > 0 and row["learn_per_s"] > 0 for row in rows)
    assert main(["bench-nets", "--nets", "kernal", *sizes]) == 2
    assert "did you mean 'kernel'?" in capsys.readouterr().err
