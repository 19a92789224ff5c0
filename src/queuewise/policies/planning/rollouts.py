"""Rollouts: compiled replays of what is known now under one policy, from one state, many at a time.

The tables hold few jobs: those that run, those that wait, and those that are expected to come. They are laid out once per
member. What changes lies in one block of memory, which is set back before each rollout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.policies.planning.futures import Expected
from queuewise.policies.planning.members import Member, part_of_jobs
from queuewise.sim.core.blocks import PIECE_COLUMNS, SCRATCH, into_one_block
from queuewise.sim.core.compilation import JIT_DISABLED, address_of, caller_by_address, entry
from queuewise.sim.core.engine import REPLAY_ARGUMENTS, compiled_replay
from queuewise.sim.core.initial import initial_state
from queuewise.sim.core.layout import Pools
from queuewise.sim.core.resume import resume
from queuewise.sim.core.schedule import NEVER, QUEUED, RUNNING
from queuewise.sim.core.state import State, World, as_state, as_world
from queuewise.sim.core.stepwise import START, START_OVERDUE, act
from queuewise.sim.core.tables import addresses_of
from queuewise.sim.queue import FACTS, Records
from queuewise.workload.dependencies import NO_DEPENDENCIES
from queuewise.workload.jobs import Floats, Workload

CAPACITIES = (128, 512, 2048)  # jobs of a rollout: tables of these sizes are made when they are needed
MOST_QUEUED = 1024  # waiting jobs that a rollout knows, the first in order of submission
AS_USUAL, NO_PASS = -1, -2  # instead of a job that starts first: the policy decides at once; nothing starts before the next event

_INTS, _FLOATS = types.int64[::1], types.float64[::1]
RESUME_ARGUMENTS = (_INTS, _INTS, _INTS, _INTS, _FLOATS, _INTS, _INTS, _FLOATS, _INTS, _FLOATS)
ACT_ARGUMENTS = (_INTS, _INTS, _INTS, _INTS, types.int64, types.int64, _INTS, _INTS, _INTS)
_replay = caller_by_address(types.void(*REPLAY_ARGUMENTS))
_resume = caller_by_address(types.void(*RESUME_ARGUMENTS))
_act = caller_by_address(types.boolean(*ACT_ARGUMENTS))


@entry
def roll_out(  # type: ignore[no-untyped-def]
    addresses, world, machine, spare, state, memory, template, now: float, running, begins, queued, first_jobs, counted,
    scorer, second_scorer, holder, waits,
) -> None:  # fmt: skip
    """Replay from one state once for each of first_jobs, which starts before the policy decides (AS_USUAL, NO_PASS).

    waits[i] is the mean wait of the jobs from counted[0] to counted[1], inf if the first job cannot start.
    """
    w = as_world(world)
    s = as_state(state)
    nobody, never = np.zeros(0, np.int64), np.zeros(0)
    for i in range(len(first_jobs)):
        memory[:] = template
        _resume(addresses[1], world, machine, state, running, begins, queued, nobody, never, nobody, never)
        if w.policy.bounds_waits != 0:
            _act(addresses[2], world, machine, spare, state, START_OVERDUE, 0, nobody, nobody, nobody)
        j = first_jobs[i]
        if j >= 0 and not _act(addresses[2], world, machine, spare, state, START, j, nobody, nobody, nobody):
            waits[i] = np.inf
            continue
        if j != NO_PASS:
            s.count.log_full = 1  # a pass is due: the replay begins with it
        _replay(addresses[0], world, machine, spare, state, scorer, second_scorer, holder)
        total = 0.0
        for job in range(counted[0], counted[1]):
            total += s.start[job] - w.submit[job]
        waits[i] = total / max(counted[1] - counted[0], 1)


class Rollouts:
    """Rollouts of one workload under one member."""

    def __init__(self, member: Member, workload: Workload, cluster: Cluster) -> None:
        self._make = partial(_SizedRollouts, member, workload, cluster)
        self._by_capacity: dict[int, _SizedRollouts] = {}

    def run(self, now: Now, expected: Expected, first_jobs: NDArray[np.int64]) -> Floats:
        """The mean wait of the jobs that wait and are to come, for each of first_jobs (positions in now.queued, or AS_USUAL, NO_PASS)."""
        jobs = len(now.running) + len(now.queued) + len(expected.coming)
        capacity = next((size for size in CAPACITIES if size >= jobs), jobs)
        if capacity not in self._by_capacity:
            self._by_capacity[capacity] = self._make(capacity)
        return self._by_capacity[capacity].run(now, expected, first_jobs)


class _SizedRollouts:
    """Rollouts of at most so many jobs."""

    def __init__(self, member: Member, workload: Workload, cluster: Cluster, capacity: int) -> None:
        self._member = member
        self._whole = member.layout.world
        rows = np.zeros(capacity, World.rows["job"])
        sizes, policy = self._whole.sizes.copy(), self._whole.policy.copy()
        sizes.num_jobs = capacity
        self.world = self._whole.replace(
            sizes=sizes, policy=policy, submit=np.full(capacity, np.inf), runtime=rows["runtime"], estimate=rows["estimate"],
            job_class=rows["job_class"], fixed_score=np.zeros(2 * capacity), facts=_records(capacity),
            second_facts=_records(capacity),
        )  # fmt: skip
        state = initial_state(
            workload, cluster, member.rules, member.layout.classes, Pools.of(cluster), member.layout.trees, self.world, NO_DEPENDENCIES
        )
        tables = member.empty, member.empty.clone(), state
        self._memory, (self._machine, self._spare, self._state) = into_one_block(tables, (*SCRATCH, *PIECE_COLUMNS))
        self._empty = self._memory.copy()
        self._tables = [addresses_of(table) for table in (self.world, self._machine, self._spare, self._state)]
        self._roll_out = compiled_rollouts()
        self._called = compiled_replay(self.world), resume, act
        self._addresses = np.array([address_of(one) for one in self._called], np.int64)
        self._functions = member.functions

    def run(self, now: Now, expected: Expected, first_jobs: NDArray[np.int64]) -> Floats:
        begins, template = self._prepare(now, expected)
        num, queued = len(now.running), len(now.queued)
        counted = np.array([num, num + queued + len(expected.coming)], np.int64)
        waits = np.empty(len(first_jobs))
        at = np.where(first_jobs >= 0, first_jobs + num, first_jobs)
        tables = self._tables, self._memory, template
        self._roll_out(
            self._addresses, *tables[0], *tables[1:], now.time, np.arange(num), begins, np.arange(num, num + queued), at, counted,
            *self._functions, waits,
        )  # fmt: skip
        return waits

    def _prepare(self, now: Now, expected: Expected) -> tuple[Floats, NDArray[np.uint8]]:
        """Write the jobs and the state of the machine into the tables."""
        known = np.concatenate([now.running, now.queued])
        rows = np.concatenate([known, expected.coming])
        num, total = len(now.running), len(rows)
        world, whole, state = self.world, self._whole, self._state
        world.sizes.num_jobs = total
        world.submit[:total] = np.concatenate([whole.submit[known], expected.coming_submit])
        world.runtime[:total] = np.concatenate([expected.runtime, expected.coming_runtime])
        world.estimate[:total], world.job_class[:total] = whole.estimate[rows], whole.job_class[rows]
        self._set_scores(rows, len(known), total, expected)
        self._memory[:] = self._empty
        state.clock.now = now.time
        state.count.arrived, state.count.starts = len(known), now.starts
        state.status[:num], state.status[num : len(known)] = RUNNING, QUEUED
        state.start[:num], state.start[num:total] = now.begins, NEVER
        state.expected[:num] = now.expected
        state.num_pieces[:num] = now.num_pieces
        state.first_piece[:num] = np.cumsum(now.num_pieces) - now.num_pieces
        pieces = len(now.piece_node)
        state.piece_job[:pieces] = np.repeat(np.arange(num), now.num_pieces)
        state.piece_node[:pieces], state.piece_tasks[:pieces], state.piece_gpus[:pieces] = now.piece_node, now.piece_tasks, now.piece_gpus
        state.count.pieces = pieces
        return now.begins, self._memory.copy()

    def _set_scores(self, rows: NDArray[np.int64], known: int, total: int, expected: Expected) -> None:
        """Scores of known jobs are those of the replay; jobs to come are scored as of the time they are expected."""
        world, whole, jobs = self.world, self._whole, len(self._whole.submit)
        scores = self._member.scores_of(part_of_jobs(self._member.jobs, rows[known:], expected.coming_submit)) if total > known else None
        for order in range(2):
            fixed = world.fixed_score[order * total : (order + 1) * total]
            fixed[:known] = whole.fixed_score[order * jobs + rows[:known]]
            if scores is not None:
                fixed[known:] = scores[order]
        for mine, its in ((world.facts, whole.facts), (world.second_facts, whole.second_facts)):
            if len(its) == jobs:
                mine[:total] = its[rows]
                mine["submit"][:total] = world.submit[:total]
                mine["index"][:total] = np.arange(total)


def _records(number: int) -> Records:
    facts = np.zeros(number, FACTS)
    return facts.view(np.recarray) if JIT_DISABLED else facts


class Now:
    """The state of a replay, as far as rollouts begin with it."""

    def __init__(self, state: State, begins: Floats, queued: NDArray[np.int64]) -> None:
        running = np.sort(state.running[: state.count.running_jobs]).astype(np.int64)
        self.time, self.starts = float(state.clock.now), int(state.count.starts)
        self.running, self.queued = running, queued
        self.begins, self.expected = begins[running], state.expected[running]
        self.num_pieces = state.num_pieces[running].astype(np.int64)
        offsets = np.cumsum(self.num_pieces) - self.num_pieces
        at = np.repeat(state.first_piece[running] - offsets, self.num_pieces) + np.arange(int(self.num_pieces.sum()))
        self.piece_node, self.piece_tasks, self.piece_gpus = state.piece_node[at], state.piece_tasks[at], state.piece_gpus[at]

    @property
    def worked(self) -> Floats:
        """[known jobs] seconds that they have run."""
        return np.concatenate([self.time - self.begins, np.zeros(len(self.queued))])


_compiling = threading.Lock()


def compiled_rollouts() -> Callable[..., None]:
    """The entry, compiled or loaded from the cache on first use."""
    with _compiling:
        if not JIT_DISABLED and not roll_out.signatures:  # type: ignore[attr-defined]
            numbers, functions = types.uint8[::1], REPLAY_ARGUMENTS[4:]
            roll_out.compile(  # type: ignore[attr-defined]
                (_INTS, *4 * (_INTS,), numbers, numbers, types.float64, _INTS, _FLOATS, _INTS, _INTS, _INTS, *functions, _FLOATS)
            )
            roll_out.disable_compile()  # type: ignore[attr-defined]
            parts: list[tuple[Any, Any]] = [(resume, RESUME_ARGUMENTS), (act, ACT_ARGUMENTS)]
            for one, arguments in parts:
                if not one.signatures:
                    one.compile(arguments)
    return roll_out
