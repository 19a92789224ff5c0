"""`queuewise workload` from the outside."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from queuewise.cli import main
from queuewise.workload.catalog import PublicTrace, TraceFile

LIST = "arrival_time,runtime,gpus,priority\n0,10,1,1\n50,20,2,1\n100,30,4,1\n100,-1,4,1\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(LIST)
    return path


def test_info_as_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", str(log), "--cluster", "1x4:T4", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["format"], figures["jobs"], figures["skipped"], figures["filled"]) == ("drl", 3, {"negative runtime": 1}, {})
    assert (figures["span_s"], figures["offered_load"]) == (100, pytest.approx((10 + 40 + 120) / 400))
    assert figures["gpus"]["max"] == 4
    assert set(figures["gpus"]) == {"p50", "p90", "max"}
    assert set(figures["runtime_s"]) == {"p50", "p90", "p99"}


def test_info_as_table_tells_skips_on_stderr(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", str(log)]) == 0
    told = capsys.readouterr()
    assert "drl" in told.out
    assert "1 rows were skipped: 1 x negative runtime (first at line 5)" in told.err


def test_info_draws(log: Path, tmp_path: Path) -> None:
    assert main(["workload", "info", str(log), "--plot", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_info_refuses_odd_pictures(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", str(log), "--plot", str(tmp_path / "p.gif")]) == 2
    assert "use .png, .svg, .pdf" in capsys.readouterr().err


def test_info_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", "poisson", "--jobs", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 50


def test_convert_and_read_back(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.parquet"
    assert main(["workload", "convert", str(log), "--out", str(target)]) == 0
    assert "3 jobs written" in capsys.readouterr().err
    assert main(["workload", "info", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 3


def test_map_names_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("t,len,n\n0,5,2\n")
    assert main(["workload", "info", str(path), "--format", "csv", "--map", "t=submit", "len=runtime", "n=cores", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cores"]["max"] == 2
    assert main(["workload", "info", str(path), "--format", "csv", "--map", "t"]) == 2
    assert "is not COLUMN=FIELD" in capsys.readouterr().err


def test_errors_are_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", str(tmp_path / "no.swf")]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith("no.swf: no such file")
    assert hint.startswith("hint:")


def test_download_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "download", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"hpc2n", "philly", "pai", "openb"} <= {trace["name"] for trace in listed}
    assert main(["workload", "download"]) == 0
    assert "hpc2n" in capsys.readouterr().out


def test_download_of_an_unknown_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "download", "phily"]) == 2
    assert "did you mean 'philly'" in capsys.readouterr().err


def test_download_fetches_verifies_and_cites(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    published = tmp_path / "published.csv"
    published.write_text(LIST)
    file = TraceFile(published.as_uri(), hashlib.sha256(LIST.encode()).hexdigest(), len(LIST))
    trace = PublicTrace("tiny", "a tiny trace", "drl", (file,), "CC0", "Nobody: Nothing, 2024", "flat:4")
    monkeypatch.setattr("queuewise.workload.catalog.TRACES", (trace,))
    monkeypatch.setattr("queuewise.workload.download.SCHEMES", ("file",))
    assert main(["workload", "download", "tiny", "--dir", str(tmp_path / "here")]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(tmp_path / "here" / "published.csv")
    assert Path(told.out.strip()).read_text() == LIST
    assert "licence: CC0; cite Nobody: Nothing, 2024" in told.err
    assert "replay it with --cluster flat:4" in told.err
