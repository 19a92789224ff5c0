"""Replays of found rules on a machine that is one pool of cores or of GPUs: the starts are the engine's, in a fifth of its time.

A search makes thousands of replays that differ in nothing but the numbers of a rule. Here everything that does not change during a replay
(logarithms, the polynomial, the share to hold back) is computed once per job. Nodes do not matter where all tasks are of one GPU and all
nodes alike. tests/differential/test_flat_replays.py compares the starts with the engine's. What this does not cover (tasks of several
GPUs, conditions, other backfills) the engine replays.
"""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.policies.estimating import estimate_on
from queuewise.policies.found_rules import FoundRule
from queuewise.policies.names import parse_bound
from queuewise.policies.window_replays import ReplayOptions
from queuewise.sim.backfill.outlived import GROWTH, LEAST_S
from queuewise.workload.jobs import ANY_PARTITION, WHOLE_GPU, Floats, Workload

SCHEDULING = re.compile(r"\+easy(?::(?P<second>sjf)(?::(?P<estimates>[a-z]+(?::[a-z0-9.]+)?))?)?(?:~(?P<bound>[0-9.]+[smhd]))?")
LOG_HOUR = math.log(3600.0)


@dataclass(frozen=True, eq=False)
class FlatJobs:
    """Columns [J] of jobs in the order of submission, and the size of the machine, in thousandths of cores or GPUs."""

    submit: Floats
    runtime: Floats
    width_milli: NDArray[np.int64]
    machine_milli: int


def is_flat(workload: Workload, cluster: Cluster, options: ReplayOptions) -> bool:
    """Whether jobs compete for nothing but the cores of one node, or for nothing but GPUs one by one."""
    return (
        (is_of_cores(workload, cluster) or is_of_gpus(workload, cluster))
        and options.dispatch == "reorder"
        and isinstance(options.estimates, str)
        and not options.kill_at_limit
        and options.conditions == PERFECT
        and options.start is None
        and options.max_wait is None
        and len(cluster.partitions) <= 1
        and bool((workload.partition == ANY_PARTITION).all())
        and bool((workload.min_tasks == workload.max_tasks).all())
    )


def is_of_cores(workload: Workload, cluster: Cluster) -> bool:
    asks = (workload.gpu_milli > 0).any() or ((workload.mem_mib > 0).any() and (cluster.node_mem_mib != UNLIMITED).any())
    return (
        cluster.num_nodes == 1
        and cluster.num_gpus == 0
        and cluster.node_cpu_milli[0] != UNLIMITED
        and not asks
        and bool((workload.cpu_milli > 0).all())
    )


def is_of_gpus(workload: Workload, cluster: Cluster) -> bool:
    """Whether every task needs one GPU and nothing else, whichever it is."""
    return (
        len(cluster.kinds) == 1
        and cluster.speed[0] == 1.0
        and bool((cluster.node_gpus > 0).all())
        and cluster.node_penalty == 0.0
        and cluster.rack_penalty == 0.0
        and bool((workload.gpu_milli == WHOLE_GPU).all())
        and not (workload.cpu_milli.any() or workload.mem_mib.any())
        and not any(workload.kind_sets)
    )


def can_replay(rule: FoundRule) -> bool:
    return SCHEDULING.fullmatch(rule.scheduling) is not None


class FlatReplays:
    """Replays of the same jobs under rules."""

    def __init__(self, workload: Workload, cluster: Cluster, options: ReplayOptions) -> None:
        self._workload, self._cluster, self._options = workload, cluster, options
        of_gpus = is_of_gpus(workload, cluster)
        width = (workload.gpu_milli if of_gpus else workload.cpu_milli).astype(np.int64) * workload.num_tasks
        machine = WHOLE_GPU * cluster.num_gpus if of_gpus else int(cluster.node_cpu_milli[0])
        self._jobs = FlatJobs(workload.submit, workload.runtime, width, machine)
        self._guessed = estimate_on(workload, cluster, str(options.estimates), options.seed).guessed
        self._known: dict[str, Floats] = {}

    def starts(self, rules: list[FoundRule], threads: int) -> list[Floats]:
        """[J] start of every job under each rule, inf for jobs that do not fit into the machine."""
        for rule in rules:  # in one thread, since predictions are kept
            self._columns(rule)
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self._starts, rules))

    def _starts(self, rule: FoundRule) -> Floats:
        scheduling = SCHEDULING.fullmatch(rule.scheduling)
        assert scheduling is not None
        bound = parse_bound(scheduling["bound"], "bound") if scheduling["bound"] else np.inf
        jobs, start = self._jobs, np.full(len(self._jobs.submit), np.inf)
        columns = self._columns(rule)
        _replay(
            jobs.submit, jobs.runtime, jobs.width_milli, jobs.machine_milli, *columns, self._guessed, scheduling["second"] is not None,
            rule.holds, np.array(rule.numbers), bound, start,
        )  # fmt: skip
        return start

    def _columns(self, rule: FoundRule) -> tuple[Floats, Floats, Floats]:
        """[J] estimates by which the order, the candidates and the reservations go."""
        scheduling = SCHEDULING.fullmatch(rule.scheduling)
        assert scheduling is not None
        return self._estimated(rule.order_estimates), self._estimated(scheduling["estimates"] or ""), self._estimated("")

    def _estimated(self, how: str) -> Floats:
        name = how or str(self._options.estimates)
        if name not in self._known:
            self._known[name] = estimate_on(self._workload, self._cluster, name, self._options.seed).values
        return self._known[name]


