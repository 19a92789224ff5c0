"""Snapshots of a schedule at any instant, without replaying it: what windows of a log start with.

For schedules of rules that stop no job, on a cluster without outages: a job that has started runs until its end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED
from queuewise.policies.following import first_pieces
from queuewise.policies.snapshot import History, NodeRecord, RunningJob, Snapshot, WaitingJob
from queuewise.policies.snapshot_taking import job_record, places_of
from queuewise.sim.core.schedule import KILLED, REJECTED, Schedule

WHOLE = 1000  # milli of a GPU


class ScheduleSnapshots:
    def __init__(self, schedule: Schedule) -> None:
        if schedule.preemptions.any():
            raise ValueError("a schedule with stopped jobs cannot be cut at any instant")
        self._schedule = schedule
        bounds = first_pieces(schedule.piece_job, schedule.piece_start)
        runs = zip(schedule.piece_job[bounds[:-1]].tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        self._pieces = {job: slice(first, last) for job, first, last in runs}

    def before(self, job: int) -> Snapshot:
        """The state just before a job is submitted."""
        return self.at(float(np.nextafter(self._schedule.workload.submit[job], -np.inf)))

    def at(self, now: float) -> Snapshot:
        s = self._schedule
        submit = s.workload.submit
        arrived = int(np.searchsorted(submit, now, side="right"))
        runs = np.flatnonzero((s.start[:arrived] <= now) & (s.end[:arrived] > now))
        runs = runs[np.argsort([self._pieces[int(j)].start for j in runs], kind="stable")]
        waits = np.flatnonzero((s.start[:arrived] > now) & (s.status[:arrived] != REJECTED))
        return Snapshot(
            now=now,
            queue=tuple(WaitingJob(job_record(s.workload, j, float(s.estimate[j]))) for j in waits.tolist()),
            running=tuple(self._running(j) for j in runs.tolist()),
            nodes=self._nodes(runs),
            history=History(starts=int((s.start[:arrived] <= now).sum())),
            epoch=float(s.workload.epoch),
        )

    def _running(self, j: int) -> RunningJob:
        s, pieces = self._schedule, self._pieces[j]
        start = float(s.start[j])
        runtime = float((s.workload.requested if s.status[j] == KILLED else s.workload.runtime)[j])
        factor = (float(s.end[j]) - start) / runtime if runtime > 0 else 1.0
        places = places_of(s.piece_node[pieces], s.piece_tasks[pieces], s.piece_gpus[pieces])
        expected = start + float(s.estimate[j]) * factor
        return RunningJob(job_record(s.workload, j, float(s.estimate[j])), start, start, expected, places, first_start=start)

    def _nodes(self, runs: NDArray[np.int64]) -> tuple[NodeRecord, ...]:
        cluster, jobs, s = self._schedule.cluster, self._schedule.workload, self._schedule
        cpu, mem = cluster.node_cpu_milli.copy(), cluster.node_mem_mib.copy()
        used: list[dict[int, int]] = [{} for _ in range(cluster.num_nodes)]  # GPU -> milli in use
        for j in runs.tolist():
            for piece in range(self._pieces[j].start, self._pieces[j].stop):
                n, tasks = int(s.piece_node[piece]), int(s.piece_tasks[piece])
                cpu[n] -= tasks * jobs.cpu_milli[j] if cpu[n] != UNLIMITED else 0
                mem[n] -= tasks * jobs.mem_mib[j] if mem[n] != UNLIMITED else 0
                for gpu in (bit for bit in range(64) if int(s.piece_gpus[piece]) >> bit & 1):
                    used[n][gpu] = used[n].get(gpu, 0) + min(int(jobs.gpu_milli[j]), WHOLE)
        return tuple(
            NodeRecord(
                index=n,
                state="up",
                free_gpus=tuple(gpu for gpu in range(int(cluster.node_gpus[n])) if gpu not in used[n]),
                shared_gpus={gpu: WHOLE - milli for gpu, milli in sorted(used[n].items()) if milli < WHOLE},
                free_cpu_milli=None if cpu[n] == UNLIMITED else int(cpu[n]),
                free_mem_mib=None if mem[n] == UNLIMITED else int(mem[n]),
            )
            for n in range(cluster.num_nodes)
        )
