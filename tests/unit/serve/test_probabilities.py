"""Probabilities of trained networks: the softmax of their scores, over what they see of the queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from model_setup import make_model
from queuewise import Snapshot, load_policy
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload

WINDOW = 4


def snapshot_of(number: int) -> Snapshot:
    """Waiting jobs on an empty cluster of two nodes with four GPUs."""
    rng = np.random.default_rng(3)
    workload = Workload(
        submit=np.zeros(number), runtime=rng.integers(60, 5000, number).astype(float), num_tasks=np.ones(number, np.int32),
        gpu_milli=(rng.integers(1, 3, number) * 1000).astype(np.int32), requested=rng.integers(5000, 9000, number).astype(float),
    )  # fmt: skip
    simulation = Simulation(workload, load_cluster("2x4:V100-16"), "fcfs")
    before = simulation.snapshot(history=False)
    assert not before.queue
    simulation.run(until=0.0)
    shown = simulation.snapshot(history=False)
    waiting = [*shown.queue, *(type(shown.queue[0])(one.job) for one in shown.running)]
    return Snapshot(shown.now, tuple(sorted(waiting, key=lambda one: one.job.job_id)), (), before.nodes)


@pytest.mark.parametrize("net", ["kernel", "attn", "mlp"])
def test_they_are_the_softmax_of_the_scores_and_the_likeliest_starts(net: str, tmp_path: Path) -> None:
    make_model(tmp_path, net, task={"window": WINDOW})
    policy = load_policy(f"model:{tmp_path}")
    snapshot = snapshot_of(12)
    found = policy.probabilities(snapshot)
    assert list(found) == [one.job.job_id for one in snapshot.queue]
    assert 0 < sum(found.values()) <= 1 + 1e-9
    seen = [job_id for job_id, value in found.items() if value > 0]
    assert len(seen) == WINDOW
    first = policy.decide(snapshot).starts[0].job_id
    assert found[first] == max(found.values())
    assert len(set(found.values())) > 2  # they are the network's, not equal shares
    assert policy.probabilities(snapshot) == found


def test_values_of_actions_are_no_probabilities(tmp_path: Path) -> None:
    make_model(tmp_path, "mlp", decision="best", task={"window": WINDOW})
    with pytest.raises(InputError, match="gives no probabilities of jobs"):
        load_policy(f"model:{tmp_path}").probabilities(snapshot_of(12))
