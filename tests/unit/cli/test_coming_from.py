"""The commands of docs/coming-from.md work: trainings as far as --show-config, all others to the end."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agents_setup import small_settings
from queuewise.agents.recording import CONFIG
from queuewise.cli import main
from queuewise.config import to_toml
from queuewise.runs import write_text

PAGE = Path(__file__).parents[3] / "docs" / "coming-from.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and not line.startswith("| there")]
COMMANDS = list(dict.fromkeys(command for row in ROWS for command in re.findall(r"`queuewise ([^`]+)`", row)))
OTHER_WAYS = ("no equivalent", "results.md", "best.safetensors", "metrics.csv", "tensorboard")


def test_every_row_says_where_it_is_or_why_it_is_not() -> None:
    assert len(ROWS) > 80
    lost = [row for row in ROWS if "`queuewise " not in row and not any(way in row for way in OTHER_WAYS)]
    assert lost == []
    assert all(":" in row for row in ROWS if "no equivalent" in row)  # a reason follows


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{20 * number},{60 + number % 7},{1 + number % 8},{(0.5, 1, 2.5, 5)[number % 4]}" for number in range(150)]
    write_text(tmp_path / "jobs.csv", "\n".join(["arrival_time,runtime,gpus,priority", *rows]) + "\n")
    seconds = [(number, number + 30, number % 3) for number in range(20)]
    lines = [f"{begin * 1_000_000},{end * 1_000_000},{level}" for begin, end, level in seconds]
    write_text(tmp_path / "google.csv", "\n".join(["submit_time,finish_time,scheduling_class", *lines]) + "\n")
    trace = [f"job-{n}_1,{10 * n},0,{30 + n},{(1, 2, 4, 8)[n % 4]},-1,-1,-1,-1,-1,2,{n % 5},1,-1,0,-1,-1,-1,{n % 2}" for n in range(40)]
    write_text(tmp_path / "trace.csv", "\n".join(trace) + "\n")
    run = tmp_path / "runs" / "a"
    facts = {"command": "train", "seeds": [0], "settings": small_settings().model_dump(mode="json")}
    (run / "seed-0").mkdir(parents=True)
    write_text(run / CONFIG, to_toml(facts))
    line = '{"iteration": 1, "frames": 64, "episode/return": 0.5, "val/agent": 1.0}\n'
    write_text(run / "seed-0" / "metrics.jsonl", line)
    return tmp_path


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("train ")])
def test_trainings(command: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*shlex.split(command), "--show-config"]) == 0
    assert "[[reward]]" in capsys.readouterr().out


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("train ")])
def test_other_commands(command: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.strip() or "--out" in command
