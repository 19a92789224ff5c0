"""The kernels of the interpreter: scaling an observation, and one function per operation.

A kernel reads its step at position `at` (see `program_table`) and computes that many rows.
"""

from __future__ import annotations

import numpy as np

from queuewise.policies.networks.layers import LOOKAHEAD_BINS, NORM_EPSILON
from queuewise.policies.networks.program_table import (
    ADD,
    BIAS,
    JOB_ROWS,
    MULTIPLY,
    NONE,
    NUMBER,
    OP,
    OUT,
    OUT_WIDTH,
    RELU,
    SCALE,
    SHIFT,
    WEIGHT,
    WIDTH,
    NetworkProgram,
    X,
    Y,
)
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.table_types import view
from queuewise.sim.core.tables import F32

# --- scaling


@inline
def scale_span(row: F32, mean: F32, scale: F32, first: int, stop: int, out: F32) -> None:
    source, middle, factor, target = row[first:stop], mean[first:stop], scale[first:stop], out[first:stop]
    for f in range(len(target)):  # from 0, so that no index can be negative and the loop is vectorised
        target[f] = (source[f] - middle[f]) * factor[f]


@inline
def clear_unused(out: F32, first: int, number: int, width: int) -> None:
    """Multiply each row of tokens by its first feature, which is 1 for used rows."""
    for at in range(first, first + number * width, width):
        token = out[at : at + width]
        present = token[0]
        if present != np.float32(1.0):
            for f in range(width):
                token[f] *= present


@inline
def used_slots(row: F32, first: int, slots: int, width: int, used: int) -> int:
    """How many slots from column `first` on hold a job, at least `used`. Jobs fill the slots in order."""
    while used < slots and row[first + used * width] != np.float32(0.0):
        used += 1
    return used


@kernel
def see(n: NetworkProgram, observation: F32) -> None:
    """Scale the observation into memory, without slots that hold no job."""
    length, width, jobs_at = n.size.length, n.size.job_width, n.size.jobs_at
    used = used_slots(observation, jobs_at, n.size.window, width, min(1, n.size.window))
    mean, scale, memory = view(n.mean, length), view(n.scale, length), view(n.memory, length)
    scale_span(observation, mean, scale, 0, jobs_at + used * width, memory)
    scale_span(observation, mean, scale, n.size.hosts_at, length, memory)
    clear_unused(memory, jobs_at, used, width)
    clear_unused(memory, n.size.hosts_at, n.size.hosts, n.size.host_width)
    clear_unused(memory, n.size.running_at, n.size.running, n.size.running_width)
    n.count[JOB_ROWS] = used


# --- layers


@kernel
def _accumulate(n: NetworkProgram, x: int, inputs: int, weight: int, out: int, width: int) -> None:
    """Add x times the weights to a row. Four inputs at a time, so that sums are read and written less often."""
    i = 0
    while i + 4 <= inputs:
        a, b, c, d = n.memory[x + i], n.memory[x + i + 1], n.memory[x + i + 2], n.memory[x + i + 3]
        w = weight + i * width
        for o in range(width):
            total = n.memory[out + o] + a * n.weight[w + o]
            total += b * n.weight[w + width + o]
            total += c * n.weight[w + 2 * width + o]
            n.memory[out + o] = total + d * n.weight[w + 3 * width + o]
        i += 4
    while i < inputs:
        a = n.memory[x + i]
        w = weight + i * width
        for o in range(width):
            n.memory[out + o] += a * n.weight[w + o]
        i += 1


@inline
def _dot(n: NetworkProgram, x: int, inputs: int, weight: int) -> np.float32:
    """The same for one output, as four sums that do not wait for each other."""
    zero = np.float32(0.0)
    a, b, c, d = zero, zero, zero, zero
    i = 0
    while i + 4 <= inputs:
        a += n.memory[x + i] * n.weight[weight + i]
        b += n.memory[x + i + 1] * n.weight[weight + i + 1]
        c += n.memory[x + i + 2] * n.weight[weight + i + 2]
        d += n.memory[x + i + 3] * n.weight[weight + i + 3]
        i += 4
    while i < inputs:
        a += n.memory[x + i] * n.weight[weight + i]
        i += 1
    return (a + b) + (c + d)


