"""`queuewise clusters from-log` and `from-slurm`, and what commands do without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuewise.cli import main
from queuewise.cluster import load_cluster

SACCT = """JobID|Partition|Submit|Start|End|NNodes|AllocTRES|NodeList|State
1|a|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|2|cpu=8,node=2|n[1-2]|COMPLETED
2|a|2024-01-01T00:10:00|2024-01-01T01:00:00|2024-01-01T02:00:00|1|cpu=4,node=1|n1|COMPLETED
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT, encoding="utf-8")
    return str(path)


def test_from_log_writes_a_cluster_file(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.toml"
    assert main(["clusters", "from-log", log, "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "Nodes on which no job ran are missing." in told.err
    assert told.err.endswith(f"2 nodes, 8 cores, 1 partition written to {out}\n")
    cluster = load_cluster(str(out))
    assert (cluster.num_nodes, cluster.num_cores, cluster.partitions[0].name) == (2, 8, "a")


def test_from_slurm_writes_a_cluster_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, out = tmp_path / "nodes.json", tmp_path / "site.toml"
    nodes.write_text(json.dumps({"nodes": [{"name": "n1", "cpus": 4, "real_memory": 2048, "partitions": ["a"]}]}), encoding="utf-8")
    assert main(["clusters", "from-slurm", str(nodes), "--out", str(out)]) == 0
    assert capsys.readouterr().err.endswith(f"1 node, 4 cores, 1 partition written to {out}\n")
    assert load_cluster(str(out)).mem_gib == 2


@pytest.mark.parametrize("command", ["from-log", "from-slurm"])
def test_bad_targets_are_refused(command: str, log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", command, log, "--out", str(tmp_path / "found.txt")]) == 2
    assert "does not end in .toml\nhint: cluster files must end in .toml" in capsys.readouterr().err
    assert main(["clusters", command, log, "--out", str(tmp_path / "nowhere" / "found.toml")]) == 2
    assert "nowhere: no such folder\nhint: create it first" in capsys.readouterr().err


def test_from_log_of_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "from-log", "bursty", "--out", str(tmp_path / "found.toml")]) == 2
    assert "bursty does not describe its cluster" in capsys.readouterr().err


def test_simulate_without_a_cluster_uses_that_of_the_log_and_says_so(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", log, "--policy", "fcfs", "--json"]) == 0
    told = capsys.readouterr()
    line = "no --cluster given: using what the jobs of the log had, 2 nodes, 8 cores, 1 partition (queuewise clusters from-log)"
    assert line in told.err.splitlines()
    (summary,) = json.loads(told.out)
    assert (summary["completed"], summary["rejected"], summary["wait_s"]["max"]) == (2, 0, 3000.0)


def test_info_without_a_cluster_reports_the_load_on_that_of_the_log(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", log, "--json"]) == 0
    told = capsys.readouterr()
    assert "no --cluster given" in told.err
    assert json.loads(told.out)["offered_load"] == pytest.approx(12 * 3600 / (8 * 600))
