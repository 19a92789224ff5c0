"""The reference simulator against schedules worked out by hand, and against the numbers four public simulators agree on."""

from __future__ import annotations

import gzip
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.workload.jobs import Workload
from reference.placement import least_tier, tier_choices
from reference.state import Machine, State, make_jobs

DONE, REJECTED, KILLED = 3, 4, 5


def gpu_nodes(*gpus: int, **options: Any) -> Cluster:
    """Nodes with so many V100s each."""
    return build("test", [NodeGroup(1, gpus=count, kind="V100-16") for count in gpus], **options)


def jobs(*rows: tuple[float, float, int], gpu_milli: int | list[int] = 1000, **columns: Any) -> Workload:
    """Jobs given as (submit, runtime, tasks); a task is one GPU unless gpu_milli says otherwise."""
    submit, runtime, tasks = (np.array(column) for column in zip(*rows, strict=True))
    integer: dict[str, Any] = {name: np.broadcast_to(np.asarray(columns.pop(name), dtype=np.int32), submit.shape)
               for name in ("cpu_milli", "mem_mib", "kind_set", "partition") if name in columns}  # fmt: skip
    gpu = np.broadcast_to(np.asarray(gpu_milli, dtype=np.int32), submit.shape)
    floats: dict[str, Any] = {
        name: np.asarray(columns.pop(name), dtype=np.float64) for name in ("requested", "priority", "deadline") if name in columns
    }
    return Workload(submit.astype(np.float64), runtime.astype(np.float64), tasks.astype(np.int32), gpu, **integer, **floats, **columns)


def run(workload: Workload, cluster: Cluster, policy: str, *, estimate: list[float] | None = None, **options: Any) -> reference.Result:
    known = workload.runtime if estimate is None else np.array(estimate, dtype=np.float64)
    return reference.simulate(workload, cluster, policy, estimate=known, **options)


def nodes_of(result: reference.Result, j: int) -> list[int]:
    return [node for job, node, _, _ in result.pieces if job == j]


# --- dispatch


def test_fcfs_head_blocks_a_job_that_would_fit() -> None:
    # 4 GPUs. Job 0 holds 3 until 10. Job 1 needs 2 and blocks; job 2 needs the one free GPU but stands behind it.
    # At 10 job 1 takes 2 and job 2 one of the other 2.
    result = run(jobs((0, 10, 3), (0, 5, 2), (0, 1, 1)), gpu_nodes(4), "fcfs")
    assert result.start.tolist() == [0, 10, 10]
    assert result.end.tolist() == [10, 15, 11]
    assert result.status.tolist() == [DONE] * 3


def test_sjf_reorder_and_commit_differ() -> None:
    # 2 GPUs, all jobs need both. Job 0 runs until 10. At 1 job 1 (8 s) is the only one queued, so `commit` holds the
    # machine for it; job 2 (1 s) comes at 2. reorder: shortest at 10 is job 2. commit: job 1 at 10, job 2 at 18.
    workload = jobs((0, 10, 2), (1, 8, 2), (2, 1, 2))
    assert run(workload, gpu_nodes(2), "sjf").start.tolist() == [0, 11, 10]
    assert run(workload, gpu_nodes(2), "sjf", dispatch="commit").start.tolist() == [0, 10, 18]


def test_commit_backfills_in_the_shade_of_the_committed_job() -> None:
    # 3 GPUs. Job 0 holds 2 until 10; job 1 (3 GPUs, 8 s) is committed at 1. Job 2 (1 GPU, 4 s) ends at 6 ≤ 10 and may start;
    # job 3 (3 GPUs, 1 s) is shorter than job 1 but the commitment stands: job 1 at 10, job 3 at 18.
    workload = jobs((0, 10, 2), (1, 8, 3), (2, 4, 1), (3, 1, 3))
    assert run(workload, gpu_nodes(3), "sjf+easy", dispatch="commit").start.tolist() == [0, 10, 2, 18]
    assert run(workload, gpu_nodes(3), "sjf+easy").start.tolist() == [0, 11, 2, 10]


def test_completion_frees_the_node_before_an_arrival_at_the_same_time() -> None:
    assert run(jobs((0, 10, 1), (10, 1, 1)), gpu_nodes(1), "fcfs").start.tolist() == [0, 10]


