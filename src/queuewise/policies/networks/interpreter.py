"""The interpreter of a network: compiled code that runs its layers on one observation and picks an action.

`program` translates a list of layers into a `NetworkProgram` table: steps with the positions of their values in
`memory` and of their weights in `weight`. Steps of the state run once. Steps of choices run for blocks of legal
actions, so the memory needed does not depend on their number. All arithmetic is in float32, without fast-math: equal
inputs give equal scores on any machine with the same exponential function.
"""

from __future__ import annotations

import numpy as np

from queuewise.policies.networks import layer_kernels as kernels
from queuewise.policies.networks import program_table as codes
from queuewise.policies.networks.layers import ILLEGAL
from queuewise.policies.networks.program_table import BLOCK, NONE, OP, ROWS, STEP_WORDS, NetworkProgram, as_program
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.tables import F32, I8


@kernel
def _run_steps(n: NetworkProgram, first: int, stop: int) -> None:
    for at in range(first * STEP_WORDS, stop * STEP_WORDS, STEP_WORDS):
        op, rows = n.step[at + OP], n.count[n.step[at + ROWS]]
        if op == codes.LINEAR:
            kernels.run_linear(n, at, rows)
        elif op == codes.WHOLE:
            kernels.run_whole(n, at)
        elif op == codes.NORM:
            kernels.run_norm(n, at, rows)
        elif op == codes.BIN:
            kernels.run_bin(n, at)
        elif op == codes.MOMENTS:
            kernels.run_moments(n, at, rows)
        elif op == codes.PLACED:
            kernels.run_placed(n, at, rows)
        elif op == codes.CHOOSE:
            kernels.run_choose(n, at, rows)
        elif op == codes.TRANSPOSE:
            kernels.run_transpose(n, at, rows)
        elif op == codes.ATTEND:
            kernels.run_attend(n, at, rows)
        else:
            kernels.run_by_number(n, at, rows)


# --- scores and decisions


@inline
def _is_legal(n: NetworkProgram, choices: I8, may_wait: bool, a: int) -> bool:
    return choices[a] != 0 if a < n.size.actions - 1 else may_wait


@kernel
def _score_block(n: NetworkProgram, number: int) -> None:
    """Score the choices of the present block."""
    outputs = n.size.outputs
    n.count[codes.CHOICE_ROWS] = number
    _run_steps(n, n.size.state_steps, n.size.steps)
    for r in range(number):
        for o in range(outputs):
            n.score[n.chosen[r] * outputs + o] = n.memory[n.size.scores_at + r * outputs + o]


@kernel
def _score(n: NetworkProgram, choices: I8, may_wait: bool, with_values: bool) -> None:
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
def _take_means(n: NetworkProgram, choices: I8, may_wait: bool) -> None:
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
    for a in range(actions if decision == codes.BEST else actions - 1):
        if scores[a] > scores[best]:
            best = a
    if decision == codes.BEST or actions == 1:
        return best
    total = np.float32(0.0)
    for a in range(actions - 1):
        total += np.exp(scores[a] - scores[best])
    return actions - 1 if scores[actions - 1] > scores[best] + np.log(total) else best


@entry
def decide(network, observation, choices, may_wait, with_values) -> int:  # type: ignore[no-untyped-def]
    """The action for one observation [F] as the environment gives it.

    `choices` says which actions but the wait are legal; a slot without a job is not. Scores, and values if wanted, stay
    in the table.
    """
    n = as_program(network)
    distributions = n.size.outputs > 1
    kernels.see(n, observation)
    _score(n, choices, may_wait, with_values or distributions)
    if distributions:
        _take_means(n, choices, may_wait)
        return _pick(n.means, n.size.actions, n.size.decision)
    return _pick(n.score, n.size.actions, n.size.decision)
