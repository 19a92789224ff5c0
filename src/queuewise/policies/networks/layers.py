"""A network as a list of layers: the one definition that torch trains, the interpreter plays and the export writes.

A layer takes named values, computes one more, and may have weights. A value has rows and a width. Its rows are those of
the state (one), of the jobs, the hosts, the running jobs or the bins of the lookahead, several of these stacked, or the
choices: one row per legal action other than the wait. Sizes of a window or a cluster are not in the list, except where
the operation `whole` reads them.

| operation | inputs | result |
|---|---|---|
| `linear` | x | x times the weights, plus the bias if there is one |
| `whole` | the observation | the same for the whole row; slots without a job may be skipped |
| `relu`, `norm` | x | ReLU; layer norm with weights and bias |
| `add`, `multiply` | x, y | row by row; y may be one row of the state |
| `scale`, `shift` | x | x times a row of weights; x plus weights |
| `concat` | values of the state | one row |
| `stack` | rows of several kinds (`STACKS`) | the rows of all of them |
| `bin` | lookahead | means over 8 runs of units |
| `column` | 8 numbers of the state | 8 rows of one number |
| `moments` | x | mean and mean square of every feature over the used rows |
| `placed` | jobs | the row of the job that is being placed (feature `column` above 0), zero if there is none |
| `choose` | jobs, hosts, or all options of a task with stops | the row of each choice |
| `attend` | queries, keys and values | attention of each query over the used rows; the second input holds keys, then values |
| `spread` | choices, wait | scores of all actions |
| `mask` | x | the same, from one row of the state |

The inputs of a list are the parts of an observation, `global`, `lookahead`, `jobs`, `hosts` and, in a task with stops,
`running`, and `observation` (all of them as one row), scaled. A published view has no such parts. The results of a list
are `scores` and `values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from queuewise.errors import InputError

ILLEGAL = -1e9  # score of an illegal action
LOOKAHEAD_BINS = 8
NORM_EPSILON = 1e-5  # of the layer norm
SMALL = 0.01  # gain of layers that return scores: a new policy is nearly uniform
ROOT_2 = math.sqrt(2.0)  # gain of layers before a ReLU

STATE, JOBS, HOSTS, RUNNING, BINS, CHOICES, ACTIONS = "state", "jobs", "hosts", "running", "bins", "choices", "actions"
TOKENS = {f"{HOSTS}+{BINS}": (HOSTS, BINS), f"{HOSTS}+{BINS}+{RUNNING}": (HOSTS, BINS, RUNNING)}  # the cluster
OPTIONS = {f"{JOBS}+{RUNNING}": (JOBS, RUNNING), f"{JOBS}+{RUNNING}+{RUNNING}": (JOBS, RUNNING, RUNNING)}  # start, preempt, migrate
STACKS: dict[str, tuple[str, ...]] = TOKENS | OPTIONS  # rows of a stack -> rows that it is made of


class ObservationShapes(Protocol):
    """The shapes of the parts of an observation; the layout of `envs.features` is one."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def global_features(self) -> tuple[str, ...]: ...
    @property
    def job_features(self) -> tuple[str, ...]: ...
    @property
    def host_features(self) -> tuple[str, ...]: ...
    @property
    def running_features(self) -> tuple[str, ...]: ...
    @property
    def view(self) -> str: ...
    @property
    def stops(self) -> int: ...
    @property
    def moves(self) -> bool: ...
    @property
    def size(self) -> int: ...
    def num_choices(self, problem: str) -> int: ...


