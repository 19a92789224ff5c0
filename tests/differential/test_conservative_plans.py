"""Conservative plans where most jobs have no length, or are thought to have none: the engine and the reference agree."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import seeds, tries
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import Workload
from strategies import DISPATCHES, ORDERS, PLACEMENTS, WITHOUT_DEPTH, Case, caps, cases, column, outages, owned, reservations

RULES = ("conservative", "conservative:sjf", "conservative:fcfs", "conservative/3")


@st.composite
def short_cases(draw: st.DrawFn) -> Case:
    """Half of the runtimes are 0, and of the estimates some more; in one case of two estimates are exact."""
    case = draw(cases())
    num = len(case.workload)
    runtime = np.where(column(draw, num, (True, False), np.bool_), 0.0, case.workload.runtime)
    exact = draw(st.booleans())
    estimate = runtime if exact else np.where(column(draw, num, (True, False, False), np.bool_), 0.0, case.estimate)
    return dataclasses.replace(case, workload=case.workload.replace(runtime=runtime), estimate=estimate)


@st.composite
def plans(draw: st.DrawFn) -> str:
    order = draw(st.sampled_from(("fcfs", *ORDERS)))
    rules = [rule for rule in RULES if "/" not in rule or order not in WITHOUT_DEPTH]
    return f"{order}+{draw(st.sampled_from(rules))}@{draw(st.sampled_from(PLACEMENTS))}"


@tries(400)
@given(short_cases(), plans(), st.sampled_from(DISPATCHES))
def test_jobs_of_no_length(case: Case, policy: str, dispatch: str) -> None:
    assert_same_schedule(case, policy, dispatch)


@tries(200)
@given(short_cases(), plans(), st.sampled_from(DISPATCHES), st.data())
def test_jobs_of_no_length_under_conditions(case: Case, policy: str, dispatch: str, data: st.DataObject) -> None:
    first = float(case.workload.submit[0])
    nodes = case.cluster.num_nodes
    which = data.draw(st.integers(0, 2))
    if which == 0:
        assume(case.cluster.num_gpus or case.cluster.node_core_watts.any())
        conditions = Conditions(power=data.draw(caps(case.cluster)))
    elif which == 1:
        conditions = Conditions(outages=tuple(data.draw(outages(nodes, first))))
    else:
        case = data.draw(owned(case))
        conditions = Conditions(reservations=data.draw(reservations(nodes, first)))
    assert_same_schedule(case, policy, dispatch, conditions)


def busy_case(seed: int) -> Case:
    """Gangs on nodes of several sizes; a third of the jobs have no length."""
    rng = np.random.default_rng(seed)
    num = 60
    runtime = np.where(rng.uniform(size=num) < 0.3, 0.0, rng.integers(1, 40, num)).astype(np.float64)
    workload = Workload(
        submit=np.sort(rng.integers(0, 90, num)).astype(np.float64),
        runtime=runtime,
        num_tasks=rng.choice([1, 1, 2, 3], num).astype(np.int32),
        gpu_milli=rng.choice([300, 1000, 1000, 2000, 3000], num).astype(np.int32),
    )
    accuracy = rng.choice([0.0, 0.5, 1.0, 2.0], num) if seed % 2 else np.ones(num)
    cluster = build("sizes", [NodeGroup(1, gpus=gpus, kind="T4") for gpus in (4, 3, 2, 3)])
    return Case(workload, cluster, runtime * accuracy, seed=seed, kill_at_limit=False, guessed=seed % 4 == 1)


@pytest.mark.parametrize("seed", seeds(8))
def test_backlogs_on_nodes_of_several_sizes(seed: int) -> None:
    for policy in ("fcfs+conservative", f"sjf+conservative@{PLACEMENTS[seed]}", "wfp3+conservative:fcfs@spread"):
        assert_same_schedule(busy_case(seed), policy, DISPATCHES[seed // 2 % 2])


def test_the_kernels_agree_uncompiled() -> None:
    program = (
        "from test_conservative_plans import assert_same_schedule, busy_case\n"
        "for seed in (0, 1):\n"
        "    for policy in ('fcfs+conservative', 'sjf+conservative@random', 'hrrn+conservative/3'):\n"
        "        assert_same_schedule(busy_case(seed), policy, ('reorder', 'commit')[seed])\n"
    )
    here = Path(__file__).parent
    paths = [str(here), *sys.path]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
