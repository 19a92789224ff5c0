from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.cluster.cluster_loader import load_cluster
from queuewise.config import to_toml
from queuewise.errors import InputError
from queuewise.policies import parse_policy, simulate
from queuewise.policies.found_rules import GENERALIST_NAMES, NUMBERS, FoundRule, read_rule, rule_text
from queuewise.policies.rule_export import export_rule
from queuewise.policies.rule_family import PARAMS
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

MACHINE = load_cluster("flat:64")
JOBS = generate("lublin", 300, 3)
AGED = FoundRule(tuple(PARAMS), scheduling="+easy:sjf~3d", estimates="oracle")
ZERO = (0.0,) * len(NUMBERS)


def write(folder: Path, rule: FoundRule) -> str:
    (folder / "rule.toml").write_text(rule_text(rule, {"found on": "a log"}), encoding="utf-8")
    return f"model:{folder}"


def test_written_and_read_again(tmp_path: Path) -> None:
    rule = FoundRule(tuple(0.1 * number for number in range(len(NUMBERS))), "predicted", "+easy~5d", "requested")
    write(tmp_path, rule)
    assert read_rule(tmp_path / "rule.toml") == rule


def test_the_numbers_of_the_family_make_the_order_of_wise(tmp_path: Path) -> None:
    found = simulate(JOBS, MACHINE, write(tmp_path, AGED), estimates="oracle")
    named = simulate(JOBS, MACHINE, "aged+easy:sjf~3d", estimates="oracle")
    assert np.array_equal(found.start, named.start)
    assert (found.start > JOBS.submit).mean() > 0.1  # somebody waits


def test_other_numbers_make_other_orders(tmp_path: Path) -> None:
    shortest = replace(AGED, numbers=(1.0, *ZERO[1:]), scheduling="+easy")
    found = simulate(JOBS, MACHINE, write(tmp_path, shortest), estimates="oracle")
    assert np.array_equal(found.start, simulate(JOBS, MACHINE, "sjf+easy", estimates="oracle").start)


def test_a_patient_rule_starts_jobs_only_where_enough_is_free(tmp_path: Path) -> None:
    """What is free counts as it is before the starts of an instant."""
    reserve = 0.5
    numbers = dict(zip(NUMBERS, ZERO, strict=True)) | {"hold": reserve}
    schedule = simulate(JOBS, MACHINE, write(tmp_path, replace(AGED, numbers=tuple(numbers.values()), scheduling="+easy")))
    checked = 0
    for size, start in zip(JOBS.size, schedule.start, strict=True):
        free = 64 - JOBS.size[(schedule.start < start) & (schedule.end > start)].sum()
        if free < 64:  # nothing is held while nothing runs
            assert free - size >= reserve * (64 - size)
            checked += 1
    assert checked > 100


def test_a_watchful_rule_prefers_what_fits_or_what_does_not(tmp_path: Path) -> None:
    """Four of ten cores are taken until 10. Of two equal jobs, the one that fits (6 cores) or the one that lacks one core goes first."""
    jobs = Workload(
        submit=np.array([0.0, 1.0, 1.0]), runtime=np.array([10.0, 5.0, 5.0]), num_tasks=np.ones(3, np.int32),
        cpu_milli=np.array([4000, 7000, 6000], np.int32),
    )  # fmt: skip
    for weight, starts in ((1.0, [0.0, 10.0, 1.0]), (-1.0, [0.0, 10.0, 15.0])):
        numbers = dict(zip(NUMBERS, ZERO, strict=True)) | {"blocked": weight, "blocked_share": weight}
        rule = FoundRule(tuple(numbers.values()), scheduling="", estimates="oracle")
        assert simulate(jobs, load_cluster("flat:10"), write(tmp_path, rule), estimates="oracle").start.tolist() == starts


