from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fuzz.broken_policies import FILES
from queuewise import evolve
from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.evaluation import suite
from queuewise.evaluation.suite import REFERENCE, Outcome, Standings, SuiteTask, run_suite
from queuewise.policies import simulate
from queuewise.report.readable import duration
from queuewise.workload.models import generate

ALL_TASKS = suite.TASKS
SMALL = (
    SuiteTask("lublin", "flat:256", model="lublin", quick=True, windows=2, window_jobs=128),
    SuiteTask("bursty", "2x8:V100-16", model="bursty", quick=True, windows=2, window_jobs=128),
    SuiteTask("log", "flat:100", path="none.swf"),
)


WORKING = ("no-parameters", "async", "lambda")  # of the files with mistakes, those that are odd, but play


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "TASKS", SMALL)
    monkeypatch.setattr(run_suite, "__kwdefaults__", {**(run_suite.__kwdefaults__ or {}), "tasks": SMALL})


def outcome(task: str, policy: str, bsld: float, wait: float) -> Outcome:
    return Outcome(task, policy, {"bsld": bsld, "wait": wait}, 2 * wait)


def test_a_standing_is_a_geometric_mean_of_ratios() -> None:
    found = Standings(
        [
            outcome("a", "x", 2.0, 40.0),
            outcome("a", REFERENCE, 8.0, 340.0),
            outcome("b", "x", 3.0, 60.0),
            outcome("b", REFERENCE, 3.0, 60.0),
        ],
        [],
    )
    assert found.ratio("x") == pytest.approx((0.25 * 0.25 * 1 * 1) ** (1 / 4))
    assert found.ratio(REFERENCE) == pytest.approx(1.0)
    assert found.policies == ["x", REFERENCE]


def test_outcomes_are_those_of_replays_of_the_windows() -> None:
    found = run_suite(["sjf+easy"], quick=True)
    (mine,) = [one for one in found.outcomes if (one.task, one.policy) == ("lublin", "sjf+easy")]
    waits = []
    for seed in (10_000_000, 10_000_001):  # of the block report
        jobs = generate("lublin", 128, seed)
        schedule = simulate(jobs, load_cluster("flat:256"), "sjf+easy")
        waits.append((schedule.start - jobs.submit).mean())
    assert mine.means["wait"] == pytest.approx(np.mean(waits))


@pytest.mark.parametrize("words", FILES)
def test_a_candidate_that_does_not_work_has_the_score_0_and_a_reason(words: str, tmp_path: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(FILES[words], encoding="utf-8")
    found = evolve.evaluate(file)
    assert (found["score"] > 0.0) == (words in WORKING)
    assert words in WORKING or "candidate.py" in found["artefacts"]["error"]


def test_logs_that_are_not_there_are_left_out_and_said(tmp_path: Path) -> None:
    assert run_suite(["fcfs"], traces=tmp_path).left_out == ["log"]
    assert run_suite(["fcfs"]).left_out == ["log"]


def test_the_command_prints_standings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["suite", "--quick", "--policy", "saf", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"wise", "fcfs+easy", "saf"} <= {one["policy"] for one in found["standings"]}
    assert len(found["tasks"]) == 2 * len(found["standings"])


def test_scores_stand_beside_waits_makespan_and_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert not main(["suite", "--quick"])
    printed = capsys.readouterr().out
    (one,) = [one for one in run_suite(["sjf+easy"], quick=True).outcomes if (one.task, one.policy) == ("lublin", "sjf+easy")]
    (line,) = [line for line in printed.splitlines() if line.split()[:2] == ["lublin", "sjf+easy"]]
    assert one.p99_wait_s is not None
    assert duration(one.p99_wait_s) in line
    assert duration(one.max_wait_s) in line
    assert line.split()[-2:] == [f"{one.makespan_by_span:.3f}", f"{one.utilisation:.1%}"]


SHORTEST = """
def shortest(job):
    return job.estimate
"""


def test_evolve_scores_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SHORTEST, encoding="utf-8")
    found = evolve.evaluate(file)
    named = run_suite(["sjf+easy"], quick=True)
    assert found["score"] == pytest.approx(1 / named.ratio("sjf+easy"))
    assert set(found["artefacts"]["tasks"]) == {"lublin", "bursty"}


@pytest.mark.parametrize("text", ["def score(job: return 1", "def score(job):\n    return job.runtime\n", "", "a = 1"])
def test_evolve_gives_nothing_for_a_file_that_does_not_work(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text, encoding="utf-8")
    found = evolve.evaluate(file)
    assert found["score"] == 0.0
    assert "mine.py" in found["artefacts"]["error"]


def test_the_leaderboard_is_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "leaderboard.md"
    assert not main(["suite", "--quick", "--page", str(page), "--json"])
    ranked = [one["policy"] for one in json.loads(capsys.readouterr().out)["standings"]]
    text = page.read_text()
    places = [text.index(f"| {policy} |") for policy in ranked]
    assert places == sorted(places)
    assert main(["suite", "--quick", "--page", str(tmp_path / "none" / "page.md")]) == 2
    capsys.readouterr()
    assert main(["suite", "--quick", "--page", "/dev/full"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: /dev/full: is not a regular file", "hint: choose another --page"]  # no task ran


def test_every_task_has_a_cluster_and_jobs_that_run_on_it() -> None:
    tasks = [replace(task, windows=1, window_jobs=64) for task in ALL_TASKS if task.model]
    assert len(tasks) == 5
    found = run_suite([], tasks=tasks)
    assert {one.task for one in found.outcomes} == {task.name for task in tasks}
    assert all(np.isfinite(list(one.means.values())).all() for one in found.outcomes)
    for task in ALL_TASKS:
        load_cluster(task.cluster)
