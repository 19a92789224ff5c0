"""Snapshots of a schedule at any instant, without replaying it: what windows of a log start with.

For schedules of rules that stop no job, on a cluster without outages: a job that has started runs until its end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED
from queuewise.policies.following import first_pieces
from queuewise.policies.snapshot import History, NodeRecord, RunningJob, Snapshot, WaitingJob
from queuewise.policies.snapshot_taking import bits_of, job_records, node_shapes, places_of
from queuewise.sim.core.schedule import KILLED, REJECTED, Schedule
from queuewise.workload.jobs import WHOLE_GPU

Rows = NDArray[np.int64]


class ScheduleSnapshots:
    def __init__(self, schedule: Schedule) -> None:
        if schedule.preemptions.any():
            raise ValueError("a schedule with stopped jobs cannot be cut at any instant")
        self._schedule = schedule
        bounds = first_pieces(schedule.piece_job, schedule.piece_start, schedule.piece_end)
        self._pieces = np.zeros((len(schedule.workload), 2), np.int64)  # [J] the first piece of each job, and the one after its last
        self._pieces[schedule.piece_job[bounds[:-1]]] = np.column_stack([bounds[:-1], bounds[1:]])

    def before(self, job: int) -> tuple[Rows, Snapshot]:
        """The rows of the jobs that wait or run just before a job is submitted, and the snapshot of that instant."""
        now = float(np.nextafter(self._schedule.workload.submit[job], -np.inf))
        waits, runs = self._unfinished(now)
        return np.sort(np.concatenate([waits, runs])), self._snapshot(now, waits, runs)

    def at(self, now: float) -> Snapshot:
        return self._snapshot(now, *self._unfinished(now))

    def _unfinished(self, now: float) -> tuple[Rows, Rows]:
        """The jobs that wait, in order of submission, and those that run, in the order of their starts."""
        s, arrived = self._schedule, self._arrived(now)
        started = s.start[:arrived] <= now
        runs = np.flatnonzero(started & (s.end[:arrived] > now))
        return np.flatnonzero(~started & (s.status[:arrived] != REJECTED)), runs[np.argsort(self._pieces[runs, 0])]

    def _arrived(self, now: float) -> int:
        return int(np.searchsorted(self._schedule.workload.submit, now, side="right"))

    def _snapshot(self, now: float, waits: Rows, runs: Rows) -> Snapshot:
        s = self._schedule
        return Snapshot(
            now=now,
            queue=tuple(WaitingJob(record) for record in job_records(s.workload, waits, s.estimate[waits])),
            running=self._running(runs),
            nodes=self._nodes(runs),
            history=History(starts=int((s.start[: self._arrived(now)] <= now).sum())),
            epoch=float(s.workload.epoch),
        )

    def _running(self, runs: Rows) -> tuple[RunningJob, ...]:
        s, start = self._schedule, self._schedule.start[runs]
        runtime = np.where(s.status[runs] == KILLED, s.workload.requested[runs], s.workload.runtime[runs])
        factor = np.divide(s.end[runs] - start, runtime, out=np.ones(len(runs)), where=runtime > 0)
        expected = start + s.estimate[runs] * factor
        records = job_records(s.workload, runs, s.estimate[runs])
        places = [places_of(s.piece_node[a:b], s.piece_tasks[a:b], s.piece_gpus[a:b]) for a, b in self._pieces[runs].tolist()]
        return tuple(
            RunningJob(record, began, began, end, place, first_start=began)
            for record, began, end, place in zip(records, start.tolist(), expected.tolist(), places, strict=True)
        )

    def _nodes(self, runs: Rows) -> tuple[NodeRecord, ...]:
        """What is free on each node, with what the running jobs hold taken away."""
        cluster, jobs, s = self._schedule.cluster, self._schedule.workload, self._schedule
        pieces = np.concatenate([np.arange(a, b) for a, b in self._pieces[runs].tolist()] or [np.zeros(0, np.int64)])
        job, node, tasks = s.piece_job[pieces], s.piece_node[pieces], s.piece_tasks[pieces]

        def free(held: NDArray[np.int64], demand: NDArray[np.int32]) -> list[int | None]:
            left = held - np.bincount(node, tasks * demand[job], cluster.num_nodes).astype(np.int64)
            return np.where(held == UNLIMITED, None, left).tolist()  # type: ignore[call-overload]

        used: list[dict[int, int]] = [{} for _ in range(cluster.num_nodes)]  # GPU -> milli in use
        milli = np.minimum(jobs.gpu_milli[job], WHOLE_GPU)
        for n, gpus, part in zip(node.tolist(), s.piece_gpus[pieces].tolist(), milli.tolist(), strict=True):
            for gpu in bits_of(gpus):
                used[n][gpu] = used[n].get(gpu, 0) + part
        free_cpu, free_mem = free(cluster.node_cpu_milli, jobs.cpu_milli), free(cluster.node_mem_mib, jobs.mem_mib)
        return tuple(
            NodeRecord(
                index=n,
                state="up",
                free_gpus=tuple(gpu for gpu in range(gpus) if gpu not in used[n]),
                shared_gpus={gpu: WHOLE_GPU - part for gpu, part in sorted(used[n].items()) if part < WHOLE_GPU},
                free_cpu_milli=free_cpu[n],
                free_mem_mib=free_mem[n],
                shape=shape,
            )
            for n, (gpus, shape) in enumerate(zip(cluster.node_gpus.tolist(), node_shapes(cluster), strict=True))
        )
