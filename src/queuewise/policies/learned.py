"""Trained networks without torch: the forward pass of every network of `agents/networks`, over a few operations.

With `NumpyOperations` the passes compute scores of legal actions in NumPy; the export runs the same passes to build a
graph. A test compares the scores with those of torch. Letters: B observations, Q slots, H hosts, A actions, K outputs,
W width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.policies.model_file import Arrays

ILLEGAL = -1e9  # score of an illegal action
LOOKAHEAD_BINS = 8
NORM_EPSILON = 1e-5  # of the layer norm

Array = Any  # of NumPy, or a value in a graph: both support + - * / and @
Bools = NDArray[np.bool_]


class Operations(Protocol):
    """The operations of a forward pass. "Choices" are the scored actions: their axes come first, in place of B."""

    def constant(self, name: str, values: NDArray[np.float32]) -> Array: ...
    def cut(self, x: Array, first: int, stop: int) -> Array: ...  # of the last axis
    def split(self, x: Array, *sizes: int) -> Array: ...  # the last axis into several
    def merge(self, x: Array, axes: int) -> Array: ...  # the last `axes` into one
    def expand(self, x: Array, axis: int) -> Array: ...
    def transpose(self, x: Array, *axes: int) -> Array: ...
    def concat(self, parts: Sequence[Array], axis: int) -> Array: ...
    def total(self, x: Array, axis: int) -> Array: ...
    def relu(self, x: Array) -> Array: ...
    def at_least(self, x: Array, least: float) -> Array: ...
    def is_positive(self, x: Array) -> Array: ...  # 1.0 or 0.0
    def softmax(self, x: Array, used: Array) -> Array: ...  # over the last axis, where `used` is above 0
    def norm(self, x: Array, weight: Array, bias: Array) -> Array: ...
    def of_job(self, x: Array) -> Array: ...  # [B, Q, ...] -> the job of each choice
    def of_host(self, x: Array) -> Array: ...  # [B, H, ...] -> the host of each choice
    def of_state(self, x: Array) -> Array: ...  # [B, ...] -> the row of each choice
    def spread(self, scores: Array, wait: Array) -> Array: ...  # scores of choices, [B, K] of the wait -> [B, A, K], ILLEGAL elsewhere
    def masked(self, scores: Array) -> Array: ...  # [B, A, K] -> the same, ILLEGAL where masked


class ScaledObservation(NamedTuple):
    """The parts of scaled observations."""

    overall: Array  # [B, G]
    lookahead: Array  # [B, U]
    jobs: Array  # [B, Q, Fj] unused rows are zero
    hosts: Array  # [B, H, Fh] unused rows are zero


class ObservationShapes(Protocol):
    """The shapes of the parts of an observation; the layout of `envs.features` is one."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def job_features(self) -> tuple[str, ...]: ...
    @property
    def size(self) -> int: ...