@inline
def _begin_row(n: NetworkProgram, bias: int, out: int, width: int) -> None:
    for o in range(width):
        n.memory[out + o] = n.weight[bias + o] if bias != NONE else np.float32(0.0)


@kernel
def run_linear(n: NetworkProgram, at: int, rows: int) -> None:
    inputs, width = n.step[at + WIDTH], n.step[at + OUT_WIDTH]
    weight, bias = n.step[at + WEIGHT], n.step[at + BIAS]
    for r in range(rows):
        x, out = n.step[at + X] + r * inputs, n.step[at + OUT] + r * width
        _begin_row(n, bias, out, width)
        if width == 1:
            n.memory[out] += _dot(n, x, inputs, weight)
        else:
            _accumulate(n, x, inputs, weight, out, width)


@kernel
def run_whole(n: NetworkProgram, at: int) -> None:
    """A linear layer over the observation, without slots that hold no job."""
    width, out, weight, bias = n.step[at + OUT_WIDTH], n.step[at + OUT], n.step[at + WEIGHT], n.step[at + BIAS]
    hosts_at = n.size.hosts_at
    before = n.size.jobs_at + n.count[JOB_ROWS] * n.size.job_width
    _begin_row(n, bias, out, width)
    _accumulate(n, 0, before, weight, out, width)
    _accumulate(n, hosts_at, n.size.length - hosts_at, weight + hosts_at * width, out, width)


@kernel
def run_by_number(n: NetworkProgram, at: int, rows: int) -> None:
    """Operations that treat every number by itself. Inputs of one row serve all rows: NUMBER is 1 if there is one."""
    op, width = n.step[at + OP], n.step[at + OUT_WIDTH]
    for r in range(rows):
        x, out = n.step[at + X] + r * width, n.step[at + OUT] + r * width
        y = n.step[at + Y] + (0 if n.step[at + NUMBER] else r * width)
        if op == RELU:
            for o in range(width):
                value = n.memory[x + o]
                n.memory[out + o] = value if value > np.float32(0.0) else np.float32(0.0)
        elif op == ADD:
            for o in range(width):
                n.memory[out + o] = n.memory[x + o] + n.memory[y + o]
        elif op == MULTIPLY:
            for o in range(width):
                n.memory[out + o] = n.memory[x + o] * n.memory[y + o]
        elif op == SCALE:
            for o in range(width):
                n.memory[out + o] = n.memory[x + o] * n.weight[n.step[at + WEIGHT] + o]
        elif op == SHIFT:
            for o in range(width):
                n.memory[out + o] = n.memory[x + o] + n.weight[n.step[at + WEIGHT] + r * width + o]
        else:  # COPY
            for o in range(width):
                n.memory[out + o] = n.memory[x + o]


@kernel
def run_norm(n: NetworkProgram, at: int, rows: int) -> None:
    width = n.step[at + WIDTH]
    weight, bias = n.step[at + WEIGHT], n.step[at + BIAS]
    for r in range(rows):
        x, out = n.step[at + X] + r * width, n.step[at + OUT] + r * width
        mean = np.float32(0.0)
        for o in range(width):
            mean += n.memory[x + o]
        mean /= np.float32(width)
        square = np.float32(0.0)
        for o in range(width):
            square += (n.memory[x + o] - mean) * (n.memory[x + o] - mean)
        deviation = np.sqrt(square / np.float32(width) + np.float32(NORM_EPSILON))
        for o in range(width):
            n.memory[out + o] = (n.memory[x + o] - mean) / deviation * n.weight[weight + o] + n.weight[bias + o]


@kernel
def run_bin(n: NetworkProgram, at: int) -> None:
    """Bin i is the mean of the units from ⌊i·U/8⌋ to ⌈(i+1)·U/8⌉, which overlap if 8 does not divide U."""
    units = n.size.units
    for i in range(LOOKAHEAD_BINS):
        first, stop = i * units // LOOKAHEAD_BINS, ((i + 1) * units + LOOKAHEAD_BINS - 1) // LOOKAHEAD_BINS
        total = np.float32(0.0)
        for u in range(first, stop):
            total += n.memory[n.step[at + X] + u]
        n.memory[n.step[at + OUT] + i] = total / np.float32(stop - first)


