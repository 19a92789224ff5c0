"""Charts, pictures, tables, traces and exports of replays: what they contain, not that they exist."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from queuewise.cli import main
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.measure import Measurement, measure, wait
from queuewise.evaluation.metrics import summarise
from queuewise.evaluation.protocol import Window, make_plan
from queuewise.evaluation.results import write_results
from queuewise.evaluation.scores import parse_score
from queuewise.policies import simulate
from queuewise.report.batsim import FINAL_STATES, _intervals, write_batsim_jobs
from queuewise.report.charts import Chart, make_charts
from queuewise.report.chrome_trace import write_trace
from queuewise.report.figures import write_figures
from queuewise.report.gantt import OVERVIEW_COLUMNS, gantt_data
from queuewise.report.html import _load, write_report
from queuewise.report.lanes import count_bars, make_bars
from queuewise.report.plotly_charts import plotly_figure
from queuewise.report.text_tables import metric_table, to_latex, to_markdown
from queuewise.sim.core.schedule import STATUS_NAMES
from stand_in import busy_days, line_up, small_cluster

JOBS = busy_days(500)


@pytest.fixture(scope="module")
def replays() -> list[Measurement]:
    return [measure(line_up(JOBS, small_cluster(), policy)) for policy in ("line", "line-600")]


@pytest.fixture(scope="module")
def charts(replays: list[Measurement]) -> dict[str, Chart]:
    made, reasons = make_charts(replays)
    assert reasons == []
    return {chart.key: chart for chart in made}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    setup = Experiment(JOBS, small_cluster(), make_plan("windows", JOBS, num_windows=3, window_jobs=160), ReplaySettings())
    cells = run_experiment(setup, ["line-600", "line"], line_up, folder=folder)
    write_results(folder, cells, judge(cells, parse_score("bsld")))
    write_report(folder)
    return folder


def test_the_charts_of_an_evaluation_have_the_jobs_of_its_tables(tmp_path: Path) -> None:
    """Not the days before the counted ones, whose jobs are replayed too."""
    setup = Experiment(JOBS, small_cluster(), make_plan("days", JOBS, shakes=2), ReplaySettings())
    cells = run_experiment(setup, ["line"], line_up, folder=tmp_path)
    write_results(tmp_path, cells, judge(cells, parse_score("bsld")))
    page = write_report(tmp_path, figures=False, exports="none").read_text(encoding="utf-8")
    counted = setup.plan.windows[0].num_jobs - setup.plan.windows[0].counted
    assert 0 < counted == cells[0].metrics["jobs"] < len(JOBS)
    assert f"{counted} of the {len(JOBS)} replayed jobs" in page
    assert "(replay 0 of 0 to 1; queuewise report --window I draws another)" in page
    assert "Intervals need at least ten days" in page  # not windows
    (replay,), _ = _load(tmp_path, 0, None)
    assert wait(replay).mean() == pytest.approx(cells[0].metrics["wait_s"]["mean"])


@pytest.mark.parametrize("window", [Window(3, 9), Window(0, 9, seed=4), Window(3, 9, counted=2, shake=0)])
def test_a_window_is_read_as_it_was_written(window: Window) -> None:
    assert Window.from_list(window.as_list()) == window


def test_every_promised_chart_is_made(charts: dict[str, Chart]) -> None:
    assert set(charts) == {
        "wait-cdf", "jct-cdf", "utilisation", "queue", "size", "size-slowdown", "priority", "group", "fairness", "energy", "power",
        "hours-0", "hours-1",
    }  # fmt: skip


def test_the_cdf_is_that_of_the_waits(charts: dict[str, Chart], replays: list[Measurement]) -> None:
    series = charts["wait-cdf"].series[1]
    waits = wait(replays[1])
    for share in (0.25, 0.5, 0.9):
        assert np.interp(share, series.y, np.asarray(series.x, float)) == pytest.approx(np.quantile(waits, share), rel=0.02)


def test_utilisation_over_time_averages_to_the_metric(charts: dict[str, Chart], replays: list[Measurement]) -> None:
    longest = max(m.span for m in replays)
    for series, m in zip(charts["utilisation"].series, replays, strict=True):
        assert np.mean(series.y) * longest / m.span == pytest.approx(summarise(m.schedule)["gpu_utilisation"], rel=1e-3)


def test_waits_by_hour_have_one_scale_for_all_policies(charts: dict[str, Chart], replays: list[Measurement]) -> None:
    """The same colour is the same wait, in figures and on the page; long waits are in hours."""
    first, second = charts["hours-0"], charts["hours-1"]
    greatest = [max(value for row in chart.z for value in row if value is not None) for chart in (first, second)]
    assert first.z_most == second.z_most == pytest.approx(max(greatest), rel=1e-3)
    assert greatest[0] != greatest[1]
    assert [plotly_figure(chart)["data"][1]["marker"]["cmax"] for chart in (first, second)] == [first.z_most] * 2
    assert first.z_label == second.z_label == "mean wait [h]"
    submit = replays[0].schedule.workload.submit[replays[0].rows] + JOBS.epoch
    cells = (submit // 3600 + (72 if JOBS.epoch else 0)) % 168  # second 0 of Unix time was a Thursday
    one = cells == cells[5]
    assert first.z[int(cells[5] // 24)][int(cells[5] % 24)] == pytest.approx(wait(replays[0])[one].mean() / 3600, rel=1e-3)


def test_sizes_are_named_by_what_they_count() -> None:
    """On a cluster with GPUs, many jobs may use none."""
    some, none = np.where(np.arange(500) % 2 == 0, 1000, 0).astype(np.int32), np.zeros(500, np.int32)
    labels = []
    for gpu_milli in (JOBS.gpu_milli, some, none):
        made, _ = make_charts([measure(simulate(JOBS.replace(gpu_milli=gpu_milli), small_cluster(), "fcfs"))])
        labels.append(next(chart.x_label for chart in made if chart.key == "size"))
    assert labels == ["GPUs", "GPUs, or cores of jobs without GPUs", "cores"]


def test_charts_without_data_say_why() -> None:
    bare = JOBS.replace(
        user=np.full(500, -1, np.int32), group=np.full(500, -1, np.int32), priority=np.zeros(500), num_tasks=np.ones(500, np.int32)
    ).take(slice(0, 20))
    made, reasons = make_charts([measure(line_up(bare, build("dark", [NodeGroup(count=1, gpus=64 - 1, kind="T4")]), "line"))])
    assert {chart.key for chart in made} >= {"wait-cdf", "utilisation"}
    assert any("the log names no users" in reason for reason in reasons)
    assert any("all jobs have the same priority" in reason for reason in reasons)
    assert any("all jobs have the same size" in reason for reason in reasons)


def test_figures_are_drawn_in_every_format(charts: dict[str, Chart], tmp_path: Path) -> None:
    some = [charts[key] for key in ("wait-cdf", "size", "fairness", "hours-0")]
    written = write_figures(some, tmp_path)
    assert sorted(path.suffix for path in written) == sorted([".png", ".svg", ".pdf"] * 4)
    for path in tmp_path.glob("*.png"):
        pixels = np.asarray(Image.open(path).convert("L"))
        assert (pixels < 200).mean() > 0.005, f"{path.name} is empty"
    assert "line-600" in (tmp_path / "wait-cdf.svg").read_text() or b"svg" in (tmp_path / "wait-cdf.svg").read_bytes()
    before = {path.name: path.read_bytes() for path in written}
    write_figures(some, tmp_path)
    assert {path.name: path.read_bytes() for path in written} == before  # equal data, equal files


def test_bars_never_overlap_on_a_seat(ten_bars_schedule: Measurement) -> None:
    bars = make_bars(ten_bars_schedule.schedule)
    assert len(bars) == count_bars(ten_bars_schedule.schedule)
    same = (np.diff(bars.node) == 0) & (np.diff(bars.gpu) == 0) & (np.diff(bars.slot) == 0)
    assert (bars.start[1:][same] >= bars.end[:-1][same]).all()


@pytest.fixture
def ten_bars_schedule(replays: list[Measurement]) -> Measurement:
    """The replay with all whole GPUs turned into shares and core-only stays, which overlap."""
    import dataclasses

    schedule = replays[0].schedule
    shares = schedule.workload.replace(gpu_milli=np.where(np.arange(500) % 2, 100, 0).astype(np.int32))
    rng = np.random.default_rng(0)
    gpus = np.where(schedule.piece_job % 2, 1 << rng.integers(0, 2, len(schedule.piece_job)), 0)
    return measure(dataclasses.replace(schedule, workload=shares, piece_gpus=gpus, piece_node=schedule.piece_node * 0))


def test_gantt_overview_holds_the_gpu_seconds(replays: list[Measurement]) -> None:
    import base64

    data = gantt_data(replays[0])
    assert len(data["lanes"]) == 16
    assert data["lanes"][0].endswith("GPU 0")
    busy = np.frombuffer(base64.b64decode(data["overview"]["busy"]), np.uint8).reshape(16, OVERVIEW_COLUMNS) / 255
    assert busy.mean() == pytest.approx(summarise(replays[0].schedule)["gpu_utilisation"], abs=0.01)
    start, end = (np.frombuffer(base64.b64decode(data["bars"][key]), "<f8") for key in ("start", "end"))
    lanes = np.frombuffer(base64.b64decode(data["bars"]["lanes"]), "<u2")
    assert (end - start) @ lanes == pytest.approx(float(JOBS.gpus @ JOBS.runtime))
    assert len(lanes) < JOBS.gpus.sum()  # neighbouring GPUs of a job are one bar


def test_trace_has_a_slice_for_every_gpu_of_every_job(replays: list[Measurement], tmp_path: Path) -> None:
    write_trace(replays[0].schedule, tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == int(JOBS.gpus.sum())
    assert sum(event["dur"] for event in slices) / 1e6 == pytest.approx(float(JOBS.gpus @ JOBS.runtime))
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"GPU 0", "GPU 7"} <= names
    assert slices[0].keys() == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}


def test_a_long_trace_has_a_slice_for_every_piece(replays: list[Measurement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = replays[0].schedule
    monkeypatch.setattr("queuewise.report.chrome_trace.MAX_SLICES", 0)
    monkeypatch.setattr("queuewise.report.chrome_trace.SLICES_AT_ONCE", 2)
    write_trace(schedule, tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    found = sorted((event["pid"], event["tid"], event["args"]["gpus_here"], event["name"]) for event in slices)
    masks = schedule.piece_gpus.tolist()
    first = [(mask & -mask).bit_length() for mask in masks]
    assert found == sorted(
        (int(node), 1000 * gpu, mask.bit_count(), str(schedule.workload.job_id[job]))
        for node, gpu, mask, job in zip(schedule.piece_node, first, masks, schedule.piece_job, strict=True)
    )


def test_batsim_jobs(replays: list[Measurement], tmp_path: Path) -> None:
    write_batsim_jobs(replays[1].schedule, tmp_path / "jobs.csv")
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert list(rows[0]) == [
        "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time", "success",
        "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time", "stretch",
        "allocated_resources", "consumed_energy",
    ]  # fmt: skip
    assert len(rows) == 500
    assert float(rows[3]["waiting_time"]) == wait(replays[1])[3]
    assert rows[0]["final_state"] == "COMPLETED_SUCCESSFULLY"
    for row in rows:
        used = sum(int(part.split("-")[-1]) - int(part.split("-")[0]) + 1 for part in row["allocated_resources"].split())
        assert used == int(row["requested_number_of_resources"])
    assert tuple(FINAL_STATES) == STATUS_NAMES


def test_intervals_of_resources() -> None:
    assert _intervals(0b1011, 8) == "8-9 11"
    assert _intervals(0b1111, 0) == "0-3"
    assert _intervals(0, 4) == ""


def test_tables_escape_and_leave_out_what_nobody_has() -> None:
    cells = metric_table([{"policy": "sjf+easy_x|y", "wait_s.mean": 1234.56, "cpu_utilisation": None, "makespan_s": 7200.0}])
    assert cells == (["policy", "mean wait [s]", "makespan [h]"], [["sjf+easy_x|y", "1,234.6", "2.0"]])
    assert to_markdown(cells).splitlines()[2] == r"| sjf+easy_x\|y | 1,234.6 | 2.0 |"
    latex = to_latex(cells, "100 % of it")
    assert r"sjf+easy\_x|y & 1,234.6 & 2.0 \\" in latex
    assert r"\caption{100 \% of it}" in latex


def test_the_report_is_one_file_with_everything_beside_it(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)\s*=\s*"(?!data:)[^"#]', page.split("<script>")[0])
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1].replace("<\\/", "</"))  # type: ignore[index]
    assert [gantt["policy"] for gantt in data["gantts"]] == ["line", "line-600"]  # best first
    assert {chart["key"] for chart in data["charts"]} >= {"scores", "wait-cdf", "energy"}
    assert (run / "tables" / "scores.tex").read_text().startswith(r"\begin{table}")
    assert (run / "line" / "trace.json.gz").exists()
    assert not (run / "line-600" / "trace.json.gz").exists()
    assert (run / "line" / "batsim_jobs.csv").exists()
    assert not list(run.rglob("*.part"))


def test_scores_stand_beside_the_same_figures_as_on_the_terminal(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a narrow one shows fewer columns
    rows = json.loads((run / "summary.json").read_text())
    heading, _, first, *_ = (run / "tables" / "scores.md").read_text(encoding="utf-8").splitlines()
    assert heading.endswith("| mean wait | p99 | max | makespan ÷ span | GPUs used |")
    assert main(["compare", str(run)]) == 0
    printed = capsys.readouterr().out
    for cell in first.strip("| ").split(" | "):
        assert cell in printed
    assert f"{rows[0]['makespan_by_span']:,.3f} | {rows[0]['utilisation']:.1%} |" in first


def test_the_longest_wait_is_that_of_all_windows(run: Path) -> None:
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        cells = [json.loads(line) for line in file]
    with (run / "summary.csv").open(encoding="utf-8") as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    table = (run / "tables" / "metrics.md").read_text(encoding="utf-8")
    for policy, row in rows.items():
        longest = max(cell["wait_s.max"] for cell in cells if cell["policy"] == policy)
        assert float(row["wait_s.max"]) == longest
        assert f"| {longest:,.0f} |" in table
        assert float(row["makespan_by_span"]) >= 1


def test_a_window_that_is_not_there(run: Path) -> None:
    with pytest.raises(InputError, match="has no window 7"):
        write_report(run, window=7)


def test_without_matplotlib_figures_can_be_left_out(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(folder)]) == 2
    assert "hint: pip install 'queuewise[report]', or add --no-figures\n" in capsys.readouterr().err
    assert main(["report", str(folder), "--no-figures"]) == 0
