"""When nodes slept and woke up, derived from the pieces of a schedule by the rule in docs/simulator.md, "Energy".

Without `sleep_after_s` no node sleeps, and every run starts to use its resources when it is placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.schedule import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SleepPeriods:
    """All sleep periods, sorted by node and time, and when each run started to use its resources."""

    node: NDArray[np.int64]  # [S]
    start: Floats  # [S]
    end: Floats  # [S] when the node was woken, inf if never
    piece_ready: Floats  # [P] when all nodes of the piece's run were awake; at most the end of the piece


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
    """For one node and its pieces, sorted by start: when it was awake for each piece, and its sleep periods."""
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
    """[P] the latest time among all pieces of the same run."""
    columns = (schedule.piece_end, schedule.piece_start, schedule.piece_job)
    order = np.lexsort(columns)
    if not len(order):
        return times
    differs = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    opens = np.flatnonzero(np.concatenate(([True], differs)))
    latest = np.empty(len(times))
    latest[order] = np.repeat(np.maximum.reduceat(times[order], opens), np.diff(np.append(opens, len(order))))
    return latest
