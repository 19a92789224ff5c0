"""`queuewise workload generate` and `queuewise workload fit`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.workload import load_workload
from queuewise.workload.models import generate, model_names


def test_generate_writes_what_the_model_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "jobs.csv"
    assert (
        main(
            [
                "workload",
                "generate",
                "poisson",
                "--jobs",
                "50",
                "--seed",
                "3",
                "--set",
                "load=0.5",
                "sizes=1,2",
                "size_weights=3,1",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "50 jobs written" in capsys.readouterr().err
    written = load_workload(out).workload
    drawn = generate("poisson", 50, seed=3, load=0.5, sizes=(1, 2), size_weights=(3.0, 1.0))
    assert np.array_equal(written.submit, drawn.submit)
    assert np.array_equal(written.num_tasks, drawn.num_tasks)


def test_generate_without_a_model_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "generate"]) == 0
    listed = capsys.readouterr().out
    for name in model_names():
        assert name in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["poisson"], "no output file given"),
        (["poison", "--out", "x.csv"], "unknown workload model"),
        (["poisson", "--set", "load", "--out", "x.csv"], "not PARAMETER=VALUE"),
        (["poisson", "--set", "laod=1", "--out", "x.csv"], "unknown parameter"),
        (["missing.toml", "--out", "x.csv"], "no such file"),
    ],
)
def test_generate_refuses_with_one_line_and_a_hint(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "generate", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "hint:" in told


def test_fit_writes_a_model_that_any_command_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, model = tmp_path / "log.csv", tmp_path / "ours.toml"
    main(["workload", "generate", "bursty", "--jobs", "800", "--out", str(log)])
    capsys.readouterr()
    assert main(["workload", "fit", str(log), "--out", str(model), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["worst_error"] < 0.1
    assert {row["quantity"] for row in report["quantiles"]} == {"size", "runtime_s", "gap_s"}
    loaded = load_workload(model, jobs=100, seed=1)
    assert len(loaded.workload) == 100
    assert set(loaded.workload.gpus) <= set(range(1, 9))


def test_fit_says_how_much_more_work_the_model_offers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One job of a thousand has nearly all the work, and a model cannot know that it is the widest."""
    log, model = tmp_path / "heavy.csv", tmp_path / "heavy.toml"
    rows = [f"{60 * j},{40 if j != 500 else 400_000},{1 + j % 3 if j != 500 else 64}" for j in range(1000)]
    log.write_text("\n".join(["submit,runtime,gpus", *rows]) + "\n")
    assert main(["workload", "fit", str(log), "--out", str(model)]) == 0
    told = capsys.readouterr().err
    assert "times the work per second of the log; one job of the log has 100% of its work: give --load-factor" in told.replace("\n", " ")


def test_fit_insists_on_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "fit", "bursty", "--out", str(tmp_path / "ours.txt")]) == 2
    assert "does not end in .toml" in capsys.readouterr().err