class ForwardPass:
    """One forward pass: the weights and the operations to use."""

    def __init__(self, model: TrainedNetwork, ops: Operations) -> None:
        self.model, self.ops = model, ops
        self.width, self.heads = int(model.network["width"]), int(model.network["heads"])

    def weight(self, name: str) -> Array:
        return self.ops.constant(name, self.model.array(name))

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self.ops.constant(f"{name}.weight.T", self.model.transposed(f"network.{name}.weight"))
        bias = f"network.{name}.bias"
        return y + self.weight(bias) if bias in self.model.arrays else y

    def layers(self, name: str, x: Array) -> Array:
        """Linear layers with ReLU between them. torch numbers both, so the linear ones are 0, 2, 4, …"""
        number = 0
        while True:
            x = self.linear(f"{name}.{number}", x)
            number += 2
            if f"network.{name}.{number}.weight" not in self.model.arrays:
                return x
            x = self.ops.relu(x)

    def parts(self, observations: Array) -> ScaledObservation:
        """Split and scale [B, F] observations as the environment gives them."""
        ops, at, parts = self.ops, 0, []
        for part, shape in self.model.layout.shapes.items():
            length = math.prod(shape)
            x = ops.cut(observations, at, at + length)
            at += length
            tokens = len(shape) > 1
            x = ops.split(x, *shape) if tokens else x
            x = (x - self.weight(f"scaling.{part}.mean")) * self.weight(f"scaling.{part}.scale")
            parts.append(x * ops.cut(x, 0, 1) if tokens else x)
        return ScaledObservation(*parts)

    def summary(self, parts: ScaledObservation) -> Array:
        """[B, S] globals, binned lookahead, and mean and mean square of each feature over jobs and hosts."""
        return self.ops.concat([parts.overall, self.bins(parts), *self._moments(parts.jobs), *self._moments(parts.hosts)], 1)

    def bins(self, parts: ScaledObservation) -> Array:
        """[B, 8] means over runs of units."""
        units = self.model.layout.shapes["lookahead"][0]
        return parts.lookahead @ self.ops.constant("bins", _pooling(units))

    def _moments(self, tokens: Array) -> tuple[Array, Array]:
        number = self.ops.at_least(self.ops.total(self.ops.cut(tokens, 0, 1), 1), 1.0)  # [B, 1]
        return self.ops.total(tokens, 1) / number, self.ops.total(tokens * tokens, 1) / number

    def attend(self, queries: Array, tokens: Array, used: Array, of_state: Callable[[Array], Array]) -> Array:
        """[..., W] attention of each query over the tokens [B, T, W] of its row where `used` [B, T, 1] is above 0."""
        ops, each = self.ops, self.width // self.heads
        both = self.linear("key_value", tokens)
        keys = ops.transpose(ops.split(ops.cut(both, 0, self.width), self.heads, each), 0, 2, 3, 1)  # [B, heads, each, T]
        values = ops.transpose(ops.split(ops.cut(both, self.width, 2 * self.width), self.heads, each), 0, 2, 1, 3)  # [B, heads, T, each]
        counted = ops.expand(ops.transpose(used, 0, 2, 1), 1)  # [B, 1, 1, T]
        query = ops.split(self.linear("query", queries), self.heads, 1, each) / ops.constant("root", _number(math.sqrt(each)))
        weights = ops.softmax(query @ of_state(keys), of_state(counted))
        return ops.merge(weights @ of_state(values), 3)


