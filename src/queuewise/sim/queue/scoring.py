"""The scores of dynamic orders, updated before each pass over the queue."""

from __future__ import annotations

import numpy as np

from queuewise.sim import queue
from queuewise.sim.core.compilation import kernel
from queuewise.sim.core.machine import WHOLE
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.queue.fair_orders import score_fairly


@kernel
def _update_outlook(w: World, m: Machine, s: State, row: int) -> None:
    """Update what a scoring function may know about the cluster, in State.outlook from `row` on.

    The totals never change.
    """
    milli = 0
    cpu = 0
    mem = 0
    for n in range(w.sizes.num_nodes):
        milli += m.free_milli[n]
        cpu += m.free_cpu[n]
        mem += m.free_mem[n]
    s.outlook[row + queue.FREE_GPUS] = milli / WHOLE
    s.outlook[row + queue.FREE_CORES] = cpu / 1000 if s.outlook[row + queue.CORES] < np.inf else np.inf
    s.outlook[row + queue.FREE_MEM_MIB] = mem if s.outlook[row + queue.MEM_MIB] < np.inf else np.inf
    s.outlook[row + queue.RUNNING_NOW] = s.count.running_jobs


@kernel
def score_pending(w: World, m: Machine, s: State, scorer, second_scorer) -> None:  # type: ignore[no-untyped-def]
    """Score all waiting jobs by each order. A score has the position of its job in State.pending."""
    number = s.count.pending_jobs
    num_jobs = w.sizes.num_jobs
    facts = view(w.facts, num_jobs)
    users = view(s.users, w.sizes.num_users * queue.USER_SIZE if w.policy.reads_users else 0)
    pending = view(s.pending, number)
    row = w.sizes.outlook_row
    outlook = view(s.outlook, 2 * row)
    params = view(w.params, queue.PARAMS_SIZE)
    second_params = view(w.second_params, queue.PARAMS_SIZE)
    if w.policy.reads_cluster:
        _update_outlook(w, m, s, 0)
        _update_outlook(w, m, s, row)
    s.count.user_calls += 1
    if w.policy.scores_fairly and w.scored_by[0] >= queue.FAIRSHARE:
        score_fairly(w, s, 0, s.score)
    elif w.scored_by[0]:
        scorer(facts, pending, number, s.clock.now, outlook[:row], users, params, view(s.score, number))
    else:
        for slot in range(number):
            s.score[slot] = w.fixed_score[s.pending[slot]]
    if w.policy.second_order:
        if w.policy.scores_fairly and w.scored_by[1] >= queue.FAIRSHARE:
            score_fairly(w, s, 1, s.second_score)
        elif w.scored_by[1]:
            others = view(w.second_facts if w.policy.second_facts else w.facts, num_jobs)
            second_scorer(others, pending, number, s.clock.now, outlook[row:], users, second_params, view(s.second_score, number))
        else:
            for slot in range(number):
                s.second_score[slot] = w.fixed_score[num_jobs + s.pending[slot]]
    s.count.user_calls += 1
