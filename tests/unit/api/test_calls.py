"""The functions of `queuewise`: names are taken wherever objects are, and what is wrong is said with what to pass."""

from __future__ import annotations

import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import queuewise
from queuewise.errors import InputError
from queuewise.policies import replaying
from queuewise.policies.interface import Start, View
from stand_in import busy_days, small_cluster

WORKLOAD = busy_days(60)
CLUSTER = small_cluster()
HALF = 0.5


def narrow_first(job: Any) -> float:
    return float(weigh(job.width) + job.submit * 1e-9)


def weigh(width: float) -> float:
    return math.sqrt(width) * HALF


class InOrder:
    def decide(self, view: View) -> Iterator[Start]:
        while view.queue and view.fits(view.queue[0]):
            yield Start(view.queue[0])


def test_names_and_objects_give_the_same_schedule() -> None:
    by_name = queuewise.simulate("bursty", "2x8:V100-16", "sjf+easy", jobs=50, seed=3)
    workload = queuewise.load_workload("bursty", jobs=50, seed=3).workload
    by_object = replaying.simulate(workload, queuewise.load_cluster("2x8:V100-16"), "sjf+easy", seed=3)
    np.testing.assert_array_equal(by_name.start, by_object.start)


def test_a_list_of_policies_gives_schedules_by_name() -> None:
    schedules = queuewise.simulate(WORKLOAD, CLUSTER, ["fcfs", narrow_first, InOrder], estimates="oracle")
    assert list(schedules) == ["fcfs", "narrow_first", "InOrder"]
    assert [schedule.policy for schedule in schedules.values()] == list(schedules)
    np.testing.assert_array_equal(schedules["InOrder"].start, schedules["fcfs"].start)
    frame = schedules.to_frame()
    assert frame["policy"].to_list() == list(schedules)
    assert frame["wait_s.mean"][0] == pytest.approx(schedules["fcfs"].first_wait.mean())
    assert "mean wait" in repr(schedules).splitlines()[0]
    assert "<td>narrow_first</td>" in schedules._repr_html_()


def test_a_function_is_the_order_that_it_computes() -> None:
    """Its constants and the functions that it calls go with it."""
    by_function = queuewise.simulate(WORKLOAD, CLUSTER, narrow_first, estimates="oracle")
    waiting = [j for j in range(len(WORKLOAD)) if by_function.first_wait[j] > 0]
    overtaken = [(i, j) for i in waiting for j in waiting if i < j and by_function.start[j] < by_function.start[i]]
    assert overtaken
    assert all(WORKLOAD.size[j] < WORKLOAD.size[i] for i, j in overtaken)


def test_a_function_can_be_combined_with_backfill_by_its_name() -> None:
    named = queuewise.name_policy(narrow_first, "+easy~3d")
    assert named.endswith("narrow_first.py:narrow_first+easy~3d")
    assert queuewise.simulate(WORKLOAD, CLUSTER, named, estimates="oracle").finished.all()
    many = queuewise.simulate_many(WORKLOAD, CLUSTER, ["fcfs", narrow_first, named], windows=[(0, 30)], estimates="oracle")
    assert np.isfinite(many.wait_s).all()


def test_evaluate_ranks_names_functions_and_classes() -> None:
    policies: list[Any] = ["fcfs", narrow_first, InOrder]
    result = queuewise.evaluate(
        WORKLOAD, CLUSTER, policies, protocol="windows", windows=3, window_jobs=20, start="empty", estimates="oracle"
    )
    frame = result.to_frame()
    means = dict(zip(frame["policy"], frame["mean"], strict=True))
    assert set(means) == {"fcfs", "narrow_first", "InOrder"}
    assert means["InOrder"] == means["fcfs"]
    assert repr(result).startswith("policy")
    assert result._repr_html_().startswith("<table>")


def test_estimates_and_same_are_taken_as_people_write_them() -> None:
    listed = queuewise.simulate(WORKLOAD, CLUSTER, "sjf", estimates=[float(one) for one in WORKLOAD.runtime])
    np.testing.assert_array_equal(listed.start, queuewise.simulate(WORKLOAD, CLUSTER, "sjf", estimates="oracle").start)
    options: Any = {"windows": 2, "window_jobs": 10, "start": "empty", "estimates": "oracle"}
    assert queuewise.evaluate(WORKLOAD, CLUSTER, ["fcfs", "sjf"], same="1%", **options).standings


