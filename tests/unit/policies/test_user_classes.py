"""Whole policies in Python: they equal the built-ins they spell out, and illegal decisions are told."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Outage
from queuewise.errors import InputError
from queuewise.policies import parse_policy, simulate
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

DECIDERS = Path(__file__).parents[3] / "examples" / "policies" / "deciders.py"


@pytest.fixture(scope="module")
def gangs() -> Workload:
    return generate("bench", 250, gpus=32, load=0.95)


def processor_jobs() -> Workload:
    """Jobs of 1 to 64 processors whose estimates are far off."""
    rng = np.random.default_rng(5)
    num = 300
    runtime = np.floor(rng.lognormal(5, 1.5, num))
    return Workload(
        submit=np.sort(rng.integers(0, 20_000, num)).astype(float),
        runtime=runtime,
        requested=runtime * rng.choice([0.5, 1.0, 2.0, 7.0], num),
        num_tasks=rng.choice([1, 2, 8, 16, 40, 64], num).astype(np.int32),
        cpu_milli=np.full(num, 1000, np.int32),
    )


@pytest.mark.parametrize(
    ("own", "built_in"),
    [("InOrder", "fcfs"), ("WhateverFits", "fcfs+greedy"), ("InOrder@spread", "fcfs@spread"), ("LowestNodesFirst", "fcfs@first")],
)
def test_classes_equal_the_built_ins_they_spell_out(gangs: Workload, own: str, built_in: str) -> None:
    cluster = load_cluster("4x8:V100-16")
    found, expected = (simulate(gangs, cluster, policy) for policy in (f"{DECIDERS}:{own}", built_in))
    assert expected.first_wait.max() > 0
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.piece_node, expected.piece_node)
    np.testing.assert_array_equal(found.piece_gpus, expected.piece_gpus)
    assert found.decisions == expected.decisions


@pytest.mark.parametrize("estimates", ["oracle", "requested"])
def test_easy_as_a_class(estimates: str) -> None:
    jobs, cluster = processor_jobs(), load_cluster("flat:64")
    found = simulate(jobs, cluster, f"{DECIDERS}:EasyOnOneMachine", estimates=estimates)
    expected = simulate(jobs, cluster, "fcfs+easy", estimates=estimates)
    np.testing.assert_array_equal(found.start, expected.start)
    assert (expected.start != simulate(jobs, cluster, "fcfs", estimates=estimates).start).any()


def test_jobs_hit_by_an_outage_come_back(gangs: Workload) -> None:
    cluster = load_cluster("4x8:V100-16")
    times = np.linspace(gangs.submit[0], gangs.submit[-1], 8)[1:].tolist()
    conditions = Conditions(outages=tuple(Outage(node=n, start=time, end=time + 600) for time in times for n in (0, 2)))
    found, expected = (simulate(gangs, cluster, policy, conditions=conditions) for policy in (f"{DECIDERS}:InOrder", "fcfs"))
    np.testing.assert_array_equal(found.end, expected.end)
    assert found.preemptions.sum() == expected.preemptions.sum() > 0


SOURCE = """
import time
from queuewise.policies.interface import Start

class Base:
    def decide(self, view):
        if view.now < 5 or not view.queue:
            return [Start(job) for job in view.queue if view.now < 5]
        return self.late(view)

class Twice(Base):
    def late(self, view):
        return [Start(0)]

class TooLarge(Base):
    def late(self, view):
        return [Start(view.queue[0])]

class Elsewhere(Base):
    def late(self, view):
        return [Start(view.queue[0], {1: 2})]

class Partly(Base):
    def late(self, view):
        return [Start(view.queue[0], {0: 1})]

class Nowhere(Base):
    def late(self, view):
        return [Start(view.queue[0], {7: 2})]

class PlacesWords(Base):
    def late(self, view):
        return [Start(view.queue[0], {0: "x"})]

class PlacesHalves(Base):
    def late(self, view):
        return [Start(view.queue[0], {0: 1.5, 1: 0.5})]

class OnANamedNode(Base):
    def late(self, view):
        return [Start(view.queue[0], {"0": 2})]

