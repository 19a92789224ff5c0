"""`queuewise.load_policy`: decisions from snapshots, equal to those of the engine, with what is broken left out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from queuewise import Snapshot, load_policy
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return build("two", [NodeGroup(2, gpus=4, kind="A100-40", cpus=32, mem_gib=64), NodeGroup(1, gpus=2, kind="T4", cpus=8, mem_gib=32)])


@pytest.fixture(scope="module")
def workload() -> Workload:
    rng = np.random.default_rng(7)
    number = 40
    runtime = rng.integers(100, 4000, number).astype(float)
    return Workload(
        submit=np.sort(rng.integers(0, 2000, number)).astype(float),
        runtime=runtime,
        requested=runtime * 2,
        num_tasks=np.ones(number, np.int32),
        gpu_milli=(rng.integers(1, 5, number) * 1000).astype(np.int32),
        cpu_milli=np.full(number, 1000, np.int32),
    )


def snapshot_at(workload: Workload, cluster: Cluster, policy: str, time: float) -> Snapshot:
    simulation = Simulation(workload, cluster, policy)
    simulation.run(until=time)
    return Snapshot.from_json(simulation.snapshot().to_json())


def without_running(snapshot: Snapshot) -> Snapshot:
    """The same queue on an empty cluster."""
    shapes = [node.shape for node in snapshot.nodes]
    nodes = tuple(
        replace(node, free_gpus=tuple(range(shape.gpus)), shared_gpus={}, free_cpu_milli=shape.cpu_milli, free_mem_mib=shape.mem_mib)
        for node, shape in zip(snapshot.nodes, shapes, strict=True)
        if shape is not None
    )
    return replace(snapshot, running=(), nodes=nodes)


@pytest.mark.parametrize("name", ["fcfs+easy", "sjf+easy~1h", "saf+conservative", "sjf@spread"])
def test_decisions_are_those_of_the_engine(workload: Workload, cluster: Cluster, name: str) -> None:
    snapshot = without_running(snapshot_at(workload, cluster, name, 2000.0))
    given, found = load_policy(name, cluster=cluster).decide(snapshot), load_policy(name).decide(snapshot)
    assert given == found
    assert len(found) > 0
    rows = snapshot.select(workload, len(workload), 0)
    simulation = Simulation(workload.take(rows), cluster, name, start=snapshot)
    simulation.decide()
    assert {one.job.job_id: one.places for one in simulation.snapshot().running} == {start.job_id: start.places for start in found}


def test_drained_down_and_broken_parts_are_never_chosen(workload: Workload, cluster: Cluster) -> None:
    snapshot = without_running(snapshot_at(workload, cluster, "fcfs+easy", 2000.0))
    drained = replace(snapshot.nodes[0], state="drained", free_gpus=(), free_cpu_milli=0, free_mem_mib=0)
    broken = replace(snapshot.nodes[1], free_gpus=(1, 3), free_mem_mib=1024)
    found = load_policy("sjf+easy").decide(replace(snapshot, nodes=(drained, broken, snapshot.nodes[2])))
    used = [(place.node, gpu) for start in found for place in start.places for gpu in place.gpus]
    assert used
    assert not [place for place in used if place[0] == 0 or place in {(1, 0), (1, 2)}]


def test_wise_goes_by_the_predictions_of_the_snapshot(workload: Workload, cluster: Cluster) -> None:
    snapshot = without_running(snapshot_at(workload, cluster, "fcfs+easy", 2000.0))
    policy = load_policy("wise")
    assert policy.goes_by_predictions
    with pytest.raises(InputError, match="goes by predictions, and job"):
        policy.decide(snapshot)
    shortest = snapshot.queue[-1].job.job_id
    queue = tuple(replace(one, job=replace(one.job, predicted=1.0 if one.job.job_id == shortest else 9000.0)) for one in snapshot.queue)
    assert policy.decide(replace(snapshot, queue=queue)).starts[0].job_id == shortest


def test_answers_do_not_depend_on_earlier_questions(workload: Workload, cluster: Cluster) -> None:
    early, late = (snapshot_at(workload, cluster, "sjf+conservative", time) for time in (500.0, 2000.0))
    policy = load_policy("sjf+conservative")
    first = policy.decide(late)
    policy.decide(early)
    assert policy.decide(late) == first


def test_explain_says_who_is_ahead(workload: Workload, cluster: Cluster) -> None:
    snapshot = snapshot_at(workload, cluster, "fcfs+easy", 2000.0)
    last = snapshot.queue[-1].job.job_id
    explanation = load_policy("fcfs+easy").explain(snapshot, last)
    assert not explanation.starts_now
    assert explanation.jobs_ahead > 0
    assert explanation.expected_start is not None
    assert explanation.expected_start > snapshot.now
    with pytest.raises(InputError, match="runs already"):
        load_policy("fcfs+easy").explain(snapshot, snapshot.running[0].job.job_id)


def test_a_snapshot_without_shapes_needs_a_cluster(workload: Workload, cluster: Cluster) -> None:
    snapshot = snapshot_at(workload, cluster, "fcfs+easy", 500.0)
    bare = replace(snapshot, nodes=tuple(replace(node, shape=None) for node in snapshot.nodes))
    with pytest.raises(InputError, match="node 0 has no shape"):
        load_policy("fcfs+easy").decide(bare)
    assert load_policy("fcfs+easy", cluster=cluster).decide(bare) == load_policy("fcfs+easy").decide(snapshot)


def test_rules_have_no_probabilities(workload: Workload, cluster: Cluster) -> None:
    with pytest.raises(InputError, match="gives no probabilities"):
        load_policy("fcfs+easy").probabilities(snapshot_at(workload, cluster, "fcfs+easy", 500.0))


def test_no_torch_is_imported() -> None:
    code = "import sys, queuewise; queuewise.load_policy('sjf+easy'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
