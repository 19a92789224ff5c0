"""Schedules with preemption, outages, sleep, a power cap, reservations, elastic jobs and conservative plans, made by hand.

The reference and the engine are both held to them. A schedule is the list of all runs, sorted: (job, start, end, nodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from queuewise.cluster.conditions import Conditions, Maintenance, Outage, Power, Preemption
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import WITH_SECOND_ORDER

QUEUED, DONE, REJECTED, KILLED, FAILED = 1, 3, 4, 5, 7
INF = float("inf")
PERFECT = Conditions()


@dataclass(frozen=True)
class HandCase:
    name: str
    policy: str
    cluster: Cluster
    workload: Workload
    runs: list[tuple[int, float, float, tuple[int, ...]]]
    conditions: Conditions = PERFECT
    status: tuple[int, ...] = ()  # all done if not given
    estimate: tuple[float, ...] = ()  # the truth if not given
    start: tuple[float, ...] = ()  # first starts, where they are not those of the first runs
    guessed: bool = False  # estimates are no limits

    @property
    def known(self) -> Any:
        return np.array(self.estimate or self.workload.runtime, dtype=np.float64)

    @property
    def expected_status(self) -> list[int]:
        return list(self.status or [DONE] * len(self.workload))


def gpu_nodes(*gpus: int) -> Cluster:
    return build("nodes", [NodeGroup(1, gpus=count, kind="V100-16") for count in gpus])


def tasks(*rows: tuple[float, float, int], gpus: tuple[int, ...] = (), priority: tuple[float, ...] = ()) -> Workload:
    """Jobs as (submit, runtime, tasks), a task being one GPU or as many as `gpus` says."""
    submit, runtime, num = (np.array(column) for column in zip(*rows, strict=True))
    milli = np.array(gpus or [1] * len(rows), dtype=np.int32) * 1000
    urgency = np.array(priority or [0.0] * len(rows), dtype=np.float64)
    return Workload(submit.astype(np.float64), runtime.astype(np.float64), num.astype(np.int32), milli, priority=urgency)


def costs(**values: Any) -> Conditions:
    return Conditions(preemption=Preemption(**values))


def outages(*rows: tuple[int, float, float, str], **values: Any) -> Conditions:
    return Conditions(outages=tuple(Outage(node=n, start=a, end=b, kind=kind) for n, a, b, kind in rows), **values)  # type: ignore[arg-type]


SRTF = [
    # At 2 job 1 (3 s) is shorter than the 8 s job 0 has left, at 3 job 2 (1 s) shorter than the 2 s of job 1. Then least rest first.
    HandCase("srtf", "srtf", gpu_nodes(1), tasks((0, 10, 1), (2, 3, 1), (3, 1, 1)),
             [(0, 0, 2, (0,)), (0, 6, 14, (0,)), (1, 2, 3, (0,)), (1, 4, 6, (0,)), (2, 3, 4, (0,))]),
    # Job 0 is stopped at 4 with 6 s left. On the same node nothing is transferred: it restarts at 7, works from 7 + (1 + 2) × 2 = 13 to 19.
    HandCase("srtf with costs", "srtf", gpu_nodes(1), tasks((0, 10, 1), (4, 3, 1)),
             [(0, 0, 4, (0,)), (0, 7, 19, (0,)), (1, 4, 7, (0,))],
             costs(checkpoint_s=0.5, checkpoint_per_gpu_s=0.5, restart_s=2, transfer_s=100, kind_factor={"V100-16": 2.0})),
    # A kill at 4 leaves the checkpoint at 3, 7 s left, and saves nothing: restart at 7, work from 7 + 2 × 2 = 11 to 18.
    HandCase("srtf that kills", "srtf", gpu_nodes(1), tasks((0, 10, 1), (4, 3, 1)),
             [(0, 0, 4, (0,)), (0, 7, 18, (0,)), (1, 4, 7, (0,))],
             costs(mode="kill", checkpoint_every_s=3, checkpoint_s=50, restart_s=2, kind_factor={"V100-16": 2.0})),
    # Job 2 needs both GPUs of node 1. Job 0 has the longest rest and goes first, but its GPU does not help and it is put back.
    HandCase("put back", "srtf", gpu_nodes(1, 2), tasks((0, 20, 1), (0, 10, 1), (1, 3, 1), gpus=(1, 2, 2)),
             [(0, 0, 20, (0,)), (1, 0, 1, (1,)), (1, 4, 13, (1,)), (2, 1, 4, (1,))]),
    # Job 0 may not be stopped before 5, and then is at once.
    HandCase("quantum", "srtf", gpu_nodes(1), tasks((0, 10, 1), (2, 1, 1)),
             [(0, 0, 5, (0,)), (0, 6, 11, (0,)), (1, 5, 6, (0,))], costs(quantum_s=5)),
    # At half the speed job 0 has done 2 of its 10 s at 4, so 7 s are shorter; they take 14.
    HandCase("slow kind", "srtf", build("slow", [NodeGroup(1, gpus=1, kind="T4")], speeds={"T4": 0.5}), tasks((0, 10, 1), (4, 7, 1)),
             [(0, 0, 4, (0,)), (0, 18, 34, (0,)), (1, 4, 18, (0,))]),
    # Restarts cost 5 s. Job 0 (10 s) is stopped at 1 with 9 left and again at 4, two seconds after its restart at 2 and so before it
    # works again (at 7): 9 are still left. At 5 it restarts, works from 10 to 19. Job 3 (9 s) arrives at 6 and is not shorter: the
    # overhead does not count.
    HandCase("stopped before it works", "srtf", gpu_nodes(1), tasks((0, 10, 1), (1, 1, 1), (4, 1, 1), (6, 9, 1)),
             [(0, 0, 1, (0,)), (0, 2, 4, (0,)), (0, 5, 19, (0,)), (1, 1, 2, (0,)), (2, 4, 5, (0,)), (3, 19, 28, (0,))], costs(restart_s=5)),
    # Job 0 outlives its estimate of 1 s. From then on nothing is shorter, so job 1 waits.
    HandCase("overdue", "srtf", gpu_nodes(1), tasks((0, 10, 1), (2, 1, 1)), [(0, 0, 10, (0,)), (1, 10, 11, (0,))], estimate=(1, 0.5)),
]  # fmt: skip

SERVICE = [
    # Job 0 has run for 4 seconds at 4 and must let job 1 go first, which ends before it has had as many.
    HandCase("las", "las:4", gpu_nodes(1), tasks((0, 10, 1), (1, 3, 1)), [(0, 0, 4, (0,)), (0, 7, 13, (0,)), (1, 4, 7, (0,))]),
    # In GPU-seconds the same service is reached at 2 on two GPUs. Job 1 takes one GPU, job 0 needs both.
    HandCase("las2d, gang", "las2d:4", gpu_nodes(2), tasks((0, 10, 2), (1, 3, 1)), [(0, 0, 2, (0,)), (0, 5, 13, (0,)), (1, 2, 5, (0,))]),
    # By time it is reached at 4 as before.
    HandCase("las, gang", "las:4", gpu_nodes(2), tasks((0, 10, 2), (1, 3, 1)), [(0, 0, 4, (0,)), (0, 7, 13, (0,)), (1, 4, 7, (0,))]),
    # Thresholds 2 4 8: job 0 to 2; job 1 to its second threshold (4 GPU-seconds, at 6); job 0 to its third (2 + 6 = 8, at 12);
    # job 1 has 6 s left and at its third threshold, 16, is no worse than job 0: it ends at 18.
    HandCase("las over several levels", "las:2", gpu_nodes(1), tasks((0, 10, 1), (0, 10, 1)),
             [(0, 0, 2, (0,)), (0, 6, 12, (0,)), (0, 18, 20, (0,)), (1, 2, 6, (0,)), (1, 12, 18, (0,))]),
    # Job 0 is demoted at 2, having worked 2 s: at 2 + 8 × 2 = 18 it is promoted and stops job 1, demoted at 4. At 20 it is demoted
    # again, as job 1 is: it ends at 22.
    HandCase("tiresias promotes", "tiresias:2", gpu_nodes(1), tasks((0, 6, 1), (1, 30, 1)),
             [(0, 0, 2, (0,)), (0, 18, 22, (0,)), (1, 2, 18, (0,)), (1, 22, 36, (0,))]),
    # Services 10 1 1: at 0 the index is 2/3 (two jobs for 1 + 1 + 1), after 1 GPU-second 1/9, so job 0 is stopped at 1 by job 1, and at 3
    # by job 2, which has had nothing.
    HandCase("gittins of all services", "gittins-oracle:1", gpu_nodes(1), tasks((0, 10, 1), (0.5, 1, 1), (3, 1, 1)),
             [(0, 0, 1, (0,)), (0, 2, 3, (0,)), (0, 4, 12, (0,)), (1, 1, 2, (0,)), (2, 3, 4, (0,))]),
    # Services 10 10 4: the index is 1/8 at 0 (3 jobs for 24), 1/7 at 1 (3 for 21), 1/6 at 2 (3 for 18) and at 4 (2 for 12), 1/2 at 8.
    # It grows: who has begun goes on, even against job 1, which comes at 1 with an index of 1/8.
    HandCase("gittins need not share", "gittins-oracle:1", gpu_nodes(1), tasks((0, 10, 1), (1, 4, 1), (1, 10, 1)),
             [(0, 0, 10, (0,)), (1, 10, 14, (0,)), (2, 14, 24, (0,))]),
    # All services are 10. Jobs 0 and 1 take turns as under las2d:1, with thresholds 1 2 4 8 16. When job 15 ends, at 160, 16 services are
    # known and the index grows from 1/10 at 0 to 1/2 at 8: job 16, begun at 160, is not stopped by job 17, which comes at 161.
    HandCase("gittins learns", "gittins:1", gpu_nodes(1),
             tasks((0, 10, 1), (1, 10, 1), *((10.0 * j, 10, 1) for j in range(2, 17)), (161, 10, 1)),
             [(0, 0, 1, (0,)), (0, 3, 6, (0,)), (0, 12, 18, (0,)), (1, 1, 3, (0,)), (1, 6, 12, (0,)), (1, 18, 20, (0,)),
              *((j, 10 * j, 10 * j + 10, (0,)) for j in range(2, 17)), (17, 170, 180, (0,))]),
]  # fmt: skip

URGENCY = [
    # Job 0 is the least urgent and the only one stopped.
    HandCase("priority", "priority-preempt", gpu_nodes(2), tasks((0, 10, 1), (0, 10, 1), (3, 4, 1), priority=(0, 1, 2)),
             [(0, 0, 3, (0,)), (0, 7, 14, (0,)), (1, 0, 10, (0,)), (2, 3, 7, (0,))]),
    # A gang of two needs both GPUs. Job 3 (as urgent as job 1) does not stop its equal.
    HandCase("priority of a gang", "priority-preempt", gpu_nodes(2),
             tasks((0, 10, 1), (0, 10, 1), (3, 4, 2), (8, 1, 1), priority=(0, 1, 2, 1)),
             [(0, 0, 3, (0,)), (0, 7, 8, (0,)), (0, 9, 15, (0,)), (1, 0, 3, (0,)), (1, 7, 14, (0,)), (2, 3, 7, (0,)), (3, 8, 9, (0,))]),
    # When the zero-length job 1 has left, job 0 would fit in the place of job 2, which has started at that very time: it waits for the next
    # decision, that of the arrival at 5.
    HandCase("no stop at the time of the start", "priority-preempt", gpu_nodes(1, 1),
             tasks((2, 1, 2), (2, 0, 1), (2, 10, 1), (5, 1, 1), priority=(1, 2, 0, -1)),
             [(0, 5, 6, (0, 1)), (1, 2, 2, (0,)), (2, 2, 5, (1,)), (2, 6, 13, (0,)), (3, 6, 7, (1,))]),
    # The same by what remains.
    HandCase("no stop at the time of the start, srtf", "srtf", gpu_nodes(2, 2), tasks((2, 0, 2), (2, 5, 2), (2, 1, 3), (3, 9, 1)),
             [(0, 2, 2, (0,)), (1, 2, 3, (1,)), (1, 4, 8, (0,)), (2, 3, 4, (0, 1)), (3, 3, 12, (1,))]),
]  # fmt: skip

MIGRATION = [
    # At 3 one GPU is free on each node; job 3 needs two of one node. Node 0 is emptied: job 0 moves to node 1, works from 3 + 1 + 1 + 1
    # on and ends at 13 (7 s were left).
    HandCase("defrag", "defrag@first", gpu_nodes(2, 2), tasks((0, 10, 1), (0, 2, 1), (0, 20, 1), (3, 5, 1), gpus=(1, 1, 1, 2)),
             [(0, 0, 3, (0,)), (0, 3, 13, (1,)), (1, 0, 2, (0,)), (2, 0, 20, (1,)), (3, 3, 8, (0,))],
             costs(mode="kill", checkpoint_s=1, restart_s=1, transfer_s=1)),
    # The same where runs must last 5 s first: the timers of jobs 0 and 2 at 5 bring the decision.
    HandCase("defrag after the quantum", "defrag@first", gpu_nodes(2, 2),
             tasks((0, 10, 1), (0, 2, 1), (0, 20, 1), (3, 5, 1), gpus=(1, 1, 1, 2)),
             [(0, 0, 5, (0,)), (0, 5, 10, (1,)), (1, 0, 2, (0,)), (2, 0, 20, (1,)), (3, 5, 10, (0,))], costs(quantum_s=5)),
    # Three free GPUs on two nodes, but job 3 needs four: nobody moves for it, and job 4 (one GPU) goes ahead.
    HandCase("defrag in vain", "defrag@first", gpu_nodes(2, 2), tasks((0, 10, 1), (3, 5, 4), (4, 1, 1)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0, 1)), (2, 4, 5, (0,))]),
]  # fmt: skip

OUTAGES = [
    # Node 0 fails under job 0, which begins again on node 1 when job 1 leaves it.
    HandCase("failure", "fcfs", gpu_nodes(1, 1), tasks((0, 10, 1), (0, 4, 1)),
             [(0, 0, 3, (0,)), (0, 4, 14, (1,)), (1, 0, 4, (1,))], outages((0, 3, 20, "fail"))),
    # With a checkpoint every 2 s of work 8 s are left, but a restart elsewhere costs 1 + 5 s: it works from 10 to 18. The costs of
    # saving are for those who are stopped in order.
    HandCase("failure with costs", "fcfs", gpu_nodes(1, 1), tasks((0, 10, 1), (0, 4, 1)),
             [(0, 0, 3, (0,)), (0, 4, 18, (1,)), (1, 0, 4, (1,))],
             outages((0, 3, 20, "fail"), preemption=Preemption(checkpoint_every_s=2, checkpoint_s=7, restart_s=1, transfer_s=5))),
    HandCase("failure without requeue", "fcfs", gpu_nodes(1, 1), tasks((0, 10, 1), (0, 4, 1), (5, 1, 2)),
             [(0, 0, 3, (0,)), (1, 0, 4, (1,)), (2, 20, 21, (0, 1))],
             outages((0, 3, 20, "fail"), requeue=False), status=(FAILED, DONE, DONE)),
    # A gang of two loses both its places when one node fails; the repair at 6 is a decision.
    HandCase("failure of a gang", "fcfs", gpu_nodes(1, 1), tasks((0, 4, 2)),
             [(0, 0, 3, (0, 1)), (0, 6, 10, (0, 1))], outages((1, 3, 6, "fail"))),
    # Job 0 ends in the very second in which its node fails: it is done. Job 1 comes in the second of the repair.
    HandCase("ends first", "fcfs", gpu_nodes(1), tasks((0, 3, 1), (5, 1, 1)),
             [(0, 0, 3, (0,)), (1, 5, 6, (0,))], outages((0, 3, 5, "fail"))),
    # A drained node keeps job 0 and takes nobody: jobs 2 and 3 wait for node 1.
    HandCase("drain", "fcfs", gpu_nodes(1, 1), tasks((0, 10, 1), (0, 4, 1), (10, 1, 1), (10, 1, 1)),
             [(0, 0, 10, (0,)), (1, 0, 4, (1,)), (2, 10, 11, (1,)), (3, 11, 12, (1,))], outages((0, 3, 20, "drain"))),
    # Notice at 2, down from 5 to 9: job 0 is hit at 5, job 1 finds the node drained at 3 and waits for 9.
    HandCase("maintenance", "fcfs+greedy", gpu_nodes(2), tasks((0, 10, 1), (3, 1, 1)),
             [(0, 0, 5, (0,)), (0, 9, 19, (0,)), (1, 9, 10, (0,))],
             Conditions(maintenance=(Maintenance(nodes=(0,), start=5, end=9, notice_s=3),))),
    # The node is gone for good: job 0 stays queued.
    HandCase("unfinished", "fcfs", gpu_nodes(1), tasks((0, 10, 1)), [(0, 0, 5, (0,))], outages((0, 5, INF, "fail")), status=(QUEUED,)),
    # With node 1 down the head (4 GPUs) fits at no time as far as anybody knows: job 2 starts under every rule but none.
    *(HandCase(f"{rule} without a reservation", f"fcfs+{rule}", gpu_nodes(2, 2), tasks((0, 50, 1), (2, 10, 4), (3, 200, 1)),
               [(0, 0, 50, (0,)), (1, 203, 213, (0, 1)), (2, 3, 203, (0,))], outages((1, 1, 100, "fail")))
      for rule in WITH_SECOND_ORDER),
    # A drained node counts as taken although job 0 is expected to leave it at 50: the same.
    *(HandCase(f"{rule} beside a drained node", f"fcfs+{rule}", gpu_nodes(2, 2), tasks((0, 50, 2), (2, 10, 4), (3, 200, 1)),
               [(0, 0, 50, (0,)), (1, 203, 213, (0, 1)), (2, 3, 203, (1,))], outages((0, 1, 100, "drain")))
      for rule in ("easy", "conservative")),
    # Job 1 is the shorter one and stands on node 0, which fails at 3. It has 8 s to go again and does not stop job 0 with its 7.
    HandCase("failure under srtf", "srtf", gpu_nodes(1, 1), tasks((0, 10, 1), (0, 8, 1)),
             [(0, 0, 10, (1,)), (1, 0, 3, (0,)), (1, 6, 14, (0,))], outages((0, 3, 6, "fail"))),
]  # fmt: skip

DROWSY = Power(sleep_after_s=10, wake_s=5)  # in the cases below nodes that are idle for more than 10 s sleep, and take 5 s to wake

SLEEP = [
    # Both nodes are asleep at 20 (node 0 since 14, node 1 since 10): node 0 is woken, job 1 begins at 25.
    HandCase("woken", "fcfs", gpu_nodes(1, 1), tasks((0, 4, 1), (20, 3, 1)),
             [(0, 0, 4, (0,)), (1, 20, 28, (0,))], Conditions(power=DROWSY), start=(0, 25)),
    # Idle for exactly 10 s is not asleep yet.
    HandCase("just awake", "fcfs", gpu_nodes(1), tasks((0, 4, 1), (14, 3, 1)),
             [(0, 0, 4, (0,)), (1, 14, 17, (0,))], Conditions(power=DROWSY), start=(0, 14)),
    # At 15 node 0 is asleep (idle since 1) and node 1 is not (since 9). Equals to `pack`, but `first` is bound to node 0.
    HandCase("awake nodes first", "fcfs@pack", gpu_nodes(1, 1), tasks((0, 1, 1), (0, 9, 1), (15, 3, 1)),
             [(0, 0, 1, (0,)), (1, 0, 9, (1,)), (2, 15, 18, (1,))], Conditions(power=DROWSY), start=(0, 0, 15)),
    HandCase("first is first", "fcfs@first", gpu_nodes(1, 1), tasks((0, 1, 1), (0, 9, 1), (15, 3, 1)),
             [(0, 0, 1, (0,)), (1, 0, 9, (1,)), (2, 15, 23, (0,))], Conditions(power=DROWSY), start=(0, 0, 20)),
    # A gang waits for its last node: node 1 is awake, node 0 must wake.
    HandCase("a gang waits", "fcfs", gpu_nodes(1, 1), tasks((0, 1, 1), (0, 9, 1), (15, 3, 2)),
             [(0, 0, 1, (0,)), (1, 0, 9, (1,)), (2, 15, 23, (0, 1))], Conditions(power=DROWSY), start=(0, 0, 20)),
    # Job 2 joins job 1 on a node that is waking.
    HandCase("two wait", "fcfs", gpu_nodes(2), tasks((0, 1, 1), (20, 3, 1), (22, 1, 1)),
             [(0, 0, 1, (0,)), (1, 20, 28, (0,)), (2, 22, 26, (0,))], Conditions(power=DROWSY), start=(0, 25, 25)),
    # Job 1 is stopped before its node is awake: it has not started. Job 2 has the node's waking to itself; then nobody sleeps.
    HandCase("stopped before it starts", "priority-preempt", gpu_nodes(1), tasks((0, 1, 1), (20, 3, 1), (22, 2, 1), priority=(0, 0, 1)),
             [(0, 0, 1, (0,)), (1, 20, 22, (0,)), (1, 27, 30, (0,)), (2, 22, 27, (0,))], Conditions(power=DROWSY), start=(0, 27, 25)),
    # The node fails while it wakes and goes on waking: placed again at 23, job 1 begins at 25.
    HandCase("fails while waking", "fcfs", gpu_nodes(1), tasks((0, 1, 1), (20, 3, 1)),
             [(0, 0, 1, (0,)), (1, 20, 22, (0,)), (1, 23, 28, (0,))], outages((0, 22, 23, "fail"), power=DROWSY), start=(0, 25)),
    # Job 1 is expected to leave at 20 + 5 + 3 = 28, so job 3 (6 s) may pass the head on the second node and end by then. Backfill does
    # not count what its own node takes to wake: it ends at 33, and job 2, the head, starts so late.
    HandCase("backfill leaves out waking", "fcfs+easy", gpu_nodes(1, 1), tasks((0, 1, 1), (20, 3, 1), (21, 1, 2), (22, 6, 1)),
             [(0, 0, 1, (0,)), (1, 20, 28, (0,)), (2, 33, 34, (0, 1)), (3, 22, 33, (1,))], Conditions(power=DROWSY), start=(0, 25, 33, 27)),
]  # fmt: skip


def capped(watts: float) -> tuple[Cluster, Conditions]:
    """Two nodes of two cores that draw 10 W idle and 5 W more for each core in use; what may be drawn in use."""
    cluster = build("capped", [NodeGroup(2, cpus=2, idle_watts=10, core_watts=5)])
    return cluster, Conditions(power=Power(cap_watts=20 + watts))


def cores(*rows: tuple[float, float, int]) -> Workload:
    """Jobs as (submit, runtime, tasks of one core)."""
    jobs = tasks(*rows)
    return jobs.replace(gpu_milli=jobs.gpu_milli * 0, cpu_milli=jobs.gpu_milli)


CAP = [
    # Four cores, power for two: job 1 waits for job 0 to end although cores are free.
    HandCase("two at a time", "fcfs", capped(10)[0], cores((0, 4, 1), (0, 6, 1), (1, 2, 1)),
             [(0, 0, 4, (0,)), (1, 0, 6, (0,)), (2, 4, 6, (0,))], capped(10)[1]),
    # Just below what two cores draw: one after the other, and the job of two tasks can never run.
    HandCase("too much alone", "fcfs", capped(9.999)[0], cores((0, 4, 1), (0, 3, 1), (1, 2, 2)),
             [(0, 0, 4, (0,)), (1, 4, 7, (0,))], capped(9.999)[1], status=(DONE, DONE, REJECTED)),
    # Power for three. The head (3 cores) fits when job 0 is gone, at 10. Job 2 would end by then and starts, job 3 would not, although its
    # core is free at 10: with it on the machine the head would lack the power.
    HandCase("easy under a cap", "fcfs+easy", capped(15)[0], cores((0, 10, 1), (1, 5, 3), (2, 8, 1), (2, 9, 1)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0, 1)), (2, 2, 10, (0,)), (3, 15, 24, (0,))], capped(15)[1]),
    # The same by reservations: job 1 from 10 to 15, so job 2 now and job 3 after it.
    HandCase("conservative under a cap", "fcfs+conservative", capped(15)[0], cores((0, 10, 1), (1, 5, 3), (2, 8, 1), (2, 9, 1)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0, 1)), (2, 2, 10, (0,)), (3, 15, 24, (0,))], capped(15)[1]),
    # Job 0 stays on the drained node 0 and draws on: job 2 finds cores on node 1 but no power before 6.
    HandCase("a drained node draws", "fcfs", capped(10)[0], cores((0, 6, 1), (0, 9, 1), (2, 1, 1)),
             [(0, 0, 6, (0,)), (1, 0, 9, (0,)), (2, 6, 7, (1,))], outages((0, 1, 20, "drain"), power=capped(10)[1].power)),
]  # fmt: skip


def owners(workload: Workload, *users: int) -> Workload:
    return workload.replace(user=np.array(users, np.int32), users=("ann", "bob"))


ANNS = Conditions(reservations=(Reservation(nodes=(0,), start=10, end=20, users=("ann",)),))

RESERVED = [
    # Job 0 would end at 10 and may use node 0; job 1, of 11 s, must wait for node 1 though node 0 is free from 4 on (job 2 fits in).
    HandCase("before a reservation", "fcfs+greedy", gpu_nodes(1, 1), owners(tasks((0, 4, 1), (0, 11, 1), (1, 6, 1), (1, 8, 1)), 1, 1, 1, 1),
             [(0, 0, 4, (0,)), (1, 0, 11, (1,)), (2, 4, 10, (0,)), (3, 11, 19, (1,))], ANNS),
    # Ann's job (5 s) comes at 12 and has the node at once, Bob's, here since 11, when it is given back. Under `none` he is in her way.
    HandCase("during a reservation", "fcfs+easy", gpu_nodes(1), owners(tasks((11, 3, 1), (12, 5, 1)), 1, 0),
             [(0, 20, 23, (0,)), (1, 12, 17, (0,))], ANNS),
    HandCase("behind a blocked head", "fcfs", gpu_nodes(1), owners(tasks((11, 3, 1), (12, 5, 1)), 1, 0),
             [(0, 20, 23, (0,)), (1, 23, 28, (0,))], ANNS),
    # The head (2 GPUs) can run from 20 on: Bob's job 2 (8 s on node 1) would end at 20 and starts, his job 3 (9 s) would not.
    *(HandCase(f"{rule} around a reservation", f"fcfs+{rule}", gpu_nodes(1, 1),
               owners(tasks((11, 1, 1), (12, 5, 2), (12, 8, 1), (12, 9, 1)), 1, 1, 1, 1),
               [(0, 11, 12, (1,)), (1, 20, 25, (0, 1)), (2, 12, 20, (1,)), (3, 25, 34, (0,))], ANNS)
      for rule in ("easy", "conservative")),
    # Job 0 was thought to take 9 s and takes 15: it is let be, and Ann waits for it.
    HandCase("an overstay", "fcfs+easy", gpu_nodes(1), owners(tasks((0, 15, 1), (11, 2, 1)), 1, 0),
             [(0, 0, 15, (0,)), (1, 15, 17, (0,))], ANNS, estimate=(9, 2)),
]  # fmt: skip


def elastic(workload: Workload, *sizes: tuple[int, int], curve: str = "linear") -> Workload:
    """With ranges of tasks for the first jobs; the others are as they were."""
    least, most = workload.num_tasks.copy(), workload.num_tasks.copy()
    for j, (fewest, greatest) in enumerate(sizes):
        least[j], most[j] = fewest, greatest
    return workload.replace(min_tasks=least, max_tasks=most, scalings=(curve,))


ELASTIC = [
    # Alone on four GPUs the job has four tasks: 10 s × 1 / 2 by the square root. Job 1 finds nothing free before 5.
    HandCase("greatest size", "fcfs", gpu_nodes(4), elastic(tasks((0, 10, 1), (1, 3, 1)), (1, 4), curve="power:0.5"),
             [(0, 0, 5, (0,)), (1, 5, 8, (0,))]),
    # One of three GPUs is left for job 1, submitted with two tasks: it takes twice as long.
    HandCase("as many as fit", "fcfs", gpu_nodes(3), elastic(tasks((0, 6, 2), (0, 4, 2)), (2, 2), (1, 3)),
             [(0, 0, 6, (0,)), (1, 0, 8, (0,))]),
    # The head (4 GPUs) waits for 10. Job 2 has one task and would end at 2 + 9; job 3 likewise ends at 10 and passes.
    HandCase("easy by the size that fits", "fcfs+easy", gpu_nodes(4),
             elastic(tasks((0, 10, 3), (1, 5, 4), (2, 9, 1), (2, 4, 2)), (3, 3), (4, 4), (1, 2), (1, 2)),
             [(0, 0, 10, (0,)), (1, 10, 15, (0,)), (2, 15, 19.5, (0,)), (3, 2, 10, (0,))]),
    # Node 0 fails at 4. Three tasks have done 12 of 18 task-seconds, but saved nothing: two tasks do it all again.
    HandCase("another size after a failure", "fcfs", gpu_nodes(1, 2), elastic(tasks((0, 18, 1)), (1, 3)),
             [(0, 0, 4, (0, 1)), (0, 4, 13, (1,))], outages((0, 4, 50, "fail"))),
    # With a checkpoint every second 4 × 3 = 12 are kept, and the last 6 take 3 s.
    HandCase("work carried to another size", "fcfs", gpu_nodes(1, 2), elastic(tasks((0, 18, 1)), (1, 3)),
             [(0, 0, 4, (0, 1)), (0, 4, 7, (1,))], outages((0, 4, 50, "fail"), preemption=Preemption(checkpoint_every_s=1))),
]  # fmt: skip

RESIZED = [
    # Job 0 has done 4 of its 20 s with four tasks when job 1 comes for three GPUs: with one task the other 16 take until 17.
    HandCase("shrinks", "fcfs", gpu_nodes(4), elastic(tasks((0, 20, 1), (1, 2, 3)), (1, 4)),
             [(0, 0, 1, (0,)), (0, 1, 17, (0,)), (1, 1, 3, (0,))], Conditions(resize="shrink")),
    # At 3 job 1 has gone, and job 0 does the 14 s that are left with four tasks again.
    HandCase("shrinks and grows", "fcfs", gpu_nodes(4), elastic(tasks((0, 20, 1), (1, 2, 3)), (1, 4)),
             [(0, 0, 1, (0,)), (0, 1, 3, (0,)), (0, 3, 6.5, (0,)), (1, 1, 3, (0,))], Conditions(resize="both")),
    # Each change costs a second: 4 s are done by 1, one more from 2 to 3, and the last 15 by four tasks from 4 on.
    HandCase("resizing with costs", "fcfs", gpu_nodes(4), elastic(tasks((0, 20, 1), (1, 2, 3)), (1, 4)),
             [(0, 0, 1, (0,)), (0, 1, 3, (0,)), (0, 3, 7.75, (0,)), (1, 1, 3, (0,))],
             Conditions(resize="both", preemption=Preemption(mode="kill", restart_s=1))),
    # Job 2 needs two GPUs. Job 1, the last, makes room for one; job 0 must shrink as well. A head of five would let both be.
    HandCase("the last shrinks first", "fcfs", gpu_nodes(2, 2), elastic(tasks((0, 20, 2), (0, 20, 2), (1, 2, 2)), (1, 2), (1, 2)),
             [(0, 0, 1, (0,)), (0, 1, 39, (0,)), (1, 0, 1, (1,)), (1, 1, 39, (1,)), (2, 1, 3, (0, 1))], Conditions(resize="shrink")),
    HandCase("in vain", "fcfs", gpu_nodes(2, 2), elastic(tasks((0, 20, 2), (0, 20, 2), (1, 2, 3)), (1, 2), (1, 2)),
             [(0, 0, 20, (0,)), (1, 0, 20, (1,)), (2, 20, 22, (0, 1))], Conditions(resize="shrink")),
]  # fmt: skip

FOUR_CORES = build("cores", [NodeGroup(1, cpus=4)])

CONSERVATIVE = [
    # Job 1 needs all cores for an instant, at 10. Job 2 would cover it and waits until after it; the later ones come in time.
    HandCase("an instant is held", "fcfs+conservative", FOUR_CORES,
             cores((0, 10, 3), (1, 0, 4), (2, 10, 1), (11, 10, 1), (20, 10, 1), (29, 10, 1)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0,)), (2, 10, 20, (0,)), (3, 11, 21, (0,)), (4, 20, 30, (0,)), (5, 29, 39, (0,))]),
    # Three instants of 10: one each for jobs 1 and 2, and what starts after them. Job 4 is over by then; job 3 would cover them.
    HandCase("two instants at one time", "fcfs+conservative", FOUR_CORES,
             cores((0, 10, 3), (1, 0, 4), (1, 0, 4), (2, 9, 1), (2, 8, 1), (2, 5, 4)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0,)), (2, 10, 10, (0,)), (3, 10, 19, (0,)), (4, 2, 10, (0,)), (5, 19, 24, (0,))]),
    # The instant of job 1 leaves one core, which job 2 may hold across it. Job 3 may not hold another one; job 4 ends in time.
    HandCase("room beside an instant", "fcfs+conservative", FOUR_CORES, cores((0, 10, 2), (1, 0, 3), (2, 9, 1), (3, 8, 1), (3, 7, 1)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0,)), (2, 2, 11, (0,)), (3, 10, 18, (0,)), (4, 3, 10, (0,))]),
    # Job 1, of no length as far as is known, has the instant 10 and really takes 3 s. Job 2 is reserved from now on while it waits for
    # it, and job 3 (no length either) finds nothing free at 11.
    HandCase("an estimate of 0 that is wrong", "fcfs+conservative", FOUR_CORES, cores((0, 10, 3), (1, 3, 4), (2, 9, 1), (11, 0, 1)),
             [(0, 0, 10, (0,)), (1, 10, 13, (0,)), (2, 13, 22, (0,)), (3, 13, 13, (0,))], estimate=(10, 0, 9, 0)),
    # Power for three cores. Job 1 needs it all at 10, so job 2 may not draw across that instant, though there are cores.
    HandCase("an instant under a cap", "fcfs+conservative", capped(15)[0], cores((0, 10, 1), (1, 0, 3), (2, 9, 1), (2, 8, 1)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0, 1)), (2, 10, 19, (0,)), (3, 2, 10, (0,))], capped(15)[1]),
    # Only the head and the first candidate are planned. Job 3 would be over in time, but is not looked at before 10.
    HandCase("an instant and a depth", "fcfs+conservative/1", FOUR_CORES, cores((0, 10, 3), (1, 0, 4), (2, 9, 1), (2, 8, 1)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0,)), (2, 10, 19, (0,)), (3, 10, 18, (0,))]),
    # An elastic job of 8 task-seconds cannot have the free core across the instant of job 1, and has all four after it.
    HandCase("an elastic job after an instant", "fcfs+conservative", FOUR_CORES,
             elastic(cores((0, 10, 3), (1, 0, 4), (3, 8, 1)), (3, 3), (4, 4), (1, 4)),
             [(0, 0, 10, (0,)), (1, 10, 10, (0,)), (2, 10, 12, (0,))]),
    # Job 2 (one task of 3 GPUs) is reserved on node 1 at 3. Job 3 passes on node 0, which then has as much free as node 1: placed
    # again at 3, job 2 would go there, and job 4 (two tasks of 2 GPUs), reserved on node 0 at 4, would have to wait until 6.
    HandCase("a place is kept", "fcfs+conservative", gpu_nodes(4, 3),
             tasks((0, 3, 2), (0, 3, 1), (2, 3, 1), (2, 2, 1), (2, 5, 2), gpus=(1, 2, 3, 1, 2)),
             [(0, 0, 3, (1,)), (1, 0, 3, (0,)), (2, 3, 6, (1,)), (3, 2, 4, (0,)), (4, 4, 9, (0,))]),
]  # fmt: skip

# Job 0 is expected to end at 10 and ends at 100. Job 1 needs the whole machine, and is first.
LATE = tasks((0, 100, 3), (1, 10, 4), (12, 27, 1), (13, 10, 1), (41, 200, 1))
OUTLIVED = [
    # At 12, job 0 is expected to end at 40: job 2 is over by then. Job 3 would not be, but at 41 job 0 is expected to end at 160.
    *(HandCase(f"{rule} by guesses", f"fcfs+{rule}", gpu_nodes(4), LATE,
               [(0, 0, 100, (0,)), (1, 100, 110, (0,)), (2, 12, 39, (0,)), (3, 41, 51, (0,)), (4, 110, 310, (0,))],
               estimate=(10, 10, 27, 10, 200), guessed=True)
      for rule in ("easy", "easy-strict", "conservative")),
    # Job 2 needs the ends of jobs 0 and 1, at 10 and 30 as far as is known. At 22 job 0 is expected to end at 40: job 4 is over by then.
    *(HandCase(f"{rule} by one guess of two", f"fcfs+{rule}", gpu_nodes(4),
               tasks((0, 60, 1), (0, 30, 2), (1, 10, 4), (2, 100, 1), (22, 13, 1)),
               [(0, 0, 60, (0,)), (1, 0, 30, (0,)), (2, 60, 70, (0,)), (3, 70, 170, (0,)), (4, 22, 35, (0,))],
               estimate=(10, 30, 10, 100, 13), guessed=True)
      for rule in ("easy", "easy-strict", "conservative")),
    # If its estimate is a limit, job 0 is expected to end at any moment from 10 on: nobody passes job 1.
    *(HandCase(f"{rule} by limits", f"fcfs+{rule}", gpu_nodes(4), LATE,
               [(0, 0, 100, (0,)), (1, 100, 110, (0,)), (2, 110, 137, (0,)), (3, 110, 120, (0,)), (4, 110, 310, (0,))],
               estimate=(10, 10, 27, 10, 200))
      for rule in ("easy", "easy-strict", "conservative")),
    # From 0 to 1, 4 and 16. At 16 itself job 0 has not outlived that yet, and nothing else happens before it ends.
    *(HandCase(f"{rule} by a guess of 0", f"fcfs+{rule}", gpu_nodes(4), tasks((0, 100, 3), (1, 10, 4), (12, 4, 1), (13, 4, 1)),
               [(0, 0, 100, (0,)), (1, 100, 110, (0,)), (2, 12, 16, (0,)), (3, 110, 114, (0,))],
               estimate=(0, 10, 4, 4), guessed=True)
      for rule in ("easy", "conservative")),
    # Job 0 fails at 15 and has 0 s left as far as is known. Its second run, from 16 on, is expected to end at 17, 20 and 32.
    HandCase("a second run by a guess", "fcfs+easy", gpu_nodes(4), tasks((0, 40, 3), (17, 10, 4), (21, 11, 1), (21, 4, 1)),
             [(0, 0, 15, (0,)), (0, 16, 41, (0,)), (1, 41, 51, (0,)), (2, 21, 32, (0,)), (3, 51, 55, (0,))],
             Conditions(preemption=Preemption(checkpoint_every_s=0.0), outages=(Outage(node=0, start=15, end=16, kind="fail"),)),
             estimate=(10, 10, 11, 4), guessed=True),
]  # fmt: skip

HAND_CASES = [*OUTLIVED, *SRTF, *SERVICE, *URGENCY, *MIGRATION, *OUTAGES, *SLEEP, *CAP, *RESERVED, *ELASTIC, *RESIZED, *CONSERVATIVE]
