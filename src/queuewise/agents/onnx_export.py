"""Export of a trained network to ONNX: the forward pass of `policies.learned` recorded as a graph.

Inputs: `observations` [batch, F] float32 as the environment gives them, `mask` [batch, A] bool. Outputs: `scores`
[batch, A, K] float32 (−10⁹ where illegal) and `values` [batch, K]. Scaling is part of the graph; the window and the
numbers of hosts and GPUs are fixed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.agents.model_player import settings_of
from queuewise.errors import optional_imports
from queuewise.policies.learned import ILLEGAL, NORM_EPSILON, TrainedNetwork
from queuewise.policies.model_file import KEY, read_model
from queuewise.runs import replacing

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8  # as old as the opset, so that old runtimes can read it


def export_model(path: Path, out: Path) -> dict[str, Any]:
    """Write the model in `path` to `out` and return what the file holds."""
    onnx = _onnx()
    arrays, card = read_model(path)
    _, shape = settings_of(card, path)
    model = TrainedNetwork(arrays, card, shape.problem, shape.layout, where=str(path))
    graph = OnnxGraph(shape.problem, shape.layout.window, shape.layout.hosts)
    scores, values = model.trace(graph.observations, graph)
    graph.name_output(scores, "scores")
    graph.name_output(values, "values")
    make, kinds = onnx.helper, onnx.TensorProto
    built = make.make_graph(
        graph.nodes,
        card["network"]["name"],
        [
            make.make_tensor_value_info("observations", kinds.FLOAT, ["batch", shape.observation_size]),
            make.make_tensor_value_info("mask", kinds.BOOL, ["batch", shape.num_actions]),
        ],
        [
            make.make_tensor_value_info("scores", kinds.FLOAT, ["batch", shape.num_actions, model.outputs]),
            make.make_tensor_value_info("values", kinds.FLOAT, ["batch", model.outputs]),
        ],
        [onnx.numpy_helper.from_array(np.asarray(values), name) for name, values in graph.constants.items()],
    )
    file = make.make_model(built, opset_imports=[make.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="queuewise")
    make.set_model_props(file, {KEY: json.dumps(card)})
    onnx.checker.check_model(file, full_check=True)
    with replacing(out) as temporary:
        temporary.write_bytes(file.SerializeToString())
    return {
        "file": str(out),
        "model": str(path),
        "network": card["network"]["name"],
        "problem": shape.problem,
        "observation_size": shape.observation_size,
        "num_actions": shape.num_actions,
        "opset": OPSET,
        "bytes": out.stat().st_size,
    }


def _onnx() -> Any:
    with optional_imports():
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    return onnx


class GraphValue:
    """A value in the graph: its name and its number of axes."""

    def __init__(self, graph: OnnxGraph, name: str, rank: int) -> None:
        self.graph, self.name, self.rank = graph, name, rank

    def _with(self, operation: str, other: GraphValue) -> GraphValue:
        return self.graph.add(operation, [self, other], max(self.rank, other.rank))

    def __add__(self, other: GraphValue) -> GraphValue:
        return self._with("Add", other)

    def __sub__(self, other: GraphValue) -> GraphValue:
        return self._with("Sub", other)

    def __mul__(self, other: GraphValue) -> GraphValue:
        return self._with("Mul", other)

    def __truediv__(self, other: GraphValue) -> GraphValue:
        return self._with("Div", other)

    def __matmul__(self, other: GraphValue) -> GraphValue:
        return self._with("MatMul", other)


class OnnxGraph:
    """The operations of a forward pass (`policies.learned.Operations`), which add nodes.

    Choices are all actions but the wait.
    """

    def __init__(self, problem: str, window: int, hosts: int) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.observations, self._mask = GraphValue(self, "observations", 2), GraphValue(self, "mask", 2)
        self._problem = problem
        self._choices = {"job": window, "host": hosts, "joint": window * hosts}[problem]

    def add(self, operation: str, inputs: Sequence[GraphValue], rank: int, **attributes: Any) -> GraphValue:
        name = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(_onnx().helper.make_node(operation, [value.name for value in inputs], [name], name, **attributes))
        return GraphValue(self, name, rank)

    def name_output(self, value: GraphValue, name: str) -> None:
        self.nodes.append(_onnx().helper.make_node("Identity", [value.name], [name], name))

    def _whole(self, *numbers: int) -> GraphValue:
        """A constant of integers: axes or sizes."""
        name = "whole_" + "_".join(map(str, numbers))
        self.constants[name] = np.array(numbers, np.int64)
        return GraphValue(self, name, 1)

    def constant(self, name: str, values: NDArray[np.float32]) -> GraphValue:
        self.constants[name] = values
        return GraphValue(self, name, np.ndim(values))

    def cut(self, x: GraphValue, first: int, stop: int) -> GraphValue:
        return self.add("Slice", [x, self._whole(first), self._whole(stop), self._whole(x.rank - 1)], x.rank)

    def split(self, x: GraphValue, *sizes: int) -> GraphValue:
        return self.add("Reshape", [x, self._whole(*[0] * (x.rank - 1), *sizes)], x.rank - 1 + len(sizes))  # 0 keeps an axis

    def merge(self, x: GraphValue, axes: int) -> GraphValue:
        return self.add("Reshape", [x, self._whole(*[0] * (x.rank - axes), -1)], x.rank - axes + 1)

    def expand(self, x: GraphValue, axis: int) -> GraphValue:
        return self.add("Unsqueeze", [x, self._whole(axis)], x.rank + 1)

    def transpose(self, x: GraphValue, *axes: int) -> GraphValue:
        return self.add("Transpose", [x], x.rank, perm=axes)

    def concat(self, parts: Sequence[GraphValue], axis: int) -> GraphValue:
        return self.add("Concat", parts, parts[0].rank, axis=axis)

    def total(self, x: GraphValue, axis: int) -> GraphValue:
        return self.add("ReduceSum", [x, self._whole(axis)], x.rank - 1, keepdims=0)

    def relu(self, x: GraphValue) -> GraphValue:
        return self.add("Relu", [x], x.rank)

    def at_least(self, x: GraphValue, least: float) -> GraphValue:
        return self.add("Max", [x, self.constant(f"least_{least:g}", np.array(least, np.float32))], x.rank)

    def _is_positive(self, x: GraphValue) -> GraphValue:
        return self.add("Greater", [x, self.constant("zero", np.zeros((), np.float32))], x.rank)

    def is_positive(self, x: GraphValue) -> GraphValue:
        return self.add("Cast", [self._is_positive(x)], x.rank, to=int(_onnx().TensorProto.FLOAT))

    def softmax(self, x: GraphValue, used: GraphValue) -> GraphValue:
        ignored = self.constant("ignored", np.array(-math.inf, np.float32))
        return self.add("Softmax", [self.add("Where", [self._is_positive(used), x, ignored], x.rank)], x.rank, axis=-1)

    def norm(self, x: GraphValue, weight: GraphValue, bias: GraphValue) -> GraphValue:
        return self.add("LayerNormalization", [x, weight, bias], x.rank, axis=-1, epsilon=NORM_EPSILON)

    def of_job(self, x: GraphValue) -> GraphValue:
        return self.expand(x, 2) if self._problem == "joint" else x

    def of_host(self, x: GraphValue) -> GraphValue:
        return self.expand(x, 1) if self._problem == "joint" else x

    def of_state(self, x: GraphValue) -> GraphValue:
        return self.expand(self.expand(x, 1), 1) if self._problem == "joint" else self.expand(x, 1)

    def spread(self, scores: GraphValue, wait: GraphValue) -> GraphValue:
        if self._problem == "joint":  # [B, Q, H, K]
            scores = self.add("Reshape", [scores, self._whole(0, self._choices, -1)], 3)
        return self.masked(self.concat([scores, self.expand(wait, 1)], 1))

    def masked(self, scores: GraphValue) -> GraphValue:
        return self.add("Where", [self.expand(self._mask, 2), scores, self.constant("illegal", np.array(ILLEGAL, np.float32))], 3)
