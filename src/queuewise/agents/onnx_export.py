"""Export of a trained network to ONNX: its list of layers written as a graph.

Inputs: `observations` [batch, F] float32 as the environment gives them, `mask` [batch, A] bool. Outputs: `scores`
[batch, A, K] float32 (−10⁹ where illegal) and `values` [batch, K]. Scaling is part of the graph; the window and the
numbers of hosts and GPUs are fixed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.agents.model_policies import settings_of
from queuewise.agents.task_shape import TaskShape
from queuewise.errors import optional_imports
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import KEY, read_model
from queuewise.policies.networks.layers import CHOICES, ILLEGAL, JOBS, LOOKAHEAD_BINS, NORM_EPSILON, RUNNING, STACKS, Layer, values_of
from queuewise.runs import replacing

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8  # as old as the opset, so that old runtimes can read it


def export_model(path: Path, out: Path) -> dict[str, Any]:
    """Write the model in `path` to `out` and return what the file holds."""
    onnx = _onnx()
    arrays, card = read_model(path)
    _, shape = settings_of(card, path)
    model = TrainedNetwork(arrays, card, shape.problem, shape.layout, where=str(path))
    graph = OnnxGraph(model, shape)
    for layer in model.layers:
        graph.write(layer)
    graph.name_output("scores")
    graph.name_output("values")
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


class GraphValue(NamedTuple):
    """A value in the graph: its name and its number of axes. [B, width], or [B, rows, width]; choices of the joint
    problem have two axes of rows.
    """

    name: str
    rank: int


class OnnxGraph:
    """The nodes of a graph. Choices are all actions but the wait; an operation is the method of its name."""

    def __init__(self, model: TrainedNetwork, shape: TaskShape) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._model, self._shape = model, shape
        self._shapes = values_of(model.layers, shape.layout)
        self._joint = shape.problem == "joint"
        self._values: dict[str, GraphValue] = {}
        self._read_observation()

    def write(self, layer: Layer) -> None:
        """Add the nodes of a layer."""
        operation = getattr(self, f"_op_{layer.op}")
        self._values[layer.output] = operation(layer, *(self._values[name] for name in layer.inputs))

    def name_output(self, name: str) -> None:
        self.nodes.append(_onnx().helper.make_node("Identity", [self._values[name].name], [name], name))

    def _read_observation(self) -> None:
        """Split and scale the observation. Unused rows become zero."""
        at, whole = 0, []
        for part, shape in self._shape.layout.shapes.items():
            length = math.prod(shape)
            x = self._cut(GraphValue("observations", 2), at, at + length)
            at += length
            x = self._split(x, *shape) if len(shape) > 1 else x
            x = self._add("Mul", [self._add("Sub", [x, self._stored(f"scaling.{part}.mean")]), self._stored(f"scaling.{part}.scale")])
            x = self._add("Mul", [x, self._cut(x, 0, 1)]) if len(shape) > 1 else x
            self._values[part] = x
            whole.append(self._merge(x, 2) if len(shape) > 1 else x)
        self._values["observation"] = self._add("Concat", whole, axis=1)

    # --- nodes

    def _add(self, operation: str, inputs: Sequence[GraphValue], rank: int | None = None, **attributes: Any) -> GraphValue:
        name = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(_onnx().helper.make_node(operation, [value.name for value in inputs], [name], name, **attributes))
        return GraphValue(name, max(value.rank for value in inputs) if rank is None else rank)

    def _constant(self, name: str, values: Any) -> GraphValue:
        self.constants[name] = np.asarray(values, np.float32)
        return GraphValue(name, self.constants[name].ndim)

    def _stored(self, name: str, *, transposed: bool = False) -> GraphValue:
        array = self._model.array(name)
        return self._constant(f"{name}.T", np.ascontiguousarray(array.T)) if transposed else self._constant(name, array)

    def _whole(self, *numbers: int) -> GraphValue:
        """A constant of integers: axes or sizes."""
        name = "whole_" + "_".join(map(str, numbers))
        self.constants[name] = np.array(numbers, np.int64)
        return GraphValue(name, 1)

    def _cut(self, x: GraphValue, first: int, stop: int) -> GraphValue:
        """Columns of the last axis."""
        return self._add("Slice", [x, self._whole(first), self._whole(stop), self._whole(x.rank - 1)], x.rank)

    def _split(self, x: GraphValue, *sizes: int) -> GraphValue:
        """The last axis as several."""
        return self._add("Reshape", [x, self._whole(*[0] * (x.rank - 1), *sizes)], x.rank - 1 + len(sizes))  # 0 keeps an axis

    def _merge(self, x: GraphValue, axes: int) -> GraphValue:
        """The last axes as one."""
        return self._add("Reshape", [x, self._whole(*[0] * (x.rank - axes), -1)], x.rank - axes + 1)

    def _expand(self, x: GraphValue, axis: int) -> GraphValue:
        return self._add("Unsqueeze", [x, self._whole(axis)], x.rank + 1)

    def _total(self, x: GraphValue) -> GraphValue:
        """Sums over the rows."""
        return self._add("ReduceSum", [x, self._whole(1)], x.rank - 1, keepdims=0)

    def _is_positive(self, x: GraphValue) -> GraphValue:
        return self._add("Greater", [x, self._constant("zero", 0.0)])

    def _of_each(self, layer: Layer, y: GraphValue) -> GraphValue:
        """The second input, with a row of the state repeated for each row of the first."""
        first, second = (self._shapes[name].rows for name in layer.inputs)
        while first != second and y.rank < self._values[layer.inputs[0]].rank:
            y = self._expand(y, 1)
        return y

    # --- operations

    def _op_linear(self, layer: Layer, x: GraphValue) -> GraphValue:
        y = self._add("MatMul", [x, self._stored(f"network.{layer.weights}.weight", transposed=True)], x.rank)
        return self._add("Add", [y, self._stored(f"network.{layer.weights}.bias")]) if layer.options.get("bias", True) else y

    _op_whole = _op_linear

    def _op_relu(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._add("Relu", [x])

    def _op_norm(self, layer: Layer, x: GraphValue) -> GraphValue:
        weights = [self._stored(f"network.{layer.weights}.{name}") for name in ("weight", "bias")]
        return self._add("LayerNormalization", [x, *weights], axis=-1, epsilon=NORM_EPSILON)

    def _op_add(self, layer: Layer, x: GraphValue, y: GraphValue) -> GraphValue:
        return self._add("Add", [x, self._of_each(layer, y)])

    def _op_multiply(self, layer: Layer, x: GraphValue, y: GraphValue) -> GraphValue:
        return self._add("Mul", [x, self._of_each(layer, y)])

    def _op_scale(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._add("Mul", [x, self._stored(f"network.{layer.weights}")])

    def _op_shift(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._add("Add", [x, self._stored(f"network.{layer.weights}")])

    def _op_concat(self, layer: Layer, *parts: GraphValue) -> GraphValue:
        return self._add("Concat", parts, axis=1)

    _op_stack = _op_concat

    def _op_bin(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._add("MatMul", [x, self._constant("bins", _pooling(self._shape.layout.units))])

    def _op_column(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._expand(x, 2)

    def _op_moments(self, layer: Layer, x: GraphValue) -> GraphValue:
        used = self._add("Max", [self._total(self._cut(x, 0, 1)), self._constant("one", 1.0)])
        sums = self._total(x), self._total(self._add("Mul", [x, x]))
        return self._add("Concat", [self._add("Div", [total, used]) for total in sums], axis=1)

    def _op_placed(self, layer: Layer, x: GraphValue) -> GraphValue:
        column = layer.options["column"]
        placed = self._add("Cast", [self._is_positive(self._cut(x, column, column + 1))], to=int(_onnx().TensorProto.FLOAT))
        return self._total(self._add("Mul", [x, placed]))

    def _op_choose(self, layer: Layer, x: GraphValue) -> GraphValue:
        if not self._joint:
            return x
        return self._expand(x, 2 if self._shapes[layer.inputs[0]].rows == JOBS else 1)

    def _op_attend(self, layer: Layer, query: GraphValue, tokens: GraphValue) -> GraphValue:
        heads = layer.options["heads"]
        rows, width = self._shapes[layer.inputs[0]]
        each = width // heads
        parts = [self._split(self._cut(tokens, first, first + width), heads, each) for first in (0, width)]
        keys, values = (self._add("Transpose", [x], perm=axes) for x, axes in zip(parts, ((0, 2, 3, 1), (0, 2, 1, 3)), strict=True))
        unused = self._unused(STACKS.get(self._shapes[layer.inputs[1]].rows, ())[1:])  # [B, 1, 1, T]
        if rows == CHOICES:  # [B, 1, heads, …], one row per choice
            keys, values, unused = (self._expand(x, 1) for x in (keys, values, unused))
        asked = self._add("Div", [self._split(query, heads, 1, each), self._constant("root", math.sqrt(each))])
        matches = self._add("Where", [unused, self._constant("ignored", -math.inf), self._add("MatMul", [asked, keys])])
        found = self._add("MatMul", [self._add("Softmax", [matches], axis=-1), values])
        return self._merge(found, 3)

    def _unused(self, more: Sequence[str]) -> GraphValue:
        """[B, 1, 1, T] which tokens are hosts or running jobs that are not there. `more`: the rows after the hosts, first bins."""
        present = self._cut(self._values["hosts"], 0, 1)  # [B, H, 1]
        if more:
            present = self._add("Pad", [present, self._whole(0, 0, 0, 0, LOOKAHEAD_BINS, 0), self._constant("one", 1.0)], present.rank)
        if RUNNING in more:
            present = self._add("Concat", [present, self._cut(self._values["running"], 0, 1)], axis=1)
        absent = self._add("Not", [self._is_positive(present)])
        return self._expand(self._add("Transpose", [absent], perm=(0, 2, 1)), 1)

    def _op_spread(self, layer: Layer, scores: GraphValue, wait: GraphValue) -> GraphValue:
        if self._joint:  # [B, Q, H, K]
            scores = self._add("Reshape", [scores, self._whole(0, self._shape.num_actions - 1, self._model.outputs)], 3)
        return self._masked(self._add("Concat", [scores, self._expand(wait, 1)], axis=1))

    def _op_mask(self, layer: Layer, x: GraphValue) -> GraphValue:
        return self._masked(self._split(x, self._shape.num_actions, layer.options["outputs"]))

    def _masked(self, scores: GraphValue) -> GraphValue:
        return self._add("Where", [self._expand(GraphValue("mask", 2), 2), scores, self._constant("illegal", ILLEGAL)])


def _pooling(units: int) -> NDArray[np.float32]:
    """[U, 8] weights that average the lookahead: bin i covers the units from ⌊i·U/8⌋ to ⌈(i+1)·U/8⌉."""
    weights = np.zeros((units, LOOKAHEAD_BINS), np.float32)
    for i in range(LOOKAHEAD_BINS):
        first, stop = i * units // LOOKAHEAD_BINS, -(-(i + 1) * units // LOOKAHEAD_BINS)
        weights[first:stop, i] = 1.0 / (stop - first)
    return weights
