"""The same workload and seed give the same schedule to the bit, on any number of threads and in any process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Failures, Preemption
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

HERE = Path(__file__)
DECIDERS = HERE.parents[2] / "examples" / "policies" / "deciders.py"
TROUBLED = Conditions(preemption=Preemption(restart_s=5, quantum_s=20), failures=Failures(mtbf_h=2, mttr_h=0.2, seed=1))
POLICIES = (  # one of every sort: fixed, changing, random, predicted and fair orders, every backfill, placements, preemptive, in Python
    "fcfs", "sjf+greedy@random", "wfp3+easy", "unicep+easy-strict@spread", "f1+conservative@fgd", "qssf+easy/4@tier", "random@pack:1",
    "fairshare+easy", "multifactor@cheapest", "drf+greedy", "srtf", "las@spread", "tiresias:300", "gittins", "priority-preempt",
    "defrag:sjf", f"{DECIDERS}:WhateverFits",
)  # fmt: skip
COLUMNS = ("status", "start", "end", "preemptions", "piece_job", "piece_node", "piece_tasks", "piece_gpus", "piece_start", "piece_end")


def jobs() -> Workload:
    rng = np.random.default_rng(3)
    num = 200
    runtime = rng.lognormal(4, 1.5, num)
    return Workload(
        submit=np.sort(rng.uniform(0, 2000, num)),
        runtime=runtime,
        requested=runtime * rng.choice([0.5, 1.0, 3.0], num),
        num_tasks=rng.choice([1, 2, 4], num).astype(np.int32),
        gpu_milli=rng.choice([500, 1000, 2000, 4000], num).astype(np.int32),
        priority=rng.integers(0, 5, num).astype(np.float64),
        user=rng.integers(0, 4, num).astype(np.int32),
        users=("a", "b", "c", "d"),
    )


def digest(policy: str, seed: int = 7) -> str:
    """Of all that a schedule holds."""
    schedule = simulate(jobs(), load_cluster("4x8:V100-16"), policy, estimates="noisy:0.5", seed=seed, conditions=TROUBLED)
    columns = b"".join(getattr(schedule, name).tobytes() for name in COLUMNS)
    return hashlib.sha256(columns + str(schedule.decisions).encode()).hexdigest()


@pytest.fixture(scope="module")
def alone() -> list[str]:
    return [digest(policy) for policy in POLICIES]


def test_policies_and_seeds_tell_schedules_apart(alone: list[str]) -> None:
    """Otherwise the others would compare nothing."""
    assert len(set(alone)) == len(POLICIES)
    assert digest("sjf+greedy@random", seed=8) != alone[POLICIES.index("sjf+greedy@random")]


def test_two_threads_at_once(alone: list[str]) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(digest, POLICIES + POLICIES)) == alone + alone


def test_another_process(alone: list[str]) -> None:
    command = [sys.executable, "-c", "import json, test_determinism as t; print(json.dumps([t.digest(policy) for policy in t.POLICIES]))"]
    paths = os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "99"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == alone