def _number(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


def _mlp(p: ForwardPass, parts: ScaledObservation) -> tuple[Array, Array]:
    row = p.ops.concat([parts.overall, parts.lookahead, p.ops.merge(parts.jobs, 2), p.ops.merge(parts.hosts, 2)], 1)
    hidden = p.ops.relu(p.layers("trunk", row))
    return p.ops.masked(p.ops.split(p.linear("score", hidden), -1, p.model.outputs)), p.linear("value", hidden)


def _kernel(p: ForwardPass, parts: ScaledObservation) -> tuple[Array, Array]:
    state = p.summary(parts)
    hidden = p.ops.relu(p.linear("job", p.ops.of_job(parts.jobs)) + p.ops.of_state(p.linear("context", state)))
    return p.ops.spread(p.layers("score", hidden), p.layers("wait", state)), p.layers("value", state)


def _attn(p: ForwardPass, parts: ScaledObservation) -> tuple[Array, Array]:
    ops, state = p.ops, p.summary(parts)
    jobs = ops.relu(p.linear("job", ops.of_job(parts.jobs)) + ops.of_state(p.linear("context", state)))
    bins = ops.expand(p.bins(parts), 2)  # [B, 8, 1]
    future = p.linear("future", bins) + p.weight("network.position")
    tokens = ops.relu(ops.concat([p.linear("host", parts.hosts), future], 1))
    used = ops.concat([ops.cut(parts.hosts, 0, 1), bins * ops.constant("zero", _number(0.0)) + ops.constant("one", _number(1.0))], 1)
    found = p.attend(jobs, tokens, used, ops.of_state)
    jobs = ops.norm(jobs + found, p.weight("network.norm.weight"), p.weight("network.norm.bias"))
    return ops.spread(p.layers("score", jobs), p.layers("wait", state)), p.layers("value", state)


def _hosts(p: ForwardPass, parts: ScaledObservation) -> tuple[Array, Array]:
    ops, current = p.ops, p.model.layout.job_features.index("current")
    being_placed = ops.is_positive(ops.cut(parts.jobs, current, current + 1))  # one job, or none while all wait
    placed = ops.total(parts.jobs * being_placed, 1)
    state = p.summary(parts)
    job = ops.relu(p.linear("job", ops.concat([placed, state], 1) * p.weight("network.steady")))
    hosts = p.linear("host", parts.hosts) * p.linear("gain", parts.hosts)
    found = p.attend(job, ops.relu(hosts), ops.cut(parts.hosts, 0, 1), lambda x: x)
    context = job + p.linear("found", found)
    hidden = ops.relu(ops.of_host(hosts) + ops.of_state(context))
    seen = ops.relu(context)
    return ops.spread(p.layers("score", hidden), p.layers("wait", seen)), p.layers("value", ops.concat([seen, state], 1))


def _joint(p: ForwardPass, parts: ScaledObservation) -> tuple[Array, Array]:
    ops, state = p.ops, p.summary(parts)
    pair = ops.of_job(p.linear("job", parts.jobs)) + ops.of_host(p.linear("host", parts.hosts))
    hidden = ops.relu(pair + ops.of_state(p.linear("context", state)))
    return ops.spread(p.layers("score", hidden), p.layers("wait", state)), p.layers("value", state)


PASSES: dict[str, Callable[[ForwardPass, ScaledObservation], tuple[Array, Array]]] = {
    "mlp": _mlp,
    "kernel": _kernel,
    "attn": _attn,
    "hosts": _hosts,
    "joint": _joint,
}


def _means(scores: NDArray[np.float32], values: NDArray[np.float32], mask: Bools) -> NDArray[np.float32]:
    """[B, A] means of distributions over K equally spaced points; ILLEGAL where the mask is false.

    Their logits are those of the state plus those of the action minus the mean over the legal actions. The unit is the
    range of the points, which changes no decision.
    """
    legal = mask[:, :, None]
    logits = values[:, None] + scores - (scores * legal).sum(1, keepdims=True) / legal.sum(1, keepdims=True)
    chances = np.exp(logits - logits.max(2, keepdims=True))
    means = chances @ np.linspace(0, 1, scores.shape[2], dtype=np.float32) / chances.sum(2)
    return np.where(mask, means, np.float32(ILLEGAL))


def _pick_best(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """[B, A] -> [B] the actions with the highest score, the first of equal ones."""
    return scores.argmax(1)


def _pick_likely(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """[B, A] logits -> [B] the likeliest action; the wait only where it is likelier than all others together."""
    wait, others = scores[:, -1], scores[:, :-1]
    highest = others.max(1)
    all_else = highest + np.log(np.exp(others - highest[:, None]).sum(1))
    return np.where(wait > all_else, scores.shape[1] - 1, others.argmax(1))


DECISIONS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.int64]]] = {"best": _pick_best, "likely": _pick_likely}


def _pooling(units: int) -> NDArray[np.float32]:
    """[U, 8] weights that average the lookahead: bin i covers the units from ⌊i·U/8⌋ to ⌈(i+1)·U/8⌉."""
    weights = np.zeros((units, LOOKAHEAD_BINS), np.float32)
    for i in range(LOOKAHEAD_BINS):
        first, stop = i * units // LOOKAHEAD_BINS, -(-(i + 1) * units // LOOKAHEAD_BINS)
        weights[first:stop, i] = 1.0 / (stop - first)
    return weights


