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
    assert main([*base[:-1], "--load-factor", "2"]) == 0
    assert "no intervals: the days of another load cannot be paired\n" in capsys.readouterr().err


def test_size_prints_nodes_and_curve(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "log.csv", "--cluster", "site.toml", "--group", "c24", "--target", "p90 wait < 5m", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    meeting = [point["nodes"] for point in found["curve"] if point["meets"]]
    assert found["nodes"] == min(meeting)
    assert main(["size", "log.csv", "--cluster", "site.toml", "--group", "c24", "--target", "p90 wait < 5m"]) == 0
    assert f"p90 wait < 5m needs {found['nodes']} nodes; there are 2" in capsys.readouterr().out


def test_size_ends_with_3_if_most_jobs_can_never_run(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["size", "log.csv", "--cluster", "4x1:V100-16", "--jobs", "20", "--target", "p90 wait < 5m", "--json"]
    (site / "log.csv").write_text("submit,runtime,gpus\n" + "".join(f"{20 * j},60,{9_000 if j % 3 else 1}\n" for j in range(20)))
    assert main([*size]) == 3
    printed = capsys.readouterr()
    assert "13 jobs rejected" in printed.err
    assert {point["rejected"] for point in json.loads(printed.out)["curve"]} == {13}
    assert main([*size, "--allow-rejected"]) == 0


def test_means_over_different_jobs_are_said_to_be_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the 20 cores that are left, the jobs of 22 are never started."""
    base = ["--workload", "log.csv", "--cluster", "site.toml", "--policy", "fcfs", "--estimates", "oracle", "--jobs", "24"]
    assert main(["simulate", *base, "--drain", "c24", "--drain", "c20-0-1", "--columns", "completion_rate", "--out", "run"]) == 0
    printed = capsys.readouterr()
    assert "fcfs: the columns are means over different jobs: 24 end as is, 7 what if" in printed.err
    assert "what if: " in printed.err
    unfinished = next(line for line in printed.out.splitlines() if " unfinished" in line)
    assert unfinished.split()[1] == "0"
    assert "completion_rate" in printed.out
    config = (site / "run" / "config.toml").read_text()
    assert 'what_if = "what if: c24 drained, c20-0-1 drained"' in config
    assert config.count("kinds") == 1
    assert main(["report", "run", "--no-figures", "--exports", "none"]) == 0
    assert "What if: c24 drained, c20-0-1 drained." in (site / "run" / "report.html").read_text()


def test_an_evaluation_says_what_was_changed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--workload", "log.csv", "--cluster", "site.toml", "--policy", "fcfs", "--estimates", "oracle", "--windows", "2"]
    more = ["--window-jobs", "12", "--start", "empty", "--add-nodes", "1:c20", "--out", "run"]
    assert main(["evaluate", *base, *more]) == 0
    config = (site / "run" / "config.toml").read_text()
    assert 'what_if = "what if: 1 more c20"' in config
    assert "with 1 more c20" in config
    assert "means over different jobs" not in capsys.readouterr().err
