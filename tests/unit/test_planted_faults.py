"""The planted faults can be planted: their text is in the sources, once, and the tests that must notice exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from planted_faults import FAULTS, PACKAGES, Fault, file_of, plant

ALL = [pytest.param(package, fault, id=fault.name) for package, faults in FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("package", "fault"), ALL)
def test_the_fault_fits_the_sources(package: str, fault: Fault, repository: Path) -> None:
    path = file_of(fault)
    assert path.relative_to(repository / "src" / "queuewise").parts[0] == package
    changed = path.read_text(encoding="utf-8").replace(fault.old, fault.new)
    ast.parse(changed)
    assert changed != path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("package", "fault"), ALL)
def test_the_tests_that_must_notice_exist(package: str, fault: Fault, repository: Path) -> None:
    for test in fault.tests:
        assert (repository / test.partition("::")[0]).is_file(), test


def test_there_are_twelve_at_least_and_three_of_every_package() -> None:
    assert set(FAULTS) == set(PACKAGES)
    assert all(len(faults) >= 3 for faults in FAULTS.values())
    assert len({fault.name for faults in FAULTS.values() for fault in faults}) == sum(map(len, FAULTS.values())) >= 12


def test_a_text_that_is_not_found_once_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    fault = Fault("twice", "here", "there", ())
    with pytest.raises(LookupError, match="nowhere"):
        plant(fault, tmp_path)
    (tmp_path / "src" / "a.py").write_text("here", encoding="utf-8")
    plant(fault, tmp_path)
    assert (tmp_path / "src" / "a.py").read_text(encoding="utf-8") == "there"
    for name in ("b.py", "c.py"):
        (tmp_path / "src" / name).write_text("here", encoding="utf-8")
    with pytest.raises(LookupError, match=r"b\.py \(1×\), src/c\.py \(1×\)"):
        plant(fault, tmp_path)