class NetworkSizes(Protocol):
    """The size of a network; the settings of training are one."""

    @property
    def width(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...  # units of the hidden layers; the first is the width
    @property
    def heads(self) -> int: ...


@dataclass(frozen=True)
class Layer:
    op: str
    inputs: tuple[str, ...]
    output: str
    weights: str = ""  # their name in a file, without `network.`
    shape: tuple[int, ...] = ()  # of the weights; linear: outputs, inputs
    options: Mapping[str, Any] = field(default_factory=dict)  # bias; initial gain, offset, zero; heads; column

    def as_json(self) -> dict[str, Any]:
        weights = {"weights": self.weights, "shape": list(self.shape)} if self.weights else {}
        return {"op": self.op, "in": list(self.inputs), "out": self.output, **weights, **self.options}


Layers = tuple[Layer, ...]


class Value(NamedTuple):
    rows: str
    width: int


def input_values(layout: ObservationShapes) -> dict[str, Value]:
    """The values that a list begins with."""
    rows = {"jobs": JOBS, "hosts": HOSTS, "running": RUNNING}
    parts = {part: Value(rows.get(part, STATE), shape[-1]) for part, shape in layout.shapes.items()}
    return {"observation": Value(STATE, layout.size), **parts}


# --- what each operation returns


def _linear(layer: Layer, x: Value) -> Value:
    _expect(len(layer.shape) == 2 and layer.shape[1] == x.width, layer)
    return Value(x.rows, layer.shape[0])


def _alike(layer: Layer, x: Value) -> Value:
    _expect(not layer.shape or layer.shape[-1] == x.width, layer)
    return x


def _two(layer: Layer, x: Value, y: Value) -> Value:
    _expect(x.width == y.width and y.rows in (x.rows, STATE), layer)
    return x


def _concat(layer: Layer, *parts: Value) -> Value:
    _expect(all(part.rows == STATE for part in parts), layer)
    return Value(STATE, sum(part.width for part in parts))


def _stack(layer: Layer, *parts: Value) -> Value:
    rows = "+".join(part.rows for part in parts)
    _expect(rows in STACKS and all(part.width == parts[0].width for part in parts), layer)
    return Value(rows, parts[0].width)


def _bin(layer: Layer, x: Value) -> Value:
    _expect(layer.inputs == ("lookahead",), layer)
    return Value(STATE, LOOKAHEAD_BINS)


def _column(layer: Layer, x: Value) -> Value:
    _expect(x == (STATE, LOOKAHEAD_BINS), layer)
    return Value(BINS, 1)


def _moments(layer: Layer, x: Value) -> Value:
    _expect(x.rows in (JOBS, HOSTS, RUNNING), layer)
    return Value(STATE, 2 * x.width)


def _placed(layer: Layer, x: Value) -> Value:
    _expect(x.rows == JOBS and 0 <= layer.options.get("column", -1) < x.width, layer)
    return Value(STATE, x.width)


def _choose(layer: Layer, x: Value) -> Value:
    _expect(x.rows in (JOBS, HOSTS, *OPTIONS), layer)
    return Value(CHOICES, x.width)


def _attend(layer: Layer, query: Value, tokens: Value) -> Value:
    heads = layer.options.get("heads", 0)
    _expect(tokens == (tokens.rows, 2 * query.width) and tokens.rows in (HOSTS, *TOKENS) and query.rows in (STATE, CHOICES), layer)
    _expect(heads > 0 and query.width % heads == 0, layer)
    return query


def _spread(layer: Layer, scores: Value, wait: Value) -> Value:
    _expect(scores.rows == CHOICES and wait == (STATE, scores.width), layer)
    return Value(ACTIONS, scores.width)


def _mask(layer: Layer, x: Value) -> Value:
    outputs = layer.options.get("outputs", 0)
    _expect(x.rows == STATE and outputs > 0 and x.width % outputs == 0, layer)
    return Value(ACTIONS, outputs)


RESULTS: dict[str, Callable[..., Value]] = {  # operation -> what it returns, by what it is given
    "linear": _linear,
    "whole": _linear,
    "relu": _alike,
    "norm": _alike,
    "scale": _alike,
    "shift": _alike,
    "add": _two,
    "multiply": _two,
    "concat": _concat,
    "stack": _stack,
    "bin": _bin,
    "column": _column,
    "moments": _moments,
    "placed": _placed,
    "choose": _choose,
    "attend": _attend,
    "spread": _spread,
    "mask": _mask,
}


class LayerError(ValueError):
    """A layer that does not fit its inputs."""


def _expect(fits: bool, layer: Layer) -> None:
    if not fits:
        raise LayerError(f"layer {layer.output!r} ({layer.op}) does not fit its inputs {', '.join(layer.inputs)}")


def _result(layer: Layer, known: Mapping[str, Value]) -> Value:
    if layer.op not in RESULTS:
        raise LayerError(f"layer {layer.output!r} has an unknown operation {layer.op!r}")
    missing = [name for name in layer.inputs if name not in known]
    if missing:
        raise LayerError(f"layer {layer.output!r} reads {missing[0]!r}, which no earlier layer writes")
    try:
        return RESULTS[layer.op](layer, *(known[name] for name in layer.inputs))
    except TypeError:
        raise LayerError(f"layer {layer.output!r} ({layer.op}) has {len(layer.inputs)} inputs") from None


def values_of(layers: Layers, layout: ObservationShapes) -> dict[str, Value]:
    """Rows and width of every value of the list. Raises a LayerError if a layer does not fit."""
    known = input_values(layout)
    for layer in layers:
        known[layer.output] = _result(layer, known)
    for name, rows in (("scores", ACTIONS), ("values", STATE)):
        if name not in known or known[name].rows != rows:
            raise LayerError(f"no layer writes the {name}")
    _check_options(layers, known, layout)
    return known


def _check_options(layers: Layers, known: Mapping[str, Value], layout: ObservationShapes) -> None:
    """In a task with stops, choices are also running jobs to preempt and, with moves, to migrate."""
    offered = f"{JOBS}+{RUNNING}+{RUNNING}" if layout.moves else f"{JOBS}+{RUNNING}" if layout.stops else JOBS
    for layer in layers:
        rows = known[layer.inputs[0]].rows
        if layer.op == "choose" and rows not in (HOSTS, offered):
            raise LayerError(f"layer {layer.output!r} chooses from {rows}, but the task offers {offered}")


def outputs_of(layers: Layers, layout: ObservationShapes) -> int:
    """K, the numbers per action."""
    return values_of(layers, layout)["values"].width


def read_layers(data: Iterable[Mapping[str, Any]], *, where: str) -> Layers:
    """The list that `as_json` wrote."""
    known = ("op", "in", "out", "weights", "shape")
    try:
        return tuple(
            Layer(
                str(entry["op"]),
                tuple(entry["in"]),
                str(entry["out"]),
                str(entry.get("weights", "")),
                tuple(entry.get("shape", ())),
                {key: value for key, value in entry.items() if key not in known},
            )
            for entry in data
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"holds a list of layers that cannot be read: {error}", where=where, hint="train again") from None


class LayerList:
    """Writes a list. Methods add layers and return the names of their results."""

    def __init__(self, layout: ObservationShapes) -> None:
        self.layout = layout
        self._layers: list[Layer] = []
        self._known = input_values(layout)

    def add_layer(self, op: str, *inputs: str, output: str = "", weights: str = "", shape: tuple[int, ...] = (), **options: Any) -> str:
        layer = Layer(op, inputs, output or weights or self._name(op), weights, shape, options)
        self._known[layer.output] = _result(layer, self._known)
        self._layers.append(layer)
        return layer.output

    def _name(self, op: str) -> str:
        return f"{op}_{sum(layer.op == op for layer in self._layers)}"

    def linear(self, name: str, x: str, width: int, gain: float = ROOT_2, *, output: str = "", bias: bool = True, **options: float) -> str:
        shape = (width, self._known[x].width)
        op = "whole" if x == "observation" else "linear"
        return self.add_layer(op, x, output=output, weights=name, shape=shape, bias=bias, gain=gain, **options)

    def feedforward(self, name: str, x: str, widths: Sequence[int], gain: float = 1.0, output: str = "") -> str:
        """Linear layers with ReLU between them, numbered 0, 2, 4, …; the gain is that of the last."""
        for number, width in enumerate(widths):
            last = number == len(widths) - 1
            x = self.linear(f"{name}.{2 * number}", x, width, gain if last else ROOT_2, output=output if last else "")
            x = x if last else self.add_layer("relu", x)
        return x

    def relu(self, x: str) -> str:
        return self.add_layer("relu", x)

    def add(self, x: str, y: str) -> str:
        return self.add_layer("add", x, y)

    def choose(self, x: str) -> str:
        return self.add_layer("choose", x)

    def options(self, width: int) -> str:
        """Embed what each choice is about: the job to start or, with other weights, the running job to preempt or migrate."""
        if not self.layout.stops:
            return self.linear("job", self.choose("jobs"), width)
        kinds = ("stop", "move") if self.layout.moves else ("stop",)
        rows = [self.linear("job", "jobs", width), *(self.linear(kind, "running", width) for kind in kinds)]
        return self.choose(self.add_layer("stack", *rows))

    def bins(self) -> str:
        return "bins" if "bins" in self._known else self.add_layer("bin", "lookahead", output="bins")

    def summary(self) -> str:
        """Globals, binned lookahead, and mean and mean square of each feature over jobs, hosts and running jobs."""
        tokens = ("jobs", "hosts", "running") if self.layout.stops else ("jobs", "hosts")
        parts = ["global", self.bins(), *(self.add_layer("moments", rows, output=f"{rows}_moments") for rows in tokens)]
        return self.add_layer("concat", *parts, output="summary")

    def summary_features(self) -> tuple[str, ...]:
        """The feature that each number of the summary comes from."""
        layout = self.layout
        running = layout.running_features * 2 if layout.stops else ()
        return (*layout.global_features, *("lookahead",) * LOOKAHEAD_BINS, *layout.job_features * 2, *layout.host_features * 2, *running)

    def attend(self, query: str, tokens: str, sizes: NetworkSizes) -> str:
        """Attention of the query over the tokens, with weights `query` and `key_value`."""
        width, heads = sizes.width, sizes.heads
        if width % heads:
            raise InputError(f"{heads} heads do not divide a width of {width}", hint="choose a network.heads that divides network.width")
        asked = self.linear("query", query, width, 1.0, bias=False)
        both = self.linear("key_value", tokens, 2 * width, 1.0, bias=False)
        return self.add_layer("attend", asked, both, heads=heads)

    def heads(self, hidden: str, wait: str, value: str, sizes: NetworkSizes, outputs: int) -> Layers:
        """Score each choice by its hidden row, the wait and the value by rows of the state, and return the list."""
        score = self.feedforward("score", hidden, [*sizes.hidden[1:], outputs], SMALL)
        waiting = self.feedforward("wait", wait, [sizes.width, outputs], SMALL)
        self.add_layer("spread", score, waiting, output="scores")
        self.feedforward("value", value, [*sizes.hidden, outputs], output="values")
        return self.finish()

    def finish(self) -> Layers:
        layers = tuple(self._layers)
        values_of(layers, self.layout)
        return layers
