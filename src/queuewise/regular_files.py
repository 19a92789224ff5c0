"""Files that can be read or replaced: a named pipe would be waited for in vain, and a device never ends."""

from __future__ import annotations

from pathlib import Path

from queuewise.errors import InputError


def check_regular(path: Path, hint: str = "use a file") -> None:
    """Raise an InputError for a folder, a pipe or a device. A file that is not there passes; opening it reports that."""
    if path.exists() and not path.is_file():
        raise InputError("is a folder" if path.is_dir() else "is not a regular file", where=str(path), hint=hint)
