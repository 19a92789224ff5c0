"""Networks in torch: a module that computes the layers of a list, for training.

B observations, F their size, A actions (the last is the wait), K outputs, L legal choices of the whole batch. Illegal
actions score ILLEGAL, which no softmax and no argmax picks. The same two outputs serve PPO (logits and value), D3QN
(advantages and value) and SAC (logits, or Q-values).

Choices are scored only where they are legal, because most jobs of a window do not fit. The other layers see the state
as a summary of fixed size, so one set of weights works for any window and any number of hosts and GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from queuewise.agents.observation_scaling import count_slots
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.memory import check_memory
from queuewise.policies.networks import list_layers
from queuewise.policies.networks.layers import (
    CHOICES,
    ILLEGAL,
    JOBS,
    LOOKAHEAD_BINS,
    NORM_EPSILON,
    OPTIONS,
    RUNNING,
    STACKS,
    Layer,
    Layers,
    values_of,
)

BYTES_PER_WEIGHT = 16  # itself, its gradient, and two moments of the optimiser


class Network(nn.Module):
    """The weights of a list of layers, under the names that the list gives them, and its computation."""

    def __init__(self, shape: TaskShape, layers: Layers) -> None:
        super().__init__()
        self.shape, self.layers = shape, layers
        self.value_shapes = values_of(layers, shape.layout)
        self.outputs = self.value_shapes["values"].width
        for layer in layers:
            if layer.weights:
                _add_weights(self, layer)
        self._order = [(layer, _last_used_by(layer, layers)) for layer in layers]
        self.module_of = {name: module for name, module in self.named_modules() if isinstance(module, nn.Linear | nn.LayerNorm)}

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, F] scaled observations and [B, A] mask -> [B, A, K] scores, ILLEGAL where the mask is false, and [B, K]
        values.
        """
        run = Run(self, observations, mask)
        for layer, no_longer_needed in self._order:
            run.tensors[layer.output] = OPERATIONS[layer.op](run, layer, *(run.tensors[name] for name in layer.inputs))
            for name in no_longer_needed:
                del run.tensors[name]
        return run.tensors["scores"], run.tensors["values"]

    def policy(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, A] logits and [B] values of a network with one output."""
        scores, values = self(observations, mask)
        return scores.squeeze(-1), values.squeeze(-1)

    def without_empty_slots(self, observations: Tensor) -> Tensor:
        """The batch without the slots that hold no job in any row, unless they are already removed."""
        if observations.shape[1] < self.shape.observation_size:
            return observations
        jobs = self.shape.job_columns
        used = jobs.start + jobs.step * count_slots(observations.detach().numpy(), jobs.start, len(jobs), jobs.step)
        if used >= jobs.stop:
            return observations
        return torch.cat([observations[:, :used], observations[:, jobs.stop :]], dim=1)


def build_network(name: str, shape: TaskShape, settings: NetworkSettings, *, seed: int, outputs: int = 1) -> Network:
    """Build a network with random weights.

    It returns `outputs` numbers per action and for the state (1, or the atoms of a distribution).
    """
    layers = list_layers(name, shape.problem, shape.layout, settings, outputs)
    weights = sum(math.prod(layer.shape) for layer in layers if layer.weights)
    check_memory(f"a network of {weights:,} weights", weights * BYTES_PER_WEIGHT, hint="use a smaller --width, --depth or --window")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(shape, layers)


def _last_used_by(layer: Layer, layers: Layers) -> tuple[str, ...]:
    """The values that no later layer reads. Their memory is free for the next ones, which are as large."""
    written = {other.output for other in layers}
    later = {name for other in layers[layers.index(layer) + 1 :] for name in other.inputs}
    return tuple(name for name in dict.fromkeys(layer.inputs) if name in written and name not in later)


# --- weights


def _add_weights(network: Network, layer: Layer) -> None:
    """Add the weights of a layer, with initial values. `score.0` is the module 0 of the module `score`."""
    if layer.op == "shift":
        network.register_parameter(layer.weights, nn.Parameter(torch.zeros(layer.shape)))
        return
    if layer.op == "scale":
        factors = torch.ones(layer.shape)
        factors[list(layer.options["zero"])] = 0.0
        network.register_buffer(layer.weights, factors)
        return
    group, _, number = layer.weights.partition(".")
    module = _make_linear(layer) if layer.op != "norm" else nn.LayerNorm(layer.shape[0], NORM_EPSILON)
    if not number:
        network.add_module(group, module)
        return
    if group not in dict(network.named_children()):
        network.add_module(group, nn.Module())
    network.get_submodule(group).add_module(number, module)


def _make_linear(layer: Layer) -> nn.Linear:
    after, before = layer.shape
    made = nn.Linear(before, after, bias=layer.options["bias"])
    nn.init.orthogonal_(made.weight, layer.options["gain"])
    if made.bias is not None:
        nn.init.constant_(made.bias, layer.options.get("offset", 0.0))
    return made


# --- computation


class Run:
    """The values of one forward pass: [B, width] of the state, [B, rows, width], or [L, width] of the legal choices."""

    def __init__(self, network: Network, observations: Tensor, mask: Tensor) -> None:
        rows = network.without_empty_slots(observations)
        self.network, self.mask = network, mask
        self.tensors = {"observation": rows}
        at, left_out = 0, network.shape.observation_size - rows.shape[1]
        for part, shape in network.shape.layout.shapes.items():
            length = math.prod(shape) - (left_out if part == "jobs" else 0)
            numbers = rows[:, at : at + length]
            self.tensors[part] = numbers.view(len(rows), -1, shape[1]) if len(shape) > 1 else numbers
            at += length
        self.rows, self.columns = mask[:, :-1].nonzero(as_tuple=True)  # [L] the observation and the action of each choice

    def rows_of(self, name: str) -> str:
        return self.network.value_shapes[name].rows

    def weights(self, layer: Layer) -> nn.Module:
        return self.network.module_of[layer.weights]

    def chosen(self, name: str) -> Tensor:
        """[L] the row of each choice in a value of jobs, hosts or options."""
        if self.rows_of(name) in OPTIONS:
            window, shown = self.network.shape.layout.window, self.tensors["jobs"].shape[1]
            return self.columns - (self.columns >= window) * (window - shown)
        if self.network.shape.problem != "joint":
            return self.columns
        hosts = self.network.shape.layout.hosts
        return self.columns // hosts if self.rows_of(name) == JOBS else self.columns % hosts


def _linear(run: Run, layer: Layer, x: Tensor) -> Tensor:
    y: Tensor = run.weights(layer)(x)
    return y


def _whole(run: Run, layer: Layer, x: Tensor) -> Tensor:
    """A linear layer without the slots that no row of the batch uses."""
    linear, full = run.weights(layer), run.network.shape.job_columns
    left_out = run.network.shape.observation_size - x.shape[1]
    weight: Tensor = linear.get_parameter("weight")
    bias = linear.get_parameter("bias") if layer.options["bias"] else None
    if left_out:
        weight = torch.cat([weight[:, : full.stop - left_out], weight[:, full.stop :]], dim=1)
    return functional.linear(x, weight, bias)


def _of_each(run: Run, layer: Layer, y: Tensor) -> Tensor:
    """The second input of an operation on rows, with a row of the state repeated for each row of the first."""
    first, second = (run.rows_of(name) for name in layer.inputs)
    if first == second:
        return y
    return y[run.rows] if first == CHOICES else y.unsqueeze(1)


def _add(run: Run, layer: Layer, x: Tensor, y: Tensor) -> Tensor:
    return x + _of_each(run, layer, y)


def _multiply(run: Run, layer: Layer, x: Tensor, y: Tensor) -> Tensor:
    return x * _of_each(run, layer, y)


def _scale(run: Run, layer: Layer, x: Tensor) -> Tensor:
    return x * run.network.get_buffer(layer.weights)


def _shift(run: Run, layer: Layer, x: Tensor) -> Tensor:
    return x + run.network.get_parameter(layer.weights)


def _moments(run: Run, layer: Layer, x: Tensor) -> Tensor:
    """[B, N, F] -> [B, 2F]; the first feature is 1 for used rows."""
    per = x[:, :, 0].sum(1).clamp(min=1.0).reciprocal().unsqueeze(1)
    return torch.cat([x.sum(1) * per, x.square().sum(1) * per], dim=1)


def _placed(run: Run, layer: Layer, x: Tensor) -> Tensor:
    column = layer.options["column"]
    return (x * (x[:, :, column : column + 1] > 0)).sum(1)  # one job, or none


def _choose(run: Run, layer: Layer, x: Tensor) -> Tensor:
    return x[run.rows, run.chosen(layer.inputs[0])]


def _split(x: Tensor, *sizes: int) -> Tensor:
    """The last axis as several."""
    parts: Tensor = x.unflatten(-1, sizes)  # type: ignore[no-untyped-call]
    return parts


def _attend(run: Run, layer: Layer, query: Tensor, tokens: Tensor) -> Tensor:
    heads = layer.options["heads"]
    each = query.shape[1] // heads
    keys, values = _split(tokens, 2, heads, each).transpose(1, 3).unbind(2)  # [B, heads, T, each]
    unused = run.tensors["hosts"][:, :, 0] == 0
    more = STACKS.get(run.rows_of(layer.inputs[1]), ())[1:]
    if more:
        running = [run.tensors["running"][:, :, 0] == 0] if RUNNING in more else []
        unused = torch.cat([unused, unused.new_zeros(len(unused), LOOKAHEAD_BINS), *running], dim=1)
    if run.rows_of(layer.inputs[0]) == CHOICES:
        keys, values, unused = keys[run.rows], values[run.rows], unused[run.rows]
    asked = _split(query, heads, 1, each) / math.sqrt(each)
    weights = (asked @ keys.transpose(2, 3)).masked_fill(unused[:, None, None], -math.inf).softmax(-1)
    found: Tensor = (weights @ values).flatten(1)
    return found


def _spread(run: Run, layer: Layer, scores: Tensor, wait: Tensor) -> Tensor:
    """[L, K] scores of the choices and [B, K] of waiting -> [B, A, K], ILLEGAL elsewhere."""
    batch, actions = run.mask.shape
    flat = scores.new_full((batch * actions, scores.shape[-1]), ILLEGAL)
    waiting = run.mask[:, -1].nonzero().squeeze(1)
    where = torch.cat([run.rows * actions + run.columns, waiting * actions + actions - 1])
    flat = flat.index_copy(0, where, torch.cat([scores, wait[waiting]]))
    return flat.view(batch, actions, -1)


def _mask(run: Run, layer: Layer, x: Tensor) -> Tensor:
    return _split(x, -1, layer.options["outputs"]).masked_fill(~run.mask.unsqueeze(-1), ILLEGAL)


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "linear": _linear,
    "whole": _whole,
    "relu": lambda run, layer, x: x.relu(),
    "norm": _linear,
    "add": _add,
    "multiply": _multiply,
    "scale": _scale,
    "shift": _shift,
    "concat": lambda run, layer, *parts: torch.cat(parts, dim=1),
    "stack": lambda run, layer, *parts: torch.cat(parts, dim=1),
    "bin": lambda run, layer, x: functional.adaptive_avg_pool1d(x, LOOKAHEAD_BINS),
    "column": lambda run, layer, x: x.unsqueeze(-1),
    "moments": _moments,
    "placed": _placed,
    "choose": _choose,
    "attend": _attend,
    "spread": _spread,
    "mask": _mask,
}
