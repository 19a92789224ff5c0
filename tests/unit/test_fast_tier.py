"""The fast tier leaves out what exists, and keeps tests of every package."""

from __future__ import annotations

from pathlib import Path

import pytest

from fast_tier import LEFT_OUT, leaves_out_file, leaves_out_test

MIRRORED = (
    "agents",
    "api",
    "cli",
    "cluster",
    "envs",
    "evaluation",
    "policies",
    "report",
    "search",
    "serve",
    "sim",
    "workload",
)  # tests/unit/<package>


@pytest.mark.parametrize("entry", LEFT_OUT)
def test_what_is_left_out_exists(entry: str, repository: Path) -> None:
    file, _, function = entry.partition("::")
    assert (repository / file).exists()
    if function:
        assert f"def {function}(" in (repository / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("package", MIRRORED)
def test_every_package_keeps_tests(package: str, repository: Path) -> None:
    files = [path.relative_to(repository).as_posix() for path in (repository / "tests" / "unit" / package).rglob("test_*.py")]
    assert [path for path in files if not leaves_out_file(path)]


def test_every_package_is_looked_at(repository: Path) -> None:
    source = repository / "src" / "queuewise"
    assert {path.parent.name for path in source.glob("*/__init__.py")} == set(MIRRORED)


def test_a_folder_a_file_and_a_function_are_left_out() -> None:
    assert leaves_out_file("tests/browser/test_report_page.py")
    assert leaves_out_file("tests/differential/test_outages.py")
    assert not leaves_out_file("tests/differential/test_quotas.py")
    assert leaves_out_test("tests/unit/agents/test_ppo.py", "test_resuming_goes_on_to_the_bit")
    assert not leaves_out_test("tests/unit/agents/test_ppo.py", "test_only_legal_actions_are_played")
