"""Whole policies in Python that stop and move jobs: what that costs, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

STOPPING = """
from queuewise.policies.interface import Migrate, Preempt, Start

class Base:
    def decide(self, view):
        if view.now != 10:
            return [Start(job) for job in view.queue if view.fits(job)]
        return self.at_ten(view)

class Stops(Base):
    def at_ten(self, view):
        yield Preempt(view.running[0].job)
        assert [job.index for job in view.queue] == [0, 1] and not view.running
        yield Start(1)
        assert view.remaining(view.queue[0]) == self.left

class Suspends(Stops):
    left = 90.0

class Kills(Stops):
    left = 100.0

class Moves(Base):
    def at_ten(self, view):
        yield Migrate(0, {1: 1})
        assert dict(view.running[0].tasks) == {1: 1} and view.running[0].start == 10
        yield Start(1, {0: 1})

class MovesToAGpu(Base):
    def at_ten(self, view):
        yield Migrate(0, [(1, 1, [1])])
        assert view.snapshot().running[0].places == ((1, 1, (1,)),)
        yield Start(1, [(0, 1, [0, 1])])

class MovesByRule(Base):
    def at_ten(self, view):
        yield Migrate(0)
        assert dict(view.running[0].tasks) == {0: 1}  # both nodes are empty without it

class StopsTwice(Base):
    def at_ten(self, view):
        yield Preempt(0)
        yield Preempt(0)

class StopsAtOnce(Base):
    def at_ten(self, view):
        yield Preempt(0)
        yield Start(0)
        yield Preempt(0)

class StopsNobody(Base):
    def at_ten(self, view):
        yield Preempt(1)

class MovesNowhere(Base):
    def at_ten(self, view):
        yield Migrate(0, {2: 1})

class MovesTooMuch(Base):
    def at_ten(self, view):
        yield Start(1, {1: 1})
        yield Migrate(0, {1: 1})
"""
COSTS = {"checkpoint_s": 2.0, "restart_s": 3.0, "transfer_s": 5.0}


@pytest.fixture
def stopping(tmp_path: Path) -> str:
    path = tmp_path / "stopping.py"
    path.write_text(STOPPING, encoding="utf-8")
    return str(path)


def one_and_two(tasks: int) -> Workload:
    """Job 0 takes one GPU from 0 s on for 100 s; job 1 asks at 10 s for two GPUs a task for 20 s."""
    return Workload(
        submit=np.array([0.0, 10.0]),
        runtime=np.array([100.0, 20.0]),
        num_tasks=np.array([1, tasks], np.int32),
        gpu_milli=np.array([1000, 2000], np.int32),
    )


@pytest.mark.parametrize(
    ("name", "mode", "tasks", "ends"),
    [
        ("Suspends", "suspend", 2, (30 + 2 + 3 + 90, 30)),  # job 0 goes on at 30 s where it was: nothing to transfer
        ("Kills", "kill", 2, (30 + 3 + 100, 30)),  # nothing was saved
        ("Moves", "suspend", 1, (10 + 2 + 3 + 5 + 90, 30)),
        ("Moves", "kill", 1, (10 + 2 + 3 + 5 + 90, 30)),  # a move saves, whatever the mode
        ("MovesToAGpu", "suspend", 1, (10 + 2 + 3 + 5 + 90, 30)),
        ("MovesByRule", "suspend", 1, (10 + 2 + 3 + 90, 105 + 20)),  # to where it is; job 1 is asked for again when job 0 ends
    ],
)
def test_stopping_costs_what_the_conditions_say(stopping: str, name: str, mode: str, tasks: int, ends: tuple[float, float]) -> None:
    conditions = Conditions(preemption=Preemption(mode=mode, **COSTS))  # type: ignore[arg-type]
    schedule = simulate(one_and_two(tasks), load_cluster("2x2:V100-16"), f"{stopping}:{name}", estimates="oracle", conditions=conditions)
    assert schedule.end.tolist() == list(ends)
    assert schedule.preemptions.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "quantum", "message"),
    [
        ("Suspends", 50.0, "preempts job 0, which started at 0 s"),
        ("Moves", 50.0, "moves job 0, which started at 0 s"),
        ("StopsTwice", 0.0, "preempts job 0, which is queued"),
        ("StopsAtOnce", 0.0, "preempts job 0, which started at 10 s"),
        ("StopsNobody", 0.0, "preempts job 1, which is queued"),
        ("MovesNowhere", 0.0, "places job 0 on nodes {2: 1}"),
        ("MovesTooMuch", 0.0, "moves job 0 to nodes {1: 1}, where it does not fit"),
    ],
)
def test_illegal_stops_are_told(stopping: str, name: str, quantum: float, message: str) -> None:
    conditions = Conditions(preemption=Preemption(quantum_s=quantum))
    with pytest.raises(InputError, match=message) as caught:
        simulate(one_and_two(1), load_cluster("2x2:V100-16"), f"{stopping}:{name}", conditions=conditions)
    assert caught.value.hint
