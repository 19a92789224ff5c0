"""One name means one thing: modules and classes of the package have names that occur once, and no package is entered sideways."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "queuewise"
SAME_ON_PURPOSE = {"__init__", "__main__"}
LONGEST = 420  # lines of a file


def _modules() -> list[Path]:
    return sorted(PACKAGE.glob("**/*.py"))


def test_every_module_has_a_name_of_its_own() -> None:
    """Not counted: cli/, whose modules are named after commands, and models, networks and readers, named after their registry entries."""
    homes = defaultdict(list)
    for path in _modules():
        place = path.relative_to(PACKAGE)
        if path.stem not in SAME_ON_PURPOSE and place.parts[0] != "cli" and place.parent.name not in ("models", "networks", "readers"):
            homes[path.stem].append(str(place))
    assert {stem: places for stem, places in homes.items() if len(places) > 1} == {}


def test_every_class_has_a_name_of_its_own() -> None:
    homes = defaultdict(list)
    for path in _modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_files_fit_a_head() -> None:
    """A file of more than about 400 lines wants to be two."""
    root = PACKAGE.parents[1]
    paths = [*_modules(), *sorted((root / "tests").rglob("*.py")), *sorted((root / "benchmarks").rglob("*.py"))]
    lengths = {str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST} == {}


METAPHORS = {"arena", "army", "books", "crew", "crowd", "cuts", "fickle", "grounds", "herd", "picky", "restless", "stage"}
WORLD_HOMES = (
    "sim/",
    "policies/",
    "envs/",
    "serve/fast_pass.py",
    "evaluation/cause_walk.py",
    "evaluation/wait_causes.py",
    "agents/model_policies.py",
)
ODD_WORDS = re.compile(r"\b(anew|whoever)\b", re.IGNORECASE)


def test_names_are_no_metaphors() -> None:
    assert _places(METAPHORS) == {}


def test_a_world_is_a_table_of_the_engine() -> None:
    """What makes a replay less than perfect are its conditions."""
    assert {place: names for place, names in _places({"world"}).items() if not place.startswith(WORLD_HOMES)} == {}


def _places(words: set[str]) -> dict[str, list[str]]:
    """Names of the package that have one of the words in them, by module. Models of the literature keep the names of their parameters."""
    found = {}
    for path in _modules():
        place = str(path.relative_to(PACKAGE))
        names = {name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if (name := _name_of(node))}
        odd = sorted(name for name in names if words & {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)})
        if odd and not place.startswith("workload/models/"):
            found[place] = odd
    return found


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.arg) else None


def test_common_words() -> None:
    """Docs, docstrings and messages say "again", and "somebody who" or the thing itself."""
    root = PACKAGE.parents[1]
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in (*_modules(), *sorted((root / "examples").rglob("*.py")), *pages)}
    assert {str(path): found for path, text in texts.items() if (found := ODD_WORDS.findall(text))} == {}


def test_one_function_judges() -> None:
    homes = [path.stem for path in _modules() if re.search(r"^def judge\(", path.read_text(encoding="utf-8"), re.MULTILINE)]
    assert homes == ["judging"]
