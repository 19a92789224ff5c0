from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.evaluation.statistics import Difference, TypicalDifference
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


@dataclass
class Judged:
    """What `Learning` reads of the validation days: a rule's differences from another policy, and longest waits in days."""

    joint_ci95: tuple[float, float]  # of the objective, relative
    bsld: tuple[float, float]  # intervals
    wait: tuple[float, float]
    days: dict[str, float]
    each: list[float] = field(default_factory=list)  # costs of the shaken replays

    def joint(self, policy: str, other: str, objective: object) -> TypicalDifference:
        low, high = self.joint_ci95
        return TypicalDifference((low + high) / 2, (low, high), clear=low > 0 or high < 0)

    def difference(self, policy: str, other: str, score: str) -> Difference:
        low, high = getattr(self, score)
        return Difference((low + high) / 2, (low, high), 0.5, None, clear=low > 0 or high < 0, same=False)

    def max_wait(self, policy: str) -> float:
        return 86_400.0 * self.days[policy]

    def costs(self, policy: str, other: str, objective: object) -> list[float]:
        return self.each


@pytest.mark.parametrize(
    ("joint", "bsld", "wait", "days", "answer"),
    [
        ((-0.3, -0.1), (-9.0, 1.0), (-50.0, 60.0), (7.0, 2.0), True),
        ((-0.3, 0.1), (-9.0, -1.0), (-50.0, 60.0), (2.0, 2.0), False),  # perhaps not lower
        ((0.1, 0.3), (-9.0, 1.0), (-50.0, 60.0), (2.0, 2.0), False),
        ((-0.012, -0.001), (-9.0, 1.0), (-50.0, 60.0), (2.0, 2.0), False),  # of no practical interest
        ((-0.3, -0.1), (-9.0, -1.0), (5.0, 60.0), (2.0, 2.0), False),  # bought by longer waits
        ((-0.3, -0.1), (0.5, 1.0), (-60.0, -5.0), (2.0, 2.0), False),  # or by slowdowns
        ((-0.3, -0.1), (-9.0, -1.0), (-50.0, -10.0), (101.0, 50.0), False),  # somebody waits too long
        ((-0.3, -0.1), (-9.0, -1.0), (-50.0, -10.0), (50.9, 50.0), True),
    ],
)
def test_which_rules_pass_the_gate(
    joint: tuple[float, float],
    bsld: tuple[float, float],
    wait: tuple[float, float],
    days: tuple[float, float],
    answer: bool,
    tmp_path: Path,
) -> None:
    learning = Learning(LOG, load_cluster("flat:256"), settings(), tmp_path, lambda text: None)
    found = Judged(joint, bsld, wait, {"model:a": days[0], "wise": days[1]})
    assert learning._is_better(found, "model:a", "wise") is answer  # type: ignore[arg-type]
    assert not learning._is_better(found, "wise", "wise")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bsld", "each", "answer"),
    [((-1.0, 1.0), [-0.1, -0.01], True), ((-1.0, 1.0), [-0.1, 0.01], False), ((0.5, 1.0), [-0.1, -0.01], False)],
)
def test_objectives_with_energy_must_be_lower_in_every_replay(
    bsld: tuple[float, float], each: list[float], answer: bool, tmp_path: Path
) -> None:
    objective = {"bsld": 1.0, "energy": 0.2}
    learning = Learning(LOG, load_cluster("flat:256"), settings(objective=objective), tmp_path, lambda text: None)
    found = Judged((-1.0, 1.0), bsld, (-5.0, 6.0), {"model:a": 1.0, "wise": 1.0}, each)
    assert learning._is_better(found, "model:a", "wise") is answer  # type: ignore[arg-type]


def test_an_objective_that_cannot_be_measured_is_refused_before_the_search(tmp_path: Path) -> None:
    objective = {"bsld": 1.0, "energy": 0.2}
    with pytest.raises(InputError, match="the cluster states no watts"):
        Learning(LOG, load_cluster("flat:256"), settings(objective=objective), tmp_path, lambda text: None).run()


def test_learning_for_energy_shows_it(tmp_path: Path) -> None:
    log = generate("hetero", 1500, 2)
    objective = {"bsld": 1.0, "wait": 1.0, "energy": 0.2}
    found = Learning(log, load_cluster("hetero56"), settings(objective=objective), tmp_path, lambda text: None).run()
    rows = found.details()["report_days"]
    assert all(row["energy"] > 0 for row in rows.values())
    assert {one.totals["val"]["energy"] > 0 for one in found.screened} == {True}


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
