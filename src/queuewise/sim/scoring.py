"""The scores of dynamic queues, brought up to date before a pass over them."""

from __future__ import annotations

import numpy as np

from queuewise.sim.compilation import kernel
from queuewise.sim.fairness import score_fairly
from queuewise.sim.machine import WHOLE
from queuewise.sim.state import (
    CORES,
    FAIRSHARE,
    FREE_CORES,
    FREE_GPUS,
    FREE_MEM_MIB,
    LOOKS_AROUND,
    MEM_MIB,
    NOW,
    NUM_JOBS,
    NUM_NODES,
    OUTLOOK_ROW,
    PARAMS_SIZE,
    PENDING_JOBS,
    RUNNING_JOBS,
    RUNNING_NOW,
    SECOND_ORDER,
    USER_CALLS,
    Machine,
    State,
    World,
)
from queuewise.sim.tables import view


@kernel
def _look_around(w: World, m: Machine, s: State, row: int) -> None:
    """What a scoring function may know of the cluster, in the row of State.outlook that begins at `row`; the totals stand there already."""
    milli = 0
    cpu = 0
    mem = 0
    for n in range(w.sizes[NUM_NODES]):
        milli += m.free_milli[n]
        cpu += m.free_cpu[n]
        mem += m.free_mem[n]
    s.outlook[row + FREE_GPUS] = milli / WHOLE
    s.outlook[row + FREE_CORES] = cpu / 1000 if s.outlook[row + CORES] < np.inf else np.inf
    s.outlook[row + FREE_MEM_MIB] = mem if s.outlook[row + MEM_MIB] < np.inf else np.inf
    s.outlook[row + RUNNING_NOW] = s.count[RUNNING_JOBS]


@kernel
def score_pending(w: World, m: Machine, s: State, scorer, second_scorer) -> None:  # type: ignore[no-untyped-def]
    """Score all waiting jobs by each order, at their positions in State.pending."""
    number = s.count[PENDING_JOBS]
    num_jobs = w.sizes[NUM_JOBS]
    facts = view(w.facts, num_jobs)
    pending = view(s.pending, number)
    row = w.sizes[OUTLOOK_ROW]
    outlook = view(s.outlook, 2 * row)
    params = view(w.params, PARAMS_SIZE)
    second_params = view(w.second_params, PARAMS_SIZE)
    if w.policy[LOOKS_AROUND]:
        _look_around(w, m, s, 0)
        _look_around(w, m, s, row)
    s.count[USER_CALLS] += 1
    if w.scored_by[0] >= FAIRSHARE:
        score_fairly(w, s, 0, s.score)
    elif w.scored_by[0]:
        scorer(facts, pending, number, s.clock[NOW], outlook[:row], params, view(s.score, number))
    else:
        for slot in range(number):
            s.score[slot] = w.fixed_score[s.pending[slot]]
    if w.policy[SECOND_ORDER]:
        if w.scored_by[1] >= FAIRSHARE:
            score_fairly(w, s, 1, s.second_score)
        elif w.scored_by[1]:
            second_scorer(facts, pending, number, s.clock[NOW], outlook[row:], second_params, view(s.second_score, number))
        else:
            for slot in range(number):
                s.second_score[slot] = w.fixed_score[num_jobs + s.pending[slot]]
    s.count[USER_CALLS] += 1
