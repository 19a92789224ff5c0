"""Exported networks: onnxruntime gives NumPy's scores (which another test holds against torch's)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model_setup import PROBLEM_OF, make_model
from queuewise.agents.model_player import training_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.cli import main
from queuewise.policies.model_file import KEY, read_card

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install queuewise[export]")
pytest.importorskip("onnx", reason="pip install queuewise[export]")

MODELS = [*PROBLEM_OF.items(), ("mlp", "joint")]


@pytest.mark.parametrize(("net", "problem"), MODELS)
def test_the_file_gives_the_same_scores(net: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "run", net, env=problem)
    out = tmp_path / "policy.onnx"
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == out.stat().st_size
    session = onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])
    scenario, model = training_scenario(tmp_path / "run" / "best.safetensors")
    shape = TaskShape(problem, scenario.setup.layout)
    assert (facts["observation_size"], facts["num_actions"]) == (shape.observation_size, shape.num_actions)
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (20, shape.observation_size)).astype(np.float32)
    for part in ("jobs", "hosts"):
        tokens = shape.layout.parts(rows)[part]
        assert np.shares_memory(tokens, rows)
        tokens[:, :, 0] = 1.0
        tokens[3:, 1:] = 0.0
    mask = rng.random((20, shape.num_actions)) < 0.5
    mask[:, -1] = True
    scores, values = session.run(["scores", "values"], {"observations": rows, "mask": mask})
    expected = model.scores(rows, mask)
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values, expected[1], rtol=1e-5, atol=1e-5)
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