class OnAFractionalNode(Base):
    def late(self, view):
        return [Start(view.queue[0], {0.0: 2})]

class OnTakenGpus(Base):
    def late(self, view):
        return [Start(view.queue[0], [(0, 1, [0, 1]), (1, 1, [0, 1])])]

class OnGpusThatAreNot(Base):
    def late(self, view):
        return [Start(view.queue[0], [(0, 1, [0, 1]), (1, 1, [1, 2])])]

class OnTooFewGpus(Base):
    def late(self, view):
        return [Start(view.queue[0], [(0, 1, [0, 1]), (1, 1, [1])])]

class OnOneNodeTwice(Base):
    def late(self, view):
        return [Start(view.queue[0], [(0, 1, [0, 1]), (0, 1, [0, 1])])]

class OnNamedGpus(Base):
    def late(self, view):
        return [Start(view.queue[0], [(0, 2, "abcd")])]

class OnNothing(Base):
    def late(self, view):
        return [Start(view.queue[0], 3)]

class NoJob(Base):
    def late(self, view):
        return [Start("job")]

class NoDecision(Base):
    def late(self, view):
        return view.queue

class NoList(Base):
    def late(self, view):
        return 3

class Idle(Base):
    def late(self, view):
        return []

class Raises(Base):
    def late(self, view):
        return [1 / 0]

class Leaves(Base):
    def late(self, view):
        raise SystemExit

class LeavesWithAWord(Base):
    def late(self, view):
        yield Start(view.queue[0]) if view.fits(view.queue[0]) else exit("enough")

class YieldsNothing(Base):
    def late(self, view):
        while True:
            yield None

class Sees(Base):
    def late(self, view):
        running = view.running[0]
        told = running.job.index, running.start, running.expected_end, dict(running.tasks), [n.free_gpus for n in view.nodes()]
        raise ValueError((*told, [n.slots for n in view.nodes(view.queue[0])], view.fits(view.queue[0])))

class Slow:
    def decide(self, view):
        while True:
            pass

class SlowToBeMade(Base):
    def __init__(self):
        while True:
            time.sleep(1)

class SlowToReset(Base):
    def reset(self, cluster, seed):
        while True:
            time.sleep(1)

class NeedsMore:
    def __init__(self, size):
        self.size = size
    def decide(self, view):
        return []

class Mute:
    pass

