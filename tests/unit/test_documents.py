"""Paths that the documents for contributors name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOMES = (ROOT, ROOT / "src", ROOT / "src" / "queuewise", ROOT / "src" / "queuewise" / "sim")
EXAMPLES = {"src/queuewise/policies/networks/plain_network.py", "src/queuewise/workload/readers/cardlist.py"}  # to be added by the reader


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_named_files_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path.partition(":")[0] for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml)(?::\w+)?)`", text)}
    assert len(named) > 20
    assert sorted(path for path in named - EXAMPLES if not any((home / path).exists() for home in HOMES)) == []


def test_the_tests_of_the_reliability_page_exist() -> None:
    """Every row of a table names a promise and the test that holds it."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| promise"))]
    assert len(rows) > 40
    for row in rows:
        named = re.search(r"\| `(tests/[\w/]+\.py)(?:::(\w+))?` \|$", row)
        assert named, row
        path = ROOT / named[1]
        assert path.is_file(), row
        assert not named[2] or re.search(rf"^def {named[2]}\(", path.read_text(encoding="utf-8"), re.MULTILINE), row