def test_functions_have_their_names_in_results_and_run_folders(tmp_path: Path) -> None:
    """Not the path of the cache, and the file goes into the folder. They are no baselines."""
    named = queuewise.name_policy(narrow_first, "+easy")
    assert queuewise.simulate(WORKLOAD, CLUSTER, named, estimates="oracle").policy == "narrow_first+easy"
    options: Any = {"windows": 2, "window_jobs": 10, "start": "empty", "estimates": "oracle", "out": tmp_path / "run"}
    result = queuewise.evaluate(WORKLOAD, CLUSTER, ["fcfs", narrow_first, named], **options)
    assert {one.policy for one in result.standings} == {"fcfs", "narrow_first", "narrow_first+easy"}
    assert {one.best_baseline for one in result.standings} == {"fcfs"}
    stored = queuewise.compare(tmp_path / "run")
    assert {one.policy for one in stored.standings} == {"fcfs", "narrow_first.py:narrow_first", "narrow_first.py:narrow_first+easy"}
    assert "def narrow_first(job" in (tmp_path / "run" / "narrow_first.py").read_text(encoding="utf-8")
    again = queuewise.evaluate(WORKLOAD, CLUSTER, ["fcfs", narrow_first, named], **options)
    assert [one.mean for one in again.standings] == [one.mean for one in result.standings]


def test_runs_are_compared_and_reported(tmp_path: Path) -> None:
    for name in ("fcfs", "sjf"):
        queuewise.evaluate(
            "bursty", "2x8:V100-16", name, jobs=40, windows=2, window_jobs=20, out=tmp_path / name, seed=2
        )  # fmt: skip
    result = queuewise.compare(tmp_path / "fcfs", tmp_path / "sjf")
    assert {standing.policy for standing in result.standings} == {"fcfs", "sjf"}
    page = queuewise.report(tmp_path / "fcfs", figures=False, exports="none")
    assert page.name == "report.html"
    assert page.is_file()


def test_workloads_are_frames_and_back() -> None:
    again = queuewise.Workload.from_frame(WORKLOAD.to_frame(), name=WORKLOAD.name)
    for column in ("submit", "runtime", "num_tasks", "gpu_milli", "cpu_milli", "job_id", "priority"):
        np.testing.assert_array_equal(getattr(again, column), getattr(WORKLOAD, column), err_msg=column)
    renamed = WORKLOAD.to_frame().rename({"runtime": "seconds"})
    np.testing.assert_array_equal(queuewise.Workload.from_frame(renamed, columns={"seconds": "runtime"}).runtime, WORKLOAD.runtime)
    np.testing.assert_array_equal(
        queuewise.simulate(WORKLOAD.to_frame(), CLUSTER, "fcfs", estimates="oracle").workload.submit, WORKLOAD.submit
    )


def test_frames_of_pandas_are_taken() -> None:
    class Frame(dict[str, Any]):  # what is used of one
        columns = ("submit", "runtime", "cores")

    workload = queuewise.Workload.from_frame(Frame(submit=np.array([0, 5]), runtime=np.array([60.0, 30.0]), cores=np.array([2, 1])))
    assert workload.cores.tolist() == [2, 1]


def test_missing_texts_of_pandas_are_unknown() -> None:
    class Column(list[Any]):
        """Of objects, as pandas has texts; a missing one is None or NaN, which only isna finds."""

        def isna(self) -> list[bool]:
            return [value is None or isinstance(value, float) for value in self]

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(list(self), dtype=object)

    class Frame(dict[str, Any]):
        columns = ("submit", "runtime", "cores", "user", "partition")

    numbers = {"submit": np.array([0, 5]), "runtime": np.array([60.0, 30.0]), "cores": np.array([2, 1])}
    workload = queuewise.Workload.from_frame(Frame(numbers, user=Column(["ann", float("nan")]), partition=Column([None, None])))
    assert workload.to_frame()["user"].to_list() == ["ann", None]
    assert workload.to_frame()["partition"].to_list() == [None, None]