TIME_LIMIT_S = 0.5
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def two_gangs() -> Workload:
    """Job 0 takes a GPU of each node from 0 s on; job 1 asks at 6 s for two nodes' worth of two-GPU tasks."""
    return Workload(
        submit=np.array([0.0, 6.0]),
        runtime=np.array([100.0, 10.0]),
        requested=np.array([40.0, 10.0]),
        num_tasks=np.array([3, 2], np.int32),
        gpu_milli=np.array([1000, 2000], np.int32),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Twice", "starts job 0, which is running"),
        ("TooLarge", "starts job 1, which does not fit"),
        ("Elsewhere", "starts job 1 on nodes {1: 2}, where it does not fit"),
        ("Partly", "places 1 tasks of job 1, which has 2"),
        ("Nowhere", "places job 1 on nodes {7: 2}"),
        ("PlacesWords", "places job 1 on nodes {0: 'x'}"),
        ("PlacesHalves", "places job 1 on nodes {0: 1.5, 1: 0.5}"),
        ("OnANamedNode", "places job 1 on nodes {'0': 2}"),
        ("OnAFractionalNode", "places job 1 on nodes {0.0: 2}"),
        ("OnTakenGpus", r"starts job 1 on nodes \[\(0, 1, \[0, 1\]\), .*, where it does not fit"),
        ("OnGpusThatAreNot", "node 1 has no GPU 2"),
        ("OnTooFewGpus", r"a place on node 1 needs 2 different GPUs, not \[1\]"),
        ("OnOneNodeTwice", "node 0 is named twice"),
        ("OnNamedGpus", "places job 1 on nodes .*abcd"),
        ("OnNothing", "places job 1 on nodes 3"),
        ("NoJob", "names 'job', which is not a job"),
        ("NoDecision", "decided Job.*, which is not a decision"),
        ("NoList", "decide returned 3"),
        ("Idle", "left 1 jobs waiting for ever, the first is job 1"),
        ("Raises", "ZeroDivisionError: division by zero"),
        ("LeavesWithAWord", "SystemExit: enough"),
        ("YieldsNothing", "decided None, which is not a decision"),
        ("Slow", "did not return within 0.5 s"),
        ("SlowToBeMade", "did not return within 0.5 s"),
        ("SlowToReset", "did not return within 0.5 s"),
        ("NeedsMore", "cannot be created without size"),
        ("Mute", "has no method decide"),
        ("Sees", r"\(0, 0.0, 40.0, {0: 2, 1: 1}, \[0.0, 1.0\], \[0.0, 0.0\], False\)"),
    ],
)
def test_illegal_decisions_are_told(mine: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        simulate(two_gangs(), load_cluster("2x2:V100-16"), f"{mine}:{name}")
    assert caught.value.where.startswith(f"{mine}:")
    assert caught.value.hint


def test_a_policy_that_is_given_up_does_not_go_on(mine: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(InputError, match="did not return"):
        simulate(two_gangs(), load_cluster("2x2:V100-16"), f"{mine}:Slow")
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_an_exit_is_told_with_its_line(mine: str) -> None:
    with pytest.raises(InputError, match="SystemExit") as caught:
        simulate(two_gangs(), load_cluster("2x2:V100-16"), f"{mine}:Leaves")
    assert caught.value.where == f"{mine}:{SOURCE[: SOURCE.index('raise SystemExit')].count(chr(10)) + 1}"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def decide(self): return []", "Mine.decide cannot be called with view: too many positional arguments"),
        ("def decide(self, view, extra): return []", "Mine.decide cannot be called with view: missing a required argument: 'extra'"),
        ("def decide(self, view, *, extra): return []", "Mine.decide cannot be called with view: missing a required .*argument: 'extra'"),
        ("def decide(): return []", "Mine.decide cannot be called with view: invalid method signature"),
        ("def reset(self): pass", "Mine.reset cannot be called with cluster and seed: too many positional arguments"),
        ("reset = 3", "Mine.reset cannot be called with cluster and seed: 3 is not a callable object"),
    ],
)
def test_methods_that_take_other_parameters_are_told_when_the_name_is_read(tmp_path: Path, method: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"class Mine:\n    def decide(self, view): return []\n    {method}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        parse_policy(f"{path}:Mine")
    assert caught.value.where == f"{path}:{1 if method == 'reset = 3' else 3}"
    assert caught.value.hint.startswith(("write def decide(self, view)", "write def reset(self, cluster, seed)"))


@pytest.mark.parametrize(
    "method",
    [
        "def decide(self, view, extra=1): return []",
        "def decide(self, *views): return []",
        "@staticmethod\n    def decide(view): return []",
        "@classmethod\n    def decide(cls, view): return []",
        "def reset(self, machine, seed, more=0): pass",
    ],
)
def test_methods_that_can_be_called_are_taken(tmp_path: Path, method: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"class Mine:\n    def decide(self, view): return []\n    {method}\n", encoding="utf-8")
    assert parse_policy(f"{path}:Mine").decides_in_python


def test_a_class_leaves_no_room_for_a_backfill_rule(mine: str) -> None:
    with pytest.raises(InputError, match="decides itself what to backfill"):
        parse_policy(f"{mine}:Idle+easy")


def test_srtf_as_a_class() -> None:
    rng = np.random.default_rng(2)
    num = 150
    jobs = Workload(
        submit=np.sort(rng.integers(0, 3000, num)).astype(float),
        runtime=rng.lognormal(4, 1.5, num),
        num_tasks=np.ones(num, np.int32),
        gpu_milli=np.full(num, 1000, np.int32),
    )
    found, expected = (
        simulate(jobs, load_cluster("1x8:V100-16"), policy, estimates="oracle") for policy in (f"{DECIDERS}:ShortestRemainingFirst", "srtf")
    )
    assert expected.preemptions.sum() > 20
    for column in ("start", "end", "preemptions", "piece_job", "piece_start", "piece_end"):
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), err_msg=column)
