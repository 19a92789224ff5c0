"""Run folders: everything that one command produced.

Every file is written under a temporary name in the same folder and then renamed, so a file is never seen half-written. `summary.json` is
written last: a folder that contains it is finished and is not written to again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queuewise.errors import InputError

LAST_FILE = "summary.json"
LONGEST_NAME = 200  # bytes of a folder name; file systems allow 255
HASH_DIGITS = 12


def start_run(path: str | Path) -> Path:
    """Create the folder if necessary. Raises an error if it contains a finished run."""
    folder = Path(path)
    if (folder / LAST_FILE).exists():
        raise InputError("already contains a finished run", where=str(folder), hint="choose another folder or remove this one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror}", where=str(folder), hint="choose another folder") from None
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `path` when the block ends, and removed if it raises."""
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
    """A policy name as a folder name. `sjf+easy@pack` is unchanged.

    Path separators, colons and the like become `_`, and long names are cut. A hash of the whole name then follows, so that different
    names have different folders.
    """
    safe = "".join(c if c.isalnum() or c in "+@-." else "_" for c in policy).lstrip(".")
    if safe == policy and 0 < len(safe.encode()) <= LONGEST_NAME:
        return policy
    kept = safe.encode()[: LONGEST_NAME - HASH_DIGITS - 1].decode(errors="ignore")
    digest = hashlib.sha256(policy.encode(errors="surrogateescape")).hexdigest()
    return f"{kept}-{digest[:HASH_DIGITS]}"