def test_a_schedule_is_a_frame_with_one_row_per_job() -> None:
    schedule = queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", estimates="oracle")
    frame = schedule.to_frame()
    assert frame.height == len(WORKLOAD)
    np.testing.assert_array_equal(frame["start_s"].to_numpy(), schedule.start)
    pandas = pytest.importorskip("pandas")
    assert isinstance(frame.to_pandas(), pandas.DataFrame)


def test_reprs_are_short() -> None:
    schedule = queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", estimates="oracle")
    for shown in (WORKLOAD, CLUSTER, schedule, queuewise.load_workload("bursty", jobs=5)):
        assert len(repr(shown)) < 140
        assert "\n" not in repr(shown)
    assert repr(WORKLOAD).startswith(f"Workload({WORKLOAD.name}: 60 jobs in ")
    assert WORKLOAD._repr_html_().count("<tr>") == 1 + 5


def test_printed_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """By leaving out columns, the least important first, which are named."""
    schedules = queuewise.simulate(WORKLOAD, CLUSTER, ["fcfs+easy", "sjf+easy~3d", "fcfs"], estimates="oracle")
    monkeypatch.setenv("COLUMNS", "80")
    *table, note = repr(schedules).splitlines()
    assert max(map(len, table)) <= 80
    assert len(table) == 4
    assert table[0].split()[:3] == ["policy", "mean", "wait"]
    assert note.startswith("a wider terminal also shows: completed")
    monkeypatch.setenv("COLUMNS", "160")
    assert "completed" in repr(schedules).splitlines()[0]
    assert "a wider terminal" not in repr(schedules)


def test_many_replays_are_one_line() -> None:
    found = queuewise.simulate_many(WORKLOAD, CLUSTER, ["fcfs", "sjf"], windows=[(0, 30), (30, 30)], estimates="oracle")
    waits = found.wait_s
    means = f"mean waits from {waits.min():,.0f} to {waits.max():,.0f} s"
    assert repr(found) == f"ManyReplays(2 candidates, 2 windows: {means})"