@pytest.mark.parametrize(("guard", "starts"), [(0.0, [0.0, 10.0, 15.0]), (0.5, [0.0, 10.0, 15.0]), (0.7, [0.0, 22.0, 4.0])])
def test_a_guard_lets_others_pass_a_job_that_has_not_waited_long(tmp_path: Path, guard: float, starts: list[float]) -> None:
    """Four of ten cores are taken until 10. A job of 9 cores and 5 s does not fit at 1; one of 6 cores and 18 s would delay it."""
    jobs = Workload(
        submit=np.array([0.0, 1.0, 4.0]), runtime=np.array([10.0, 5.0, 18.0]), num_tasks=np.ones(3, np.int32),
        cpu_milli=np.array([4000, 9000, 6000], np.int32),
    )  # fmt: skip
    numbers = dict(zip(NUMBERS, ZERO, strict=True)) | {"log_runtime": 1.0, "guard": guard}
    rule = FoundRule(tuple(numbers.values()), scheduling="+easy", estimates="oracle")
    assert simulate(jobs, load_cluster("flat:10"), write(tmp_path, rule), estimates="oracle").start.tolist() == starts


def test_nothing_is_held_for_longer_than_its_hours(tmp_path: Path) -> None:
    """One of ten cores is taken until 9,000. Half of the others must stay free, which an 8-core job respects for an hour."""
    jobs = Workload(
        submit=np.array([0.0, 1.0, 4000.0]), runtime=np.array([9000.0, 10.0, 1.0]), num_tasks=np.ones(3, np.int32),
        cpu_milli=np.array([1000, 8000, 1000], np.int32),
    )  # fmt: skip
    for hours, start in ((0.0, 9000.0), (1.0, 4000.0), (2.0, 9000.0)):
        numbers = dict(zip(NUMBERS, ZERO, strict=True)) | {"hold": 0.6, "hold_hours": hours}
        rule = FoundRule(tuple(numbers.values()), scheduling="+easy", estimates="oracle")
        assert simulate(jobs, load_cluster("flat:10"), write(tmp_path, rule), estimates="oracle").start[1] == start


def test_its_name_may_have_another_backfill_and_bound(tmp_path: Path) -> None:
    name = write(tmp_path, AGED)
    own = parse_policy(name)
    assert (own.backfill, own.backfill_order, own.max_wait_s) == ("easy", "sjf", 259_200.0)
    other = parse_policy(f"{name}+conservative~1d@spread")
    assert (other.backfill, other.backfill_order, other.max_wait_s, other.placement) == ("conservative", "", 86_400.0, "spread")
    assert other.params == own.params == AGED.numbers


@pytest.mark.parametrize("name", GENERALIST_NAMES)
def test_rules_of_the_package_have_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    policy = parse_policy(f"model:{name}")
    assert (policy.estimates, policy.backfill, policy.max_wait_s) == ("predicted", "easy", 259_200.0)
    assert policy.params is not None
    assert policy.params[NUMBERS.index("age")] > 0
    (tmp_path / name).mkdir()
    (tmp_path / name / "rule.toml").write_text(rule_text(AGED, {}), encoding="utf-8")
    assert parse_policy(f"model:{name}").estimates == ""  # a run of one's own comes first


def test_a_formula_names_the_terms_that_count() -> None:
    assert AGED.formula == "1·r +1·w − 1·log(1 + wait ÷ 1 h)"
    assert AGED.without("age").formula == "1·r +1·w"
    assert FoundRule(ZERO).formula == "0"


ALL = FoundRule(
    (0.9, 0.7, 0.02, -0.03, 0.05, 1.5, -0.4, 0.8, 0.3, 0.05, 0.02, 0.5, -0.1, 0.3, 0.4, 0.1, 5.0),
    scheduling="+easy:sjf~1d",
    estimates="oracle",
)


