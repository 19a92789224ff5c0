"""The tables of a report that say where waiting came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from queuewise.cli import main
from queuewise.evaluation.cause_walk import CAUSES
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.report.html import write_report
from queuewise.report.waiting_tables import MOST_PARTS, waiting_sentences, waiting_tables
from queuewise.workload.jobs import Workload


def causes(*rows: dict[str, float], **columns: tuple[int, ...]) -> WaitCauses:
    """One job per row, which waited so many hours for what."""
    num = len(rows)
    names = {"groups": tuple(f"g{i}" for i in range(99)), "partitions": ("east", "west", "idle")}
    workload = Workload(np.zeros(num), np.ones(num), np.ones(num, np.int32), np.zeros(num, np.int32), np.full(num, 1000, np.int32))
    workload = workload.replace(**{key: np.array(codes, np.int32) for key, codes in columns.items()}, **names)
    return WaitCauses(workload, 3600.0 * np.array([[row.get(cause, 0.0) for cause in CAUSES] for row in rows]))


def test_rows_by_policy_partition_and_account() -> None:
    parts = {"partition": (0, 0, 1, 2), "group": (2, 2, 2, 2)}
    first = causes({"cores": 3.0}, {"priority": 1.0}, {"cores": 4.0, "bound": 4.0}, {}, **parts)
    other = causes({}, {}, {"cores": 1.0}, {}, **parts)
    tables = waiting_tables({"a": first, "b": other})
    headings = ["jobs", "mean wait [s]", "all waits [h]", "cores", "bound", "priority"]
    assert tables == {
        "waiting": (
            ["policy", *headings],
            [
                ["a", "4", "10,800.0", "12.0", "58.3 %", "33.3 %", "8.3 %"],
                ["b", "4", "900.0", "1.0", "100.0 %", "–", "–"],
            ],
        ),
        "waiting by partition": (
            ["partition", "policy", *headings],
            [
                ["west", "a", "1", "28,800.0", "8.0", "50.0 %", "50.0 %", "–"],
                ["west", "b", "1", "3,600.0", "1.0", "100.0 %", "–", "–"],
                ["east", "a", "2", "7,200.0", "4.0", "75.0 %", "–", "25.0 %"],
                ["east", "b", "2", "0.0", "0.0", "–", "–", "–"],
            ],
        ),
    }  # nobody waited in `idle`, and with one account there is nothing to tell apart
    assert waiting_tables({"a": causes({}, {}, partition=(0, 1))}) == {}


def test_small_accounts_are_put_together() -> None:
    num = MOST_PARTS + 3
    many = causes(*({"cores": 1.0 + num - i} for i in range(num - 1)), {"memory": 1.0}, group=tuple(range(num)))
    headings, rows = waiting_tables({"a": many})["waiting by account"]
    assert len(rows) == MOST_PARTS + 1
    assert rows[-1] == ["3 others", "a", "3", "9,600.0", "8.0", "87.5 %", "12.5 %"]
    assert headings[-2:] == ["cores", "memory"]


def test_sentences_say_how_much_and_what_the_causes_mean() -> None:
    sentences = waiting_sentences({"a": causes({"cores": 3.0, "power": 1.0}), "idle": causes({})})
    assert sentences == [
        "Waiting under a: 75 % cores, 25 % power.",
        "cores: the job waits for cores: fewer are free, on all nodes that it may use together, than it asks for.",
        "power: the job waits for power: it would fit, but exceed the cap.",
    ]
    assert waiting_sentences({str(i): causes({}) for i in range(4)}) == ["The tables by partition and account show the first 3 policies."]


def test_a_run_of_simulate_has_the_tables(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{i} {10 * i} -1 100 3 -1 -1 3 200 -1 1 {i % 2} {i % 2} -1 {i % 2} -1 -1 -1" for i in range(20)]
    log.write_text("; MaxProcs: 4\n" + "\n".join(rows) + "\n")
    out = tmp_path / "run"
    assert main(["simulate", "--workload", str(log), "--cluster", "flat:4", "--policy", "fcfs", "--out", str(out), "--json"]) == 0
    page = write_report(out, figures=False, exports="none").read_text(encoding="utf-8")
    assert '<section id="table-waiting">' in page
    assert '<section id="table-waiting-by-account">' in page
    assert "Waiting under fcfs: 100 % cores." in page
    table = (out / "tables" / "waiting-by-account.md").read_text(encoding="utf-8")
    assert table.splitlines()[0] == "| account | policy | jobs | mean wait [s] | all waits [h] | cores |"
