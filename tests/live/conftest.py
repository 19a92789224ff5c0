"""A real Slurm on loopback for the tests of this folder, which are skipped with a reason where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuewise.serve.local_slurm import LocalSlurm, missing_programs
from queuewise.serve.slurm_install import installation
from slurm_bench import Bench, Starts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if missing := missing_programs():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"no Slurm here: {', '.join(missing)} not found; scripts/test --live installs it"))


@pytest.fixture
def start_slurm(tmp_path: Path) -> Iterator[Starts]:
    running: list[LocalSlurm] = []

    def start(grace_s: int = 300, **options: Any) -> Bench:
        slurm = LocalSlurm(tmp_path / "slurm", **options)
        slurm.home.mkdir()
        (slurm.home / "slurm.conf").write_text("")
        for change in installation(slurm.home / "slurm.conf", grace_s=grace_s):
            if change.path.name != "slurm.conf":
                change.apply()
        slurm.settings = {**slurm.settings, "JobSubmitPlugins": "lua"}
        running.append(slurm.__enter__())
        return Bench(slurm)

    yield start
    for slurm in running:
        slurm.stop()
