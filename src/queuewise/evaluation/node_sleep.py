"""When nodes slept and woke, told from where jobs stood: the rule of docs/simulator.md (Energy), applied to the pieces of a schedule.

Without `sleep_after_s` nobody sleeps, and every run begins to use what it holds when it is placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.schedule import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SleepPeriods:
    """All sleeps, by node and time, and when runs came to use what they held."""

    node: NDArray[np.int64]  # [S]
    start: Floats  # [S]
    end: Floats  # [S] when it was woken, inf if never
    piece_ready: Floats  # [P] when all nodes of the piece's run were awake; not after the end of the piece


def node_sleeps(schedule: Schedule) -> SleepPeriods:
    if not schedule.power.nodes_sleep:
        return SleepPeriods(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), schedule.piece_start)
    order = np.lexsort((schedule.piece_start, schedule.piece_node))
    firsts = np.searchsorted(schedule.piece_node[order], np.arange(schedule.cluster.num_nodes + 1))
    found: list[tuple[int, float, float]] = []
    awake = np.empty(len(order))  # [P] when the piece's node was awake
    for n in range(schedule.cluster.num_nodes):
        pieces = order[firsts[n] : firsts[n + 1]]
        awake[pieces], sleeps = _follow(schedule, pieces)
        found += [(n, start, end) for start, end in sleeps]
    node, start, end = (np.array(column) for column in zip(*found, strict=True))
    ready = np.maximum(schedule.piece_start, _latest_of_run(schedule, awake))
    return SleepPeriods(node, start, end, np.minimum(ready, schedule.piece_end))


def _follow(schedule: Schedule, pieces: NDArray[np.int64]) -> tuple[Floats, list[tuple[float, float]]]:
    """One node, whose pieces are given by their starts: when it was awake for each of them, and its sleeps."""
    power = schedule.power
    start, busy_until = schedule.piece_start[pieces], np.maximum.accumulate(schedule.piece_end[pieces])
    after_a_gap = np.ones(len(pieces), bool)
    after_a_gap[1:] = start[1:] > busy_until[:-1]
    opens = np.flatnonzero(after_a_gap)
    closes = np.append(opens, len(pieces))[1:] - 1
    idle_since, awake_at = float(schedule.workload.submit[0]), -np.inf
    awake, sleeps = [], []
    for begin, end in zip(start[opens].tolist(), busy_until[closes].tolist(), strict=True):
        if begin > idle_since + power.sleep_after_s:
            sleeps.append((idle_since + power.sleep_after_s, begin))
            awake_at = begin + power.wake_s
        awake.append(awake_at)
        idle_since = max(end, awake_at)
    sleeps.append((idle_since + power.sleep_after_s, np.inf))
    return np.repeat(np.array(awake, np.float64), closes - opens + 1), sleeps


def _latest_of_run(schedule: Schedule, times: Floats) -> Floats:
    """[P] the greatest of the times of all pieces of the same run."""
    columns = (schedule.piece_end, schedule.piece_start, schedule.piece_job)
    order = np.lexsort(columns)
    if not len(order):
        return times
    differs = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    opens = np.flatnonzero(np.concatenate(([True], differs)))
    latest = np.empty(len(times))
    latest[order] = np.repeat(np.maximum.reduceat(times[order], opens), np.diff(np.append(opens, len(order))))
    return latest