def test_zero_length_jobs_complete_at_an_instant_of_their_own() -> None:
    # One GPU. Job 0 starts and ends at 0; that is a new instant with a pass of its own, in which job 1 starts, and so on.
    result = run(jobs((0, 0, 1), (0, 0, 1), (0, 5, 1), (0, 1, 1)), gpu_nodes(1), "fcfs")
    assert result.start.tolist() == [0, 0, 0, 5]
    assert result.end.tolist() == [0, 0, 5, 6]


def test_a_rejected_arrival_is_an_instant_with_a_decision() -> None:
    # hrrn, 2 GPUs, job 0 holds one until 100. At 2: job 1 (2 GPUs, r=10) has ratio 1.1, job 2 (1 GPU, r=1) 1.0, so job 1 is head and
    # blocks. At 5 a job that can never run arrives; ratios are now 1.4 and 4.0, so job 2 is head, fits and starts.
    result = run(jobs((0, 100, 1), (1, 10, 2), (2, 1, 1), (5, 1, 9)), gpu_nodes(2), "hrrn")
    assert result.start.tolist() == [0, 100, 5, math.inf]


# --- backfill


def test_easy_spare_rule_and_strict_variant() -> None:
    # 4 GPUs. Job 0 holds 2 until 10. Job 1 (3 GPUs) blocks; shadow 10, when 4 are free: 1 to spare.
    # Job 2 (1 GPU, 20 s) ends at 22 but takes only the spare GPU: starts at 2. Job 3 (the same) would leave the head 2: waits.
    # Job 4 (1 GPU, 7 s) ends at 10 ≤ shadow: starts at 3. At 10 job 1 takes 3 GPUs until 15, then job 3 starts.
    workload = jobs((0, 10, 2), (1, 5, 3), (2, 20, 1), (3, 20, 1), (3, 7, 1))
    assert run(workload, gpu_nodes(4), "fcfs+easy").start.tolist() == [0, 10, 2, 15, 3]
    # Strict: only ends < 10 may start, so neither job 2 (22) nor job 4 (10). At 10 job 1 and job 2 fill the node until 15.
    assert run(workload, gpu_nodes(4), "fcfs+easy-strict").start.tolist() == [0, 10, 10, 15, 15]


def test_easy_protects_the_head_on_real_nodes() -> None:
    # 2 nodes × 2 GPUs, spread: job 0 on node 0 until 10, job 1 on node 1 until 20. Job 2 needs 2 GPUs of one node: shadow 10, on node 0.
    # By count 3 GPUs are free at 10, so a count would let job 3 (1 GPU, 100 s) in; but spread puts it on node 0, where the head must stand.
    # At 10 the head takes node 0 and job 3 the free GPU of node 1.
    workload = jobs((0, 10, 1), (0, 20, 1), (1, 5, 1), (2, 100, 1), gpu_milli=[1000, 1000, 2000, 1000])
    result = run(workload, gpu_nodes(2, 2), "fcfs+easy@spread")
    assert result.start.tolist() == [0, 0, 10, 10]
    assert [nodes_of(result, j) for j in range(4)] == [[0], [1], [0], [1]]
    # Job 4 (1 GPU, 5 s) ends at 7 and may use node 0. That fills node 0: when the search begins again, spread puts job 3 on node 1, and
    # it starts.
    workload = jobs((0, 10, 1), (0, 20, 1), (1, 5, 1), (2, 100, 1), (2, 5, 1), gpu_milli=[1000, 1000, 2000, 1000, 1000])
    result = run(workload, gpu_nodes(2, 2), "fcfs+easy@spread")
    assert result.start.tolist() == [0, 0, 10, 2, 2]
    assert [nodes_of(result, j) for j in range(5)] == [[0], [1], [0], [1], [0]]