@pytest.mark.parametrize(
    "rule",
    [
        ALL,
        AGED,
        replace(ALL, numbers=(*ALL.numbers[:9], *ZERO[9:])),
        replace(ALL, numbers=(*ALL.numbers[:9], *ZERO[9:12], -0.8, 1.6, *ZERO[14:])),
        replace(ALL, numbers=(*ALL.numbers[:16], 0.0)),
    ],
)
def test_exported_to_python_it_plays_the_same(tmp_path: Path, rule: FoundRule) -> None:
    file = tmp_path / "rule.py"
    file.write_text(export_rule(rule, file), encoding="utf-8")
    found = simulate(JOBS, MACHINE, write(tmp_path, rule), estimates="oracle")
    assert np.array_equal(found.start, simulate(JOBS, MACHINE, f"{file}:score{rule.scheduling}", estimates="oracle").start)


@pytest.mark.skipif(shutil.which("lua") is None and shutil.which("lua5.3") is None, reason="there is no lua")
def test_exported_to_lua_it_has_the_same_order(tmp_path: Path) -> None:
    file = tmp_path / "rule.lua"
    calls = "\n".join(f"print(queuewise_priority({run}, {width}, 64))" for run, width in ((10, 1), (3600, 1), (3600, 32)))
    file.write_text(export_rule(replace(AGED, numbers=(1.0, 1.0, *ZERO[2:])), file) + calls, encoding="utf-8")
    lua = shutil.which("lua") or shutil.which("lua5.3") or ""
    answers = subprocess.run([lua, str(file)], capture_output=True, text=True, check=True).stdout.split()
    assert [int(float(answer)) for answer in answers] == [5886, 0, -3466]


@pytest.mark.parametrize("field", ["scheduling", "order_estimates", "estimates"])
def test_no_text_of_a_rule_becomes_code(field: str, tmp_path: Path) -> None:
    """Rules are data: what others have written must not run when it is played, nor where it is exported to."""
    text = '+easy"""\nraise SystemExit(3)\n"""'
    (tmp_path / "rule.toml").write_text(to_toml({"format": 1, field: text, "numbers": {"age": 1.0}}), encoding="utf-8")
    for file in ("rule.py", "rule.lua"):
        assert main(["export", str(tmp_path), "--out", str(tmp_path / file)]) == 2
        assert not (tmp_path / file).exists()


def test_names_of_logs_are_comments_of_a_rule(tmp_path: Path) -> None:
    (tmp_path / "rule.toml").write_text(rule_text(AGED, {"found on": 'a\nformat = 99\n"""\x1b[31m'}), encoding="utf-8")
    assert read_rule(tmp_path / "rule.toml") == AGED


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a \.py nor a \.lua"):
        export_rule(AGED, tmp_path / "rule.js")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has format None"),
        ("format = 2", "has format 2"),
        ("format = [", "is not valid TOML"),
        ("format = 1", "no table [numbers]"),
        ("format = 1\nscheduling = 3\n[numbers]", "scheduling is 3"),
        ("format = 1\n[numbers]\nlength = 1", "unknown number 'length'"),
        ("format = 1\n[numbers]\nage = nan", "age is nan"),
        ("format = 1\n[numbers]\nage = -1.0", "fall back as they age"),
        ('format = 1\nscheduling = "+slow"\n[numbers]', "unknown backfill 'slow'"),
        ("format = 1\n[numbers]\nage = 1" + 400 * "0", "not a number from -1e+06 to 1e+06"),
        ("format = 1\n[numbers]\nage = 1" + 5000 * "0", "too many digits"),
        ("format = 1\n[numbers]\nage = 1.0\nlog_age_hours = 1e5", "not a number from -100 to 100"),
        ("format = 1\nestimates = " + 3000 * "[", "nested too deeply"),
        ('format = 1\nscheduling = "+easy:mine.py:score"\n[numbers]', "is more than the name"),
        ('format = 1\nscheduling = "+easy@mine.py:place"\n[numbers]', "is more than the name"),
        ('format = 1\norder_estimates = "a\\nb"\n[numbers]', "is more than the name"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rule.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"rule\.toml") as caught:
        parse_policy(f"model:{tmp_path}")
    assert message in str(caught.value)
