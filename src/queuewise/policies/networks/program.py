"""From a list of layers and weights to the table that the interpreter runs.

Every value gets a place in one block of memory, which begins with the scaled observation. Layers of the state that
scores need come first, then those that only the values need, then those of choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from queuewise.policies.networks import program_table as codes
from queuewise.policies.networks.layers import (
    BINS,
    CHOICES,
    HOSTS,
    JOBS,
    LOOKAHEAD_BINS,
    RUNNING,
    STACKS,
    STATE,
    Layer,
    LayerError,
    Layers,
    ObservationShapes,
    Value,
    values_of,
)
from queuewise.sim.core.tables import F32

KINDS = {
    STATE: codes.ONE_ROW,
    JOBS: codes.JOB_ROWS,
    HOSTS: codes.HOST_ROWS,
    RUNNING: codes.RUNNING_ROWS,
    BINS: codes.BIN_ROWS,
    CHOICES: codes.CHOICE_ROWS,
    **{rows: codes.FIRST_STACK + number for number, rows in enumerate(STACKS)},
}
CODES = {  # operations that are one step with one or two inputs
    "linear": codes.LINEAR,
    "whole": codes.WHOLE,
    "relu": codes.RELU,
    "norm": codes.NORM,
    "add": codes.ADD,
    "multiply": codes.MULTIPLY,
    "scale": codes.SCALE,
    "shift": codes.SHIFT,
    "bin": codes.BIN,
    "moments": codes.MOMENTS,
    "placed": codes.PLACED,
    "choose": codes.CHOOSE,
}
DECISIONS = {"best": codes.BEST, "likely": codes.LIKELY}
LINE = 16  # numbers of a cache line: values begin at multiples of it

Find = Callable[[str], NDArray[np.float32]]  # the weights of this name in the file
Step = list[int]


def compile_network(layers: Layers, find: Find, problem: str, layout: ObservationShapes, decision: str) -> codes.NetworkProgram:
    """The table for a network that decides a problem. Its mask holds the choices, then the wait."""
    return _Compiler(layers, find, problem, layout).table(DECISIONS[decision])


class _Compiler:
    def __init__(self, layers: Layers, find: Find, problem: str, layout: ObservationShapes) -> None:
        self._layers, self._find, self._problem, self._layout = layers, find, problem, layout
        self._values = values_of(layers, layout)
        none = (0, 1)  # rows and their width, of a part that a task without stops or a published view lacks
        self._tokens = {rows: layout.shapes.get(rows, none) for rows in (JOBS, HOSTS, RUNNING)}
        self._most = {STATE: 1, BINS: LOOKAHEAD_BINS, CHOICES: codes.BLOCK}  # rows of each kind
        self._most |= {rows: number for rows, (number, _) in self._tokens.items()}
        self._most |= {rows: sum(self._most[part] for part in parts) for rows, parts in STACKS.items()}
        self._places: dict[str, int] = {"observation": 0}
        self._weights: list[NDArray[np.float32]] = []
        self._weight_end = self._memory_end = 0
        at = 0
        for part, shape in layout.shapes.items():
            self._places[part] = at
            at += math.prod(shape)
        self._reserve(at)

    def _reserve(self, size: int) -> int:
        """Reserve memory and return its position."""
        at = self._memory_end
        self._memory_end += -(-size // LINE) * LINE
        return at

    def _store(self, name: str, shape: tuple[int, ...], *, transposed: bool = False) -> int:
        """Store weights of the file and return their position."""
        array = self._find(f"network.{name}")
        if array.shape != shape:
            raise LayerError(f"the weights {name!r} have shape {array.shape} instead of {shape}")
        flat = np.ascontiguousarray(array.T if transposed else array, np.float32).reshape(-1)
        at = self._weight_end
        self._weights.append(np.pad(flat, (0, -len(flat) % LINE)))
        self._weight_end += len(self._weights[-1])
        return at

    def _place(self, name: str) -> int:
        value = self._values[name]
        if name not in self._places:
            self._places[name] = self._reserve(self._most[value.rows] * value.width)
        return self._places[name]

    # --- steps

    def _steps(self, layer: Layer) -> list[Step]:
        if layer.op in ("concat", "stack", "column"):
            return self._copies(layer)
        if layer.op == "attend":
            return self._attention(layer)
        first = self._values[layer.inputs[0]]
        second = layer.inputs[1] if len(layer.inputs) > 1 else layer.inputs[0]
        weight, bias = self._weights_of(layer)
        step = [
            CODES[layer.op], KINDS[self._rows_to_visit(layer)], self._place(layer.inputs[0]), self._place(second),
            self._place(layer.output), first.width, self._values[layer.output].width, weight, bias, self._number(layer, first),
        ]  # fmt: skip
        return [step]

    def _rows_to_visit(self, layer: Layer) -> str:
        return self._values[layer.inputs[0]].rows if layer.op in ("moments", "placed") else self._values[layer.output].rows

    def _number(self, layer: Layer, first: Value) -> int:
        if layer.op in ("add", "multiply"):
            return int(self._values[layer.inputs[1]].rows != first.rows)
        return KINDS[first.rows] if layer.op == "choose" else int(layer.options.get("column", 0))

    def _weights_of(self, layer: Layer) -> tuple[int, int]:
        if not layer.weights:
            return codes.NONE, codes.NONE
        if layer.op in ("scale", "shift"):
            return self._store(layer.weights, layer.shape), codes.NONE
        biased = layer.op == "norm" or layer.options.get("bias", True)
        weight = self._store(f"{layer.weights}.weight", layer.shape, transposed=True)
        return weight, self._store(f"{layer.weights}.bias", layer.shape[:1]) if biased else codes.NONE

    def _copies(self, layer: Layer) -> list[Step]:
        """One step per input: rows follow each other in memory, and so do the parts of one row."""
        out, steps = self._place(layer.output), []
        for name in layer.inputs:
            value = self._values[name]
            steps.append(_step(codes.COPY, KINDS[value.rows], self._place(name), out, value.width))
            out += self._most[value.rows] * value.width
        return steps

    def _attention(self, layer: Layer) -> list[Step]:
        query, tokens = (self._values[name] for name in layer.inputs)
        x, y = map(self._place, layer.inputs)
        kind, number = KINDS[tokens.rows], self._most[tokens.rows]
        keys, shares = self._reserve(number * query.width), self._reserve(number)
        turn = [codes.TRANSPOSE, kind, y, y, keys, tokens.width, query.width, codes.NONE, codes.NONE, 0]
        out = self._place(layer.output)
        look = [codes.ATTEND, KINDS[query.rows], x, y, out, query.width, kind, keys, shares, int(layer.options["heads"])]
        return [turn, look]

    # --- the table

    def table(self, decision: int) -> codes.NetworkProgram:
        needed = self._needed_for("scores")
        sections: tuple[list[Step], list[Step], list[Step]] = ([], [], [])  # of scores, of values, of choices
        for layer in self._layers:
            if layer.op in ("spread", "mask"):
                continue
            for step in self._steps(layer):
                by_choice = step[codes.ROWS] == codes.CHOICE_ROWS
                sections[2 if by_choice else 0 if layer.output in needed else 1].append(step)
        (last,) = (layer for layer in self._layers if layer.output == "scores")
        size = self._sizes(last, sections)
        size.decision = decision
        mean, scale = (self._expand(kind) for kind in ("mean", "scale"))
        lengths = {
            "length": size.length, "kinds": len(KINDS), "block": codes.BLOCK, "actions": size.actions, "outputs": size.outputs,
        }  # fmt: skip
        steps = [step for section in sections for step in section]
        memory = np.zeros(self._memory_end + 2 * int(size.outputs), np.float32)
        table = codes.NetworkProgram.allocate(
            lengths,
            size=size,
            step=np.array(steps, np.int64).reshape(-1),
            weight=np.concatenate(self._weights),
            mean=mean,
            scale=scale,
            memory=memory,
        )
        for rows, kind in KINDS.items():
            table.count[kind] = self._most[rows]
        return table

    def _needed_for(self, output: str) -> set[str]:
        """The values that this one depends on."""
        needed = {output}
        for layer in reversed(self._layers):
            if layer.output in needed:
                needed.update(layer.inputs)
        return needed

    def _sizes(self, last: Layer, sections: tuple[list[Step], list[Step], list[Step]]) -> codes.ProgramSizes:
        shapes, for_scores, for_values, of_choices = self._layout.shapes, *map(len, sections)
        by_choice = last.op == "spread"
        scores, wait = (last.inputs[0], last.inputs[-1])
        (slots, job_width), (hosts, host_width), (running, running_width) = self._tokens.values()
        length = self._layout.size
        return codes.ProgramSizes(
            length=length,
            units=shapes.get("lookahead", (0,))[0],
            window=slots,
            job_width=job_width,
            hosts=hosts,
            host_width=host_width,
            running=running,
            running_width=running_width,
            jobs_at=self._places.get("jobs", length),
            hosts_at=self._places.get("hosts", length),
            running_at=self._places.get("running", length),
            actions=self._layout.num_choices(self._problem) + 1,
            outputs=self._values["scores"].width,
            pairs=int(self._problem == "joint"),
            score_steps=for_scores,
            state_steps=for_scores + for_values,
            steps=for_scores + for_values + of_choices,
            by_choice=int(by_choice),
            scores_at=self._places[scores],
            wait_at=self._places[wait],
            values_at=self._places["values"],
        )

    def _expand(self, name: str) -> F32:
        """Mean or scale of every number of an observation. The lookahead has one pair of numbers."""
        expanded = []
        for part, shape in self._layout.shapes.items():
            values, wanted = self._find(f"scaling.{part}.{name}"), (1 if part == "lookahead" else shape[-1],)
            if values.shape != wanted:
                raise LayerError(f"the {name} of {part!r} has shape {values.shape} instead of {wanted}")
            expanded.append(np.resize(values, math.prod(shape)))
        return np.concatenate(expanded).astype(np.float32)


def _step(op: int, kind: int, x: int, out: int, width: int) -> Step:
    return [op, kind, x, x, out, width, width, codes.NONE, codes.NONE, 0]
