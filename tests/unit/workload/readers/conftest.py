"""Writing a log and reading it, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queuewise.workload import Loaded, load_workload
from reader_examples import ReadText


@pytest.fixture
def read(tmp_path: Path) -> ReadText:
    """`read(text or bytes, **arguments of load_workload)` under the name log.txt (or `name`)."""

    def write_and_load(content: str | bytes, name: str = "log.txt", **arguments: Any) -> Loaded:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load_workload(path, **arguments)

    return write_and_load
