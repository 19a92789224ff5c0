"""Exported networks: onnxruntime gives the scores of torch and of the interpreter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_setup import PAIRS, STOPPERS, make_model, random_states, torch_scores
from queuewise.agents.model_policies import training_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.cli import main
from queuewise.policies.model_file import KEY, read_card

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install queuewise[export]")
pytest.importorskip("onnx", reason="pip install queuewise[export]")

ATOMS = {"algo": "d3qn", "d3qn": {"atoms": 5}}


STOPS = {"task": {"window": 8, "stops": 3}}
MOVES = {"task": {"window": 8, "stops": 3, "moves": True}}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((*pair, changes) for pair in PAIRS for changes in ({}, ATOMS)),
    *((net, "job", changes) for net in STOPPERS for changes in (STOPS, MOVES, MOVES | ATOMS)),
    ("mlp", "job", {"task": {"view": "gpu-optimizer"}}),
    ("mlp", "host", {"task": {"view": "lsf"}}),
]


@pytest.mark.parametrize(("net", "problem", "changes"), CASES)
def test_the_file_gives_the_same_scores(
    net: str, problem: str, changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, scenario = make_model(tmp_path / "run", net, env=problem, **changes)
    out = tmp_path / "policy.onnx"
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == out.stat().st_size
    session = onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])
    shape = TaskShape(problem, scenario.setup.layout)
    assert (facts["observation_size"], facts["num_actions"]) == (shape.observation_size, shape.num_actions)
    rows, mask = random_states(shape, 20, seed=1)
    outputs = session.run(["scores", "values"], {"observations": rows, "mask": mask})
    _, played = training_scenario(tmp_path / "run" / "best.safetensors")
    for found, by_torch, by_interpreter in zip(outputs, torch_scores(made, rows, mask), played.scores(rows, mask), strict=True):
        assert found.shape[-1] == (5 if "d3qn" in changes else 1)
        np.testing.assert_allclose(found, by_torch, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found, by_interpreter, rtol=1e-5, atol=1e-5)
    card = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
    assert card == read_card(tmp_path / "run" / "best.safetensors")


def test_what_cannot_be_exported_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "run", "kernel")
    assert main(["export", str(tmp_path / "nothing"), "--out", str(tmp_path / "a.onnx")]) == 2
    assert "there is no such run" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "no" / "a.onnx")]) == 2
    err = capsys.readouterr().err
    assert "no such folder" in err
    assert "hint: " in err