def test_conservative_protects_the_second_in_the_queue_and_easy_does_not() -> None:
    # 4 GPUs. Job 0 holds 3 until 10. Job 1 (2 GPUs, 10 s) blocks. Job 2 (4 GPUs) follows. Job 3: 1 GPU, 20 s, at 2.
    # EASY: job 3 leaves the head 3 of 4 GPUs at 10, so it starts at 2 and ends at 22: job 2 waits until 22.
    # Conservative: reservations [10, 20) and [20, 30) leave job 3 no 20 s before 30.
    workload = jobs((0, 10, 3), (1, 10, 2), (1, 10, 4), (2, 20, 1))
    assert run(workload, gpu_nodes(4), "fcfs+easy").start.tolist() == [0, 10, 22, 2]
    assert run(workload, gpu_nodes(4), "fcfs+conservative").start.tolist() == [0, 10, 20, 30]
    # A 7 s job fits before the reservations and starts at 3. With depth 1 only jobs 1 and 2 are planned until job 1 has started at 10.
    shorter = jobs((0, 10, 3), (1, 10, 2), (1, 10, 4), (3, 7, 1))
    assert run(shorter, gpu_nodes(4), "fcfs+conservative").start.tolist() == [0, 10, 20, 3]
    assert run(shorter, gpu_nodes(4), "fcfs+conservative/1").start.tolist() == [0, 10, 20, 10]


def test_conservative_reserves_candidates_in_the_second_order() -> None:
    # 2 GPUs. Job 0 holds one until 10; job 1 needs 2 and is reserved [10, 15). Candidates at 2: job 2 (8 s, ends 10) and job 3 (3 s), one
    # free GPU until 10. In the order of arrival job 2 takes it; shortest first job 3 takes [2, 5), and [5, 10) is too short for job 2.
    workload = jobs((0, 10, 1), (1, 5, 2), (2, 8, 1), (2, 3, 1))
    assert run(workload, gpu_nodes(2), "fcfs+conservative").start.tolist() == [0, 10, 2, 15]
    assert run(workload, gpu_nodes(2), "fcfs+conservative:sjf").start.tolist() == [0, 10, 15, 2]


def test_overdue_jobs_are_expected_to_end_at_any_moment() -> None:
    # 2 GPUs. Job 0 (1 GPU) runs 20 s but was expected to take 5. Job 1 needs 2 GPUs. Job 2 (1 GPU, 3 s) comes at 6, when job 0 is
    # overdue: the shadow is now, and job 2 would stand in the way. Knowing the truth, the shadow is 20 and job 2 starts.
    workload = jobs((0, 20, 1), (1, 5, 2), (6, 3, 1))
    for backfill in ("easy", "easy-strict", "conservative"):
        assert run(workload, gpu_nodes(2), f"fcfs+{backfill}", estimate=[5, 5, 3]).start.tolist() == [0, 20, 25]
        assert run(workload, gpu_nodes(2), f"fcfs+{backfill}").start.tolist() == [0, 20, 6]
    # A job of estimate 0 ends by the shadow time, now, so EASY lets it in; in a conservative plan both GPUs are reserved from now on.
    assert run(workload, gpu_nodes(2), "fcfs+easy", estimate=[5, 5, 0]).start.tolist() == [0, 20, 6]
    assert run(workload, gpu_nodes(2), "fcfs+conservative", estimate=[5, 5, 0]).start.tolist() == [0, 20, 25]


def test_conservative_never_books_what_a_job_without_estimate_holds() -> None:
    # 3 GPUs, job 0 holds 2 until 10, job 1 (3 GPUs) blocks. Job 2 (estimate 0, really 4 s) starts on the free GPU at 2; its reservation is
    # empty, but it stands there, so job 3 (estimate 0 too) cannot start before 6.
    workload = jobs((0, 10, 2), (1, 5, 3), (2, 4, 1), (2, 1, 1))
    assert run(workload, gpu_nodes(3), "fcfs+conservative", estimate=[10, 5, 0, 0]).start.tolist() == [0, 10, 2, 6]


def test_greedy_depth_and_second_order() -> None:
    # 3 GPUs, job 0 holds 2 until 10, job 1 (3 GPUs) blocks.
    # Candidates at 1: job 2 (2 GPUs: does not fit), job 3 (1 GPU, 9 s), job 4 (1 GPU, 2 s).
    workload = jobs((0, 10, 2), (1, 5, 3), (1, 1, 2), (1, 9, 1), (1, 2, 1))
    # In order: job 3 fits, job 4 then not; at 10 jobs 0 and 3 end, jobs 1 then 2 and 4 run.
    assert run(workload, gpu_nodes(3), "fcfs+greedy").start.tolist() == [0, 10, 15, 1, 15]
    # One candidate a pass: always job 2, so nothing is filled in.
    assert run(workload, gpu_nodes(3), "fcfs+greedy/1").start.tolist() == [0, 10, 15, 15, 16]
    # Shortest first: job 4 at 1, job 3 at 3 until 12. At 10 job 2 (1 s, 2 GPUs) goes in: greedy has no regard for the head,
    # which starts at 12.
    assert run(workload, gpu_nodes(3), "fcfs+greedy:sjf").start.tolist() == [0, 12, 10, 3, 1]


