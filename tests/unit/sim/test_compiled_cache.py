"""The cache of compiled code is named after the sources that are in it, so an edit never meets a stale binary."""

from __future__ import annotations

from pathlib import Path

import pytest

import queuewise
from queuewise.sim.core import compilation

PACKAGES = compilation._CONTENTS


@pytest.mark.parametrize("package", PACKAGES)
def test_the_hash_covers_every_package_that_can_be_in_a_binary(package: str) -> None:
    home = Path(queuewise.__file__).parent
    assert home == compilation._PACKAGE
    for content in PACKAGES[package]:
        assert list((home / content).glob("**/*.py")), content


def test_an_edited_source_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sim" / "core").mkdir(parents=True)
    source = tmp_path / "sim" / "core" / "loop.py"
    source.write_text("one", encoding="utf-8")
    monkeypatch.setattr(compilation, "_PACKAGE", tmp_path)
    before = compilation._source_hash("sim")
    source.write_text("two", encoding="utf-8")
    assert compilation._source_hash("sim") != before
