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