MISTAKES: dict[str, tuple[Any, str, str]] = {
    "no policy": (lambda: queuewise.simulate(WORKLOAD, CLUSTER), "no policy is given", "'sjf+easy'"),
    "number as policy": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, 3), "policy is int 3", "a function of job"),
    "empty list": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, []), "no policy is given", "'sjf+easy'"),
    "twice": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, ["fcfs", "fcfs"]), "'fcfs' is given twice", "once"),
    "lambda": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, lambda job: job.width), "a lambda has no name", "def my_score(job)"),
    "class": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, dict), "class dict has no method decide", "def decide(self, view)"),
    "cluster": (lambda: queuewise.simulate(WORKLOAD, 256, "fcfs"), "cluster is int 256", "'flat:256'"),  # type: ignore[call-overload]
    "workload": (lambda: queuewise.simulate(7, CLUSTER, "fcfs"), "workload is int 7", "'log.swf.gz'"),
    "conditions": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", conditions=3), "conditions is int 3", ".toml file"),
    "minus one job": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", jobs=-1), "jobs is -1", "above 0"),
    "jobs as text": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", jobs="10"), "jobs is '10'", "whole number"),
    "half a job": (lambda: queuewise.simulate("bursty", CLUSTER, "fcfs", jobs=2.5), "jobs is 2.5", "whole number"),
    "no threads": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", threads=0), "threads is 0", "above 0"),
    "half a seed": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", seed=1.5), "seed is 1.5", "whole number from 0"),
    "negative seed": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", seed=-1), "seed is -1", "whole number from 0"),
    "source": (lambda: queuewise.load_workload(None), "source is NoneType None", "the path of a log"),  # type: ignore[arg-type]
    "budgets": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", budgets=3), "budgets is int 3", "Budgets(…)"),
    "yes or no": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", kill_at_limit="no"), "kill_at_limit is str", "True or False"),
    "start": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", start="empty"), "start is str 'empty'", "a Snapshot"),
    "estimates": (lambda: queuewise.simulate(WORKLOAD, CLUSTER, "fcfs", estimates=["a"]), "estimates is ['a']", "one number per job"),
    "same": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", same="much"), "same 'much' is not a percentage", "1%"),
    "windows as text": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", windows="2"), "windows is '2'", "windows=8"),
    "score": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", score=3), "score is int 3", "'bsld'"),  # type: ignore[arg-type]
    "exports": (lambda: queuewise.report("run", exports="al"), "unknown exports 'al'", "'all'"),  # type: ignore[arg-type]
    "number of windows": (lambda: queuewise.simulate_many(WORKLOAD, CLUSTER, ["fcfs"], windows=3), "windows is 3", "(0, 500)"),  # type: ignore[arg-type]
    "one candidate": (lambda: queuewise.simulate_many(WORKLOAD, CLUSTER, "fcfs", windows=[(0, 9)]), "candidates is 'fcfs'", "['fcfs'"),
    "schedules": (lambda: queuewise.summarise(queuewise.api.replays.Schedules()), "schedule is Schedules", "to_frame()"),
    "load_cluster": (lambda: queuewise.load_cluster(3), "cluster is int 3", "'flat:256'"),  # type: ignore[arg-type]
    "swapped": (lambda: queuewise.simulate("2x8:V100-16", "bursty", "fcfs"), "the name of a cluster", "workload, cluster, policy"),
    "flag": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", protocol="days", windows=3), "has no windows", "use protocol windows"),
    "default": (lambda: queuewise.name_policy(with_default), "with_default has a default for k", "use PARAMS"),
    "option": (lambda: queuewise.evaluate(WORKLOAD, CLUSTER, "fcfs", window=3), "option of evaluate 'window'", "mean 'windows'?"),
    "runs": (queuewise.compare, "compare needs run folders", "compare('runs/a', 'runs/b')"),
    "run": (lambda: queuewise.report(3), "run is int", "path of a run folder"),  # type: ignore[arg-type]
    "log": (lambda: queuewise.validate(WORKLOAD), "log is Workload", "path of a log"),
    "name": (lambda: queuewise.name_policy("fcfs"), "'fcfs' is no function", "function of job"),  # type: ignore[arg-type]
    "frame": (lambda: queuewise.Workload.from_frame(pl.DataFrame({"a": [1]})), "columns submit, runtime", "columns={'your col"),
    "rows": (
        lambda: queuewise.Workload.from_frame(pl.DataFrame({"submit": [0, 1], "runtime": [5, -5], "cores": [1, 1]})),
        "1 of 2 rows are no jobs: 1 x negative runtime",
        "leave these rows out",
    ),
    "no demand": (
        lambda: queuewise.Workload.from_frame(pl.DataFrame({"submit": [0], "runtime": [5], "num_tasks": [1]})),
        "asks for nothing",
        "add a column gpus or cores",
    ),
    "no jobs": (
        lambda: queuewise.Workload.from_frame(pl.DataFrame({"submit": [0], "runtime": [-5], "cores": [1]})),
        "negative runtime",
        "correct these rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_say_what_to_pass(mistake: str) -> None:
    call, message, hint = MISTAKES[mistake]
    with pytest.raises(InputError) as raised:
        call()
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_functions_that_cannot_be_written_are_refused() -> None:
    step = 2.0

    def inner(job: Any) -> float:
        return float(job.width * step)

    with pytest.raises(InputError, match="uses step of the function around it"):
        queuewise.name_policy(inner)
    with pytest.raises(InputError, match="uses MISTAKES, a dict"):
        queuewise.name_policy(looks_up)


def test_fields_of_a_job_may_be_called_like_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """`job.width` is no use of a global `width`, and PARAMS may be an array."""
    monkeypatch.setitem(globals(), "width", {"a": "dict"})
    monkeypatch.setitem(globals(), "PARAMS", np.array([1.0, 2.5]))
    file = Path(queuewise.name_policy(narrow_first).partition(":")[0])
    assert "PARAMS = [1.0, 2.5]" in file.read_text(encoding="utf-8")


def with_default(job: Any, k: float = 2.0) -> float:
    return float(job.width * k)


def looks_up(job: Any) -> float:
    return float(len(MISTAKES) + job.width)


def test_the_notebook_runs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(repository / "examples" / "notebook.py"))
    shown = capsys.readouterr().out
    assert "Schedule(patient on 4x8:V100-16: 600 jobs" in shown
    assert "Schedule(sjf+easy on 4x8:V100-16: 600 jobs" in shown