# --- placement


def test_first_pack_and_spread_choose_differently() -> None:
    # Nodes of 4, 2, 4 GPUs, four one-GPU jobs at once.
    four = jobs(*[(0, 10, 1)] * 4)
    cluster = gpu_nodes(4, 2, 4)
    # first: node 0 until it is full. pack: the node with least free, so node 1 (2, then 1), then node 0 (4 free, tied with node 2).
    assert [nodes_of(run(four, cluster, "fcfs@first"), j) for j in range(4)] == [[0]] * 4
    assert [nodes_of(run(four, cluster, "fcfs@pack"), j) for j in range(4)] == [[1], [1], [0], [0]]
    # spread: used shares 0 0 0 → node 0; ¼ 0 0 → node 1; ¼ ½ 0 → node 2; ¼ ½ ¼ → node 0.
    assert [nodes_of(run(four, cluster, "fcfs@spread"), j) for j in range(4)] == [[0], [1], [2], [0]]


def test_pack_splits_a_gang_over_the_largest_nodes() -> None:
    # 6 tasks: no node holds 6; the most slots are 4 (nodes 0 and 2): the lower one gets 4 tasks.
    # 2 remain: of the nodes that hold 2, node 1 has least free.
    result = run(jobs((0, 10, 6)), gpu_nodes(4, 2, 4), "fcfs")
    assert result.pieces == [(0, 0, 4, 0b1111), (0, 1, 2, 0b11)]


def test_strict_consolidation_waits_for_one_node() -> None:
    # 2 × 2 GPUs. Jobs 0 and 1 share node 0 (until 10 and 5), jobs 2 and 3 node 1 (until 20 and 5), so at 6 each node has one GPU free.
    # A gang of 2 fits one empty node (m = 1): pack and pack:1 span both nodes at 6, pack:0 waits until node 0 is free at 10.
    workload = jobs((0, 10, 1), (0, 5, 1), (0, 20, 1), (0, 5, 1), (6, 1, 2))
    assert run(workload, gpu_nodes(2, 2), "fcfs@pack").start.tolist() == [0, 0, 0, 0, 6]
    assert run(workload, gpu_nodes(2, 2), "fcfs@pack:1").start.tolist() == [0, 0, 0, 0, 6]
    assert run(workload, gpu_nodes(2, 2), "fcfs@pack:0").start.tolist() == [0, 0, 0, 0, 10]


def test_shares_fill_the_tightest_gpu_and_spread_the_widest() -> None:
    # 2 GPUs; shares of 600, 300, 500, 400 milli.
    shares = jobs(*[(0, 10, 1)] * 4, (1, 1, 1), gpu_milli=[600, 300, 500, 400, 1000])
    # pack: 600 → GPU 0 (400 left), 300 → GPU 0 (100 left), 500 → GPU 1, 400 → GPU 1.
    result = run(shares, gpu_nodes(2), "fcfs")
    assert [gpus for _, _, _, gpus in result.pieces[:4]] == [0b01, 0b01, 0b10, 0b10]
    # spread: 600 → GPU 0 (400), 300 → GPU 1 (700), 500 → GPU 1 (200), 400 → GPU 0 (0).
    result = run(shares, gpu_nodes(2), "fcfs@spread")
    assert [gpus for _, _, _, gpus in result.pieces[:4]] == [0b01, 0b10, 0b10, 0b01]
    assert result.start[4] == 10  # a whole GPU is free only when all shares of one have gone


def test_a_gang_of_shares_has_a_piece_per_task() -> None:
    # 3 tasks of 400 milli on one node with 2 GPUs: two on GPU 0 (1000 → 600 → 200), the third on GPU 1.
    result = run(jobs((0, 10, 3), gpu_milli=400), gpu_nodes(2), "fcfs")
    assert result.pieces == [(0, 0, 1, 0b01), (0, 0, 1, 0b01), (0, 0, 1, 0b10)]


