"""What all tests share: the real logs, and the tests that take minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

import effort

# In continuous integration examples come from a fixed seed: a change is judged by what it changes. Elsewhere every run draws new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    effort.thorough = config.getoption("--slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder with the published logs: ../shared/traces beside the repository, or where QUEUEWISE_TRACES says."""
    folder = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip("the real logs are not here; set QUEUEWISE_TRACES to their folder")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository, for tests that compare the docs with the code."""
    return REPOSITORY
