"""The interpreter of a network: compiled code that runs its layers on one observation and picks an action.

`program` translates a list of layers into a `Network` table: steps with the positions of their values in `memory` and
of their weights in `weight`. Steps of the state run once. Steps of choices run for blocks of legal actions, so the
memory needed does not depend on their number. All arithmetic is in float32, without fast-math: equal inputs give equal
scores on any machine with the same exponential function.
"""

from __future__ import annotations

import numpy as np

from queuewise.policies.networks.layers import ILLEGAL, LOOKAHEAD_BINS, NORM_EPSILON
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.table_types import view
from queuewise.sim.core.tables import F32, I8, I64, Scalars, Table, column, table_reader

BLOCK = 16  # choices that are scored together: their values and the weights of a layer fit into the nearest cache

# Codes of operations. COPY serves `concat`, `stack` and `column`, TRANSPOSE prepares the keys of `attend`.
LINEAR, WHOLE, RELU, NORM, ADD, MULTIPLY, SCALE, SHIFT, COPY, BIN, MOMENTS, PLACED, CHOOSE, TRANSPOSE, ATTEND = range(15)
# Kinds of rows; their present number is in Network.count
ONE_ROW, JOB_ROWS, HOST_ROWS, BIN_ROWS, TOKEN_ROWS, CHOICE_ROWS, NUM_KINDS = range(7)
# Words of a step: operation, kind of rows, first and second input, result (positions in memory), width of the first
# input and of the result, positions of weights and bias (-1: none), and a number whose meaning depends on the operation
OP, ROWS, X, Y, OUT, WIDTH, OUT_WIDTH, WEIGHT, BIAS, NUMBER, STEP_WORDS = range(11)
NONE = -1
BEST, LIKELY = range(2)  # how an action is picked


class NetworkSizes(Scalars, dtype=np.int64):
    length: int  # F
    units: int  # U
    window: int  # Q
    job_width: int
    hosts: int  # H
    host_width: int
    actions: int  # A
    outputs: int  # K
    pairs: int  # 1: a choice is a job and a host
    decision: int  # BEST or LIKELY
    score_steps: int  # steps of the state that scores need
    state_steps: int  # and those that only values need
    steps: int  # and those of choices
    by_choice: int  # 1: scores are computed per choice, 0: all at once
    scores_at: int  # positions in memory
    wait_at: int
    values_at: int


class Network(Table):
    size: NetworkSizes = column()
    step: I64 = column(meaning="the steps, STEP_WORDS words each")
    weight: F32 = column(meaning="all weights; those of a linear layer by input, then output")
    mean: F32 = column("length", meaning="of each number of an observation")
    scale: F32 = column("length")
    memory: F32 = column(meaning="the scaled observation and all values")
    count: I64 = column("kinds", initial=1, meaning="number of rows of each kind")
    chosen: I64 = column("block", initial=0, meaning="the choices of the present block")
    score: F32 = column("actions", "outputs", initial=ILLEGAL)
    means: F32 = column("actions", initial=ILLEGAL, meaning="means of distributions")
    value: F32 = column("outputs", initial=0.0)


as_network = table_reader(Network)


# --- scaling


@inline
def scale_span(row: F32, mean: F32, scale: F32, first: int, stop: int, out: F32) -> None:
    for f in range(first, stop):
        out[f] = (row[f] - mean[f]) * scale[f]


@inline
def clear_unused(out: F32, first: int, number: int, width: int) -> None:
    """Multiply each row of tokens by its first feature, which is 1 for used rows."""
    for at in range(first, first + number * width, width):
        present = out[at]
        if present != np.float32(1.0):
            for f in range(at, at + width):
                out[f] *= present


@inline
def used_slots(row: F32, first: int, slots: int, width: int, used: int) -> int:
    """How many slots from column `first` on hold a job, at least `used`. Jobs fill the slots in order."""
    while used < slots and row[first + used * width] != np.float32(0.0):
        used += 1
    return used


@kernel
def _see(n: Network, observation: F32) -> None:
    """Scale the observation into memory, without slots that hold no job."""
    length, width = n.size.length, n.size.job_width
    hosts_at = length - n.size.hosts * n.size.host_width
    jobs_at = hosts_at - n.size.window * width
    used = used_slots(observation, jobs_at, n.size.window, width, 1)
    mean, scale, memory = view(n.mean, length), view(n.scale, length), view(n.memory, length)
    scale_span(observation, mean, scale, 0, jobs_at + used * width, memory)
    scale_span(observation, mean, scale, hosts_at, length, memory)
    clear_unused(memory, jobs_at, used, width)
    clear_unused(memory, hosts_at, n.size.hosts, n.size.host_width)
    n.count[JOB_ROWS] = used


