"""What if: the replay with another load or other nodes beside the one as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuewise.cli import main

CLUSTER = """
[[nodes]]
name = "c20"
count = 2
cpus = 20
[[nodes]]
name = "c24"
count = 2
cpus = 24
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(CLUSTER)
    rows = [f"{20 * j},{600 + 37 * (j % 11)},{1 + 3 * (j % 8)}" for j in range(200)]
    (tmp_path / "log.csv").write_text("submit,runtime,cores\n" + "\n".join(rows) + "\n")
    return tmp_path


# Predictions are learnt from a replay on the cluster without its outages, so they would differ a little if nodes are drained.
PLAIN = ["simulate", "--workload", "log.csv", "--policy", "fcfs+easy", "--estimates", "oracle", "--json"]


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main([*PLAIN, "--cluster", "site.toml", *arguments]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def mean(row: object) -> float:
    assert isinstance(row, dict)
    return float(row["wait_s"]["mean"])


def test_each_change_is_the_replay_that_it_says(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plain,) = rows_of(capsys)
    (site / "more.toml").write_text(CLUSTER.replace("count = 2\ncpus = 24", "count = 6\ncpus = 24"))
    (site / "less.toml").write_text(CLUSTER.replace("count = 2\ncpus = 20", "count = 0\ncpus = 20"))
    for change, cluster in (("--add-nodes 4:c24", "more.toml"), ("--drain c20-*", "less.toml")):
        (row,) = rows_of(capsys, *change.split())
        assert main([*PLAIN, "--cluster", cluster]) == 0
        (by_file,) = json.loads(capsys.readouterr().out)
        assert mean(row) == pytest.approx(mean(by_file))
        assert mean(row["as_is"]) == pytest.approx(mean(plain))
        assert mean(row) != pytest.approx(mean(plain))
    (slower,) = rows_of(capsys, "--load-factor", "0.5")
    assert mean(slower) < mean(slower["as_is"])


def test_one_table_shows_both_and_the_difference(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "simulate",
                "--workload",
                "log.csv",
                "--cluster",
                "site.toml",
                "--policy",
                "fcfs+easy",
                "--policy",
                "sjf+easy",
                "--drain",
                "c20",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("what if: c20 drained")
    heading = next(line for line in out.splitlines() if "as is" in line)
    assert heading.split() == ["policy", "as", "is", "what", "if", "difference"]
    assert out.count("mean wait") == 2


def test_evaluate_pairs_the_same_days(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = [
        "evaluate",
        "--workload",
        "log.csv",
        "--cluster",
        "site.toml",
        "--policy",
        "fcfs+easy",
        "--windows",
        "4",
        "--window-jobs",
        "40",
        "--json",
    ]
    assert main([*base, "--add-nodes", "2:c24"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    low, high = row["what_if"]["diff_ci95"]
    assert low <= row["what_if"]["diff_percent"] <= high
    assert row["what_if"]["what_if"] == pytest.approx(row["mean"])
    assert row["what_if"]["as_is"] > row["mean"]
    assert main([*base, "--load-factor", "2"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["what_if"]["diff_ci95"] is None


def test_size_prints_nodes_and_curve(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "log.csv", "--cluster", "site.toml", "--group", "c24", "--target", "p90 wait < 5m", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    meeting = [point["nodes"] for point in found["curve"] if point["meets"]]
    assert found["nodes"] == min(meeting)
    assert main(["size", "log.csv", "--cluster", "site.toml", "--group", "c24", "--target", "p90 wait < 5m"]) == 0
    assert f"p90 wait < 5m needs {found['nodes']} nodes; there are 2" in capsys.readouterr().out