def test_tier_finds_two_plus_two_where_three_and_two_are_free() -> None:
    # Nodes of 4 with 3, 2 and 0 free, 4 tasks: m = 1, no node has 4, so tier 2: two nodes. Both splits have Δfrag = −1, Δwaste = 0 and
    # Δbalance = 20: 3+1 changes (4−free)² from 1, 4 to 16, 9; 2+2 to 9, 16. The tie goes to the smaller list, (0, 2), (1, 2).
    machine = Machine.of(gpu_nodes(4, 4, 4))
    (job,) = make_jobs(jobs((0, 1, 4)), machine, [1.0])
    state = State([[0, 1000, 1000, 1000], [0, 0, 1000, 1000], [0] * 4], list(machine.total.cpu), list(machine.total.mem))
    assert tier_choices(job, state, balance_first=False) == [(0, 2), (1, 2)]
    assert tier_choices(job, state, balance_first=True) == [(0, 2), (1, 2)]


def test_tier_spans_one_more_node_only_if_fragmentation_does_not_rise() -> None:
    # Nodes of 4 with 3 and 3 free, 4 tasks: 1+3 and 3+1 complete a node (Δfrag −1), 2+2 does not. The smaller list is (0, 1), (1, 3).
    machine = Machine.of(gpu_nodes(4, 4))
    (job,) = make_jobs(jobs((0, 1, 4)), machine, [1.0])
    three_each = State([[0, 1000, 1000, 1000], [0, 1000, 1000, 1000]], list(machine.total.cpu), list(machine.total.mem))
    assert tier_choices(job, three_each, balance_first=False) == [(0, 1), (1, 3)]
    machine = Machine.of(build("odd", [NodeGroup(1, gpus=2, kind="T4"), NodeGroup(1, gpus=8, kind="T4"), NodeGroup(1, gpus=3, kind="T4")]))
    (job,) = make_jobs(jobs((0, 1, 4)), machine, [1.0])
    # Free 2 of 2, 2 of 8 (partial), 3 of 3; m = 1 but nobody has 4 free. Two nodes: (0,2),(1,2): Δfrag = 0 − 1; (0,1),(2,3): +1 + 0;
    # (0,2),(2,2): 0 + 1; (1,1),(2,3): 0; (1,2),(2,2): −1 + 1. Least Δfrag: (0,2),(1,2).
    state = State([[1000] * 2, [0] * 6 + [1000] * 2, [1000] * 3], list(machine.total.cpu), list(machine.total.mem))
    assert tier_choices(job, state, balance_first=False) == [(0, 2), (1, 2)]
    # With node 1 full only nodes 0 and 2 remain, and any split of 4 breaks one of them open: the job does not fit.
    state = State([[1000] * 2, [0] * 8, [1000] * 3], list(machine.total.cpu), list(machine.total.mem))
    assert tier_choices(job, state, balance_first=False) is None


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_tier_search_equals_brute_force(node_shapes: list[tuple[int, int]], tasks: int, nodes: int, balance: bool, limited: bool) -> None:
    caps = tuple(max(shape) for shape in node_shapes)
    free = tuple(min(shape) for shape in node_shapes)

    def measure(now: tuple[int, ...]) -> tuple[int, int, int]:
        partial = [cap - f for cap, f in zip(caps, now, strict=True) if 0 < f < cap]
        return len(partial), sum(partial), sum((cap - f) ** 2 for cap, f in zip(caps, now, strict=True))

    ways = []
    for used in itertools.product(*(range(f + 1) for f in free)):
        after = measure(tuple(f - u for f, u in zip(free, used, strict=True)))
        frag, waste, lb = (a - b for a, b in zip(after, measure(free), strict=True))
        if sum(used) == tasks and sum(u > 0 for u in used) == nodes and (frag <= 0 or not limited):
            ways.append(((lb, frag, waste) if balance else (frag, waste, lb), [(n, u) for n, u in enumerate(used) if u]))
    expected = min(ways)[1] if ways else None
    assert least_tier(caps, free, tasks, nodes, 0 if limited else None, balance_first=balance) == expected


