"""The folder in which things are kept that take long to compute: compiled code (`sim`) and predictions (`workload`).

Anybody who can write there decides what is computed, and compiled code even runs in the user's name. So a folder or a file is used only if
it belongs to the user or to root, and no other user can write it. What is cut, changed or cannot be read is computed again. If nothing can
be written, nothing is kept.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

DIGEST_BYTES = hashlib.sha256().digest_size
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what is there already can be used


class UntrustedFileError(Exception):
    """A file is not what was written, or others could write it."""


@functools.cache
def cache_home() -> Path:
    """The folder of all caches: the configured one, or a private one if others can write there or this process cannot."""
    try:
        configured = os.environ.get("QUEUEWISE_CACHE_DIR")
        wanted = Path(configured or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuewise")
        problem = _problem_of(wanted)
    except RuntimeError:  # as in containers whose user has no name
        wanted, problem = Path("~"), "is not known"
    if not problem:
        return wanted
    private = Path(tempfile.gettempdir()) / f"queuewise-{os.getuid()}"
    if _problem_of(private):
        private = Path(tempfile.mkdtemp(prefix="queuewise-"))
    say_once(f"compiled code and predictions are kept in {private}, because {wanted} {problem}")
    return private


def _problem_of(folder: Path) -> str:
    """Why the folder cannot be used; nothing, if it can. It is created if necessary."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"writable")
    except OSError as error:
        if error.errno not in READ_ONLY or not folder.is_dir():
            return f"cannot be written: {error.strerror}"
    return _danger_of(folder.stat())


def cache_folder(name: str) -> Path:
    """A folder of the cache. One that others could write to is removed."""
    folder = cache_home() / name
    if any(_danger_of(one.stat()) for one in (folder, *folder.glob("*")) if one.is_dir()):
        say_once(f"what was in {folder} is computed again, because it could be written by other users")
        shutil.rmtree(folder, ignore_errors=True)
    return folder


def _danger_of(found: os.stat_result) -> str:
    """Who else can write a file or folder. A group that is the user's own does not count."""
    if found.st_uid not in (os.getuid(), 0):
        return "belongs to another user"
    others = stat.S_IWOTH if found.st_gid == os.getuid() else stat.S_IWOTH | stat.S_IWGRP
    return "can be written by other users" if found.st_mode & others else ""


def read_own(path: Path) -> bytes:
    """The content of a file that only the user and root can write. Raises an UntrustedFileError for others."""
    with path.open("rb") as file:
        if problem := _danger_of(os.fstat(file.fileno())):
            raise UntrustedFileError(f"{path} {problem}")
        return file.read()


def write_own(path: Path, content: bytes) -> None:
    """Write a file that others cannot write, whatever the umask is. It appears whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_sealed(path: Path) -> bytes:
    """What `write_sealed` wrote. Raises an UntrustedFileError if it is anything else."""
    content = read_own(path)
    if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
        raise UntrustedFileError(f"{path} is damaged")
    return content[DIGEST_BYTES:]


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file that begins with the digest of the rest."""
    write_own(path, hashlib.sha256(content).digest() + content)


@functools.cache
def say_once(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
