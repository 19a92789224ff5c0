"""What an agent may do: the mask of the present state, written into a buffer the caller owns. Meaning: docs/mdp.md."""

from __future__ import annotations

import numpy as np

from queuewise.envs.features import NUM_CLASS_LIVE
from queuewise.envs.stopping import mark_stops
from queuewise.envs.table import (
    COMMIT,
    DISPATCH,
    GANG,
    HOST,
    HOST_SLOTS,
    I8,
    JOINT,
    LEGAL,
    NOBODY,
    PROBLEM,
    STOP_SLOTS,
    TASKS_LEFT,
    WAIT_ACTION,
    WINDOW,
    Play,
    Task,
)
from queuewise.envs.task import shown_jobs
from queuewise.sim.compilation import inline, kernel
from queuewise.sim.machine import slots_on
from queuewise.sim.state import ARRIVED, EVENTS, NUM_JOBS, NUM_NODES, Machine, State, World


@inline
def lies_ahead(w: World, s: State) -> bool:
    """Whether there is an event to wait for."""
    return s.count[EVENTS] > 0 or s.count[ARRIVED] < w.sizes[NUM_JOBS]


@kernel
def mark_legal(w: World, m: Machine, s: State, k: Task, p: Play, mask: I8) -> None:
    """Write which actions are legal: [Q+P+M+1] (job), [H+1] (host) or [Q+1 + Q*H] (joint: jobs, then hosts of each)."""
    if k.config[PROBLEM] == HOST:
        _mark_hosts(w, m, s, k, p, mask)
        return
    window = k.config[WINDOW]
    shown = shown_jobs(k, p)
    gang = p.number[GANG]
    some = 0
    for q in range(shown):
        legal = True
        if gang != NOBODY:
            legal = p.waiting[q] == gang
        elif k.config[DISPATCH] != COMMIT:
            legal = p.class_live[p.row_class[q] * NUM_CLASS_LIVE] > 0.0  # as just noted for the observation
        mask[q] = np.int8(legal)
        some += legal
    for q in range(shown, window):
        mask[q] = np.int8(0)
    if k.config[STOP_SLOTS] > 0:
        some += mark_stops(w, m, s, k, p, mask)
    may_wait = gang == NOBODY and lies_ahead(w, s) and (k.config[DISPATCH] != COMMIT or some == 0)
    waits = may_wait or some == 0  # something is always legal, also when the episode is over
    mask[k.config[WAIT_ACTION]] = np.int8(waits)
    p.number[LEGAL] = some + waits
    if k.config[PROBLEM] == JOINT:
        _mark_pairs(w, m, k, p, mask, shown)


@kernel
def _mark_hosts(w: World, m: Machine, s: State, k: Task, p: Play, mask: I8) -> None:
    hosts = k.config[HOST_SLOTS]
    gang = p.number[GANG]
    some = 0
    for n in range(hosts):
        legal = gang != NOBODY and n < w.sizes[NUM_NODES] and slots_on(w, m, w.job_class[gang], n) > 0
        mask[n] = np.int8(legal)
        some += legal
    untouched = gang == NOBODY or p.number[TASKS_LEFT] == w.class_tasks[w.job_class[gang]]
    waits = gang == NOBODY or (untouched and lies_ahead(w, s))
    mask[hosts] = np.int8(waits)
    p.number[LEGAL] = some + waits


@kernel
def _mark_pairs(w: World, m: Machine, k: Task, p: Play, mask: I8, shown: int) -> None:
    window, hosts = k.config[WINDOW], k.config[HOST_SLOTS]
    for q in range(window):
        at = window + 1 + q * hosts
        for n in range(hosts):
            mask[at + n] = np.int8(0)
        if q < shown and mask[q]:
            c = w.job_class[p.waiting[q]]
            for n in range(min(hosts, w.sizes[NUM_NODES])):
                mask[at + n] = np.int8(slots_on(w, m, c, n) > 0)
