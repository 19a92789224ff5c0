"""Logs from pipes, such as `--workload <(zcat log.swf.gz | head -500)` and `/dev/stdin`.

A log is read more than once (to recognise its format, then to read it), and a pipe can be read only once. So its content is copied to a
temporary file, once per process, which is removed when the process ends.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from queuewise.errors import InputError

WRITER_WAIT_S = 10.0  # for a program that opens a named pipe for writing
CHUNK_BYTES = 1 << 20


def as_file(path: Path) -> Path:
    """The path of a regular file with the same content; the same path if it is not a pipe. Terminals and other devices are refused."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return path  # opening it reports what is wrong
    if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
        raise InputError("is a terminal or another device", where=str(path), hint="use a file, or a pipe such as zcat log.gz | queuewise …")
    return _copy(str(path), (found.st_dev, found.st_ino)) if stat.S_ISFIFO(found.st_mode) else path


@functools.cache
def _copy(path: str, identity: tuple[int, int]) -> Path:
    """Copy what comes out of the pipe. Another pipe may later have the same path, but not the same identity."""
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without the flag, it would wait for a writer for ever
    except OSError as error:
        raise InputError(f"cannot be opened: {error.strerror}", where=path, hint="check the path and its permissions") from None
    number, name = tempfile.mkstemp(prefix="queuewise-pipe-")
    atexit.register(_remove, name)
    try:
        with os.fdopen(number, "wb") as target:
            _wait_for_writer(source, path)
            while chunk := os.read(source, CHUNK_BYTES):
                target.write(chunk)
    except OSError as error:
        hint = f"write the log to a file, or set TMPDIR to a folder with more space than {tempfile.gettempdir()}"
        raise InputError(f"cannot be copied: {error.strerror}", where=path, hint=hint) from None
    finally:
        os.close(source)
    return Path(name)


def _wait_for_writer(source: int, path: str) -> None:
    """Wait until there is something to read, or the writer has ended. Then let reads wait for more."""
    named = not os.path.realpath(path).rpartition("/")[2].startswith("pipe:")
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    if named and not waiting.poll(WRITER_WAIT_S * 1000):
        raise InputError(
            f"nothing was written to this pipe within {WRITER_WAIT_S:g} s",
            where=path,
            hint="start the program that writes to it, or use a file",
        )
    os.set_blocking(source, True)


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