def test_fgd_keeps_cores_beside_free_gpus() -> None:
    # Node 0: 1 GPU, 1 core. Node 1: 2 GPUs, 4 cores. Types: (1 GPU, 1 core) × 2 tasks, (no GPU, 1 core) × 1 task.
    # The CPU-only task on node 0 would leave its GPU without a core: the fragment of the first type rises by 1000 (weight 2).
    # On node 1 nothing rises.
    # pack goes by least free CPU and takes node 0.
    cluster = build("cores", [NodeGroup(1, gpus=1, kind="T4", cpus=1), NodeGroup(1, gpus=2, kind="T4", cpus=4)])
    workload = jobs((0, 10, 1), (0, 10, 2), gpu_milli=[0, 1000], cpu_milli=1000)
    assert nodes_of(run(workload, cluster, "fcfs@fgd"), 0) == [1]
    assert nodes_of(run(workload, cluster, "fcfs@pack"), 0) == [0]


def test_fgd_completes_a_half_used_gpu() -> None:
    # Node 0: 1 GPU, node 1: 2 GPUs. Types: halves × 3 tasks, whole × 1 task. First half: node 0 becomes useless to the whole type (+500),
    # node 1 keeps one whole GPU and strands 500 (+500): tie, node 0. Second half: node 0's rest is used up (−500). Whole: either GPU of
    # node 1 strands nothing: GPU 0. Third half: GPU 1 of node 1, the only room left.
    workload = jobs((0, 9, 1), (0, 9, 1), (0, 9, 1), (0, 9, 1), gpu_milli=[500, 500, 1000, 500])
    assert run(workload, gpu_nodes(1, 2), "fcfs@fgd").pieces == [(0, 0, 1, 1), (1, 0, 1, 1), (2, 1, 1, 0b01), (3, 1, 1, 0b10)]


def test_cheapest_weighs_watts_against_speed() -> None:
    # T4 draws 70 − 10 = 60 W above idle, V100-16 300 − 30 = 270 W. At equal speed the T4 is cheaper; at 5 times the speed the V100 is (54).
    groups = [NodeGroup(1, gpus=1, kind="V100-16"), NodeGroup(1, gpus=1, kind="T4")]
    assert nodes_of(run(jobs((0, 1, 1)), build("equal", groups), "fcfs@cheapest"), 0) == [1]
    assert nodes_of(run(jobs((0, 1, 1)), build("fast", groups, speeds={"V100-16": 5.0}), "fcfs@cheapest"), 0) == [0]


# --- runtime, partitions, rejection


def test_kinds_change_runtimes_and_a_gang_runs_at_its_slowest() -> None:
    groups = [NodeGroup(1, gpus=1, kind="T4"), NodeGroup(1, gpus=1, kind="A100-80")]
    cluster = build("mixed", groups, speeds={"T4": 0.5, "A100-80": 2.0})
    assert run(jobs((0, 10, 1)), cluster, "fcfs@first").end.tolist() == [20]
    assert run(jobs((0, 10, 1)), cluster, "fcfs@fastest").end.tolist() == [5]
    assert run(jobs((0, 10, 2)), cluster, "fcfs@fastest").end.tolist() == [20]
    only_t4 = jobs((0, 10, 1), kind_set=1, kind_sets=((), ("T4",)))
    assert run(only_t4, cluster, "fcfs@fastest").end.tolist() == [20]
    cpu_only = jobs((0, 10, 1), gpu_milli=0, cpu_milli=1000)
    assert run(cpu_only, cluster, "fcfs@first").end.tolist() == [10]


def test_penalties_for_more_nodes_and_more_racks_than_needed() -> None:
    # 2 racks × 2 nodes × 2 GPUs; +0.5 for nodes, +0.25 for racks.
    cluster = build("racks", [NodeGroup(4, gpus=2, kind="T4", nodes_per_rack=2)], node_penalty=0.5, rack_penalty=0.25)
    # 2 one-GPU tasks spread over nodes 0 and 1: one node would do (+0.5), both in rack 0.
    assert run(jobs((0, 8, 2)), cluster, "fcfs@spread").end.tolist() == [12]
    # Job 0 takes node 0 for 100 s, job 1 needs two whole nodes: `pack` takes nodes 1 and 2, as few as possible but in two racks (+0.25).
    result = run(jobs((0, 100, 1), (0, 8, 2), gpu_milli=2000), cluster, "fcfs")
    assert nodes_of(result, 1) == [1, 2]
    assert result.end.tolist() == [100, 10]
    # Five one-GPU tasks over 4 nodes: m = 3 (+0.5); 4 nodes need 2 racks, so no penalty for racks.
    assert run(jobs((0, 8, 5)), cluster, "fcfs@spread").end.tolist() == [12]


