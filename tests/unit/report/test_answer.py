"""The first sentences of a report: ties, bounds of scores and short spans."""

from __future__ import annotations

import dataclasses

import pytest

from queuewise.cluster import load_cluster
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.measure import measure
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.scores import parse_score
from queuewise.report.answer import answer_of, drawn_part
from queuewise.report.html import render
from queuewise.report.text_tables import interval
from stand_in import busy_days, line_up, small_cluster

JOBS = busy_days(60)


def cells_of(policy: str) -> list[Cell]:
    plan = make_plan("windows", JOBS, num_windows=3, window_jobs=20)
    return run_experiment(Experiment(JOBS, small_cluster(), plan, ReplaySettings()), [policy], line_up)


def test_policies_that_do_the_same_are_said_to_do_so() -> None:
    cells = cells_of("line")
    result = judge([*cells, *(dataclasses.replace(cell, policy="queue") for cell in cells)], parse_score("bsld"))
    text = answer_of([], {}, result)
    assert "the same as" in text
    assert "0 %" not in text
    assert "lowest mean bounded slowdown, " in text
    assert "significant" not in text
    replays = [measure(line_up(JOBS, small_cluster(), policy)) for policy in ("line", "line-0")]
    assert "; the mean wait is the same under every policy: " in answer_of(replays, {}, None)
    assert "lowest mean wait" in answer_of([replays[0], measure(line_up(JOBS, small_cluster(), "line-600"))], {}, None)


@pytest.mark.parametrize(("score", "least"), [("bsld", 1.0), ("2*wait", 0.0), ("bsld+util", 1.0), ("energy_cost", float("-inf"))])
def test_no_interval_reaches_below_what_is_possible(score: str, least: float) -> None:
    assert parse_score(score).least == least


def test_intervals_are_cut_at_the_least_score() -> None:
    assert interval((-3.0, 5.0), 1, 1.0) == "1.0 … 5.0"


def test_short_spans_have_a_unit_that_shows_them() -> None:
    jobs = dataclasses.replace(JOBS.take(slice(0, 3)), epoch=0.0)
    assert " days" not in drawn_part(measure(line_up(jobs, small_cluster(), "line")), 0, 1)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [("flat:256", "1 node, 256 cores"), ("2x8:V100-16", "2 nodes, 16 GPUs"), ("1x1:V100-16", "1 node, 1 GPU")],
)
def test_the_machine_is_described_by_what_it_has(cluster: str, words: str) -> None:
    page = render([measure(line_up(JOBS, load_cluster(cluster), "line"))], [], [], {})
    assert f"({words}) under 1 policy" in page


def test_a_cluster_that_was_made_from_the_log_is_not_named_twice() -> None:
    cluster = dataclasses.replace(small_cluster(), name=JOBS.name)
    page = render([measure(line_up(JOBS, cluster, "line"))], [], [], {})
    assert f"<h1>{JOBS.name} on the nodes of the log</h1>" in page
    assert f"{len(JOBS)} jobs of {JOBS.name} on the nodes of the log (" in page
