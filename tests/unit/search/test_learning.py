from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.policies import simulate
from queuewise.policies.names import check_run_name, run_name
from queuewise.search.learning import Learning, LearnSettings
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate
from queuewise.workload.writers import write_workload

LOG = generate("lublin", 2400, 2)


def settings(**others: object) -> LearnSettings:
    return LearnSettings(**({"budget_s": 4.0, "replay": ReplaySettings(estimates="oracle")} | others))  # type: ignore[arg-type]


def test_where_nothing_can_be_gained_the_verdict_is_keep(tmp_path: Path) -> None:
    """All jobs are equal, so every policy gives the same waits."""
    rng = np.random.default_rng(0)
    submit = np.sort(rng.uniform(0, 30 * 86_400.0, 2000))
    jobs = Workload(
        submit=submit, runtime=np.full(2000, 4_000.0), num_tasks=np.ones(2000, np.int32), cpu_milli=np.full(2000, 1000, np.int32)
    )
    cluster = load_cluster("flat:4")
    found = Learning(jobs, cluster, settings(), tmp_path, lambda text: None).run()
    waits = simulate(jobs, cluster, "fcfs", estimates="oracle").start - jobs.submit
    assert waits.mean() > 1_000.0
    assert found.verdict == "keep"
    assert not found.recommended.startswith("model:")
    assert found.as_json()["test"]["bsld"]["diff_percent"] == pytest.approx(0.0)


def test_the_command_ends_with_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "<b>[a](javascript:b).swf", tmp_path / "run"
    write_workload(LOG, log)
    command = ["learn", str(log), "--cluster", "flat:256", "--estimates", "oracle", "--budget", "4s", "--seed", "1", "--out", str(out)]
    assert not main([*command, "--export", str(tmp_path / "rule.py"), "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found) == {"verdict", "recommended", "baseline", "validation", "test", "seconds"}
    assert found["verdict"] in ("better", "keep")
    assert set(found["test"]) == {"bsld", "wait_s", "max_wait_s", "days", "jobs"}
    assert set(found["test"]["bsld"]) == {"recommended", "baseline", "hindsight", "hindsight_policy", "diff_percent", "ci95"}
    assert not main(["simulate", "--workload", "lublin", "--jobs", "50", "--cluster", "flat:256", "--policy", f"model:{out}", "--json"])
    assert main(["evaluate", "--workload", str(log), "--cluster", "flat:256", "--policy", f"model:{out}", "--split", "0.2,0.2,0.6"]) == 2
    assert "was trained on" in capsys.readouterr().err
    assert "def score" in (tmp_path / "rule.py").read_text()
    assert (out / "report-days").is_dir()
    report = (out / "learned.md").read_text()
    assert report.startswith(r"# What was learned of &lt;b>[a]\(javascript:b) on flat:256")
    assert "<" not in report
    for heading in ("## Who waits longer, and who less", "## The rule that was found", "## Heuristics"):
        assert heading in report


def test_a_log_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="200 are needed"):
        Learning(LOG.take(slice(0, 900)), load_cluster("flat:256"), settings(), tmp_path, lambda text: None)


HEADER = "submit,runtime,gpus,requested\n"
LOGS = {  # logs of 900 jobs that leave nothing to learn from, and a part of the answer
    "at once": (HEADER + "0,100,1,200\n" * 900, "days of log have no jobs"),
    "with a gap": (HEADER + "".join(f"{60 * (j if j < 450 else 10**9 + j)},100,1,200\n" for j in range(900)), "days of log have no jobs"),
    "too large": (HEADER + "".join(f"{60 * j},100,999,200\n" for j in range(900)), "have 0 jobs that can run on 2x4:V100-16"),
}


@pytest.mark.parametrize("name", LOGS)
def test_logs_that_leave_nothing_to_learn_from(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, answer = LOGS[name]
    (tmp_path / "log.csv").write_text(text)
    command = ["learn", str(tmp_path / "log.csv"), "--cluster", "2x4:V100-16", "--budget", "1s", "--out", str(tmp_path / "run")]
    assert main([*command, "--split", "0.4,0.3,0.3"]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert answer in error
    assert hint.startswith("hint:")


@pytest.mark.parametrize("name", ["../../outside", "a+b@c~d", "x\x1b[31m\ny", "-" * 300])
def test_the_folder_of_a_run_is_in_runs_whatever_the_log_is_named_like(name: str) -> None:
    found = run_name(f"learn-{name}")
    assert Path("runs", found).resolve().parent == Path("runs").resolve()
    assert found.isprintable()
    check_run_name(found)


def test_a_run_whose_path_no_policy_can_name_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "lublin", "--jobs", "900", "--cluster", "flat:256", "--out", str(tmp_path / "a+b")]) == 2
    assert "has a + in it" in capsys.readouterr().err
    assert not (tmp_path / "a+b").exists()


def test_a_log_in_which_nobody_waits_has_no_percentage_of_waits(tmp_path: Path) -> None:
    submit = 2_000.0 * np.arange(1_300, dtype=np.float64)
    jobs = Workload(
        submit=submit, runtime=np.full(1_300, 5.0), num_tasks=np.ones(1_300, np.int32), cpu_milli=np.full(1_300, 1000, np.int32)
    )
    found = Learning(jobs, load_cluster("flat:4"), settings(budget_s=1.0), tmp_path, lambda text: None).run().as_json()
    assert found["test"]["wait_s"] | {"hindsight_policy": ""} == {
        "recommended": 0.0, "baseline": 0.0, "hindsight": 0.0, "hindsight_policy": "", "diff_percent": None, "ci95": None,
    }  # fmt: skip
    assert found["test"]["bsld"]["diff_percent"] == 0.0
