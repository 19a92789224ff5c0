"""`queuewise optimise`: the optimum comes first, alternatives have their terms, and what cannot be done is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("highspy")

from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.policies.milp.terms import TERMS, parse_objective
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """Node 0 has 1 free GPU, node 1 all 4, node 2 has 3; a job of two tasks waits behind one that does not fit."""
    workload = Workload(
        submit=np.array([0.0, 0.0, 1.0, 2.0]),
        runtime=np.full(4, 100.0),
        num_tasks=np.array([3, 1, 12, 2], np.int32),
        gpu_milli=np.full(4, 1000, np.int32),
    )
    cluster = load_cluster("3x4:V100-16")
    simulation = Simulation(workload, cluster, "fcfs@spread")
    simulation.run(until=2.0)
    path = tmp_path / "snapshot.json"
    simulation.snapshot().save(path)
    return str(path)


def test_the_optimum_comes_first_and_alternatives_say_why(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimise", snapshot, "--cluster", "3x4:V100-16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"] == 3
    best, *others = found["options"]
    assert best["rule"] == "milp"
    assert best["why"] == "the optimum"
    assert {one["rule"] for one in others} == {"tier", "pack", "fgd", "spread", "first"}
    assert all(best["levels"] <= one["levels"] for one in others)
    assert all(set(one["terms"]) == set(TERMS) for one in found["options"])
    spread = next(one for one in others if one["rule"] == "spread")
    assert spread["terms"]["nodes"] == 2.0
    assert spread["why"] == "worse by nodes: 2 against 1"


def test_another_objective_gives_another_place(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimise", snapshot, "--cluster", "3x4:V100-16", "--objective", "even", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["options"][0]
    assert best["terms"]["nodes"] == 2.0


def test_a_job_that_does_not_fit_is_an_error(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimise", snapshot, "--cluster", "3x4:V100-16", "--job", "2"]) == 2
    assert "job 2 does not fit now" in capsys.readouterr().err


@pytest.mark.parametrize("text", [":9", ":nodes:2:3", ":walls", ":0nodes", ":-", ":nodes-"])
def test_terms_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="milp"):
        parse_objective(text)
