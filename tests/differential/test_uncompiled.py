"""The kernels are Python: run without the compiler they give the very same schedules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

POLICIES = (
    "fcfs",
    "sjf+easy",
    "fcfs+easy:sjf@first",
    "wfp3+conservative@spread",
    "unicep+easy/4@random",
    "f1+greedy@fgd",
    "sjf+easy-strict@tier",
    "power+easy@cheapest",
    "random@fastest",
    "largest+conservative@tier:balance",
    "hrrn+greedy@pack:0",
)

REPLAY = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

def mixed(num_jobs, shares):
    rng = np.random.default_rng(7)
    gpu = rng.choice([0, 300, 500, 1000, 2000] if shares else [1000, 2000, 4000], num_jobs).astype(np.int32)
    return Workload(
        submit=np.sort(rng.integers(0, 500, num_jobs)).astype(float), runtime=rng.integers(0, 90, num_jobs).astype(float),
        num_tasks=rng.integers(1, 4, num_jobs).astype(np.int32), gpu_milli=gpu,
        cpu_milli=(rng.integers(1, 5, num_jobs) * 500 if shares else np.zeros(num_jobs)).astype(np.int32),
    )

cluster = build("mixed", [NodeGroup(3, gpus=4, kind="V100-16", cpus=8), NodeGroup(2, gpus=2, kind="T4", cpus=8)],
                speeds={"T4": 0.5}, node_penalty=0.25)
print(json.dumps({
    f"{policy} {dispatch} {shares}": simulate(mixed(60, shares), cluster, policy, dispatch=dispatch, estimates="noisy:0.5").start.tolist()
    for policy in json.loads(sys.argv[1]) for dispatch in ("reorder", "commit") for shares in (False, True)
}))
"""


def starts(*, disable_jit: bool) -> dict[str, list[float]]:
    environment = os.environ | {"NUMBA_DISABLE_JIT": str(int(disable_jit))}
    command = [sys.executable, "-c", REPLAY, json.dumps(POLICIES)]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, list[float]] = json.loads(done.stdout)
    return result


def test_schedules_are_the_same_without_the_compiler() -> None:
    compiled, plain = starts(disable_jit=False), starts(disable_jit=True)
    assert compiled == plain
    assert len(compiled) == 4 * len(POLICIES)
    assert len({tuple(times) for times in compiled.values()}) > len(POLICIES)  # the policies do differ
