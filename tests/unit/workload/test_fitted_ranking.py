"""Models fitted to logs lead to the same choice of policy as the logs: heuristics rank alike on both."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.cluster_loader import load_cluster
from queuewise.policies import simulate
from queuewise.workload import Workload, load_workload
from queuewise.workload.models import generate
from queuewise.workload.transform import offered_load

HEURISTICS = ("fcfs", "sjf", "ljf", "smallest", "saf", "wfp3", "unicep", "f1")
LOAD = 0.9  # of the log on a cluster of 8-GPU nodes made for it
SEEDS = range(5)  # the log is one month, the model many: its ranking is that of the mean


def mean_bounded_slowdowns(workload: Workload, cluster_name: str) -> np.ndarray:
    cluster = load_cluster(cluster_name)
    means = []
    for policy in HEURISTICS:
        wait = simulate(workload, cluster, policy, estimates="oracle").start - workload.submit
        assert np.isfinite(wait).all()
        means.append(np.maximum(1, (wait + workload.runtime) / np.maximum(workload.runtime, 10)).mean())
    return np.array(means)


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    pairs = list(combinations(range(len(a)), 2))
    return float(sum(np.sign((a[i] - a[j]) * (b[i] - b[j])) for i, j in pairs) / len(pairs))


def test_tau_by_hand() -> None:
    assert kendall_tau(np.array([1, 2, 3]), np.array([4, 5, 6])) == 1
    assert kendall_tau(np.array([1, 2, 3]), np.array([6, 5, 4])) == -1
    assert kendall_tau(np.array([1, 2, 3]), np.array([1, 3, 2])) == pytest.approx(1 / 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path"), [("philly", "philly/philly_jobs_2017-09_to_10.csv.gz"), ("venus", "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz")]
)
def test_heuristics_rank_alike_on_the_log_and_on_its_model(traces: Path, name: str, path: str) -> None:
    log = load_workload(traces / path).workload
    cluster = f"{math.ceil(offered_load(log, gpus=8) / LOAD)}x8:V100-16"
    on_log = mean_bounded_slowdowns(log, cluster)
    on_model = np.mean([mean_bounded_slowdowns(generate(name, seed=seed), cluster) for seed in SEEDS], axis=0)
    assert kendall_tau(on_log, on_model) >= 0.8, dict(zip(HEURISTICS, zip(on_log, on_model, strict=True), strict=True))