@njit(error_model="numpy", nogil=True)
def _replay(
    submit: Any, runtime: Any, width: Any, machine: int, estimate: Any, second: Any, reserved: Any, guessed: bool, by_second: bool,
    holds: bool, numbers: Any, bound: float, start: Any,
) -> None:  # fmt: skip
    """Replay all jobs; the rules are those of docs/simulator.md. `numbers` are those of found_rules.NUMBERS."""
    size = machine / 1000
    cores, run, fixed, reserve = _prepared(width, size, estimate, numbers)
    age_s = 3600.0 * math.exp(numbers[8])
    pending = np.empty(len(submit), np.int64)
    score = np.empty(len(submit))
    held = np.zeros(len(submit), np.bool_)
    ends, ending = np.empty(len(submit)), np.empty(len(submit), np.int64)  # of running jobs, the first to end last
    expected, expecting = np.empty(len(submit)), np.empty(len(submit), np.int64)  # the first expected to end first
    waiting, running, arrived, free = 0, 0, 0, machine
    overdue_at = np.inf
    while True:
        now = min(submit[arrived] if arrived < len(submit) else np.inf, ends[running - 1] if running else np.inf, overdue_at)
        if now == np.inf:
            return
        while running and ends[running - 1] == now:
            running -= 1
            free += width[ending[running]]
            _forget(expected, expecting, running, ending[running])
        while arrived < len(submit) and submit[arrived] == now:
            if width[arrived] <= machine:
                pending[waiting] = arrived
                waiting += 1
            arrived += 1
        if guessed:
            _expect_later_ends(expected, expecting, running, start, now)
        shadow, spare, head = np.nan, 0, -1  # of the blocked head, once it is known in this pass
        scored = False
        while waiting:
            if not scored:
                _judge(
                    pending, waiting, now, submit, cores, free / 1000, size, run, fixed, reserve, age_s, numbers, holds, bound, score, held
                )
                scored, shadow = True, np.nan
            released = False
            slot = -1
            if math.isnan(shadow):
                slot = _first(pending, waiting, score, held, submit, now, bound)
                if slot < 0:
                    if running or not holds:
                        break
                    slot, released = _first_held(pending, waiting, score), True
                elif width[pending[slot]] > free:
                    head = pending[slot]
                    shadow, spare = _shadow(expected, expecting, running, width, free, width[head], now)
                    slot = -1
            if slot < 0:
                slot = _candidate(
                    pending, waiting, score, held, second, by_second, head, width, free, now, reserved, shadow, spare
                )  # fmt: skip
                if slot < 0:
                    break
                j = pending[slot]
                if now + reserved[j] > shadow:
                    spare -= width[j]
            j = pending[slot]
            start[j] = now
            free -= width[j]
            _enter(ends, ending, running, now + runtime[j], j, True)
            _enter(expected, expecting, running, now + reserved[j], j, False)
            running += 1
            waiting -= 1
            pending[slot], score[slot], held[slot] = pending[waiting], score[waiting], held[waiting]
            if released:
                break
            scored = not holds
        overdue_at = np.inf
        if bound < np.inf:
            for slot in range(waiting):
                due = submit[pending[slot]] + bound
                if due > now:
                    overdue_at = min(overdue_at, due)


@njit(error_model="numpy", nogil=True)
def _prepared(width: Any, size: float, estimate: Any, n: Any) -> Any:
    """[J] cores; seconds, at least one; the part of the score that never changes; what of the machine to hold back before age counts."""
    cores, run, fixed, reserve = width / 1000, np.maximum(estimate, 1.0), np.empty(len(width)), np.empty(len(width))
    for j in range(len(width)):
        log_runtime = math.log(run[j]) - LOG_HOUR
        log_width = math.log(max(cores[j], 0.001))
        share = cores[j] / size
        polynomial = n[0] * log_runtime + n[1] * log_width + n[2] * log_runtime**2 + n[3] * log_width**2 + n[4] * log_runtime * log_width
        fixed[j] = polynomial + share * (n[5] + n[6] * log_runtime)
        wanted = n[9] + n[10] * log_runtime + n[15] * cores[j] / size
        reserve[j] = min(max(wanted, 0.0), 0.9)
    return cores, run, fixed, reserve


