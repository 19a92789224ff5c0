"""One name means one thing: modules and classes of the package have names that occur once, and no package is entered sideways."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "queuewise"
SAME_ON_PURPOSE = {"__init__", "__main__"}


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
    long = {
        str(path.relative_to(PACKAGE)): lines for path in _modules() if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 420
    }
    assert long == {}
