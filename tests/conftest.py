"""What all tests share: the real logs, and the tests that take minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

import effort
import fast_tier

# In continuous integration examples come from a fixed seed: a change is judged by what it changes. Elsewhere every run draws new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="a smoke test of every package: what tests/fast_tier.py does not leave out")
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--live", action="store_true", help="also run the long tests with a real Slurm")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast") and config.getoption("--slow"):
        raise pytest.UsageError("--fast and --slow exclude each other")
    effort.thorough, effort.hasty = config.getoption("--slow"), config.getoption("--fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast, do not even import what is left out, unless it was asked for by its path."""
    if not config.getoption("--fast") or config.args_source is pytest.Config.ArgsSource.ARGS:
        return None
    return fast_tier.leaves_out_file(collection_path.relative_to(REPOSITORY).as_posix()) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        left_out = [item for item in items if is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if not config.getoption("--live"):
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="needs a real Slurm for minutes; run with --live"))
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def is_left_out(item: pytest.Item) -> bool:
    marked = "slow" in item.keywords or item.get_closest_marker("live") is not None
    return marked or fast_tier.leaves_out_test(*item.nodeid.partition("[")[0].split("::", 1))


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
