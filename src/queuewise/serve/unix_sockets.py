"""Unix sockets that listen."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from queuewise.errors import InputError


def bind_unix_socket(path: Path, mode: int) -> socket.socket:
    """A socket at a path, with these permissions. One that nobody listens on any longer is replaced; nothing else is."""
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError("exists and is no socket", where=str(path), hint="choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()  # left over by a program that was killed
            except OSError as error:
                raise InputError(f"cannot be tried: {error}", where=str(path), hint="choose another path") from None
            else:
                raise InputError("another service listens there", where=str(path), hint="stop it, or choose another path")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise InputError(
            f"cannot listen there: {error.strerror}", where=str(path), hint="check the folder; paths have about 100 bytes"
        ) from None
    finally:
        os.umask(before)
    return bound


def remove_own_socket(path: Path, number: int) -> None:
    """Remove the socket with this inode, and not that of a program that has taken its place."""
    with suppress(FileNotFoundError):
        if path.stat().st_ino == number:
            path.unlink()