@kernel
def run_moments(n: NetworkProgram, at: int, rows: int) -> None:
    width, out = n.step[at + WIDTH], n.step[at + OUT]
    for f in range(2 * width):
        n.memory[out + f] = np.float32(0.0)
    for r in range(rows):
        x = n.step[at + X] + r * width
        for f in range(width):
            value = n.memory[x + f]
            n.memory[out + f] += value
            n.memory[out + width + f] += value * value
    used = max(n.memory[out], np.float32(1.0))  # the sum of the first feature
    for f in range(2 * width):
        n.memory[out + f] /= used


@kernel
def run_placed(n: NetworkProgram, at: int, rows: int) -> None:
    width, out = n.step[at + WIDTH], n.step[at + OUT]
    for f in range(width):
        n.memory[out + f] = np.float32(0.0)
    for r in range(rows):
        x = n.step[at + X] + r * width
        if n.memory[x + n.step[at + NUMBER]] > np.float32(0.0):
            for f in range(width):
                n.memory[out + f] += n.memory[x + f]


@kernel
def run_choose(n: NetworkProgram, at: int, rows: int) -> None:
    """Copy the row of each choice. NUMBER is the kind of rows that are chosen from."""
    width = n.step[at + WIDTH]
    for r in range(rows):
        row = n.chosen[r]
        if n.size.pairs:
            row = row // n.size.hosts if n.step[at + NUMBER] == JOB_ROWS else row % n.size.hosts
        x, out = n.step[at + X] + row * width, n.step[at + OUT] + r * width
        for f in range(width):
            n.memory[out + f] = n.memory[x + f]


@kernel
def run_transpose(n: NetworkProgram, at: int, rows: int) -> None:
    """Keys [T, 2W] become [W, T], so that a query is compared with all tokens at once."""
    width, wide, x, out = n.step[at + OUT_WIDTH], n.step[at + WIDTH], n.step[at + X], n.step[at + OUT]
    for r in range(rows):
        for f in range(width):
            n.memory[out + f * rows + r] = n.memory[x + r * wide + f]


@kernel
def run_attend(n: NetworkProgram, at: int, rows: int) -> None:
    """Attention of each query. Y is the position of keys and values, WEIGHT that of the transposed keys, BIAS that of
    the weights of tokens, and NUMBER the number of heads; the tokens are of the kind OUT_WIDTH.
    """
    width, heads = n.step[at + WIDTH], n.step[at + NUMBER]
    tokens, each = n.count[n.step[at + OUT_WIDTH]], width // heads
    share, values = n.step[at + BIAS], n.step[at + Y] + width
    root = np.sqrt(np.float32(each))
    for r in range(rows):
        x, out = n.step[at + X] + r * width, n.step[at + OUT] + r * width
        for f in range(width):
            n.memory[out + f] = np.float32(0.0)
        for head in range(heads):
            first = head * each
            for t in range(tokens):
                n.memory[share + t] = np.float32(0.0)
            for f in range(first, first + each):
                asked, key = n.memory[x + f] / root, n.step[at + WEIGHT] + f * tokens
                for t in range(tokens):
                    n.memory[share + t] += asked * n.memory[key + t]
            _softmax(n, share, tokens)
            for t in range(tokens):
                weight, value = n.memory[share + t], values + t * 2 * width
                for f in range(first, first + each):
                    n.memory[out + f] += weight * n.memory[value + f]


@kernel
def _softmax(n: NetworkProgram, at: int, tokens: int) -> None:
    """Softmax over the tokens: the hosts, after them the bins, and after these the running jobs. Unused ones get 0."""
    highest = np.float32(-np.inf)
    first_running = n.size.hosts + LOOKAHEAD_BINS
    for t in range(tokens):
        present = np.float32(1.0)
        if t < n.size.hosts:
            present = n.memory[n.size.hosts_at + t * n.size.host_width]
        elif t >= first_running:
            present = n.memory[n.size.running_at + (t - first_running) * n.size.running_width]
        if present == np.float32(0.0):
            n.memory[at + t] = np.float32(-np.inf)
        highest = max(highest, n.memory[at + t])
    total = np.float32(0.0)
    for t in range(tokens):
        n.memory[at + t] = np.exp(n.memory[at + t] - highest)
        total += n.memory[at + t]
    for t in range(tokens):
        n.memory[at + t] /= total
