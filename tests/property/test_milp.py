"""`@milp` finds the best of all placements, and places nothing wrongly: every instance is compared with brute force."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("highspy")

import effort
from brute_placement import Brute, Nodes
from queuewise import simulate
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies.budgets import Budgets
from queuewise.policies.milp.terms import TERMS, parse_objective
from queuewise.policies.placing import SOLVED_PLACEMENTS
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

INSTANCES = 400 if effort.thorough else 12
OBJECTIVES = (
    "", ":2", ":4", ":fgd", ":fgd-full:2", ":even", ":racks-nodes", ":slow-nodes-even", ":energy-nodes", ":room-nodes", ":room-fragments:3",
    ":2nodes+fragments-slow", ":racks+slow-fragments:2", ":1.5energy+0.25nodes",
)  # fmt: skip


def instance(seed: int) -> tuple[Workload, Cluster]:
    """At most 6 nodes, and at most 4 jobs that are placed together, with more before them so that nodes are partly used."""
    rng = np.random.default_rng(seed)
    groups = []
    for _ in range(rng.integers(1, 4)):
        gpus = int(rng.choice([0, 1, 2, 2, 4]))
        groups.append(
            NodeGroup(
                int(rng.integers(1, 3)),
                gpus=gpus,
                kind=str(rng.choice(["T4", "V100-16"])) if gpus else "",
                cpus=float(rng.choice([4.0, 8.0])),
                mem_gib=float(rng.choice([8.0, 16.0])),
                nodes_per_rack=int(rng.integers(1, 3)),
                core_watts=float(rng.choice([2.0, 5.0])),
            )
        )
    num = int(rng.integers(3, 8))
    milli = rng.choice([0, 300, 500, 500, 1000, 1000, 2000], num) if any(group.gpus for group in groups) else np.zeros(num, np.int64)
    tasks = np.where((milli > 0) & (milli < 1000), rng.choice([1, 1, 2], num), rng.choice([1, 1, 2, 3], num))
    workload = Workload(
        submit=np.zeros(num),
        runtime=np.full(num, 1000.0),
        num_tasks=tasks.astype(np.int32),
        gpu_milli=milli.astype(np.int32),
        cpu_milli=np.where(milli > 0, rng.choice([0, 1000, 2000], num), rng.choice([1000, 2000], num)).astype(np.int32),
        mem_mib=rng.choice([0, 2048, 4096], num).astype(np.int32),
        kind_set=rng.choice([0, 0, 0, 1], num).astype(np.int32),
        kind_sets=((), ("V100-16",)),
    )
    return workload, build("brute", groups, speeds={"T4": 0.5} if any(group.kind == "T4" for group in groups) else None)


def after_job(schedule: Schedule, j: int, nodes: Nodes) -> tuple[Nodes, tuple[int, ...]]:
    """The nodes with job j where the schedule has it, and which of them it uses. Fails if it does not fit there."""
    w = schedule.workload
    left = list(nodes)
    tasks = 0
    used = []
    for k in np.flatnonzero(schedule.piece_job == j):
        n, number, mask = int(schedule.piece_node[k]), int(schedule.piece_tasks[k]), int(schedule.piece_gpus[k])
        cpu, mem, gpus = left[n]
        bits = [g for g in range(len(gpus)) if mask >> g & 1]
        milli = int(w.gpu_milli[j])
        taken = dict.fromkeys(bits, 1000 if milli >= 1000 else number * milli)
        assert sum(taken.values()) == number * milli
        cpu, mem = cpu - number * int(w.cpu_milli[j]), mem - number * int(w.mem_mib[j])
        levels = tuple(level - taken.get(g, 0) for g, level in enumerate(gpus))
        assert min(cpu, mem, *levels, 0) >= 0
        left[n] = cpu, mem, levels
        tasks += number
        used.append(n)
    assert tasks == w.num_tasks[j]
    return tuple(left), tuple(sorted(set(used)))


@pytest.mark.parametrize("option", OBJECTIVES)
def test_every_placement_is_one_of_the_best(option: str) -> None:
    objective = parse_objective(option)
    placed = 0
    for seed in range(INSTANCES):
        workload, cluster = instance(seed)
        schedule = simulate(workload, cluster, f"fcfs+greedy@milp{option}")
        assert schedule.thinking is None or schedule.thinking.get("gap", {"max": 0.0})["max"] == 0.0
        brute = Brute(workload, cluster, objective.levels)
        nodes = brute.empty()
        started = [int(j) for j in schedule.piece_job[schedule.piece_start == 0.0]]
        waiting = [j for j in range(len(workload)) if schedule.start[j] < np.inf]  # the others are rejected
        for j in dict.fromkeys(started):
            waiting.remove(j)
            batch = (j, *waiting[: objective.jobs - 1])
            room = tuple(waiting[:8]) if "room" in objective.terms else ()
            after, used = after_job(schedule, j, nodes)
            own = (0.0, *brute.cost(j, nodes, after, used, room))
            # The first job where it is, the others as well as possible.
            rest = brute.best(batch[1:], after, room, all_may_wait=True)
            best = brute.best(batch, nodes, room)
            assert [round(x + y, 5) for x, y in zip(own, rest, strict=True)] == pytest.approx(best, abs=1e-4), (seed, j)
            nodes = after
            placed += 1
    assert placed > INSTANCES


def test_every_solved_placement_is_compared_with_brute_force() -> None:
    assert set(SOLVED_PLACEMENTS) == {"milp"}
    assert set(TERMS) == {name for option in OBJECTIVES for name in parse_objective(option).terms}


def test_without_work_the_rules_place_and_nothing_is_wrong() -> None:
    """With next to no work allowed, every job still has a place, and what is not proven is counted."""
    workload, cluster = gangs()
    schedule = simulate(workload, cluster, "fcfs+greedy@milp:room-even:8", budgets=Budgets(milp_work=1))
    nodes = Brute(workload, cluster, ()).empty()
    for j in dict.fromkeys(int(j) for j in schedule.piece_job[schedule.piece_start == 0.0]):
        nodes, _ = after_job(schedule, j, nodes)
    assert schedule.finished.all()


def gangs(seed: int = 0) -> tuple[Workload, Cluster]:
    rng = np.random.default_rng(seed)
    num = 40
    workload = Workload(
        submit=np.zeros(num),
        runtime=rng.choice([50.0, 100.0, 200.0], num),
        num_tasks=rng.choice([1, 2, 3, 5, 7], num).astype(np.int32),
        gpu_milli=rng.choice([1000, 2000], num).astype(np.int32),
        cpu_milli=rng.choice([1000, 3000], num).astype(np.int32),
    )
    return workload, build("gangs", [NodeGroup(4, gpus=4, kind="T4", cpus=16), NodeGroup(4, gpus=8, kind="V100-16", cpus=24)])


@pytest.mark.parametrize("policy", ["sjf+easy@milp", "fcfs+conservative@milp", "wfp3+easy@milp:4", "srtf@milp", "fcfs+greedy~1m@milp:even"])
def test_the_same_input_gives_the_same_schedule(policy: str) -> None:
    workload, cluster = gangs(1)
    one, other = simulate(workload, cluster, policy), simulate(workload, cluster, policy)
    assert one.finished.all()
    for name in ("start", "piece_job", "piece_node", "piece_tasks", "piece_gpus"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_programs_of_one_shape_leave_no_trace() -> None:
    """The second program is that of the first, changed in place: what was kept of the first's levels is gone."""
    from queuewise.policies.milp.integer_program import IntegerProgram, Rows

    program = IntegerProgram(work=100)
    ones = np.ones(2)

    def at_least(number: float) -> Rows:
        return Rows(np.zeros(2, np.int64), np.arange(2), ones, np.array([number]), np.array([np.inf]))

    program.load(np.full(2, 10.0), at_least(1.0))
    assert program.minimise(ones, whole_costs=True).bound == 1.0
    program.keep_at_most(ones, 1.5)
    program.load(np.full(2, 10.0), at_least(4.0))
    solved = program.minimise(np.array([1.0, 2.0]), whole_costs=True)
    assert program.changed_in_place == 1
    assert solved.values is not None
    assert solved.values.tolist() == [4.0, 0.0]