def test_a_blocked_job_blocks_only_its_partition() -> None:
    groups = [NodeGroup(1, gpus=1, kind="T4", partition="north"), NodeGroup(1, gpus=1, kind="T4", partition="south")]
    cluster = build("two", groups)
    # The workload numbers its partitions the other way round: names decide. Job 1 waits for job 0; job 2 has a queue of its own.
    workload = jobs((0, 10, 1), (0, 5, 1), (0, 1, 1), partition=[1, 1, 0], partitions=("south", "north"))
    result = run(workload, cluster, "fcfs")
    assert result.start.tolist() == [0, 10, 0]
    assert [nodes_of(result, j) for j in range(3)] == [[0], [0], [1]]
    # One job anywhere in the log that may run in any partition makes it one queue: job 2 waits behind job 1.
    shared = jobs((0, 10, 1), (0, 5, 1), (0, 1, 1), (90, 1, 1), partition=[1, 1, 0, -1], partitions=("south", "north"))
    assert run(shared, cluster, "fcfs").start.tolist() == [0, 10, 10, 90]


def test_jobs_that_can_never_run_are_rejected_and_nothing_else_changes() -> None:
    # 2 + 2 GPUs: five tasks, one task of 3 GPUs, an absent kind and an absent partition cannot run; four tasks can.
    workload = jobs(
        (0, 1, 5), (0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 1, 4),
        gpu_milli=[1000, 3000, 1000, 1000, 1000], kind_set=[0, 0, 1, 0, 0], kind_sets=((), ("H100",)),
        partition=[-1, -1, -1, 0, -1], partitions=("x",),
    )  # fmt: skip
    result = run(workload, gpu_nodes(2, 2), "fcfs")
    assert result.status.tolist() == [REJECTED] * 4 + [DONE]
    assert result.start.tolist() == [math.inf] * 4 + [0]
    assert result.end.tolist() == [math.inf] * 4 + [1]
    assert {job for job, *_ in result.pieces} == {4}


def test_kill_at_limit() -> None:
    workload = jobs((0, 10, 1), (0, 10, 1), (0, 10, 1), requested=[4, np.nan, 10])
    result = run(workload, gpu_nodes(3), "fcfs", kill_at_limit=True)
    assert result.end.tolist() == [4, 10, 10]
    assert result.status.tolist() == [KILLED, DONE, DONE]
    assert run(workload, gpu_nodes(3), "fcfs").end.tolist() == [10, 10, 10]


# --- published numbers


def lublin(traces: Path) -> Workload:
    with gzip.open(traces / "swf" / "lublin_256.swf.gz", "rt") as lines:
        table = np.array([line.split() for line in lines if line.strip() and not line.startswith(";")], dtype=np.float64)
    return jobs(*table[:, [1, 3, 4]], gpu_milli=0, cpu_milli=1000)


LUBLIN = [
    pytest.param("fcfs", "reorder", 2388443.7601, 66502.47552932303, marks=pytest.mark.slow),
    pytest.param("sjf", "reorder", 275304.2226, None, marks=pytest.mark.slow),
    pytest.param("sjf", "commit", 215314.9468, None, marks=pytest.mark.slow),
    pytest.param("fcfs+easy", "reorder", 97155.9945, 590.0537772276801, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("policy", "dispatch", "mean_wait_s", "mean_bounded_slowdown"), LUBLIN)
def test_lublin_numbers_that_public_simulators_agree_on(
    traces: Path, policy: str, dispatch: str, mean_wait_s: float, mean_bounded_slowdown: float | None
) -> None:
    workload = lublin(traces)
    result = run(workload, build("flat", [NodeGroup(1, cpus=256)]), policy, dispatch=dispatch)
    wait = result.start - workload.submit
    assert wait.mean() == pytest.approx(mean_wait_s, rel=1e-13)
    if mean_bounded_slowdown is not None:
        slowdown = np.maximum(1.0, (wait + workload.runtime) / np.maximum(workload.runtime, 10.0))
        assert slowdown.mean() == pytest.approx(mean_bounded_slowdown, rel=1e-13)