class TrainedNetwork:
    """A trained network for observations of one layout."""

    def __init__(self, arrays: Arrays, card: Mapping[str, Any], problem: str, layout: ObservationShapes, *, where: str) -> None:
        self.arrays, self.problem, self.layout = arrays, problem, layout
        self.network: Mapping[str, Any] = card["network"]
        self._where = where
        self._transposed: dict[str, NDArray[np.float32]] = {}
        if self.network["name"] not in PASSES:
            raise unknown_name("network", self.network["name"], PASSES)
        if card.get("decision") not in DECISIONS:
            raise InputError(f"picks actions in an unknown way: {card.get('decision')}", where=where, hint="train again with this version")
        self._decide = DECISIONS[card["decision"]]
        if "network.trunk.0.weight" in arrays and arrays["network.trunk.0.weight"].shape[1] != layout.size:
            wanted = arrays["network.trunk.0.weight"].shape[1]
            raise InputError(
                f"sees observations of {wanted} numbers, but here they have {layout.size}",
                where=where,
                hint="an mlp fits only the cluster and the window it was trained with; train another network",
            )

    @cached_property
    def outputs(self) -> int:
        """K, the numbers per action."""
        last = max((name for name in self.arrays if name.startswith("network.value.") and name.endswith("weight")), key=_layer)
        return len(self.arrays[last])

    def array(self, name: str) -> NDArray[np.float32]:
        if name not in self.arrays:
            raise InputError(f"lacks the weights {name!r}", where=self._where, hint="use another model, or train again")
        return self.arrays[name]

    def transposed(self, name: str) -> NDArray[np.float32]:
        if name not in self._transposed:
            self._transposed[name] = np.ascontiguousarray(self.array(name).T)
        return self._transposed[name]

    def trace(self, observations: Array, ops: Operations) -> tuple[Array, Array]:
        """Scores [B, A, K] and values [B, K], computed with these operations."""
        p = ForwardPass(self, ops)
        return PASSES[self.network["name"]](p, p.parts(observations))

    def scores(self, observations: NDArray[np.float32], mask: Bools) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[B, F] observations as the environment gives them and [B, A] mask -> [B, A, K] scores and [B, K] values."""
        with np.errstate(invalid="ignore"):
            return self.trace(observations, NumpyOperations(mask, self.problem, self.layout))

    def act(self, observations: NDArray[np.float32], mask: Bools) -> NDArray[np.int64]:
        """[B] the flat actions that the model chooses."""
        scores, values = self.scores(observations, mask)
        return self._decide(scores[:, :, 0] if self.outputs == 1 else _means(scores, values, mask))


def _layer(name: str) -> int:
    """The number in `network.value.4.weight`; 0 for a single layer, whose name has none."""
    part = name.split(".")[2]
    return int(part) if part.isdigit() else 0


class NumpyOperations:
    """The operations in NumPy. Choices are the legal actions, on one axis [L]."""

    def __init__(self, mask: Bools, problem: str, layout: ObservationShapes) -> None:
        self._mask = mask
        self._rows, self._columns = mask[:, :-1].nonzero()
        hosts = layout.shapes["hosts"][0]
        pairs = problem == "joint"
        self._jobs, self._hosts = (self._columns // hosts, self._columns % hosts) if pairs else (self._columns, self._columns)

    def constant(self, name: str, values: NDArray[np.float32]) -> Array:
        return values

    def cut(self, x: Array, first: int, stop: int) -> Array:
        return x[..., first:stop]

    def split(self, x: Array, *sizes: int) -> Array:
        return x.reshape(*x.shape[:-1], *sizes)

    def merge(self, x: Array, axes: int) -> Array:
        return x.reshape(*x.shape[:-axes], math.prod(x.shape[-axes:]))

    def expand(self, x: Array, axis: int) -> Array:
        return np.expand_dims(x, axis)

    def transpose(self, x: Array, *axes: int) -> Array:
        return x.transpose(axes)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis)

    def total(self, x: Array, axis: int) -> Array:
        return x.sum(axis)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, np.float32(0))

    def at_least(self, x: Array, least: float) -> Array:
        return np.maximum(x, np.float32(least))

    def is_positive(self, x: Array) -> Array:
        return (x > 0).astype(np.float32)

    def softmax(self, x: Array, used: Array) -> Array:
        x = np.where(used > 0, x, np.float32(-np.inf))
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def norm(self, x: Array, weight: Array, bias: Array) -> Array:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(NORM_EPSILON)) * weight + bias

    def of_job(self, x: Array) -> Array:
        return x[self._rows, self._jobs]

    def of_host(self, x: Array) -> Array:
        return x[self._rows, self._hosts]

    def of_state(self, x: Array) -> Array:
        return x if len(x) == 1 else x[self._rows]  # a single row broadcasts to all choices

    def spread(self, scores: Array, wait: Array) -> Array:
        spread = np.full((*self._mask.shape, scores.shape[-1]), ILLEGAL, np.float32)
        spread[self._rows, self._columns] = scores
        waits = self._mask[:, -1]
        spread[waits, -1] = wait[waits]
        return spread

    def masked(self, scores: Array) -> Array:
        return np.where(self._mask[:, :, None], scores, np.float32(ILLEGAL))
