"""Models are not judged on days they were trained or chosen on, unless a user asks for it, and then the result says so."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_setup import make_model, rewrite_model
from queuewise.cli import main
from queuewise.evaluation.protocol import block_jobs, make_plan
from queuewise.evaluation.seen_days import TrainedOn, find_seen, identify_log, record_training
from queuewise.policies.model_file import read_card
from queuewise.workload import load_workload
from queuewise.workload.jobs import Workload
from queuewise.workload.writers import write_workload
from stand_in import busy_days

CLUSTER = "2x8:V100-16"
SPLIT = (0.45, 0.2, 0.35)


def processors(seed: int = 3) -> Workload:
    """400 jobs over about 20 days; some run longer than they requested, and the first requests no time, so --clean drops it."""
    rng = np.random.default_rng(seed)
    runtime = np.round(rng.lognormal(8.6, 1.0, 400)) + 1
    requested = np.round(runtime * rng.uniform(0.9, 3, 400)) + 1
    requested[0] = np.nan
    return Workload(
        submit=np.sort(np.round(rng.uniform(0, 20 * 86_400, 400))), runtime=runtime,
        requested=requested, num_tasks=rng.choice([1, 2, 4, 8], 400).astype(np.int32),
        cpu_milli=np.full(400, 1000, np.int32), epoch=1_000_000_000.0, name="small",
    )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    write_workload(processors(), path)
    return path


def trained_on(path: Path, split: tuple[float, float, float] = SPLIT, load_factor: float | None = None, **options: Any) -> TrainedOn:
    workload = load_workload(path, **options).workload
    return record_training(workload, identify_log(workload, path, load_factor), split)


def write_card(home: Path, *trained: TrainedOn, workload: str = "small.swf") -> str:
    """A model with this card, as far as it matters here. Returns its name."""
    make_model(home, "kernel")

    def change(_: dict[str, Any], card: dict[str, Any]) -> None:
        card["settings"]["workload"] = workload
        card["trained_on"] = [one.model_dump(mode="json") for one in trained]

    rewrite_model(home / "best.safetensors", change)
    return f"model:{home}"


def seen_of(model: str, path: Path, block: str = "report", split: tuple[float, float, float] = SPLIT) -> tuple[str, ...]:
    workload = load_workload(path).workload
    counted = make_plan("days", workload, block=block, split=split).counted(len(workload))
    return tuple(find_seen(["fcfs", model], workload, str(path), None, counted).seen)


def test_the_report_days_of_the_same_split_are_not_seen(log: Path, tmp_path: Path) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    assert seen_of(model, log) == ()
    assert seen_of(model, log, "val") == (model,)
    assert seen_of(model, log, split=(0.3, 0.2, 0.5)) == (model,)
    assert seen_of(model, log, split=(0.6, 0.2, 0.2)) == ()


def test_another_log_is_not_taken_for_it(log: Path, tmp_path: Path) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    other = tmp_path / "other.swf"
    write_workload(processors(seed=4), other)
    workload = load_workload(other).workload
    assert find_seen([model], workload, str(other), None, np.ones(len(workload), dtype=bool)).seen == {}


@pytest.mark.parametrize("options", [["--clean"], ["--load-factor", "3"], ["--jobs", "150"], ["--processors", "requested"]])
def test_a_log_is_recognised_whatever_the_options(
    options: list[str], log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    command = ["simulate", "--workload", str(log), "--cluster", "flat:16", "--policy", model, *options]
    assert main(command) == 0
    last = block_jobs(processors(), SPLIT)["train"][-1] if "--jobs" not in options else 149
    day = datetime.fromtimestamp(1e9 + processors().submit[last], UTC).date()
    assert f"{model} was trained on 2001-09-09 to {day} (" in capsys.readouterr().err


def test_the_same_jobs_in_another_file_are_recognised(log: Path, tmp_path: Path) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    packed, converted = tmp_path / "packed.swf.gz", tmp_path / "converted.csv"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    write_workload(load_workload(log).workload, converted)
    for path in (packed, converted):
        assert seen_of(model, path) == ()
        assert seen_of(model, path, "val") == (model,)


@pytest.mark.parametrize("options", [[], ["--clean"], ["--load-factor", "3"], ["--jobs", "150"], ["--processors", "requested"]])
def test_an_edited_copy_is_recognised_whatever_the_options(
    options: list[str], log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every third job is missing, and so are two days."""
    model = write_card(tmp_path / "run", trained_on(log))
    edited, jobs = tmp_path / "edited.swf", load_workload(log).workload
    day = jobs.submit // 86_400
    write_workload(jobs.take((np.arange(len(jobs)) % 3 > 0) & (day != 2) & (day != 3)), edited)
    assert main(["simulate", "--workload", str(edited), "--cluster", "flat:16", "--policy", model, *options]) == 0
    assert f"{model} was trained on 2001-09-09 to 2001-09-" in capsys.readouterr().err


