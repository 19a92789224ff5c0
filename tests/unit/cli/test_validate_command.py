"""`queuewise validate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from queuewise.cli import main
from queuewise.cli import validate as command

LOG = "; MaxProcs: 4\n" + "\n".join(
    f"{n} {submit} {wait} {run} {procs} -1 -1 {procs} {run} -1 1 {n % 3} {n % 2} -1 -1 -1 -1 -1"
    for n, (submit, wait, run, procs) in enumerate([(0, 0, 100, 2), (0, 0, 100, 2), (10, 90, 50, 4), (9000, 0, 10, 1)])
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "four.swf"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


def test_json_has_the_documented_keys(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", log, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["recorded", "replayed", "rank_correlation", "utilisation_error", "verdict", "why"]
    assert set(found["recorded"]) == set(found["replayed"]) == {"mean", "p50", "p90", "p99"}
    assert (found["verdict"], found["replayed"]["mean"]) == ("close", 22.5)
    assert all(isinstance(sentence, str) for sentence in found["why"])


def test_the_text_has_tables_verdict_and_causes(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", log, "--cluster", "flat:64", "--policy", "fcfs"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("four: 4 jobs on flat:64 under fcfs, estimates requested\n")
    assert "\nverdict: close\n" in out  # nobody waits a minute
    assert "never had more than 4 of 64 cores" in out
    for heading in ("recorded mean", "size", "account", "hour of day"):
        assert heading in out


def test_a_cut_table_of_accounts_says_so(log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", log]) == 0
    assert "accounts with the most jobs" not in capsys.readouterr().out
    monkeypatch.setattr(command, "SHOWN_PARTS", 1)
    assert main(["validate", log]) == 0
    assert "the 1 of 2 accounts with the most jobs; --out writes all" in capsys.readouterr().out


def test_the_figure_is_drawn(log: str, tmp_path: Path) -> None:
    target = tmp_path / "waits.png"
    assert main(["validate", log, "--json", "--plot", str(target)]) == 0
    with Image.open(target) as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50  # curves in two colours, not an empty page
    assert main(["validate", log, "--json", "--plot", str(tmp_path / "waits.gif")]) == 2


def test_the_report_has_a_section(log: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["validate", log, "--json", "--out", str(run)]) == 0
    details = json.loads((run / "validation.json").read_text(encoding="utf-8"))
    assert details["verdict"] == "close"
    assert [part["key"] for part in details["by"]["account"]] == ["0", "1"]
    assert main(["report", str(run), "--no-figures", "--exports", "none"]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert '<section id="table-validation"><h2>Validation</h2>' in page
    assert "4 jobs of four on " in page
    for figure in ("validation-waits", "validation-use", "validation-size", "validation-account"):
        assert f'<figure id="{figure}">' in page
    assert "recorded" in (run / "tables" / "validation.md").read_text(encoding="utf-8")


REFUSED = {
    "validate bursty --cluster flat:4": ("bursty does not record when its jobs started", "use a log with waits"),
    "validate nowaits.swf": ("nowaits does not record when its jobs started", "use a log with waits"),
    "validate bursty": ("bursty does not record when its jobs started", "use a log with waits"),
    "validate four.swf --policy fcsf": ("unknown", "did you mean 'fcfs'"),
    "validate four.swf --seed -1": ("--seed -1 is negative", "use 0 or more"),
    "validate four.swf --clustr x": ("queuewise validate has no option --clustr", "did you mean --cluster?"),
}


@pytest.mark.parametrize("typed", REFUSED)
def test_refusals_are_one_line_and_a_hint(
    typed: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nowaits.swf").write_text("; MaxProcs: 4\n1 0 -1 100 2 -1 -1 2 100 -1 1 1 1 -1 -1 -1 -1 -1\n", encoding="utf-8")
    assert main(typed.split()) == 2
    error, hint = REFUSED[typed]
    lines = capsys.readouterr().err.splitlines()
    assert error in lines[-2]
    assert hint in lines[-1]
