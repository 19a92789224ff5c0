"""What holds for every schedule of the engine, whatever the policy."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import stays
from effort import tries
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import parse_policy, simulate
from queuewise.policies.ordering import ORDERS as ORDER_RULES
from queuewise.sim.core.schedule import Schedule
from queuewise.sim.queue import FIXED
from queuewise.workload.jobs import ANY_PARTITION, Workload
from reference.check import violations
from strategies import BACKFILLS, DISPATCHES, ORDERS, WITHOUT_LOOPS, Case, cases, policies

quick = tries(100)
dispatches = st.sampled_from(DISPATCHES)


def replay(case: Case, policy: str, dispatch: str = "reorder") -> Schedule:
    return simulate(
        case.workload, case.cluster, policy, dispatch=dispatch, estimates=case.known, seed=case.seed, kill_at_limit=case.kill_at_limit
    )


def assert_equal_schedules(a: Schedule, b: Schedule) -> None:
    for column in ("status", "start", "end", "piece_job", "piece_node", "piece_tasks", "piece_gpus", "piece_start", "piece_end"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), err_msg=column)


@tries(300)
@given(cases(), policies(), dispatches)
def test_nothing_impossible_happens_and_nothing_is_lost(case: Case, policy: str, dispatch: str) -> None:
    s = replay(case, policy, dispatch)
    options: dict[str, Any] = {"kill_at_limit": case.kill_at_limit, "policy": policy}
    assert violations(case.workload, case.cluster, s.start, s.end, s.status, s.preemptions, stays(s), **options) == []


@quick
@given(cases(), policies(), dispatches)
def test_gpu_seconds_are_conserved(case: Case, policy: str, dispatch: str) -> None:
    """What the pieces used is what the finished jobs asked for, for as long as they ran."""
    s = replay(case, policy, dispatch)
    done = s.finished
    used = s.piece_tasks * case.workload.gpu_milli[s.piece_job] * (s.piece_end - s.piece_start)
    asked = (case.workload.num_tasks * case.workload.gpu_milli)[done] * (s.end[done] - s.start[done])
    assert used.sum() == pytest.approx(asked.sum(), rel=1e-12)


@quick
@given(cases(), policies(), dispatches)
def test_equal_inputs_give_equal_schedules(case: Case, policy: str, dispatch: str) -> None:
    assert_equal_schedules(replay(case, policy, dispatch), replay(case, policy, dispatch))


def ignores_users(policy: str) -> bool:
    """Whether no order of the policy predicts from users and names or shares the machine among users."""
    parsed = parse_policy(policy)
    orders = (ORDER_RULES[name] for name in (parsed.order, parsed.backfill_order) if name in ORDER_RULES)
    return not any(order.uses_predictions or order.fair != FIXED for order in orders)


@quick
@given(cases(), policies().filter(ignores_users), dispatches, st.integers(0, 100))
def test_names_of_users_jobs_and_nodes_change_nothing(case: Case, policy: str, dispatch: str, shift: int) -> None:
    num = len(case.workload)
    labels = ((np.arange(num) + shift) % 3).astype(np.int32)
    renamed = case.workload.replace(
        user=labels, users=("a", "b", "c"), group=labels, groups=("x", "y", "z"), job_id=np.arange(num)[::-1] + shift
    )
    cluster = dataclasses.replace(case.cluster, node_names=tuple(f"other-{n}" for n in range(case.cluster.num_nodes)))
    other = dataclasses.replace(case, workload=renamed, cluster=cluster)
    assert_equal_schedules(replay(case, policy, dispatch), replay(other, policy, dispatch))


@quick
@given(cases(), policies(), dispatches)
def test_numbering_of_partitions_in_the_log_changes_nothing(case: Case, policy: str, dispatch: str) -> None:
    w = case.workload
    last = len(w.partitions) - 1
    turned = np.where(w.partition == ANY_PARTITION, ANY_PARTITION, last - w.partition).astype(np.int32)
    other = dataclasses.replace(case, workload=w.replace(partition=turned, partitions=w.partitions[::-1]))
    assert_equal_schedules(replay(case, policy, dispatch), replay(other, policy, dispatch))


# --- simple worlds, in which more can be said

times = st.integers(0, 12).map(float)


@st.composite
def one_gpu_tasks(draw: st.DrawFn, *, max_jobs: int = 20) -> Workload:
    """Gangs of one-GPU tasks with integer times."""
    rows = sorted(draw(st.lists(st.tuples(times, times, st.integers(1, 6)), min_size=1, max_size=max_jobs)), key=lambda row: row[0])
    submit, runtime, tasks = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(submit, runtime, tasks.astype(np.int32), np.full(len(rows), 1000, np.int32))


@quick
@given(
    one_gpu_tasks(),
    st.permutations([1, 2, 3, 4]),
    st.sampled_from(ORDERS),
    st.sampled_from([name for name in WITHOUT_LOOPS if name != "conservative"]),  # which plans places, and so does slurm
    st.sampled_from(["first", "pack", "spread", "random", "fastest", "cheapest", "fgd"]),
    dispatches,
)
def test_where_one_gpu_tasks_stand_does_not_change_when_they_run(
    workload: Workload, sizes: list[int], order: str, backfill: str, placement: str, dispatch: str
) -> None:
    """With one-GPU tasks, equal GPUs and no penalties only the number of free GPUs counts: nodes may be permuted, rules exchanged."""
    ordered = build("ordered", [NodeGroup(1, gpus=count, kind="T4") for count in (1, 2, 3, 4)])
    permuted = build("permuted", [NodeGroup(1, gpus=count, kind="T4") for count in sizes])
    first = simulate(workload, ordered, f"{order}+{backfill}@first", dispatch=dispatch, estimates="oracle")
    other = simulate(workload, permuted, f"{order}+{backfill}@{placement}", dispatch=dispatch, estimates="oracle")
    np.testing.assert_array_equal(first.start, other.start)
    np.testing.assert_array_equal(first.end, other.end)


@quick
@given(
    one_gpu_tasks(),
    st.sampled_from(["fcfs", "lcfs", "sjf", "saf", "sexp", "hrrn", "wfp3"]),
    st.sampled_from(BACKFILLS),
)
def test_a_later_clock_shifts_the_schedule(workload: Workload, order: str, backfill: str) -> None:
    cluster = build("nodes", [NodeGroup(2, gpus=4, kind="T4")])
    early = simulate(workload, cluster, f"{order}+{backfill}", estimates="oracle")
    late = simulate(workload.replace(submit=workload.submit + 4096.0), cluster, f"{order}+{backfill}", estimates="oracle")
    np.testing.assert_array_equal(early.start + 4096.0, late.start)


@quick
@given(one_gpu_tasks())
def test_fcfs_starts_in_order_and_conservative_is_never_later(workload: Workload) -> None:
    cluster = build("node", [NodeGroup(1, gpus=6, kind="T4")])
    fcfs = simulate(workload, cluster, "fcfs", estimates="oracle")
    assert (np.diff(fcfs.start) >= 0).all()
    conservative = simulate(workload, cluster, "fcfs+conservative", estimates="oracle")
    assert (conservative.start <= fcfs.start).all()


@quick
@given(st.lists(times, min_size=1, max_size=6))
def test_sjf_is_optimal_on_one_gpu(runtimes: list[float]) -> None:
    """Against all orders of at most six jobs that are there from the beginning."""
    num = len(runtimes)
    workload = Workload(np.zeros(num), np.array(runtimes), np.ones(num, np.int32), np.full(num, 1000, np.int32))
    schedule = simulate(workload, build("one", [NodeGroup(1, gpus=1, kind="T4")]), "sjf", estimates="oracle")
    best = min(sum(itertools.accumulate(order)) for order in itertools.permutations(runtimes))
    assert schedule.end.sum() == best
