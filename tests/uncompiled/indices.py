"""No kernel reads or writes beyond a column. Compiled ones check no bounds, and NumPy lets a negative index wrap around."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from fixed_workloads import gangs
from queuewise import simulate
from queuewise.cluster import load_cluster
from queuewise.policies.budgets import Budgets
from queuewise.sim.core.tables import Table
from queuewise.workload.jobs import Workload

JOBS = 30
PLANNERS = ("plan:sjf~1s", "plan:fcfs+easy~1h", "milp:4~1s", "portfolio:fcfs~1h,sjf~1h", "recent:fcfs~1s,sjf~1s")
OTHERS = ("sjf~1s", "sjf+greedy~1h", "wfp3+easy~1h", "fcfs+conservative", "tiresias", "sjf+easy@milp", "multifactor+slurm")


class Guarded(np.ndarray[Any, np.dtype[Any]]):
    """A column whose elements kernels take by indices from 0 to its length."""

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        super().__setitem__(index, value)

    def _check(self, index: Any) -> None:
        caller = sys._getframe(2).f_code.co_filename
        if "/queuewise/sim/" in caller and isinstance(index, int | np.integer) and not 0 <= index < len(self):
            raise AssertionError(f"index {index} of a column of {len(self)}")


@pytest.fixture(autouse=True)
def guarded_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table.__init__

    def make(table: Table, *arrays: Any, **named: Any) -> None:
        made(table, *arrays, **named)
        vars(table).update({name: column.view(Guarded) for name, column in vars(table).items() if type(column) is np.ndarray})

    monkeypatch.setattr(Table, "__init__", make)


def test_the_guard_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["queuewise.sim.queue.overdue"], "_find_oldest", lambda w, s, q: s.oldest[-1])
    with pytest.raises(AssertionError, match="index -1 of a column"):
        simulate(gangs().workload, gangs().cluster, "sjf~1s")


def backlog() -> Workload:
    """Jobs of one to four GPUs, of which many wait."""
    number = np.arange(JOBS, dtype=np.float64)
    return Workload(
        submit=30 * number, runtime=50 + 91 * number % 500, requested=np.full(JOBS, 600.0),
        num_tasks=np.asarray(1 + number % 4, np.int32), gpu_milli=np.full(JOBS, 1000, np.int32),
    )  # fmt: skip


@pytest.mark.parametrize("policy", PLANNERS)
def test_indices_of_planners_are_within_columns(policy: str) -> None:
    found = simulate(backlog(), load_cluster("2x4:V100-16"), policy, budgets=Budgets(plan_samples=1, plan_budget=8))
    assert found.finished.all()


@pytest.mark.parametrize("policy", OTHERS)
def test_indices_are_within_columns(policy: str) -> None:
    assert simulate(gangs().workload, gangs().cluster, policy).finished.any()