# --- layers


@kernel
def _accumulate(n: Network, x: int, inputs: int, weight: int, out: int, width: int) -> None:
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
def _dot(n: Network, x: int, inputs: int, weight: int) -> np.float32:
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
def _begin_row(n: Network, bias: int, out: int, width: int) -> None:
    for o in range(width):
        n.memory[out + o] = n.weight[bias + o] if bias != NONE else np.float32(0.0)


@kernel
def _linear(n: Network, at: int, rows: int) -> None:
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
def _whole(n: Network, at: int) -> None:
    """A linear layer over the observation, without slots that hold no job."""
    width, out, weight, bias = n.step[at + OUT_WIDTH], n.step[at + OUT], n.step[at + WEIGHT], n.step[at + BIAS]
    hosts_at = n.size.length - n.size.hosts * n.size.host_width
    before = hosts_at - (n.size.window - n.count[JOB_ROWS]) * n.size.job_width
    _begin_row(n, bias, out, width)
    _accumulate(n, 0, before, weight, out, width)
    _accumulate(n, hosts_at, n.size.length - hosts_at, weight + hosts_at * width, out, width)


@kernel
def _by_number(n: Network, at: int, rows: int) -> None:
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
def _norm(n: Network, at: int, rows: int) -> None:
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
def _bin(n: Network, at: int) -> None:
    """Bin i is the mean of the units from ⌊i·U/8⌋ to ⌈(i+1)·U/8⌉, which overlap if 8 does not divide U."""
    units = n.size.units
    for i in range(LOOKAHEAD_BINS):
        first, stop = i * units // LOOKAHEAD_BINS, ((i + 1) * units + LOOKAHEAD_BINS - 1) // LOOKAHEAD_BINS
        total = np.float32(0.0)
        for u in range(first, stop):
            total += n.memory[n.step[at + X] + u]
        n.memory[n.step[at + OUT] + i] = total / np.float32(stop - first)


@kernel
def _moments(n: Network, at: int, rows: int) -> None:
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
def _placed(n: Network, at: int, rows: int) -> None:
    width, out = n.step[at + WIDTH], n.step[at + OUT]
    for f in range(width):
        n.memory[out + f] = np.float32(0.0)
    for r in range(rows):
        x = n.step[at + X] + r * width
        if n.memory[x + n.step[at + NUMBER]] > np.float32(0.0):
            for f in range(width):
                n.memory[out + f] += n.memory[x + f]


@kernel
def _choose(n: Network, at: int, rows: int) -> None:
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
def _transpose(n: Network, at: int, rows: int) -> None:
    """Keys [T, 2W] become [W, T], so that a query is compared with all tokens at once."""
    width, wide, x, out = n.step[at + OUT_WIDTH], n.step[at + WIDTH], n.step[at + X], n.step[at + OUT]
    for r in range(rows):
        for f in range(width):
            n.memory[out + f * rows + r] = n.memory[x + r * wide + f]


@kernel
def _attend(n: Network, at: int, rows: int) -> None:
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
def _softmax(n: Network, at: int, tokens: int) -> None:
    """Softmax over the tokens: the hosts, of which unused ones get 0, and after them the bins."""
    hosts_at = n.size.length - n.size.hosts * n.size.host_width
    highest = np.float32(-np.inf)
    for t in range(tokens):
        if t < n.size.hosts and n.memory[hosts_at + t * n.size.host_width] == np.float32(0.0):
            n.memory[at + t] = np.float32(-np.inf)
        highest = max(highest, n.memory[at + t])
    total = np.float32(0.0)
    for t in range(tokens):
        n.memory[at + t] = np.exp(n.memory[at + t] - highest)
        total += n.memory[at + t]
    for t in range(tokens):
        n.memory[at + t] /= total


@kernel
def _run_steps(n: Network, first: int, stop: int) -> None:
    for at in range(first * STEP_WORDS, stop * STEP_WORDS, STEP_WORDS):
        op, rows = n.step[at + OP], n.count[n.step[at + ROWS]]
        if op == LINEAR:
            _linear(n, at, rows)
        elif op == WHOLE:
            _whole(n, at)
        elif op == NORM:
            _norm(n, at, rows)
        elif op == BIN:
            _bin(n, at)
        elif op == MOMENTS:
            _moments(n, at, rows)
        elif op == PLACED:
            _placed(n, at, rows)
        elif op == CHOOSE:
            _choose(n, at, rows)
        elif op == TRANSPOSE:
            _transpose(n, at, rows)
        elif op == ATTEND:
            _attend(n, at, rows)
        else:
            _by_number(n, at, rows)


