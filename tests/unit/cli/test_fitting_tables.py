"""Tables on a terminal: whole columns are left out, never letters; columns without values are left out."""

from __future__ import annotations

import threading
import time

import pytest

from queuewise.cli import main, progress
from queuewise.cli.console import print_table
from queuewise.cli.progress import progress_of

COLUMNS = ["policy", "mean wait", "nothing", "median wait", "bounded slowdown", "GPU use"]
ROWS = [["fcfs+easy", "12.3 min", "–", "1.0 s", "4.20", "0.912"], ["sjf+easy~3d", "3.1 min", "–", "–", "2.10", "0.903"]]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_tables_fit_by_leaving_out_columns(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS, title="a title that may be as long as it likes", drop_first=[5])
    out, err = capsys.readouterr()
    table = out.splitlines()[1:]
    assert max(map(len, table)) <= width
    shown = [name for name in COLUMNS if name in out]
    assert "nothing" not in shown
    for row in ROWS:
        line = next(line for line in table if line.strip().startswith(row[0]))
        assert [cell for name, cell in zip(COLUMNS, row, strict=True) if name in shown] == [
            cell.strip() for cell in line.split("  ") if cell.strip()
        ]
    left_out = [name for name in COLUMNS if name not in shown and name != "nothing"]
    assert (err == "") == (not left_out)
    assert all(name in err for name in left_out)
    if left_out:
        assert "GPU use" in left_out  # it goes first


def test_texts_are_left_out_before_words_are_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["workload", "download"]) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "acknowledge" in out
    assert "HPC2N Seth, 2002-2006," in out
    assert err == "a wider terminal also shows: format, cite\n"


def test_the_list_of_models_has_a_line_per_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "generate"]) == 0
    out = capsys.readouterr().out
    assert "?" not in out
    assert " num_jobs=10000" in out
    assert any(line.split() == ["lublin", "num_jobs=10000"] for line in out.splitlines())


def test_results_of_commands_fit_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    small = ["--workload", "bursty", "--cluster", "2x8:V100-16", "--policy", "fcfs+easy", "--policy", "sjf+easy~3d"]
    assert main(["simulate", *small, "--jobs", "60"]) == 0
    assert main(["simulate", *small, "--jobs", "60", "--load-factor", "1.5"]) == 0
    assert main(["evaluate", *small, "--jobs", "90", "--windows", "3", "--window-jobs", "30"]) == 0
    assert main(["evaluate", *small, "--jobs", "90", "--windows", "3", "--window-jobs", "30", "--add-nodes", "1:V100-16"]) == 0
    assert main(["doctor"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("waiting")]
    tables = [line for line in lines if "  " in line.strip()]
    assert len(tables) > 20
    assert max(map(len, tables)) <= 80


def test_progress_is_shown_after_a_while(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    with progress_of("replaying", 3) as advance:
        advance("fcfs")  # too early
        time.sleep(0.06)
        workers = [threading.Thread(target=advance, args=("sjf",)) for _ in range(1)]
        for worker in workers:
            worker.start()
            worker.join()
        advance("last")
    assert capsys.readouterr().err == "replaying: 2 of 3 (sjf), 0 s\n"
