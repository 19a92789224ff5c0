"""Start a simulation from a Snapshot instead of an empty cluster.

Jobs are found by their ids. Those that the snapshot does not mention must be submitted after it; those that it mentions
as waiting or running must be in the workload. What the snapshot does not say (because it was taken under another policy,
or of a real cluster) is as at the beginning of a replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError
from queuewise.policies.snapshot import JobId, Place, Progress, RunningJob, Snapshot, WaitingJob, mask_of
from queuewise.policies.snapshot_checks import EmptyNodes, check_fit, check_snapshot
from queuewise.policies.snapshot_taking import job_fields
from queuewise.sim import backfill, queue
from queuewise.sim.core.blocks import PIECE_COLUMNS
from queuewise.sim.core.resume import resume
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.schedule import DONE, KILLED, NEVER, QUEUED, REJECTED, RUNNING, STATUS_NAMES
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.tables import addresses_of
from queuewise.workload.jobs import Workload

NodeNames = Sequence[tuple[str | None, str | None]]


def start_from(snapshot: Snapshot, workload: Workload, accounts: NodeNames, world: World, machine: Machine, state: State) -> State:
    """Put the tables of a simulation that has not begun into the state of the snapshot; returns the state to use.

    `accounts` are the names of the account tree, none if the policy has no fair order.
    """
    return _Resumption(snapshot, workload, accounts, world, machine, state).state


def rules_after(snapshot: Snapshot | None, rules: Rules) -> Rules:
    """The rules, for an engine that knows of stopped jobs if there are some in the snapshot."""
    if snapshot is None or not any(one.progress.stops for one in snapshot.jobs):
        return rules
    return replace(rules, stops=max(rules.stops, 1))


class _Resumption:
    def __init__(self, snapshot: Snapshot, workload: Workload, accounts: NodeNames, world: World, machine: Machine, state: State) -> None:
        self.snapshot, self.world, self.machine, self.state = snapshot, world, machine, state
        self.rows = _rows_by_id(workload)
        self._check(workload)
        self._reject_impossible()
        self._set_counts()
        self._set_nodes()
        self._set_ended()
        self._make_room()
        for one in sorted(snapshot.jobs, key=lambda one: one.runs[0].start if one.runs else np.inf):
            self._log_earlier(one)
        for waiting in self.waiting:
            self._set_waiting(waiting)
        for running in snapshot.running:
            self._set_running(running)
        self._set_dependencies()
        self._set_learned()
        self._resume()
        self._set_usage(accounts)  # `resume` has charged the running jobs
        self._set_users(workload)

    def _row(self, job_id: JobId) -> int:
        return self.rows[job_id]

    def _check(self, workload: Workload) -> None:
        snapshot = self.snapshot
        missing = [job_id for job_id in snapshot.unfinished if job_id not in self.rows]
        if missing:
            raise InputError(
                f"job {missing[0]} of the snapshot is not in the workload; {len(missing)} such jobs",
                hint="take the jobs that wait or run in the snapshot along with the later ones: Snapshot.select",
            )
        if len(snapshot.nodes) != len(self.machine.closed):
            raise InputError(
                f"the snapshot has {len(snapshot.nodes)} nodes, the cluster {len(self.machine.closed)}", hint="use the same cluster"
            )
        known = {*snapshot.unfinished, *(one.job_id for one in snapshot.history.ended)}
        before = np.searchsorted(workload.submit, snapshot.now, side="right")
        unknown = [job_id for job_id, row in self.rows.items() if row < before and job_id not in known]
        if unknown:
            raise InputError(
                f"job {unknown[0]} was submitted before the snapshot and is not in it; {len(unknown)} such jobs",
                hint="take only the jobs of the snapshot and later ones: Snapshot.select",
            )
        check_snapshot(snapshot)
        nodes = EmptyNodes(self.world.node_gpus, self.machine.free_cpu, self.machine.free_mem, self.world.node_speed)
        check_fit(snapshot, workload, self.rows, job_fields(workload, self._of(snapshot.jobs)), nodes)
        rejected = [one.job.job_id for one in snapshot.running if self.world.job_class[self._row(one.job.job_id)] < 0]
        if rejected:
            raise InputError(f"job {rejected[0]} runs in the snapshot, but fits on no empty cluster", hint="use the same cluster")

    def _reject_impossible(self) -> None:
        """Jobs that fit on no empty cluster are rejected, as at their arrival in a replay; the others wait."""
        possible = {one.job.job_id: self.world.job_class[self._row(one.job.job_id)] >= 0 for one in self.snapshot.queue}
        self.waiting = [one for one in self.snapshot.queue if possible[one.job.job_id]]
        self.state.status[[self._row(job_id) for job_id, fits in possible.items() if not fits]] = REJECTED

    def _set_counts(self) -> None:
        count, now, history = self.state.count, self.snapshot.now, self.snapshot.history
        self.state.clock.now = now
        count.arrived = int(np.searchsorted(self.world.submit, now, side="right"))
        count.outages_seen = int(np.searchsorted(self.world.outage_time, now, side="right"))
        count.starts = history.starts
        count.decisions = history.decisions

    def _set_nodes(self) -> None:
        for node in self.snapshot.nodes:
            self.machine.closed[node.index] = node.state != "up"
            if self.world.policy.nodes_sleep:
                # If no time is known, the node counts as idle since now; while a job is placed there, it is not idle.
                busy = any(place.node == node.index for one in self.snapshot.running for place in one.places)
                idle = self.snapshot.now if node.idle_since is None else node.idle_since
                self.state.idle_since[node.index] = np.inf if busy else idle
                self.state.awake_at[node.index] = -np.inf if node.awake_at is None else node.awake_at

    def _set_ended(self) -> None:
        for one in self.snapshot.history.ended:
            if one.job_id in self.rows:
                j = self._row(one.job_id)
                status = STATUS_NAMES.index(one.status)
                self.state.status[j] = DONE if status == KILLED else status  # as in the engine, which kills nobody
                self.state.start[j] = NEVER if one.start is None else one.start
                self.state.end[j] = NEVER if one.end is None else one.end
                if self.world.policy.can_restart:
                    self.state.stops[j] = one.stops

    def _make_room(self) -> None:
        """Make the log of pieces longer by what is in it already."""
        extra = sum(len(run.places) for one in self.snapshot.jobs for run in one.runs)
        self.world.sizes.log_size += extra
        size = int(self.world.sizes.log_size)
        self.state = self.state.replace(**{name: np.empty(size, getattr(self.state, name).dtype) for name in PIECE_COLUMNS})

    def _log(self, j: int, start: float, end: float, places: tuple[Place, ...]) -> None:
        state = self.state
        first = int(state.count.pieces)
        for k, place in enumerate(places, start=first):
            state.piece_job[k], state.piece_node[k], state.piece_tasks[k] = j, place.node, place.tasks
            state.piece_gpus[k] = mask_of(place.gpus)
            state.piece_start[k], state.piece_end[k] = start, end
        state.first_piece[j], state.num_pieces[j] = first, len(places)
        state.count.pieces = first + len(places)

    def _log_earlier(self, one: WaitingJob | RunningJob) -> None:
        for run in one.runs:
            self._log(self._row(one.job.job_id), run.start, run.end, run.places)

    def _set_progress(self, j: int, progress: Progress, *, started: bool) -> None:
        state, world = self.state, self.world
        left = max(math.fsum((float(world.runtime[j]), -progress.done_s[0], -progress.done_s[1])), 0.0)
        estimate = progress.remaining_estimate_s
        if not world.policy.can_restart:
            return
        state.remaining[j] = left
        if estimate is not None and (started or progress.stops > 0):
            state.remaining_estimate[j] = estimate
        state.stops[j], state.worked[j], state.saved[j] = progress.stops, progress.worked_s, progress.saved
        state.attained[j], state.level[j] = progress.attained, min(progress.level, int(world.sizes.num_levels))

    def _set_waiting(self, one: WaitingJob) -> None:
        state, j = self.state, self._row(one.job.job_id)
        self._set_progress(j, one.progress, started=False)
        state.start[j] = NEVER if one.first_start is None else one.first_start
        if one.awaits_others:
            if self.world.policy.has_dependencies:
                state.awaits_others[j] = 1
        elif one.released_at is None:
            state.status[j] = QUEUED
        if one.held_until is not None and self.world.policy.holds:
            state.hold_until[j] = one.held_until
        if one.committed and self.world.policy.dispatch == queue.COMMIT:
            state.head[self.world.class_queue[self.world.job_class[j]]] = j
        if one.planned_start is not None and self.world.policy.remembers_plans:
            self._set_pin(j, one.planned_start, one.planned_places)

    def _set_pin(self, j: int, start: float, places: tuple[Place, ...]) -> None:
        state, first = self.state, int(self.world.pin_first[j])
        state.pin_start[j], state.pin_pieces[j] = start, len(places)
        for k, place in enumerate(places, start=first):
            state.pin_node[k], state.pin_tasks[k] = place.node, place.tasks
            state.pin_gpus[k] = mask_of(place.gpus)

    def _set_running(self, one: RunningJob) -> None:
        state, j = self.state, self._row(one.job.job_id)
        self._set_progress(j, one.progress, started=True)
        state.status[j] = RUNNING
        state.start[j] = one.first_start
        state.expected[j] = one.expected_end
        self._log(j, one.start, NEVER, one.places)

    def _set_dependencies(self) -> None:
        if not self.world.policy.has_dependencies:
            return
        for record in self.snapshot.history.dependencies:
            if record.job_id in self.rows:
                j = self._row(record.job_id)
                self.state.unmet[j] = record.unmet
                self.state.ready[j] = -np.inf if record.ready is None else record.ready
                self.state.never_ready[j] = record.never

    def _set_learned(self) -> None:
        state, world, history = self.state, self.world, self.snapshot.history
        if world.policy.learns_keys and history.learn_at is not None:
            known = len(history.services)
            self.state = state = state.replace(service=np.concatenate([history.services, np.zeros(len(state.service))]))
            state.count.services, state.count.learn_at = known, history.learn_at
            if len(history.level_keys) == len(state.level_key):
                state.level_key[:] = history.level_keys
        if world.policy.backfill == backfill.SLURM:
            state.clock.backfilled_at = -np.inf if history.backfilled_at is None else history.backfilled_at
            state.clock.looped_at = -np.inf if history.looped_at is None else history.looped_at
        row = int(world.sizes.outlook_row)
        for order, numbers in enumerate(history.memory):
            if numbers and len(numbers) == row - queue.OUTLOOK_SIZE:
                state.outlook[order * row + queue.OUTLOOK_SIZE : (order + 1) * row] = numbers

    def _resume(self) -> None:
        waiting, running = self.waiting, self.snapshot.running
        queued = [one for one in waiting if not one.awaits_others and one.released_at is None]
        promoted = [one for one in queued if one.promoted_at is not None and self.world.policy.promotes]
        released = [one for one in waiting if one.released_at is not None]
        resume(
            addresses_of(self.world), addresses_of(self.machine), addresses_of(self.state),
            self._of(running), np.array([one.begin for one in running], np.float64), self._of(queued),
            self._of(promoted), np.array([one.promoted_at for one in promoted], np.float64),
            self._of(released), np.array([one.released_at for one in released], np.float64),
        )  # fmt: skip

    def _of(self, jobs: Sequence[WaitingJob | RunningJob]) -> NDArray[np.int64]:
        return np.array([self._row(one.job.job_id) for one in jobs], np.int64)

    def _set_usage(self, accounts: NodeNames) -> None:
        found = {(one.account, one.user): one for one in self.snapshot.history.usage}
        for a, name in enumerate(accounts):
            if name in found:
                self.state.usage[a], self.state.usage_time[a] = found[name].amount, found[name].time

    def _set_users(self, workload: Workload) -> None:
        found = {one.user: one for one in self.snapshot.history.users} if self.world.policy.reads_users else {}
        for number, name in enumerate(workload.users[: int(self.world.sizes.num_users)]):
            if name in found:
                self.state.users[number * queue.USER_SIZE : (number + 1) * queue.USER_SIZE] = found[name][1:]


def _rows_by_id(workload: Workload) -> dict[JobId, int]:
    rows: dict[JobId, int] = {job_id: row for row, job_id in enumerate(workload.job_id.tolist())}
    if len(rows) < len(workload):
        raise InputError(
            "the workload has several jobs with the same id", hint="give each job its own, for example np.arange(len(workload))"
        )
    return rows
