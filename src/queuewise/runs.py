"""Run folders: everything that one command produced.

Every file is written under a temporary name in the same folder and then renamed, so a file is never seen half-written. `summary.json` is
written last: a folder that contains it is finished and is not written to again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from queuewise.errors import InputError
from queuewise.regular_files import check_regular

LAST_FILE = "summary.json"
LONGEST_NAME = 200  # bytes of a folder name; file systems allow 255
HASH_DIGITS = 12
UNFINISHED = re.compile(r"\..+\.\d+\.part")  # names that `replacing` gives: .NAME.PROCESS.part
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_created: list[Path] = []  # folders, those above others first


def start_run(path: str | Path) -> Path:
    """Create the folder if necessary. Raises an error if it contains a finished run."""
    folder = Path(path)
    if (folder / LAST_FILE).exists():
        raise InputError("already contains a finished run", where=str(folder), hint="choose another folder or remove this one")
    create_folder(folder)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other process write to the run folder in this block; a second writer is refused.

    The lock is one of the operating system, on the folder itself, and ends with the process, however that ends. File systems that
    cannot lock folders are used without it. What a killed writer left unfinished is removed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "wait for it to end, or choose another folder"
            raise InputError("another process is writing to this folder", where=str(folder), hint=hint) from None
        except OSError:
            pass
        else:
            for unfinished in folder.rglob(".*.part"):
                if UNFINISHED.fullmatch(unfinished.name):  # others may keep files in the folder
                    unfinished.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing_run(path: str | Path) -> Iterator[Path]:
    """The folder of a new run, which no other process writes to in this block."""
    folder = start_run(path)
    with locked(folder):
        yield start_run(folder)  # another process may have finished it since


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `path` when the block ends, and removed if it raises.

    The file gets the permissions that the umask gives to new files. A full disk and the like raise an InputError.
    """
    check_regular(path, "choose another name")
    path = path.resolve()  # a link stays a link, /dev/stdout above all
    kept = os.fsdecode(os.fsencode(path.name)[:LONGEST_NAME])
    temporary = path.with_name(f".{kept}.{os.getpid()}.part")
    try:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)
        os.replace(temporary, path)
    except Exception as error:
        number = _system_error(error, temporary)
        if number is None:
            raise
        raise unwritable(path, number) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _system_error(error: Exception, temporary: Path) -> int | None:
    """The number of the error with which the operating system refused to write the file; None for any other error.

    Libraries that are not written in Python pass the number of the system's error on in their own way.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.filename in (None, str(temporary)) else None
    number = re.search(r"\(os error (\d+)\)|Os \{ code: (\d+)", str(error))
    return int(number[1] or number[2]) if number else None


def unwritable(path: Path, number: int) -> InputError:
    """The error for a file that the operating system refuses to write, with the number of its error."""
    hint = "free some space, or choose another folder" if number in NO_SPACE else "check the folder and its permissions"
    return InputError(f"cannot be written: {os.strerror(number)}", where=str(path), hint=hint)


def append_text(path: Path, text: str) -> None:
    """Append to a file. If there is no room for all of it, nothing is appended, and an InputError is raised."""
    content = text.encode()
    try:
        with path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                while content:
                    content = content[file.write(content) :]
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise unwritable(path, error.errno or 0) from None


def write_text(path: Path, text: str) -> None:
    """Write UTF-8. What is no text, as in names of files that are not UTF-8, becomes `?`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def create_folder(folder: Path) -> None:
    """Create a folder, and the folders above it, if necessary."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror}", where=str(folder), hint="choose another folder") from None
    _created.extend(one.absolute() for one in reversed(missing))


def remove_empty_folders() -> None:
    """Remove the folders that this process has created and that are still empty."""
    while _created:
        with suppress(OSError):
            _created.pop().rmdir()


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