# --- scores and decisions


@inline
def _is_legal(n: Network, choices: I8, may_wait: bool, a: int) -> bool:
    return choices[a] != 0 if a < n.size.actions - 1 else may_wait


@kernel
def _score_block(n: Network, number: int) -> None:
    """Score the choices of the present block."""
    outputs = n.size.outputs
    n.count[CHOICE_ROWS] = number
    _run_steps(n, n.size.state_steps, n.size.steps)
    for r in range(number):
        for o in range(outputs):
            n.score[n.chosen[r] * outputs + o] = n.memory[n.size.scores_at + r * outputs + o]


@kernel
def _score(n: Network, choices: I8, may_wait: bool, with_values: bool) -> None:
    """Write the scores of all actions and, if wanted, the values."""
    actions, outputs = n.size.actions, n.size.outputs
    _run_steps(n, 0, n.size.state_steps if with_values else n.size.score_steps)
    number = 0
    for a in range(actions):
        legal = _is_legal(n, choices, may_wait, a)
        at = n.size.wait_at if a == actions - 1 else NONE
        if not n.size.by_choice:
            at = n.size.scores_at + a * outputs
        for o in range(outputs):
            n.score[a * outputs + o] = n.memory[at + o] if legal and at != NONE else np.float32(ILLEGAL)
        if legal and at == NONE:
            n.chosen[number] = a
            number += 1
            if number == BLOCK:
                _score_block(n, number)
                number = 0
    if number > 0:
        _score_block(n, number)
    if with_values:
        for o in range(outputs):
            n.value[o] = n.memory[n.size.values_at + o]


@kernel
def _take_means(n: Network, choices: I8, may_wait: bool) -> None:
    """Means of distributions over K equally spaced points, in units of their range, which changes no decision.

    Their logits are those of the state plus those of the action minus the mean over the legal actions.
    """
    actions, outputs, logit = n.size.actions, n.size.outputs, 0  # the scaled observation is no longer needed
    shift = outputs
    for o in range(outputs):
        n.memory[shift + o] = np.float32(0.0)
    legal = 0
    for a in range(actions):
        if _is_legal(n, choices, may_wait, a):
            legal += 1
            for o in range(outputs):
                n.memory[shift + o] += n.score[a * outputs + o]
    for a in range(actions):
        n.means[a] = np.float32(ILLEGAL)
        if not _is_legal(n, choices, may_wait, a):
            continue
        highest = np.float32(-np.inf)
        for o in range(outputs):
            n.memory[logit + o] = n.value[o] + n.score[a * outputs + o] - n.memory[shift + o] / np.float32(legal)
            highest = max(highest, n.memory[logit + o])
        total, weighted = np.float32(0.0), np.float32(0.0)
        for o in range(outputs):
            chance = np.exp(n.memory[logit + o] - highest)
            total += chance
            weighted += chance * np.float32(o / max(outputs - 1, 1))
        n.means[a] = weighted / total


@kernel
def _pick(scores: F32, actions: int, decision: int) -> int:
    """BEST: the action with the highest score, the first of equal ones.

    LIKELY: scores are logits. The likeliest action; the wait only where it is likelier than all others together.
    """
    best = 0
    for a in range(actions if decision == BEST else actions - 1):
        if scores[a] > scores[best]:
            best = a
    if decision == BEST or actions == 1:
        return best
    total = np.float32(0.0)
    for a in range(actions - 1):
        total += np.exp(scores[a] - scores[best])
    return actions - 1 if scores[actions - 1] > scores[best] + np.log(total) else best


@entry
def decide(network, observation, choices, may_wait, with_values) -> int:  # type: ignore[no-untyped-def]
    """The action for one observation [F] as the environment gives it.

    `choices` says which actions but the wait are legal. Scores, and values if wanted, stay in the table.
    """
    n = as_network(network)
    distributions = n.size.outputs > 1
    _see(n, observation)
    _score(n, choices, may_wait, with_values or distributions)
    if distributions:
        _take_means(n, choices, may_wait)
        return _pick(n.means, n.size.actions, n.size.decision)
    return _pick(n.score, n.size.actions, n.size.decision)
