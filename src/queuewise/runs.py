"""Run folders: everything that one command produced.

Every file is written under a temporary name beside its place and renamed, so nobody ever meets a half-written one. `summary.json`
is written last: a folder that has it is finished and is not written to again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queuewise.errors import InputError

LAST_FILE = "summary.json"


def start_run(path: str | Path) -> Path:
    """The folder, made if need be. One that holds a finished run is refused."""
    folder = Path(path)
    if (folder / LAST_FILE).exists():
        raise InputError("holds a finished run already", where=str(folder), hint="give another folder, or remove this one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder), hint="give another folder") from None
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends, and vanishes when it raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_name(policy: str) -> str:
    """A policy's name as the name of a folder: `sjf+easy@pack` stays, path separators and colons become `_`."""
    return "".join(c if c.isalnum() or c in "+@-." else "_" for c in policy).lstrip(".") or "_"