@njit(error_model="numpy", nogil=True)
def _judge(
    pending: Any, waiting: int, now: float, submit: Any, cores: Any, free: float, size: float, run: Any, fixed: Any, reserve: Any,
    age_s: float, n: Any, holds: bool, bound: float, score: Any, held: Any,
) -> None:  # fmt: skip
    """The scores of the queued jobs, and which of them are held."""
    age, blocked, blocked_share, hold_age, guard = n[7], n[12], n[13], n[11], n[14]
    hold_s = 3600.0 * n[16] if n[16] > 0.0 else np.inf
    for slot in range(waiting):
        j = pending[slot]
        waited = max(now - submit[j], 0.0)
        found = fixed[j] - age * math.log1p(waited / age_s) if age else fixed[j]
        left = free - cores[j]
        if left < 0.0:
            found = found + (blocked + blocked_share * (cores[j] - free) / size)
        score[slot] = found
        if not holds or now >= submit[j] + bound:
            held[slot] = False
        elif left < 0.0:
            held[slot] = waited < guard * run[j]
        else:
            kept = reserve[j]
            held[slot] = kept > 0.0 and waited < hold_s and left < kept / (1.0 + hold_age * waited / run[j]) * (size - cores[j])


@njit(error_model="numpy", nogil=True)
def _first(pending: Any, waiting: int, score: Any, held: Any, submit: Any, now: float, bound: float) -> int:
    """The slot of the oldest overdue job, or of the first in order that is not held; -1 if there is none."""
    best, oldest = -1, -1
    for slot in range(waiting):
        j = pending[slot]
        if bound < np.inf and now >= submit[j] + bound and (oldest < 0 or j < pending[oldest]):
            oldest = slot
        if not held[slot] and (best < 0 or score[slot] < score[best] or (score[slot] == score[best] and j < pending[best])):
            best = slot
    return oldest if oldest >= 0 else best


@njit(error_model="numpy", nogil=True)
def _first_held(pending: Any, waiting: int, score: Any) -> int:
    best = 0
    for slot in range(1, waiting):
        if score[slot] < score[best] or (score[slot] == score[best] and pending[slot] < pending[best]):
            best = slot
    return best


@njit(error_model="numpy", nogil=True)
def _shadow(expected: Any, expecting: Any, running: int, width: Any, free: int, wanted: int, now: float) -> Any:
    """When the blocked head will fit, and what it leaves free then."""
    k = 0
    while k < running:
        time = max(expected[k], now)
        while k < running and max(expected[k], now) == time:
            free += width[expecting[k]]
            k += 1
        if free >= wanted:
            return time, free - wanted
    return np.inf, free


@njit(error_model="numpy", nogil=True)
def _candidate(
    pending: Any, waiting: int, score: Any, held: Any, second: Any, by_second: bool, head: int, width: Any, free: int, now: float,
    reserved: Any, shadow: float, spare: int,
) -> int:  # fmt: skip
    """The slot of the first candidate that may start beside the head, -1 if there is none."""
    best, least = -1, np.inf
    for slot in range(waiting):
        j = pending[slot]
        if held[slot] or j == head or width[j] > free or (now + reserved[j] > shadow and width[j] > spare):
            continue
        key = second[j] if by_second else score[slot]
        if best < 0 or key < least or (key == least and j < pending[best]):
            best, least = slot, key
    return best


@njit(error_model="numpy", nogil=True)
def _enter(times: Any, jobs: Any, number: int, time: float, j: int, last_first: bool) -> None:
    """Insert a running job into a list in the order of times."""
    k = number
    while k > 0 and (times[k - 1] < time if last_first else times[k - 1] > time):
        times[k], jobs[k] = times[k - 1], jobs[k - 1]
        k -= 1
    times[k], jobs[k] = time, j


@njit(error_model="numpy", nogil=True)
def _expect_later_ends(expected: Any, expecting: Any, running: int, start: Any, now: float) -> None:
    """Put off the expected ends before now, as in sim/backfill/outlived.py."""
    while running and expected[0] < now:
        j, end = expecting[0], expected[0]
        while end < now:
            before, end = end, start[j] + max(GROWTH * (end - start[j]), LEAST_S)
            if end <= before:
                return
        _forget(expected, expecting, running - 1, j)
        _enter(expected, expecting, running - 1, end, j, False)


@njit(error_model="numpy", nogil=True)
def _forget(times: Any, jobs: Any, number: int, j: int) -> None:
    """Remove a job from a list that has `number` jobs without it."""
    k = 0
    while jobs[k] != j:
        k += 1
    for i in range(k, number):
        times[i], jobs[i] = times[i + 1], jobs[i + 1]
