"""Run folders that are damaged in any field: never a traceback, and the file and the field are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuewise.agents.recording import read_rows, read_run_config
from queuewise.config import to_toml
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.replay_files import find_replays, read_schedule, read_summary, read_validation
from queuewise.evaluation.results import mean_metrics, read_cells, write_results
from queuewise.evaluation.scores import parse_score
from queuewise.report.charts import make_charts
from queuewise.report.validation_charts import validation_charts, validation_table, verdict_sentences
from queuewise.runs import locked, writing_run
from stand_in import busy_days, line_up, small_cluster

DAMAGES: tuple[Any, ...] = (None, "x", -1, 1e300, [None], {})
WAITS = {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 1.0}
PART = {"key": "1", "jobs": 3, "recorded": WAITS, "replayed": WAITS}
VALIDATION: dict[str, Any] = {
    "log": "log", "cluster": "c", "policy": "p", "jobs": 3, "recorded": WAITS, "replayed": WAITS, "rank_correlation": 0.5,
    "utilisation_error": 0.1, "verdict": "close", "why": ["because"], "by": {"size": [PART, PART], "time": [PART, PART]},
    "recorded_quantiles": [1.0] * 201, "replayed_quantiles": [1.0] * 201, "hours": [1.0], "recorded_use": [0.5], "replayed_use": [0.5],
    "resource": "GPUs",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, jobs = tmp_path_factory.mktemp("damaged") / "run", busy_days(80)
    plan = make_plan("windows", jobs, num_windows=2, window_jobs=40)
    cells = run_experiment(Experiment(jobs, small_cluster(), plan, ReplaySettings()), ["line", "line-60"], line_up, folder=folder)
    write_results(folder, cells, judge(cells, parse_score("bsld")))
    (folder / "validation.json").write_text(json.dumps(VALIDATION), encoding="utf-8")
    return folder


def use(run: Path) -> None:
    """Everything that a report and a comparison read."""
    cells = read_cells(run)
    judge(cells, parse_score(read_summary(run)[0].get("score", "bsld"))).as_json()
    mean_metrics(cells)
    first = next(iter(find_replays(run)))
    m = measure(read_schedule(run, first))
    all_metrics(m)
    make_charts([m])
    found = read_validation(run)
    if found:
        validation_charts(found), validation_table(found), verdict_sentences(found)


def places(data: Any, above: tuple[Any, ...] = (), depth: int = 2) -> Iterator[tuple[Any, ...]]:
    """Every field, down to some depth; of lists, the first entry."""
    entries = data.items() if isinstance(data, dict) else list(enumerate(data))[:1] if isinstance(data, list) else ()
    for key, value in entries:
        yield (*above, key)
        if depth > 1:
            yield from places(value, (*above, key), depth - 1)


def damaged(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with one field replaced, or removed if the value is `...`."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


@pytest.mark.parametrize("name", ["line/w000/replay.json", "summary.json", "validation.json", "cluster.json", "config.toml"])
def test_every_field_of_every_file(run: Path, name: str) -> None:
    """The command goes on, or ends with one line that names the run."""
    path = run / name
    whole = path.read_text(encoding="utf-8")
    toml = name.endswith(".toml")
    data = tomllib.loads(whole) if toml else json.loads(whole)
    refusals: list[InputError] = []
    try:
        for place in places(data):
            for value in (..., *DAMAGES):
                if toml and value is None:
                    continue
                broken = damaged(data, place, value)
                path.write_text(to_toml(broken) if toml else json.dumps(broken), encoding="utf-8")
                try:
                    use(run)
                except InputError as error:
                    refusals.append(error)
    finally:
        path.write_text(whole, encoding="utf-8")
    use(run)
    assert len(refusals) > 5
    assert all(error.hint and "\n" not in str(error) for error in refusals)


@pytest.mark.parametrize(
    ("name", "place", "value", "named"),
    [
        ("line/w000/replay.json", ("epoch",), "x", "epoch"),
        ("line/w000/replay.json", ("scores", "bsld"), "x", "scores.bsld"),
        ("line/w000/replay.json", ("metrics",), {}, "metrics"),
        ("line/w000/replay.json", ("metrics", "wait_s"), 5, "wait_s"),
        ("line/w000/replay.json", ("power",), {"wake_s": -1}, "power"),
        ("summary.json", (0, "policy"), 5, "policy"),
        ("validation.json", ("by",), {"../../x": []}, "by"),
        ("validation.json", ("hours",), [], "hours"),
        ("cluster.json", ("node_gpus",), [1], "node_gpus"),
        ("cluster.json", ("node_gpus",), "x", "node_gpus"),
    ],
)
def test_the_file_and_the_field_are_named(run: Path, name: str, place: tuple[Any, ...], value: Any, named: str) -> None:
    path = run / name
    whole = path.read_text(encoding="utf-8")
    path.write_text(json.dumps(damaged(json.loads(whole), place, value)), encoding="utf-8")
    try:
        with pytest.raises(InputError) as refused:
            use(run)
    finally:
        path.write_text(whole, encoding="utf-8")
    assert refused.value.where.startswith(str(path))
    assert named in refused.value.message or named == "node_gpus"


@pytest.mark.parametrize("content", [b"", b"[1]\n", b'{"iteration": "x", "frames": 1}\n', b"\xff\xfe\n", b'{"iteration": 1}\n', b'{"a"\n'])
def test_damaged_metrics_name_the_line(content: bytes, tmp_path: Path) -> None:
    good = b'{"iteration": 1, "frames": 64, "val/agent": null}\n'
    (tmp_path / "metrics.jsonl").write_bytes(good + content)
    if not content:
        assert [row["frames"] for row in read_rows(tmp_path)] == [64]
        return
    with pytest.raises(InputError) as refused:
        read_rows(tmp_path)
    assert refused.value.where == f"{tmp_path / 'metrics.jsonl'}:2"


@pytest.mark.parametrize(
    "text", ["seeds = [0]", 'seeds = "x"\n[settings]', "seeds = []\n[settings]", "seeds = [0]\nsettings = 3", "seeds = [1.5]\n[settings]"]
)
def test_damaged_settings_of_a_training_name_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'command = "train"\n{text}\n', encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_run_config(tmp_path)
    assert refused.value.where == str(tmp_path / "config.toml")
    assert "seeds" in refused.value.message or "settings" in refused.value.message


# --- two writers


HOLD = """
import sys, time
from pathlib import Path
from queuewise.runs import locked
with locked(Path(sys.argv[1])):
    print(flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_is_gone_however_it_ends(tmp_path: Path) -> None:
    (tmp_path / ".a.json.1.part").write_text("half")
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert first.stdout is not None
    first.stdout.readline()
    with pytest.raises(InputError, match="another process is writing to this folder") as refused, locked(tmp_path):
        pass
    assert refused.value.hint == "wait for it to end, or choose another folder"
    with pytest.raises(InputError, match="another process is writing"), writing_run(tmp_path):
        pass
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    (tmp_path / ".b.json.2.part").write_text("half")
    with locked(tmp_path):
        assert list(tmp_path.iterdir()) == []  # and what it left unfinished is gone
    with writing_run(tmp_path) as folder:
        assert folder == tmp_path


def test_an_evaluation_holds_its_folder(tmp_path: Path) -> None:
    jobs = busy_days(80)
    setup = Experiment(jobs, small_cluster(), make_plan("windows", jobs, num_windows=2, window_jobs=40), ReplaySettings())
    with locked(tmp_path), pytest.raises(InputError, match="another process is writing to this folder"):
        run_experiment(setup, ["line"], line_up, folder=tmp_path)
    assert len(run_experiment(setup, ["line"], line_up, folder=tmp_path)) == 2
