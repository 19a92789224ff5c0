"""Thirty typical mistakes of a first hour, each with its message: what was found, and what to do. No text of a library, no traceback."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from queuewise.cli import main

MISTAKES: dict[str, tuple[str, str]] = {  # what is typed -> what is said, and the hint
    "simulat": ("unknown command 'simulat'", "did you mean 'simulate'?"),
    "simulate": ("--workload FILE|MODEL is missing", "see queuewise simulate --help"),
    "simulate log.swf": ("unexpected argument 'log.swf'", "write --workload log.swf"),
    "simulate --workload nolog --policy fcfs": ("no file or model named 'nolog'", "models: "),
    "simulate --workload nolog.swf --policy fcfs": ("nolog.swf: no such file", "did you mean 'log.swf'?"),
    "simulate --workload log.swf": ("no policy given", "add --policy fcfs"),
    "simulate --workload log.swf --policy fcsf": ("unknown order 'fcsf'", "did you mean 'fcfs'?"),
    "simulate --workload log.swf --policy sjf,fcfs": ("'sjf,fcfs' is no policy", "repeat --policy: --policy sjf --policy fcfs"),
    "simulate --workload sacct.txt --policy fcfs": ("the output of sacct without Submit and Start and End", "--format JobID,User"),
    "simulate --workload log.swf --policy fcfs+eazy": ("unknown backfill 'eazy'", "did you mean 'easy'?"),
    "simulate --workload log.swf --policy easy": ("policy 'easy' has no order: easy is a backfill rule", "write for example fcfs+easy"),
    "simulate --workload log.swf --policy fcfs --cluster 256": ("cluster '256' is a number", "write flat:256 for so many cores"),
    "simulate --workload log.swf --policy fcfs+easy~3": ("3", "3d"),
    "simulate --workload log.swf --policy mine.py:score": ("mine.py: cannot be read", "queuewise new-policy mine"),
    "simulate --workload log.swf --policy model:nowhere": ("nowhere", "queuewise train"),
    "simulate --workload log.swf --policy fcfs --cluster flat": ("unknown cluster 'flat'", "flat:N"),
    "simulate --workload log.swf --policy fcfs --cluster flat:0": ("0 is not between 1 and", "for example flat:256"),
    "simulate --workload log.swf --policy fcfs --cluster 4x8:V1000": ("V1000", "V100"),
    "simulate --workload log.swf --policy fcfs --cluster site.toml": ("unknown key nodes[0].cpu", "did you mean 'cpus'?"),
    "simulate --workload log.swf --policy fcfs --cluster two.toml": ("count = 'two': must be a whole number", "correct this value"),
    "simulate --workload log.swf --policy fcfs --estimates guess": ("guess", "predicted"),
    "simulate --workload log.swf --policy fcfs --jobs many": ("--jobs 'many' is not a whole number", "see queuewise simulate --help"),
    "simulate --workload log.swf --policy fcfs --jobs 0": ("--jobs 0 is too few", "use 1 or more"),
    "simulate --workload log.swf --policy fcfs --load-factor 0": ("--load-factor 0 is no factor", "2 doubles the load"),
    "simulate --workload log.swf --policy fcfs --cluster flat:8 --add-nodes 4": ("--add-nodes '4' is not N:GROUP", "4:c24"),
    "simulate --workload log.swf --policy fcfs --cluster flat:8 --add-nodes 4:c9": ("unknown group of nodes of flat:8 'c9'", "known: flat"),
    "simulate --workload log.swf --policy fcfs --cluster flat:8 --drain c9-*": ("--drain names node 'c9-*'", "groups: flat"),
    "simulate --workload log.swf --policy fcfs --cluster flat:8 --conditions dates.toml": ("start is a date", "seconds on the log's clock"),
    "simulate --workload log.swf --policy fcfs --cluster flat:8 --conditions back.toml": (
        "back.toml:1: outages[0]: outage of node flat-* ends at 10, not after its start at 20", "correct this value"
    ),
    "simulate --workload empty.csv --policy fcfs": ("empty.csv", "hint"),
    "size log.swf --cluster flat:8 --target quick": ("--target 'quick' is no target", "p90 wait < 1h"),
    "size log.swf --cluster flat:8": ("--target TARGET is missing", "see queuewise size --help"),
    "evaluate --workload bursty --policy fcfs --cluster flat:8 --protocol days": ("has no days to hold back", "use --protocol windows"),
    "evaluate --workload log.swf --policy fcfs --report": ("--report needs a run folder", "add --out DIR"),
    "evaluate --workload log.swf --policy fcfs --score fast --cluster flat:8": ("fast", "bsld"),
    "compare": ("no run folder given", "queuewise compare runs/a runs/b"),
    "report runs/none": ("runs/none: no such run folder", "a command wrote with --out"),
    "train --preset qick": ("unknown preset 'qick'", "did you mean 'quick'?"),
    "train --ppo.gamma 2": ("gamma = 2.0: must be at most 1", "see queuewise train --help"),
    "train --algo pop": ("unknown algorithm 'pop'", "did you mean 'ppo'?"),
    "train --net kernell": ("unknown network 'kernell'", "did you mean 'kernel'?"),
    "train --score bsdl": ("unknown score 'bsdl'", "did you mean 'bsld'?"),
    "train --resume nofolder": ("nofolder", "hint"),
    "simulate --workload folder --policy fcfs": ("folder: is a folder", "use the file of jobs in it"),
    "simulate --workload log.swf --policy fcfs --polcy sjf": ("has no option --polcy", "did you mean --policy?"),
    "simulate --workload log.swf --policy fcfs --out log.swf": ("log.swf: cannot be created", "choose another folder"),
    "size log.swf --cluster flat:8 --target 'p90 wayt < 1h'": ("unknown figure in --target 'wayt'", "did you mean 'wait'?"),
    "learn log.swf --cluster flat:8 --budget 10": ("--budget: '10' is not a time", "a number above 0 with s, m, h or d"),
    "optimise broken.json --cluster flat:8": ("broken.json: nodes.0: must be a table", "docs/snapshots.md lists the fields"),
    "slurm why 3 --snapshot broken.json": ("broken.json: nodes.0: must be a table", "docs/snapshots.md lists the fields"),
    "slurm when 3 --snapshot missing.json": ("missing.json: missing: no known field", "docs/snapshots.md lists the fields"),
    "slurm why 3 --snapshot nofile.json": ("nofile.json: cannot be read", "check the path"),
    "serve --policy fcsf --socket x.sock": ("unknown order 'fcsf'", "did you mean 'fcfs'?"),
    "completion tcsh": ("cannot be 'tcsh'", "one of bash, zsh"),
}  # fmt: skip

LIBRARY_TEXT = ("pydantic", "tyro", "Traceback", "validation error", "Input should", "╭", "usage:", "argument of type", "object at 0x")


@pytest.fixture(scope="module")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beginner")
    rows = [f"{j} {10 * j} -1 {60 + j} 1 -1 -1 1 100 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 6)]
    (folder / "log.swf").write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n")
    (folder / "site.toml").write_text("[[nodes]]\ncount = 2\ncpu = 8\n")
    (folder / "two.toml").write_text("[[nodes]]\ncount = 'two'\ncpus = 8\n")
    (folder / "dates.toml").write_text("[[outages]]\nnode = 0\nstart = 2024-03-01\nend = 2024-03-02\n")
    (folder / "back.toml").write_text("[[outages]]\nnode = 'flat-*'\nstart = 20\nend = 10\n")
    (folder / "empty.csv").write_text("")
    (folder / "folder").mkdir()
    empty = {"version": 1, "now": 0.0, "queue": [], "running": [], "nodes": []}
    (folder / "broken.json").write_text(json.dumps({**empty, "nodes": [3]}))
    (folder / "missing.json").write_text(json.dumps({**empty, "missing": True}))
    (folder / "sacct.txt").write_text("JobID|User|State|Elapsed\n1|ann|COMPLETED|00:01:00\n")
    return folder


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_typical_mistake_is_explained(
    typed: str, beginner: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(beginner)
    before = sorted(beginner.rglob("*"))
    assert main([*shlex.split(typed)]) == 2
    out, err = capsys.readouterr()
    message, hint = MISTAKES[typed]
    said = [line for line in err.splitlines() if line.startswith(("error: ", "hint: "))]
    assert out == ""
    assert [line.partition(":")[0] for line in said] == ["error", "hint"], err
    assert message in said[0]
    assert hint in " ".join(said)
    assert not [text for text in LIBRARY_TEXT if text in err]
    assert sorted(beginner.rglob("*")) == before  # a refused command leaves nothing


def test_there_are_thirty() -> None:
    assert len(MISTAKES) >= 30


def test_a_refused_command_leaves_no_folder(beginner: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(beginner)
    assert main(["simulate", "--workload", "log.swf", "--policy", "fcfs", "--cluster", "two.toml", "--out", "runs/a/b"]) == 2
    assert main(["validate", "log.swf", "--policy", "fcfs", "--cluster", "two.toml", "--out", "runs/a/b"]) == 2
    assert not (beginner / "runs").exists()
    (beginner / "kept").mkdir()
    assert main(["simulate", "--workload", "log.swf", "--policy", "fcfs", "--cluster", "two.toml", "--out", "kept/b"]) == 2
    assert (beginner / "kept").is_dir()
    assert not any((beginner / "kept").iterdir())
    (beginner / "kept").rmdir()


@pytest.mark.parametrize(
    "typed",
    [
        "evaluate --workload log.swf --policy fcfs --cluster flat:8 --report --out runs/a",
        "size log.swf --cluster flat:8 --target 'p90 wait < 1h' --plot a.png",
        "validate log.swf --cluster flat:8 --plot a.png",
    ],
)
def test_a_missing_package_is_reported_before_the_work(
    typed: str, beginner: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(beginner)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(shlex.split(typed)) == 2
    assert capsys.readouterr() == ("", "error: this needs matplotlib, which is not installed\nhint: pip install 'queuewise[report]'\n")
    assert not (beginner / "runs").exists()


@pytest.mark.parametrize("typed", ["policies", "workload info log.swf", "simulate --workload log.swf --policy fcfs"])
def test_a_pipe_that_closes_early_is_no_error(typed: str, beginner: Path) -> None:
    line = f"{sys.executable} -m queuewise {typed} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=beginner)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.parametrize("columns", ["40", "80"])
def test_tables_fit_narrow_terminals_without_colour(columns: str, beginner: Path) -> None:
    """In a pipe, or with NO_COLOR, there is no escape sequence, and no line of a table is wider than the terminal."""
    typed = [sys.executable, "-m", "queuewise", "simulate", "--workload", "log.swf", "--policy", "fcfs", "--policy", "sjf+easy"]
    environment = os.environ | {"COLUMNS": columns, "NO_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(typed, capture_output=True, text=True, check=True, cwd=beginner, env=environment)
    assert "\x1b" not in done.stdout + done.stderr
    table = [line.rstrip() for line in done.stdout.splitlines() if line.startswith(" ")]
    assert len(table) >= 4
    assert max(map(len, table)) <= int(columns)
    assert any("sjf+easy" in line for line in table)
