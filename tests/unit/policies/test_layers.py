"""Lists of layers: as JSON, with mistakes, and run without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_setup import PAIRS, STOPPERS, arrays_of, interpreted, random_model, random_states, settings_for
from queuewise.agents.network import OPERATIONS
from queuewise.agents.onnx_export import OnnxGraph
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.envs.features import ObservationLayout
from queuewise.errors import InputError
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.networks import layers as module
from queuewise.policies.networks import list_layers
from queuewise.policies.networks.layers import RESULTS, Layer, LayerError, Layers, read_layers, values_of

LAYOUT = ObservationLayout(6, 4, 12)
STOPS = ObservationLayout(6, 4, 12, stops=3)
SIZES = NetworkSettings(width=16, heads=2)


@pytest.mark.parametrize(("net", "problem"), PAIRS)
def test_lists_survive_json(net: str, problem: str) -> None:
    layers = list_layers(net, problem, LAYOUT, SIZES, 3)
    assert read_layers(json.loads(json.dumps([layer.as_json() for layer in layers])), where="test") == layers


@pytest.mark.parametrize(("net", "problem"), [pair for pair in PAIRS if pair[0] != "mlp"])
def test_lists_do_not_depend_on_the_window_and_the_cluster(net: str, problem: str) -> None:
    assert list_layers(net, problem, LAYOUT, SIZES) == list_layers(net, problem, ObservationLayout(64, 500, 4000), SIZES)
    if net in STOPPERS:
        some, many = (replace(layout, moves=True) for layout in (STOPS, ObservationLayout(64, 500, 4000, stops=32)))
        assert list_layers(net, problem, some, SIZES) == list_layers(net, problem, many, SIZES)


def test_every_operation_is_documented_known_everywhere_and_used() -> None:
    used = {layer.op for net, problem in PAIRS for layer in list_layers(net, problem, LAYOUT, SIZES)}
    assert used == set(RESULTS) == set(OPERATIONS)
    assert all(hasattr(OnnxGraph, f"_op_{op}") for op in used)
    assert all(f"`{op}`" in str(module.__doc__) for op in used)


def changed(layers: Layers, output: str, changes: dict[str, Any]) -> Layers:
    return tuple(replace(layer, **changes) if layer.output == output else layer for layer in layers)


@pytest.mark.parametrize(
    ("output", "changes", "message"),
    [
        ("context", {"inputs": ("jobs", "hosts")}, "'context' .linear. has 2 inputs"),
        ("context", {"inputs": ("nothing",)}, "'context' reads 'nothing', which no earlier layer writes"),
        ("context", {"shape": (16, 3)}, "'context' .linear. does not fit its inputs summary"),
        ("context", {"op": "quadratic"}, "'context' has an unknown operation 'quadratic'"),
        ("scores", {"output": "grades"}, "no layer writes the scores"),
        ("summary", {"inputs": ("global", "jobs")}, "'summary' .concat. does not fit"),
        ("choose_0", {"inputs": ("hosts_moments",)}, "'choose_0' .choose. does not fit"),
    ],
)
def test_mistakes_are_told(output: str, changes: dict[str, Any], message: str) -> None:
    layers = changed(list_layers("kernel", "job", LAYOUT, SIZES), output, changes)
    with pytest.raises(LayerError, match=message):
        values_of(layers, LAYOUT)
    made = random_model(TaskShape("job", LAYOUT), settings_for("kernel"), seed=1)
    card = {"layers": [layer.as_json() for layer in layers], "decision": "best"}
    with pytest.raises(InputError, match=message) as caught:
        TrainedNetwork(arrays_of(made), card, "job", LAYOUT, where="test")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("output", "changes", "message"),
    [
        ("choose_0", {"inputs": ("job",)}, r"'choose_0' chooses from jobs, but the task offers jobs\+running"),
        (
            "stack_0",
            {"inputs": ("job", "stop", "stop")},
            r"'choose_0' chooses from jobs\+running\+running, but the task offers jobs\+running",
        ),
        ("stack_0", {"inputs": ("stop", "job")}, "'stack_0' .stack. does not fit its inputs stop, job"),
        ("stack_0", {"inputs": ("job", "running")}, "'stack_0' .stack. does not fit its inputs job, running"),
    ],
)
def test_mistakes_in_lists_with_stops_are_told(output: str, changes: dict[str, Any], message: str) -> None:
    layers = changed(list_layers("kernel", "job", STOPS, SIZES), output, changes)
    with pytest.raises(LayerError, match=message):
        values_of(layers, STOPS)


def test_weights_of_another_shape_and_unreadable_lists_are_told() -> None:
    shape = TaskShape("job", LAYOUT)
    made = random_model(shape, settings_for("kernel"), seed=1)
    arrays = arrays_of(made)
    card = {"layers": [layer.as_json() for layer in made.network.layers], "decision": "best"}
    arrays["network.job.weight"] = arrays["network.job.weight"][:-1]
    with pytest.raises(InputError, match=r"'job.weight' have shape \(15, 16\) instead of \(16, 16\)"):
        TrainedNetwork(arrays, card, "job", LAYOUT, where="test")
    with pytest.raises(InputError, match="a list of layers that cannot be read: 'in'"):
        read_layers([{"op": "relu"}], where="test")


def test_what_a_network_is_made_of_can_be_read() -> None:
    first, *_ = (layer for layer in list_layers("kernel", "job", LAYOUT, SIZES) if layer.op == "linear")
    assert first == Layer("linear", ("choose_0",), "job", "job", (16, 16), {"bias": True, "gain": 2**0.5})


RUN = """
import json
from model_setup import *
from queuewise.envs.features import ObservationLayout
shape = TaskShape({problem!r}, ObservationLayout(6, 4, 12, stops={stops}, moves={stops} > 0))
for decision, outputs in (("best", 1), ("likely", 1), ("best", 3)):
    model = interpreted(random_model(shape, settings_for({net!r}, env={problem!r}), seed=4, outputs=outputs), shape, decision)
    rows, mask = random_states(shape, 12, seed=5)
    print(json.dumps([model.act(rows, mask).tolist(), model.scores(rows, mask)[0].tolist()]))
"""


@pytest.mark.parametrize(
    ("net", "problem", "stops"),
    [("mlp", "joint", 0), ("kernel", "job", 2), ("attn", "job", 3), ("hosts", "host", 0), ("joint", "joint", 0)],
)
def test_the_interpreter_decides_alike_without_the_compiler(net: str, problem: str, stops: int) -> None:
    command = [sys.executable, "-c", RUN.format(net=net, problem=problem, stops=stops)]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    shape = TaskShape(problem, replace(LAYOUT, stops=stops, moves=stops > 0))
    for line, (decision, outputs) in zip(done.stdout.splitlines(), (("best", 1), ("likely", 1), ("best", 3)), strict=True):
        model = interpreted(random_model(shape, settings_for(net, env=problem), seed=4, outputs=outputs), shape, decision)
        rows, mask = random_states(shape, 12, seed=5)
        actions, scores = json.loads(line)
        assert model.act(rows, mask).tolist() == actions
        np.testing.assert_allclose(model.scores(rows, mask)[0], scores, rtol=1e-6, atol=1e-6)
