"""The fast pass decides what the way by snapshots decides, and leaves to it whatever it cannot hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise import Snapshot, load_policy
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies.simulation import Simulation
from queuewise.policies.snapshot import Place, WaitingJob
from queuewise.serve.live_policy import LivePolicy
from queuewise.serve.request_columns import columns_of_request
from queuewise.serve.snapshot_cluster import cluster_of
from queuewise.serve.snapshot_columns import columns_of
from queuewise.workload.jobs import Workload

POLICIES = (
    "fcfs", "lcfs+greedy", "sjf+easy", "saf+easy", "sjf+easy~20m", "fcfs+easy:saf", "fcfs+easy/2", "wfp3+easy", "power",
    "srf+easy@spread", "priority+easy@fastest", "edf+greedy", "wise", "sjf:requested+easy", "model:generalist-hpc", "random",
)  # fmt: skip
CLUSTER = build(
    "mixed",
    [
        NodeGroup(3, gpus=4, kind="A100-40", cpus=16, mem_gib=64, partitions=("gpu", "all")),
        NodeGroup(2, gpus=2, kind="T4", cpus=8, mem_gib=32, partitions=("gpu", "all")),
        NodeGroup(2, gpus=0, kind="", cpus=32, mem_gib=float("inf"), partitions=("cpu", "all")),
    ],
    speeds={"A100-40": 2.0},
)


def workload_of(seed: int, number: int) -> Workload:
    rng = np.random.default_rng(seed)
    gpus = rng.choice([0, 1, 2, 4], number)
    runtime = rng.integers(10, 3000, number).astype(float)
    labels = ("all", "gpu", "cpu", "cpu,gpu")
    return Workload(
        submit=np.sort(rng.integers(0, 1500, number) // 10 * 10).astype(float),
        runtime=runtime,
        requested=np.ceil(runtime * rng.uniform(1, 3, number)),
        num_tasks=rng.choice([1, 1, 1, 2, 3], number).astype(np.int32),
        gpu_milli=(gpus * 1000).astype(np.int32),
        cpu_milli=(rng.integers(1, 9, number) * 1000).astype(np.int32),
        mem_mib=rng.choice([0, 1024, 8192], number).astype(np.int32),
        partition=np.where(gpus > 0, rng.choice([-1, 0, 1, 3], number), rng.choice([-1, 0, 2], number)).astype(np.int32)
        if seed % 3 else np.where(gpus > 0, 1, 2).astype(np.int32),
        partitions=labels,
        kind_set=np.where(gpus > 0, rng.choice([0, 0, 1], number), 0).astype(np.int32),
        kind_sets=((), ("A100-40",)),
        user=rng.integers(0, 3, number).astype(np.int32),
        users=("ann", "bob", "eve"),
        priority=rng.integers(0, 5, number).astype(float),
        deadline=np.where(rng.random(number) < 0.5, rng.uniform(1e3, 1e4, number), np.nan),
    )  # fmt: skip


def snapshot_of(seed: int, number: int, time: float, *, texts: bool = False) -> Snapshot:
    """In the middle of a replay that backfills nothing, with predictions."""
    workload = workload_of(seed, number)
    if texts:
        workload = workload.replace(job_id=np.array([f"{j // 3}_{j}" for j in range(number)]))
    simulation = Simulation(workload, CLUSTER, "fcfs")
    simulation.run(until=time)
    snapshot = Snapshot.from_json(simulation.snapshot(history=False).to_json())
    rng = np.random.default_rng(seed)

    def predicted(one: Any) -> Any:
        return replace(one, job=replace(one.job, predicted=float(rng.uniform(1.0, one.job.estimate + 2.0))))

    queue, running = (tuple(map(predicted, part)) for part in (snapshot.queue, snapshot.running))
    return replace(snapshot, queue=queue, running=running)


def both(name: str, **options: Any) -> tuple[LivePolicy, LivePolicy]:
    """The policy as it is, and one that never takes the fast pass."""
    fast, slow = load_policy(name, **options), load_policy(name, **options)
    slow._fast = None
    return fast, slow


KEPT: dict[str, tuple[LivePolicy, LivePolicy]] = {}  # their layouts are used again


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000), number=st.integers(1, 40), time=st.integers(0, 3000), texts=st.booleans(), drained=st.sets(st.integers(0, 6))
)
def test_both_ways_decide_the_same(name: str, seed: int, number: int, time: int, texts: bool, drained: set[int]) -> None:
    fast, slow = KEPT.setdefault(name, both(name))
    snapshot = snapshot_of(seed, number, float(time), texts=texts)
    closed = {
        n: replace(node, state="drained", free_gpus=(), free_cpu_milli=0, free_mem_mib=None if node.free_mem_mib is None else 0)
        for n, node in enumerate(snapshot.nodes)
        if n in drained
    }
    snapshot = replace(snapshot, nodes=tuple(closed.get(n, node) for n, node in enumerate(snapshot.nodes)))
    wanted = slow.decide(snapshot)
    if snapshot.queue:
        assert fast._decide_fast(snapshot) == wanted
    assert fast.decide(snapshot) == wanted


@pytest.mark.parametrize("name", ["sjf+easy", "wise"])
def test_a_layout_grows_with_what_jobs_ask_for(name: str) -> None:
    fast, slow = both(name, cluster=CLUSTER)
    for number in (20, 40, 300, 600):
        snapshot = snapshot_of(number, number, 1500.0)
        assert snapshot.queue
        assert fast._decide_fast(snapshot) == slow.decide(snapshot)


@pytest.mark.parametrize("name", ["sjf+conservative", "fcfs+slurm", "srtf", "drf"])
def test_other_policies_are_left_to_the_other_way(name: str) -> None:
    fast, slow = both(name)
    snapshot = snapshot_of(1, 30, 800.0)
    assert fast._decide_fast(snapshot) is None
    assert fast.decide(snapshot) == slow.decide(snapshot)


def changed(snapshot: Snapshot, what: str) -> Snapshot:
    first, run, node = snapshot.queue[0], snapshot.running[0], snapshot.nodes[0]
    free = next(node for node in snapshot.nodes if node.state == "up")
    job = first.job
    changes: dict[str, dict[str, Any]] = {
        "broken GPU": {"nodes": _with_node(snapshot, replace(free, free_cpu_milli=(free.free_cpu_milli or 0) - 1))},
        "too much is free": {"nodes": _with_node(snapshot, replace(node, free_cpu_milli=10**6))},
        "elastic job": {"queue": (WaitingJob(replace(job, max_tasks=job.max_tasks + 1)), *snapshot.queue[1:])},
        "share of a GPU": {"queue": (WaitingJob(replace(job, gpu_milli=500)), *snapshot.queue[1:])},
        "job of the future": {"queue": (WaitingJob(replace(job, submit=snapshot.now + 1)), *snapshot.queue[1:])},
        "equal ids": {"queue": (*snapshot.queue, first)},
        "held job": {"queue": (replace(first, held_until=snapshot.now + 5), *snapshot.queue[1:])},
        "job that was stopped": {"running": (replace(run, progress=replace(run.progress, level=2)), *snapshot.running[1:])},
        "wrong number of tasks": {"running": (replace(run, places=(*run.places, Place(6, 1, ()))), *snapshot.running[1:])},
        "no such node": {"running": (replace(run, places=(run.places[0]._replace(node=70),)), *snapshot.running[1:])},
        "GPU in use": {"running": (*snapshot.running, replace(run, job=replace(run.job, job_id=10**6)))},
        "ended before it began": {"running": (replace(run, expected_end=run.start - 1), *snapshot.running[1:])},
        "sleeping node": {"nodes": _with_node(snapshot, replace(node, idle_since=0.0))},
        "unknown state": {"nodes": _with_node(snapshot, replace(node, state="gone"))},
        "no CPU": {"nodes": _with_node(snapshot, replace(node, free_cpu_milli=None))},
        "negative prediction": {"queue": (WaitingJob(replace(job, predicted=-1.0)), *snapshot.queue[1:])},
        "infinite estimate": {"queue": (WaitingJob(replace(job, estimate=float("inf"))), *snapshot.queue[1:])},
    }  # fmt: skip
    return replace(snapshot, **changes[what])


def _with_node(snapshot: Snapshot, node: Any) -> tuple[Any, ...]:
    return tuple(node if node.index == one.index else one for one in snapshot.nodes)


CHANGES = (
    "broken GPU", "too much is free", "elastic job", "share of a GPU", "job of the future", "equal ids", "held job", "job that was stopped",
    "wrong number of tasks", "no such node", "GPU in use", "ended before it began", "sleeping node", "unknown state", "no CPU",
    "negative prediction", "infinite estimate",
)  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_plain_is_left_to_the_other_way(what: str) -> None:
    fast, slow = both("sjf+easy")
    plain = snapshot_of(4, 40, 600.0)
    assert plain.running
    assert fast._decide_fast(plain) is not None
    snapshot = changed(plain, what)

    def outcome(policy: LivePolicy) -> Any:
        try:
            return policy.decide(snapshot)
        except InputError as error:
            return str(error)

    assert fast._decide_fast(snapshot) is None
    assert outcome(fast) == outcome(slow)


def test_columns_are_those_of_the_snapshot() -> None:
    columns = columns_of(snapshot_of(4, 40, 600.0))
    assert columns is not None
    assert columns.waiting == len(snapshot_of(4, 40, 600.0).queue)
    assert sorted(columns.rows().tolist()) == list(range(len(columns.ids)))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), number=st.integers(1, 40), time=st.integers(0, 3000), texts=st.booleans())
def test_columns_of_a_request_are_those_of_its_snapshot(seed: int, number: int, time: int, texts: bool) -> None:
    snapshot = snapshot_of(seed, number, float(time), texts=texts)
    found = columns_of_request(json.loads(snapshot.to_json()))
    wanted = columns_of(snapshot)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    columns, cluster = found
    assert cluster is cluster_of(snapshot)
    assert (columns.now, columns.ids, columns.demands) == (wanted.now, wanted.ids, wanted.demands)
    for name in ("jobs", "runs", "pieces", "nodes"):
        assert np.array_equal(getattr(columns, name), getattr(wanted, name), equal_nan=name == "jobs")
    assert columns.named("user") == wanted.named("user")


@pytest.mark.parametrize("what", CHANGES)
def test_requests_that_are_not_plain_are_left_to_the_other_way(what: str) -> None:
    content = asdict(changed(snapshot_of(4, 40, 600.0), what))
    found = columns_of_request(json.loads(json.dumps(content)))
    assert found is None or load_policy("sjf+easy").decide_columns(*found) is None


WRONG_VALUES: tuple[Any, ...] = (None, True, "1", 1.5, -1, 2**40, [], {}, [[]], [1, 1], ["a"], "")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_a_request_may_say_wrongly_is_taken_as_a_snapshot_takes_it(data: st.DataObject) -> None:
    """One value anywhere is replaced or removed: columns and snapshot say the same, or there are no columns."""
    content = json.loads(snapshot_of(4, 30, 600.0).to_json())
    holder: Any = content
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if not holder[key] or not isinstance(holder[key], dict | list) or data.draw(st.integers(0, 5)) == 0:
            break
        holder = holder[key]
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = data.draw(st.sampled_from(WRONG_VALUES))
    found = columns_of_request(content)
    decided = None if found is None else load_policy("fcfs+easy").decide_columns(*found)
    if decided is not None:
        slow = both("fcfs+easy")[1]
        assert decided == slow.decide(Snapshot.from_json(json.dumps(content)))
