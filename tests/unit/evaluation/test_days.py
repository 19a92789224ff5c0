"""The protocol days: the figures of one whole replay, counted by day, averaged over shaken submissions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise import load_cluster, simulate
from queuewise.cli import main
from queuewise.cli.evaluate import print_result
from queuewise.errors import InputError
from queuewise.evaluation import experiment
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import Result, judge
from queuewise.evaluation.measure import Measurement, bounded_slowdown, last_event
from queuewise.evaluation.protocol import SHAKE_S, block_jobs, make_plan
from queuewise.evaluation.scores import parse_score
from queuewise.policies.estimating import declare_part, estimate_on
from queuewise.report.readable import duration
from queuewise.workload.models import generate
from queuewise.workload.transform import shake, vary
from queuewise.workload.writers import write_workload

JOBS = generate("lublin", 1500, seed=3)
CLUSTER = load_cluster("flat:256")


def result(policies: list[str], *, score: str = "bsld", shakes: int = 1, **options: object) -> Result:
    plan = make_plan("days", JOBS, shakes=shakes, **options)  # type: ignore[arg-type]
    return judge(run_experiment(Experiment(JOBS, CLUSTER, plan, ReplaySettings()), policies, simulate), parse_score(score))


def test_the_score_is_that_of_the_counted_jobs_in_a_whole_replay() -> None:
    found = result(["fcfs+easy", "sjf+easy"])
    first = block_jobs(JOBS)["report"].start
    for row in found.as_json():
        schedule = simulate(JOBS, CLUSTER, row["policy"])
        alone = bounded_slowdown(Measurement(schedule, slice(first, len(JOBS)), float(JOBS.submit[first]), last_event(schedule)))
        assert row["mean"] == pytest.approx(alone.mean())
        assert row["jobs"] == sum(row["per_window_jobs"]) == len(JOBS) - first
        assert np.average(row["per_window"], weights=row["per_window_jobs"]) == pytest.approx(row["mean"])
        assert row["geometric_mean"] == pytest.approx(np.exp(np.log(alone).mean()))
        assert row["max_wait_s"] == pytest.approx(schedule.first_wait[first:].max())
        assert row["worst_day"] == max(row["per_window"])
        assert len(row["per_window"]) == row["days"]


@pytest.mark.parametrize("width", [60, 80, 120, 160, 300])
def test_scores_never_stand_alone_however_narrow_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    found = result(["fcfs+easy", "saf:predicted+easy:sjf:predicted~3d"])
    print_result(found, "days")
    printed = capsys.readouterr()
    assert max(map(len, printed.out.splitlines())) <= width
    headings = printed.out + printed.err  # what does not fit is named
    for heading in ("bsld", "95 % interval", "worst 6 h", "geom. mean bsld", "mean wait", "p99", "max", "makespan ÷ span", "cores used"):
        assert heading in headings
    for row in found.as_json():
        assert duration(row["wait_s"]) in printed.out
        assert width == 60 or duration(row["max_wait_s"]) in printed.out
        if width == 300:
            assert f"{row['worst_day']:,.2f}" in printed.out
            assert f"{row['geometric_mean']:,.2f}" in printed.out


def test_a_heavy_day_does_not_hide_what_the_typical_job_gains() -> None:
    found = result(["fcfs", "sjf+easy"])
    row = next(row for row in found.as_json() if row["policy"] == "fcfs")
    first = block_jobs(JOBS)["report"].start
    means = []
    for policy in ("fcfs", "sjf+easy"):
        schedule = simulate(JOBS, CLUSTER, policy)
        part = Measurement(schedule, slice(first, len(JOBS)), float(JOBS.submit[first]), last_event(schedule))
        means.append(float(np.log(bounded_slowdown(part)).mean()))
    typical = row["geometric_vs_best_baseline"]
    assert typical["diff_percent"] == pytest.approx(100 * np.expm1(means[0] - means[1]))
    assert typical["ci95_percent"][0] < typical["diff_percent"] < typical["ci95_percent"][1]


def test_shaken_replays_are_averaged() -> None:
    alone = [result(["fcfs+easy"], shakes=number).standings[0].mean for number in (1, 2)]
    second = next(cell.scores["bsld"] for cell in _cells(2) if cell.window == 1)
    assert second is not None
    assert alone[1] == pytest.approx((alone[0] + second) / 2)
    assert alone[1] != alone[0]


def _cells(shakes: int) -> list[Cell]:
    return run_experiment(Experiment(JOBS, CLUSTER, make_plan("days", JOBS, shakes=shakes), ReplaySettings()), ["fcfs+easy"], simulate)


def test_no_job_crosses_the_edge_of_the_counted_part() -> None:
    first = 700
    crowded = JOBS.replace(submit=np.where(np.arange(len(JOBS)) < first, JOBS.submit, np.maximum(JOBS.submit, JOBS.submit[first])))
    crowded = crowded.replace(submit=np.sort(np.clip(crowded.submit, None, crowded.submit[first] + np.arange(len(JOBS)))))
    assert (shake(crowded, SHAKE_S, 1)[1][first:] < first).any()  # without the edge, jobs change places
    shaken, rows = shake(crowded, SHAKE_S, 1, boundary=first)
    assert (rows[:first] < first).all()
    assert (np.diff(shaken.submit) >= 0).all()
    assert np.abs(shaken.submit - crowded.submit[rows]).max() <= SHAKE_S


def test_shaking_moves_submissions_a_little_and_nothing_else() -> None:
    shaken, rows = shake(JOBS, SHAKE_S, 1)
    assert (np.diff(shaken.submit) >= 0).all()
    assert np.abs(shaken.submit - JOBS.submit[rows]).max() <= SHAKE_S
    assert sorted(rows) == list(range(len(JOBS)))
    np.testing.assert_array_equal(shaken.runtime, JOBS.runtime[rows])
    np.testing.assert_array_equal(shaken.job_id, JOBS.job_id[rows])


def test_jobs_of_a_part_are_known_as_in_the_whole_log() -> None:
    shaken, rows = shake(JOBS, SHAKE_S, 1)
    part = declare_part(shaken, JOBS, rows)
    for how in ("predicted", "noisy:0.5", "oracle"):
        np.testing.assert_array_equal(estimate_on(part, CLUSTER, how).values, estimate_on(JOBS, CLUSTER, how).values[rows])


def test_estimates_of_a_part_with_other_times_are_as_different() -> None:
    varied, factors = vary(JOBS.replace(requested=JOBS.runtime * 3), 0.5, (1.0, 1.0), 1)
    np.testing.assert_allclose(varied.requested / varied.runtime, 3.0)
    part = declare_part(varied, JOBS, np.arange(len(JOBS)), factors)
    for how in ("predicted", "noisy:0.5", "oracle"):
        np.testing.assert_allclose(estimate_on(part, CLUSTER, how).values, estimate_on(JOBS, CLUSTER, how).values * factors)


def test_days_have_whole_numbers_of_jobs_however_submissions_are_shaken() -> None:
    (alone,), (shaken,) = (result(["fcfs+easy"], shakes=shakes).as_json() for shakes in (1, 3))
    assert shaken["per_window_jobs"] == alone["per_window_jobs"]
    assert all(isinstance(jobs, int) for jobs in shaken["per_window_jobs"])
    for cell in _cells(3):
        assert cell.units is not None
        assert [jobs for jobs in cell.units["jobs"] if jobs] == alone["per_window_jobs"]


def test_slowdown_is_a_mean_over_the_jobs_that_have_one() -> None:
    some = JOBS.replace(runtime=np.where(np.arange(len(JOBS)) % 7, JOBS.runtime, 0.0))
    plan = make_plan("days", some, shakes=1)
    (cell,) = run_experiment(Experiment(some, CLUSTER, plan, ReplaySettings()), ["fcfs+easy"], simulate)
    (row,) = judge([cell], parse_score("slowdown")).as_json()
    assert row["mean"] == pytest.approx(cell.scores["slowdown"])
    assert row["jobs"] == np.count_nonzero(some.runtime[plan.windows[0].counted :])


@pytest.mark.parametrize(
    ("score", "problem"), [("util", "'util' is not a mean over jobs"), ("bsld+slowdown", "adds slowdown, which jobs of 0 s do not have")]
)
def test_scores_that_days_cannot_compare_are_refused_before_the_replays(
    score: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=problem):
        result(["fcfs+easy"], score=score)
    monkeypatch.setattr(experiment, "run_experiment", None)  # an error if it were called
    write_workload(JOBS, tmp_path / "log.swf")
    assert main(["evaluate", "--workload", str(tmp_path / "log.swf"), "--cluster", "flat:256", "--policy", "fcfs", "--score", score]) == 2
    assert problem in capsys.readouterr().err


def test_the_span_is_that_of_the_jobs_that_ran() -> None:
    """The last job, number 299, comes a year later and fits on no node."""
    late = JOBS.take(slice(0, 300))
    columns = {
        "submit": np.append(late.submit[:-1], late.submit[-2] + 3.15e7),
        "num_tasks": np.append(late.num_tasks[:-1], 999).astype(np.int32),
    }
    columns |= dict.fromkeys(("min_tasks", "max_tasks"), columns["num_tasks"])
    late = late.replace(**columns)
    for plan in (make_plan("replay", late), make_plan("days", late, split=(1e-9, 0.0, 1 - 1e-9), shakes=1)):
        (cell,) = run_experiment(Experiment(late, CLUSTER, plan, ReplaySettings()), ["fcfs+easy"], simulate)
        assert cell.metrics["rejected"] == 1
        assert cell.makespan_by_span is not None
        assert 1 <= cell.makespan_by_span < 1.5
        assert cell.rejections == ["1 job rejected: all their tasks together need more than the cluster has (id 299)"]


def test_a_policy_that_buys_its_score_with_waits_is_marked() -> None:
    rng = np.random.default_rng(2)
    jobs, slowdowns, waits = np.full(40, 100.0), rng.lognormal(6, 0.5, 40), rng.lognormal(9, 0.5, 40)

    def cell(policy: str, slowdown: float, wait: float) -> Cell:
        units = {"jobs": jobs, "bsld": slowdowns * slowdown, "wait": waits * wait, "jct": waits}
        return Cell(policy, 0, {}, {}, {"completed": 1, "jobs": 1}, "", units=units)

    cells = [cell("fcfs+easy", 1.0, 1.0), cell("idle.py:idle", 0.5, 1.5), cell("good.py:good", 0.6, 0.9)]
    found = judge(cells, parse_score("bsld"))
    assert [found.mark(policy) for policy in ("fcfs+easy", "idle.py:idle", "good.py:good")] == ["", " *", ""]
    assert found.legend == ["* idle.py:idle: better than fcfs+easy by bsld, but jobs wait clearly longer"]
    marked = {row["policy"]: row["waits_longer"] for row in found.as_json()}
    assert marked == {"fcfs+easy": False, "idle.py:idle": True, "good.py:good": False}
    rules = judge([cell("fcfs+easy", 1.0, 1.0), cell("sjf", 0.5, 1.5), cell("saf", 0.9, 1.01)], parse_score("bsld"))
    assert rules.legend == ["* sjf: better than saf by bsld, but jobs wait clearly longer"]  # the best baseline is marked, too


def test_units_of_six_hours_are_not_called_days(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    submit = np.linspace(0.0, 10 * 86_400.0, len(JOBS))
    short = JOBS.replace(submit=submit)
    plan = make_plan("days", short, shakes=1)
    found = judge(run_experiment(Experiment(short, CLUSTER, plan, ReplaySettings()), ["fcfs+easy"], simulate), parse_score("bsld"))
    (row,) = found.as_json()
    assert (row["days"], row["unit_s"]) == (len(row["per_window"]), 21_600.0)
    print_result(found, "days")
    printed = capsys.readouterr().out
    assert "worst 6 h" in printed
    assert "worst day" not in printed
    long = JOBS.replace(submit=4 * submit)
    (row,) = judge(
        run_experiment(Experiment(long, CLUSTER, make_plan("days", long, shakes=1), ReplaySettings()), ["fcfs+easy"], simulate),
        parse_score("bsld"),
    ).as_json()
    assert row["unit_s"] == 86_400.0


@pytest.mark.parametrize(("gpu", "cpu", "resource"), [(0.99, 0.4, "GPUs"), (0.01, 0.4, "cores"), (None, 0.4, "cores"), (0.0, None, "GPUs")])
def test_used_is_what_the_jobs_compete_for(gpu: float | None, cpu: float | None, resource: str) -> None:
    metrics = {"completed": 1, "jobs": 1, "gpu_utilisation": gpu, "cpu_utilisation": cpu}
    (row,) = judge([Cell("fcfs", 0, {"bsld": 2.0}, {}, metrics, "")], parse_score("bsld")).as_json()
    assert (row["resource"], row["utilisation"]) == (resource, gpu if resource == "GPUs" else cpu)