def test_a_card_without_a_sample_is_recognised_by_its_digests(log: Path, tmp_path: Path) -> None:
    old = trained_on(log).model_dump(mode="json")
    del old["sample"]
    model = write_card(tmp_path / "run", TrainedOn(**old))
    converted = tmp_path / "converted.csv"
    write_workload(load_workload(log).workload, converted)
    assert seen_of(model, log, "val") == seen_of(model, converted, "val") == (model,)


def test_a_sample_is_small_and_of_days_that_were_seen(log: Path) -> None:
    trained = trained_on(log)
    assert 100 < len(trained.sample) <= 128
    assert max(submit for submit, _ in trained.sample) <= trained.val[1]
    assert len(trained.model_dump_json()) < 4000


def test_dense_logs_of_the_same_days_are_told_apart(tmp_path: Path) -> None:
    """Two clusters of one site, a job every four seconds and a third of them of ten seconds or less: chance makes some of them equal."""

    def dense(seed: int) -> Path:
        rng = np.random.default_rng(seed)
        runtime = np.where(rng.random(40_000) < 1 / 3, rng.uniform(1, 10, 40_000), rng.lognormal(6, 2, 40_000))
        path = tmp_path / f"{seed}.swf"
        jobs = Workload(
            submit=np.sort(np.round(rng.uniform(0, 160_000, 40_000))), runtime=np.ceil(runtime), num_tasks=np.ones(40_000, np.int32),
            cpu_milli=np.full(40_000, 1000, np.int32), epoch=1e9, name="dense",
        )  # fmt: skip
        write_workload(jobs, path)
        return path

    model = write_card(tmp_path / "run", trained_on(dense(1)))
    workload = load_workload(dense(2)).workload
    assert find_seen([model], workload, str(tmp_path / "2.swf"), None, np.ones(len(workload), dtype=bool)).seen == {}


def test_a_load_factor_of_the_training_does_not_move_days(log: Path) -> None:
    from queuewise.reading import Reading

    workload = Reading(load_factor=4.0).load(str(log), None, 0).workload
    fast = record_training(workload, identify_log(workload, log, 4.0), SPLIT)
    assert fast.train == trained_on(log).train
    assert fast.val == trained_on(log).val


