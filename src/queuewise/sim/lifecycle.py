"""The life of a job: arrive, start, finish."""

from __future__ import annotations

import numpy as np

from queuewise.sim.compilation import inline, kernel
from queuewise.sim.events import push_event
from queuewise.sim.machine import give
from queuewise.sim.queue import dequeue, enqueue
from queuewise.sim.reserve import book_gpus, unbook_gpus
from queuewise.sim.schedule import DONE, QUEUED, REJECTED, RUNNING
from queuewise.sim.state import (
    BACKFILL,
    DISPATCH,
    DYNAMIC,
    EARLY_ENDS,
    NO_BACKFILL,
    NOW,
    PIECES,
    PLACED,
    REORDER,
    RUNNING_JOBS,
    STARTS,
    TRACK_FREE_TIMES,
    Machine,
    State,
    World,
)


@inline
def arrive(w: World, s: State, j: int) -> None:
    if w.job_class[j] < 0:
        s.status[j] = REJECTED
    else:
        s.status[j] = QUEUED
        enqueue(w, s, j)
        _note_arrival(w, s, j)


@inline
def _note_arrival(w: World, s: State, j: int) -> None:
    """Say what the next pass over the queue has to look at."""
    q = w.class_queue[w.job_class[j]]
    head = s.head[q]
    if head < 0 or w.policy[DYNAMIC]:
        s.dirty[q] = 1
    elif w.policy[DISPATCH] == REORDER and w.rank[j] < w.rank[head]:
        s.head[q] = -1
        s.dirty[q] = 1
    elif w.policy[BACKFILL] != NO_BACKFILL:
        s.dirty[q] |= s.newcomer[q] >= 0  # two at once need a full pass
        s.newcomer[q] = j


@kernel
def start_placed(w: World, s: State, j: int, factor: float) -> None:
    """Start job j, whose gang was just placed (State.place_*)."""
    c = w.job_class[j]
    now = s.clock[NOW]
    dequeue(w, s, j)
    s.status[j] = RUNNING
    s.start[j] = now
    s.end[j] = now + w.runtime[j] * factor
    s.expected[j] = now + w.estimate[j] * factor
    first = s.count[PIECES]
    number = s.count[PLACED]
    for k in range(number):
        s.piece_job[first + k] = j
        s.piece_node[first + k] = s.place_node[k]
        s.piece_tasks[first + k] = s.place_tasks[k]
        s.piece_gpus[first + k] = s.place_gpus[k]
        s.piece_start[first + k] = now
        s.piece_end[first + k] = np.inf
        if w.policy[TRACK_FREE_TIMES]:
            book_gpus(w, s, s.place_node[k], s.place_tasks[k] * w.class_gpus[c], s.expected[j])
    s.first_piece[j] = first
    s.num_pieces[j] = number
    s.count[PIECES] = first + number
    s.running_slot[j] = s.count[RUNNING_JOBS]
    s.running[s.count[RUNNING_JOBS]] = j
    s.count[RUNNING_JOBS] += 1
    s.count[STARTS] += 1
    push_event(s, s.end[j], j)


@kernel
def finish(w: World, m: Machine, s: State, j: int) -> None:
    """Job j has ended: give back what it held."""
    c = w.job_class[j]
    now = s.clock[NOW]
    s.status[j] = DONE
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        give(w, m, c, s.piece_node[k], s.piece_tasks[k], s.piece_gpus[k])
        s.piece_end[k] = now
        if w.policy[TRACK_FREE_TIMES]:
            unbook_gpus(w, s, s.piece_node[k], s.piece_tasks[k] * w.class_gpus[c], s.expected[j])
    if s.expected[j] > now:
        s.count[EARLY_ENDS] += 1
    s.dirty[w.class_queue[c]] = 1
    s.count[RUNNING_JOBS] -= 1
    last = s.running[s.count[RUNNING_JOBS]]
    s.running[s.running_slot[j]] = last
    s.running_slot[last] = s.running_slot[j]
