"""The examples of policies of one's own: every one of them runs, and the same without the compiler."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FOR_ONE_NODE = ("EasyOnOneMachine", "ShortestRemainingFirst")  # they have tests of their own
EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"

REPLAY = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

rng = np.random.default_rng(7)
workload = Workload(
    submit=np.sort(rng.integers(0, 300, 40)).astype(float), runtime=rng.integers(0, 90, 40).astype(float),
    num_tasks=rng.integers(1, 4, 40).astype(np.int32), cpu_milli=rng.choice([1000, 2000], 40).astype(np.int32),
    gpu_milli=np.full(40, int(sys.argv[2]), np.int32),
)
cluster = build("mixed", [NodeGroup(3, gpus=4, kind="V100-16", cpus=8), NodeGroup(2, gpus=2, kind="T4", cpus=8)], speeds={"T4": 0.5})

def starts(policy):
    try:
        return simulate(workload, cluster, policy, estimates="noisy:0.5").start.tolist()
    except InputError as error:
        return [error.where, error.message]

print(json.dumps({policy: starts(policy) for policy in json.loads(sys.argv[1])}))
"""
BROKEN = """import math
def nan(job, now):
    return math.nan
def node(node):
    return math.nan
def raises(job):
    if job.index == 3:
        raise ValueError("no")
    return 0.0
"""


def replay(policies: list[str], *, disable_jit: bool, gpu_milli: int = 1000) -> dict[str, Any]:
    environment = os.environ | {"NUMBA_DISABLE_JIT": str(int(disable_jit))}
    command = [sys.executable, "-c", REPLAY, json.dumps(policies), str(gpu_milli)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names_in(file: str) -> list[str]:
    tree = ast.parse((EXAMPLES / file).read_text(encoding="utf-8"))
    return [f"{EXAMPLES / file}:{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def test_examples_and_errors_are_the_same_without_the_compiler(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(BROKEN, encoding="utf-8")
    scores = [f"{name}+{backfill}" for name in names_in("scores.py") for backfill in ("easy", "none")]
    placements = [f"sjf+{backfill}@{name}" for name in names_in("placements.py") for backfill in ("easy", "conservative")]
    classes = [name for name in names_in("deciders.py") if not name.endswith(FOR_ONE_NODE)]
    errors = [f"{broken}:nan", f"fcfs@{broken}:node", f"{broken}:raises"]
    policies = [*scores, *placements, *classes, *errors]
    compiled, plain = (replay(policies, disable_jit=disable_jit) for disable_jit in (False, True))
    assert compiled == plain
    assert all(len(compiled[policy]) == 40 for policy in (*scores, *placements, *classes))
    assert len({str(compiled[policy]) for policy in scores + placements}) > 8  # they do differ
    assert [compiled[policy][0].rpartition(":")[2] for policy in errors] == ["2", "4", "8"]