def test_evaluate_refuses_and_says_what_next(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    command = ["evaluate", "--workload", str(log), "--cluster", "flat:16", "--policy", "fcfs", "--policy", model]
    assert main([*command, "--block", "val"]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert f"{model} was chosen on 2001-09-" in error
    assert "jobs that count" in error
    assert "--split 0.45,0.2,0.35" in hint
    assert "--seen" in hint
    assert main([*command, "--starts", "0,300", "--window-jobs", "40"]) == 2
    assert "was trained on 2001-09-09 to 2001-09-" in capsys.readouterr().err


def test_seen_days_are_marked(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)  # a short name fits into the table
    model = write_card(Path("run"), trained_on(log))
    command = ["evaluate", "--workload", str(log), "--cluster", "flat:16", "--policy", "fcfs", "--policy", model, "--shakes", "1"]
    assert main([*command, "--json"]) == 0
    assert [row["seen"] for row in json.loads(capsys.readouterr().out)] == [False, False]
    assert main([*command, "--block", "val", "--seen", "--json", "--out", str(tmp_path / "a")]) == 0
    assert {row["policy"]: row["seen"] for row in json.loads(capsys.readouterr().out)} == {"fcfs": False, model: True}
    assert main(["compare", str(tmp_path / "a"), "--json"]) == 0
    assert {row["policy"]: row["seen"] for row in json.loads(capsys.readouterr().out)} == {"fcfs": False, model: True}
    assert main(["compare", str(tmp_path / "a")]) == 0
    captured = capsys.readouterr()
    assert f"{model} †" in captured.out
    assert "† was trained or chosen on days that count here" in captured.err
    assert main(["report", str(tmp_path / "a"), "--no-figures", "--exports", "none"]) == 0
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert page.count(f"<td>{model} †</td>") == 2
    assert page.count("<li>† was trained or chosen on days that count here</li>") == 2
    for name in ("scores", "metrics"):
        assert f"| {model} † |" in (tmp_path / "a" / "tables" / f"{name}.md").read_text(encoding="utf-8")
        assert rf"{model} $\dagger$ &" in (tmp_path / "a" / "tables" / f"{name}.tex").read_text(encoding="utf-8")
    with (tmp_path / "a" / "summary.csv").open(encoding="utf-8") as file:
        assert {row["policy"]: row["seen"] for row in csv.DictReader(file)} == {"fcfs": "False", model: "True"}


def test_validate_says_what_a_model_has_seen(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_card(tmp_path / "run", trained_on(log))
    waits = tmp_path / "waits.swf"
    write_workload(processors().replace(recorded_wait=np.zeros(400)), waits)
    assert main(["validate", str(waits), "--cluster", "flat:16", "--policy", model]) == 0
    assert f"{model} was trained on 2001-09-09 to 2001-09-" in capsys.readouterr().err


def test_an_older_card_is_accepted_with_a_remark(log: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    model = write_card(tmp_path / "run", trained_on(log))
    path = tmp_path / "run" / "best.safetensors"
    card = read_card(path)
    del card["trained_on"]
    save_file(load_file(path), path, {"queuewise": json.dumps(card)})
    workload = load_workload(log).workload
    found = find_seen([model], workload, str(log), None, np.ones(len(workload), dtype=bool))
    assert found.seen == {}
    assert len(found.remarks) == 1
    assert "does not say which days" in found.remarks[0]
    card["settings"]["workload"] = "bursty"
    save_file(load_file(path), path, {"queuewise": json.dumps(card)})
    assert find_seen([model], workload, str(log), None, np.ones(len(workload), dtype=bool)).remarks == ()


def test_a_scenario_records_the_blocks_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    write_workload(busy_days(300), path)
    _, scenario = make_model(tmp_path / "run", "kernel", workload=str(path), cluster=CLUSTER, split="0.5,0.25,0.25")
    (found,) = (TrainedOn(**one) for one in read_card(tmp_path / "run" / "best.safetensors")["trained_on"])
    blocks = block_jobs(scenario.workload, (0.5, 0.25, 0.25))
    times = scenario.workload.submit + scenario.workload.epoch
    assert found.split == (0.5, 0.25, 0.25)
    assert found.train == (times[0], times[blocks["train"].stop - 1])
    assert found.val == (times[blocks["val"].start], times[blocks["val"].stop - 1])
    assert scenario.task_setup("train").source.size == len(blocks["train"]) - 30 + 1
    assert all(
        window.start >= blocks["val"].start and window.stop <= blocks["val"].stop for window in scenario.experiment("val").plan.windows
    )
