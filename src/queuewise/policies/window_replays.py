"""Replays of windows of a workload under many candidates: policies, and parameters of their score functions.

Each thread takes one window after the other. Policies whose layouts differ only in scores and parameters share one
layout of the window, and all candidates of a policy are replayed in one compiled call. The schedules are those of
`simulate`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import Cluster
from queuewise.policies.estimating import declare_part
from queuewise.policies.known import Jobs
from queuewise.policies.names import Policy, parse_policy, plays_apart
from queuewise.policies.replaying import known_estimates, known_jobs, named_accounts
from queuewise.policies.resuming import NodeNames, rules_after, start_from
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.user_code import explained, is_reference
from queuewise.policies.user_scores import job_score, node_score
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.engine import compiled_replay, limited_runtime, run_kernel, schedule_of
from queuewise.sim.core.replay_batch import ReplayBatch
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.schedule import DONE, KILLED, Schedule
from queuewise.sim.core.setup import Layout, lay_out
from queuewise.sim.core.state import State, World
from queuewise.sim.core.tables import I64
from queuewise.sim.core.watch import Watch, run_together
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Floats, Workload

TASKS_PER_THREAD = 2  # at least, so that no thread waits long for the last one


class Candidate(NamedTuple):
    number: int  # its row in the results
    policy: str
    params: tuple[float, ...] | None  # None: those of the policy itself


@dataclass(frozen=True, eq=False)
class WindowRows:
    """Jobs that are replayed together."""

    rows: NDArray[np.int64] | slice  # of the workload
    counted: slice  # which of them figures are about: with a snapshot, not those that come from it
    start: Snapshot | None = None  # None: an empty cluster


@dataclass(frozen=True, eq=False)
class ReplayOptions:
    """Arguments of `simulate`, for all replays."""

    dispatch: str
    estimates: str | Floats | Estimates  # [J] of the whole workload
    seed: int
    kill_at_limit: bool
    conditions: Conditions
    max_wait: str | None = None
    start: Snapshot | None = None

    def of_window(self, window: WindowRows) -> dict[str, Any]:
        """The arguments for a part of the workload."""
        known = Estimates(self.estimates) if isinstance(self.estimates, np.ndarray) else self.estimates
        return {**vars(self), "estimates": known if isinstance(known, str) else known.take(window.rows), "start": window.start}


def can_share_a_call(policy: str) -> bool:
    """Whether replays under the policy can be made in one compiled call. If not, each is a call of `simulate`."""
    return not JIT_DISABLED and not plays_apart(policy) and not parse_policy(policy).decides_in_python


def replay_windows(
    workload: Workload,
    cluster: Cluster,
    candidates: Sequence[Candidate],
    windows: Sequence[WindowRows],
    options: ReplayOptions,
    threads: int,
    note: Callable[[Candidate, int, Schedule], None],
    *,
    known_as_in_the_log: bool = False,
) -> None:
    """Replay all windows under all candidates, and call `note` with each candidate, the window's number and the schedule.

    What predictions know of a job goes by the window alone, or by the whole workload.
    """
    for policy in sorted({one.policy for one in candidates}):
        parse_policy(policy).compile()
    shares = min(-(-TASKS_PER_THREAD * threads // len(windows)), len(candidates)) if threads > 1 else 1
    tasks = iter([(number, candidates[share::shares]) for number in range(len(windows)) for share in range(shares)])
    stop = np.zeros(1, np.int64)

    def work(watch: Watch) -> None:
        for number, share in tasks:
            rows = windows[number].rows
            jobs = workload.take(rows)
            if known_as_in_the_log:
                declare_part(jobs, workload, np.arange(len(workload))[rows])
            for one, schedule in _WindowReplays(jobs, cluster, watch, stop, options.of_window(windows[number])).run(share):
                note(one, number, schedule)
            if stop[0]:
                return

    try:
        run_together([(partial(work, watch), watch) for watch in (Watch() for _ in range(threads))])
    except TimeoutError as error:
        with explained(parse_policy(error.args[0]).own):
            raise
    finally:
        stop[0] = 1


class _WindowReplays:
    """Replays of the same jobs. They end when `stop[0]` is set from another thread."""

    def __init__(self, workload: Workload, cluster: Cluster, watch: Watch, stop: I64, options: dict[str, Any]) -> None:
        self._workload, self._cluster = workload, cluster
        self._watch, self._stop = watch, stop
        self._options = ReplayOptions(**options)
        self._estimates, self._known = known_estimates(workload, cluster, self._options.estimates, self._options.seed)
        self._runtime, self._killed = limited_runtime(workload, self._options.kill_at_limit)
        self._batches: dict[Any, tuple[Rules, ReplayBatch]] = {}

    def run(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, Schedule]]:
        for policy, members in groupby(sorted(candidates, key=lambda one: one.policy), lambda one: one.policy):
            parsed = parse_policy(policy).bounded(self._options.max_wait)
            with explained(parsed.own):
                yield from self._run(parsed, list(members))

    def _run(self, policy: Policy, members: list[Candidate]) -> Iterator[tuple[Candidate, Schedule]]:
        options = self._options
        self._watch.policy = members[0].policy
        jobs = known_jobs(policy, self._workload, self._cluster, self._known, options.seed, options.conditions)
        rules = rules_after(options.start, policy.rules(jobs, options.dispatch, members[0].params))
        with_params = _params_setter(policy, rules, jobs, options.dispatch)
        batch = self._batch(rules, jobs)
        orders = [batch.layout.order_columns(with_params(one.params)) for one in members]
        self._watch.count, self._watch.time_limit_s = batch.count, rules.time_limit_s
        if options.start is None:
            replays = batch.run(rules, orders, self._stop)
        else:
            replays = self._run_from(options.start, rules, named_accounts(rules, jobs), batch.layout, orders)
        for one, (state, seconds) in zip(members, replays, strict=False):
            state.status[(state.status == DONE) & self._killed] = KILLED
            about = one.policy, self._estimates, seconds, options.conditions
            yield one, schedule_of(self._workload, self._cluster, rules, state, self._known.values, *about)

    def _run_from(
        self, start: Snapshot, rules: Rules, accounts: NodeNames, layout: Layout, orders: Sequence[Mapping[str, NDArray[Any]]]
    ) -> Iterator[tuple[State, float]]:
        """The same as ReplayBatch.run, one by one: queues depend on the order, so the snapshot is read for each."""
        for order in orders:
            if self._stop[0]:
                return
            began = time.perf_counter()
            world, machine = layout.world.clone().replace(**World.checked(**order)), layout.machine.clone()
            state = start_from(start, self._workload, accounts, world, machine, layout.state.clone())
            self._watch.count = state.count
            yield run_kernel(compiled_replay(world), rules, world, machine, state), time.perf_counter() - began

    def _batch(self, rules: Rules, jobs: Jobs) -> ReplayBatch:
        key = rules.shape, frozenset(jobs.history)
        if key not in self._batches:
            layout = lay_out(
                self._workload, self._cluster, rules, runtime=self._runtime, estimate=self._known.values, history=jobs.history,
                conditions=self._options.conditions,
            )  # fmt: skip
            self._batches[key] = rules, ReplayBatch(layout)
        return self._batches[key][1]


def _params_setter(policy: Policy, rules: Rules, jobs: Jobs, dispatch: str) -> Callable[[Sequence[float] | None], Rules]:
    """A function that returns the rules with other parameters of the policy's own functions."""
    first = job_score(policy.order) if is_reference(policy.order) else None
    second = job_score(policy.backfill_order) if rules.backfill_order is not None and is_reference(policy.backfill_order) else None
    third = node_score(policy.placement) if is_reference(policy.placement) else None
    takes_params = any(own.takes_params for own in policy.own)

    def with_params(params: Sequence[float] | None) -> Rules:
        if params is not None and not takes_params:
            return policy.rules(jobs, dispatch, params)  # an error
        order, other = rules.order, rules.backfill_order
        params = policy.params if params is None else params
        if first is not None:
            order = replace(first.make(params), estimate=order.estimate)
        if second is not None and other is not None:
            other = replace(second.make(params), estimate=other.estimate)
        of_nodes = rules.node_params if third is None else third.params_of(params)
        return replace(rules, order=order, backfill_order=other, node_params=of_nodes)

    return with_params
