"""The table that the interpreter runs: a network as steps, weights and memory. `program` makes it from a list of layers."""

from __future__ import annotations

import numpy as np

from queuewise.policies.networks.layers import ILLEGAL
from queuewise.sim.core.tables import F32, I64, Scalars, Table, column, table_reader

BLOCK = 16  # choices that are scored together: their values and the weights of a layer fit into the nearest cache

# Codes of operations. COPY serves `concat`, `stack` and `column`, TRANSPOSE prepares the keys of `attend`.
LINEAR, WHOLE, RELU, NORM, ADD, MULTIPLY, SCALE, SHIFT, COPY, BIN, MOMENTS, PLACED, CHOOSE, TRANSPOSE, ATTEND = range(15)
# Kinds of rows; their present number is in NetworkProgram.count
ONE_ROW, JOB_ROWS, HOST_ROWS, RUNNING_ROWS, BIN_ROWS, CHOICE_ROWS, FIRST_STACK = range(7)  # then the kinds of stacks
# Words of a step: operation, kind of rows, first and second input, result (positions in memory), width of the first
# input and of the result, positions of weights and bias (-1: none), and a number whose meaning depends on the operation
OP, ROWS, X, Y, OUT, WIDTH, OUT_WIDTH, WEIGHT, BIAS, NUMBER, STEP_WORDS = range(11)
NONE = -1
BEST, LIKELY = range(2)  # how an action is picked


class ProgramSizes(Scalars, dtype=np.int64):
    length: int  # F
    units: int  # U
    window: int  # Q
    job_width: int
    hosts: int  # H
    host_width: int
    running: int  # P
    running_width: int
    jobs_at: int  # positions in an observation, and in memory
    hosts_at: int
    running_at: int
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


class NetworkProgram(Table):
    size: ProgramSizes = column()
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


as_program = table_reader(NetworkProgram)
