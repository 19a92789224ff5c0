"""`queuewise bench` and the plain-Python baseline of the benchmarks."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.cli.bench import POLICIES, peak_memory_mib
from queuewise.cluster import load_cluster
from queuewise.policies import simulate
from queuewise.workload.estimates import estimate
from queuewise.workload.models import generate

SMALL = ("bench", "--quick", "--jobs", "3000", "--nodes", "4")


def test_json_has_the_documented_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"machine", "kernel", "workload", "replays", "cost_of_more_nodes", "peak_memory_mib"}
    assert set(figures["machine"]) == {"cpu", "cores", "load_average", "system", "python", "numba", "numpy"}
    assert figures["machine"]["cores"] >= 1
    assert set(figures["kernel"]) == {"import_s", "load_s"}  # compile_s only with --compile
    assert min(figures["kernel"].values()) > 0
    assert figures["workload"] == {"model": "bench", "jobs": 3000, "load": 0.9, "estimates": "requested", "repeats": 1}
    assert [(row["policy"], row["nodes"]) for row in figures["replays"]] == [(policy, nodes) for nodes in (4, 40) for policy in POLICIES]
    for row in figures["replays"]:
        assert row["jobs_per_s"] == pytest.approx(row["jobs"] / row["engine_s"])
        assert 0 < row["engine_s"] < row["call_s"]
        assert 0 < row["max_queue"] < 3000
    seconds = {(row["policy"], row["nodes"]): row["engine_s"] for row in figures["replays"]}
    assert figures["cost_of_more_nodes"] == {policy: seconds[policy, 40] / seconds[policy, 4] for policy in POLICIES}
    assert figures["peak_memory_mib"] > 10


def test_the_table_shows_a_row_for_each_replay_and_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert [(row[0], row[1]) for row in rows if row and row[0] in POLICIES] == [(p, n) for n in ("4", "40") for p in POLICIES]
    assert err.count("jobs/s") == 2 * len(POLICIES)
    assert "time relative to the smaller cluster, with 10 times the nodes" in err


@pytest.mark.parametrize("option", ["--jobs", "--nodes"])
def test_nothing_to_measure_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", option, "0"]) == 2
    assert f"{option} 0" in capsys.readouterr().err


def test_peak_memory_counts_what_was_held() -> None:
    before = peak_memory_mib()
    held = np.ones(8 * 2**20 * int(1 + before // 64))  # 64 MiB more than the whole process before
    assert peak_memory_mib() > max(before, held.nbytes / 2**20)


@pytest.fixture(scope="module")
def plain_python(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_python", repository / "benchmarks" / "plain_python.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("policy", POLICIES)
def test_plain_python_makes_the_schedule_of_the_engine(policy: str, plain_python: ModuleType) -> None:
    workload, cluster = generate("bench", 300, seed=3, gpus=40), load_cluster("5x8:V100-16")
    schedule = simulate(workload, cluster, policy)
    starts = plain_python.simulate(workload, cluster, policy, estimate(workload, "requested").values)
    assert np.mean(schedule.first_wait > 0) > 0.3  # there is a queue to get wrong
    np.testing.assert_array_equal(schedule.start, starts)
