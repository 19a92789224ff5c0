"""A user's function that scores nodes places every gang as the reference does, which calls the same function uncompiled."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from effort import tries
from queuewise.cluster.spec import UNLIMITED
from queuewise.policies import simulate
from queuewise.policies.records import Demand, Node
from reference.placement import KEYS
from reference.state import WHOLE, Job, State
from strategies import BACKFILLS, DISPATCHES, Case, cases

FUNCTIONS = """
def tightest(node, job):
    return node.free_gpus - min(node.slots, job.remaining) * job.gpus + 0.001 * min(node.free_cores, 64.0) * job.cpus

def every_field(node, job):
    score = node.gpus * 3.0 - node.whole_gpus + node.kind * 0.7 + node.speed * node.watts * 0.01 - node.core_watts + (node.rack % 2) * 1.5
    if node.cores < 1e9:
        score += node.free_cores / (1.0 + node.cores)
    if node.mem_mib < 1e9:
        score -= node.free_mem_mib / (1.0 + node.mem_mib)
    return score + job.num_tasks * node.slots + job.mem_mib * 1e-3 + job.cpus * node.free_gpus

def alternating(node, job):
    return (node.index + int(job.remaining)) % 3
"""
NAMES = ("tightest", "every_field", "alternating")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(FUNCTIONS, encoding="utf-8")
    return path


def amount(value: float, total: int, unit: int) -> float:
    return math.inf if total == UNLIMITED else value / unit


def key_of(function: Callable[[Node, Demand], float]) -> Callable[[Job, State, int, int, int], Any]:
    """The function as a key of the reference."""

    def key(job: Job, state: State, n: int, slots: int, remaining: int) -> float:
        machine, cluster = job.machine, job.machine.cluster
        cpu, mem = int(cluster.node_cpu_milli[n]), int(cluster.node_mem_mib[n])
        node = Node(
            index=n,
            gpus=float(len(state.gpus[n])),
            free_gpus=sum(state.gpus[n]) / WHOLE,
            whole_gpus=float(sum(free == WHOLE for free in state.gpus[n])),
            cores=amount(cpu, cpu, 1000),
            free_cores=amount(state.cpu[n], cpu, 1000),
            mem_mib=amount(mem, mem, 1),
            free_mem_mib=amount(state.mem[n], mem, 1),
            slots=float(slots),
            kind=int(cluster.node_kind[n]),
            speed=machine.kind_speed(n),
            watts=machine.active_gpu_watts(n),
            core_watts=float(cluster.node_core_watts[n]),
            rack=machine.rack[n],
        )
        demand = Demand(job.num_tasks, remaining, job.demand.gpu / WHOLE, job.demand.cpu / 1000, job.demand.mem)
        return function(node, demand)

    return key


@pytest.fixture(scope="module", autouse=True)
def reference_knows_them(mine: Path) -> Any:
    spec = importlib.util.spec_from_file_location("mine", mine)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    KEYS.update({name: key_of(getattr(module, name)) for name in NAMES})
    yield
    for name in NAMES:
        del KEYS[name]


@tries(150)
@given(cases(), st.sampled_from(NAMES), st.sampled_from(("fcfs", "sjf", "wfp3")), st.sampled_from(BACKFILLS), st.sampled_from(DISPATCHES))
def test_any_workload(mine: Path, case: Case, name: str, order: str, backfill: str, dispatch: str) -> None:
    options: dict[str, Any] = {"dispatch": dispatch, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    known: dict[str, Any] = {"estimate": case.estimate, "guessed": case.guessed}
    expected = reference.simulate(case.workload, case.cluster, f"{order}+{backfill}@{name}", **known, **options)
    found = simulate(case.workload, case.cluster, f"{order}+{backfill}@{mine}:{name}", estimates=case.known, **options)
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.end, expected.end)
    columns = (found.piece_job, found.piece_node, found.piece_tasks, found.piece_gpus)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == expected.pieces
