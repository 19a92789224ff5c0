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


def test_the_tree_of_the_architecture_is_the_one_that_is_there() -> None:
    """Every module and package at the top, and the packages in packages, with nothing else."""
    package = ROOT / "src" / "queuewise"
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = text.partition("src/queuewise/\n")[2].partition("\ntests/")[0].splitlines()
    named = {line.split()[0].rstrip("/") for line in lines if re.match(r"  \S", line)}
    there = {path.name for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == {name for name in there if not name.startswith("__")}
    inner = {line.split()[0].rstrip("/") for line in lines if re.match(r"    \S", line)}
    assert {path.parent.name for path in package.glob("*/*/__init__.py")} <= inner


def test_every_folder_of_tests_is_described() -> None:
    described = set(re.findall(r"^\| `tests/(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE))
    with_code = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert described == with_code


def test_prose_wraps() -> None:
    """Not counted: code, tables, links that are longer by themselves, and what scripts write between two comments."""
    pages = [
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
        ROOT / "CONTRIBUTING.md",
        ROOT / "README.md",
    ]
    assert {str(page.relative_to(ROOT)): found for page in pages if (found := _long_lines(page.read_text(encoding="utf-8")))} == {}


def _long_lines(text: str) -> list[int]:
    found, in_code, written = [], False, 0
    for number, line in enumerate(text.splitlines(), 1):
        in_code ^= line.lstrip().startswith("```")
        written += bool(re.match(r"<!-- [^/].*-->$", line)) - bool(re.match(r"<!-- /", line))
        words = max(map(len, line.split()), default=0)
        if len(line) > 120 and words < 100 and not in_code and written <= 0 and not line.startswith(("|", "<", "    ")):
            found.append(number)
    return found


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
