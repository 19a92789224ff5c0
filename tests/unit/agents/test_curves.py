"""Learning curves: mean and band over seeds, from the files that training writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuewise.agents.curves import read_curve
from queuewise.agents.display import sparkline, val_beside_bar
from queuewise.cli import main
from queuewise.errors import InputError


def run_folder(home: Path, scores: dict[int, list[float]]) -> Path:
    home.mkdir()
    (home / "config.toml").write_text(f'command = "train"\nseeds = {list(scores)}\n[settings]\nbaselines = ["fcfs"]\nscore = "bsld"\n')
    for seed, values in scores.items():
        (home / f"seed-{seed}").mkdir()
        rows = [{"iteration": i, "frames": 100 * i, "val/agent": value, "val/fcfs": 9.0} for i, value in enumerate(values, 1)]
        (home / f"seed-{seed}" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"iteration": 9, "fra')
    return home


def test_mean_and_band(tmp_path: Path) -> None:
    curve = read_curve(run_folder(tmp_path / "a", {0: [8.0, 6.0, 5.0], 4: [4.0, 2.0]}), "val/agent")
    assert curve.frames.tolist() == [100.0, 200.0]  # where both seeds have been
    assert curve.mean.tolist() == [6.0, 4.0]
    assert curve.values.tolist() == [[8.0, 6.0], [4.0, 2.0]]


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run_folder(tmp_path / name, {0: [8.0, 6.0], 1: [7.0, 3.0]}) for name in ("a", "b")]
    figure = tmp_path / "curves.svg"
    assert main(["plot", *map(str, runs), "--out", str(figure)]) == 0
    assert "4.5000" in capsys.readouterr().out  # the last mean
    assert figure.read_text().count("</svg>") == 1


def test_an_unknown_column_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metric called 'val/agnt'.*val/agent"):
        read_curve(run_folder(tmp_path / "a", {0: [8.0]}), "val/agnt")


def test_sparkline() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([3.0, 3.0]) == "▁▁"


def test_what_stands_beside_the_bar_of_training_fits_the_terminal() -> None:
    """It says less in a narrow terminal, and breaks nothing off."""
    texts = ["bsld 24 (sjf 25, fcfs 90)", "bsld 24 (sjf 25)", "bsld 24"]
    shown = {room: val_beside_bar([1.0, 2.0, 8.0], texts, room) for room in (40, 27, 24, 10, 3)}
    assert shown == {40: f"▁▂█ {texts[0]}", 27: f"▁ {texts[0]}", 24: f"▁▂█ {texts[1]}", 10: f"▁█ {texts[2]}", 3: texts[2]}
