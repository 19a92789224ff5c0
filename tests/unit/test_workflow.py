"""The GitHub workflow runs scripts that exist, on the versions of Python that the package names. scripts/check has its schema checked."""

from __future__ import annotations

import os
import re
from pathlib import Path

WORKFLOW = Path(".github") / "workflows" / "test.yml"


def test_every_script_of_the_workflow_is_there_and_can_be_run(repository: Path) -> None:
    text = (repository / WORKFLOW).read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:scripts/[\w-]+|examples/\w+\.py)", text))
    assert {"scripts/check", "scripts/test", "scripts/build"} <= named
    for name in named:
        assert (repository / name).is_file(), name
        assert name.endswith(".py") or os.access(repository / name, os.X_OK), name


def test_the_workflow_tests_the_versions_that_the_package_names(repository: Path) -> None:
    (matrix,) = re.findall(r"python: \[(.*)\]", (repository / WORKFLOW).read_text(encoding="utf-8"))
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (repository / "pyproject.toml").read_text(encoding="utf-8"))
    assert re.findall(r"3\.\d+", matrix) == named


def test_the_workflow_says_that_it_has_not_been_run_and_is_checked(repository: Path) -> None:
    assert "never run" in (repository / WORKFLOW).read_text(encoding="utf-8").splitlines()[0]
    assert f"check-jsonschema --quiet --builtin-schema vendor.github-workflows {WORKFLOW.parent}/*.yml" in (
        (repository / "scripts" / "check").read_text(encoding="utf-8")
    )
