"""Stepping allocates nothing: neither Python's memory nor the compiled code's grows with steps or envs."""

from __future__ import annotations

import ast
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuewise.envs import QueuewiseVectorEnv
from queuewise.sim.core.compilation import JIT_DISABLED
from stand_in import busy_days, small_cluster

ALLOCATING = {"zeros", "ones", "empty", "full", "arange", "array", "concatenate", "zeros_like", "empty_like", "copy", "append", "sort"}
ALLOWED = {"published._first_tier_ways"}  # sorts the rooms of nodes, in rltune's view only


def steady_envs(num_envs: int) -> QueuewiseVectorEnv:
    """In the midst of episodes that do not end for some hundred steps."""
    workload = busy_days(400, load=1.2)
    envs = QueuewiseVectorEnv(num_envs, "job", threads=1, copy=False, workload=[workload], cluster=small_cluster(), window=16)
    envs.reset(seed=1)
    for _ in range(50):
        envs.step(envs.legal_actions(seed=1))
    return envs


@pytest.mark.skipif(JIT_DISABLED, reason="counts what compiled code allocates")
def test_compiled_code_allocates_as_often_for_many_envs_as_for_one() -> None:
    """Each array that is handed to a kernel counts as one, however many envs the kernel then steps."""
    from numba.core.runtime import _nrt_python as runtime  # type: ignore[attr-defined]

    counts = []
    for num_envs in (1, 32):
        envs = steady_envs(num_envs)
        runtime.memsys_enable_stats()
        before = runtime.memsys_get_stats_alloc()
        for _ in range(100):
            envs.step(envs.legal_actions())
        counts.append(runtime.memsys_get_stats_alloc() - before)
        runtime.memsys_disable_stats()
        envs.close()
    assert counts[0] == counts[1]


def test_python_keeps_nothing_of_a_step() -> None:
    envs = steady_envs(8)
    tracemalloc.start()
    envs.step(envs.legal_actions())
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(200):
        envs.step(envs.legal_actions())
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    envs.close()
    assert after - before < 1000
    assert peak - before < 5000, "a copy of the observations alone would be larger"
    assert envs.batch.observations.nbytes > 5000


def kernels(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(mark, ast.Name) and mark.id in ("kernel", "inline", "entry") for mark in node.decorator_list
        ):
            yield node


def test_kernels_of_environments_call_nothing_that_allocates(repository: Path) -> None:
    found = set()
    number = 0
    for path in sorted((repository / "src" / "queuewise" / "envs").glob("*.py")):
        for kernel in kernels(path):
            number += 1
            for node in ast.walk(kernel):
                builds = isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp)
                calls = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ALLOCATING
                if builds or calls:
                    found.add(f"{path.stem}.{kernel.name}")
    assert found == ALLOWED
    assert number > 50
