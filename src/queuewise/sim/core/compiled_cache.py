"""The cache of compiled code on disk.

The files are pickles, and loading one can run any code. So the cache is used only in a folder that nobody else can write to. Every file
is checked before it is loaded: the name of a binary is the digest of its content, and an index begins with its own. Whatever is cut,
changed or cannot be read is removed and compiled again. Processes may share a cache: files are renamed into place, and a binary that two
of them write has the same name only if it has the same content. If nothing can be written, compiled code is used and not kept.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import Cache, CompileResultCacheImpl, IndexDataCacheFile, UserProvidedCacheLocator

DIGEST_BYTES = hashlib.sha256().digest_size


@functools.cache
def cache_home() -> Path:
    """The folder of the cache: the configured one, or a private one if others can write there or this process cannot."""
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
    say_once(f"compiled code is kept in {private}, because {wanted} {problem}")
    return private


def _problem_of(folder: Path) -> str:
    """Why the folder cannot be used; nothing, if it can. It is created if necessary."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"writable")
    except OSError as error:
        if not (isinstance(error, PermissionError) and folder.is_dir()):  # binaries that root provides are used
            return f"cannot be written: {error.strerror}"
    return _danger_of(folder.stat())


def cache_folder(name: str) -> Path:
    """A folder of the cache. One that others could write to is removed."""
    folder = cache_home() / name
    if any(_danger_of(one.stat()) for one in (folder, *folder.glob("*")) if one.is_dir()):
        say_once(f"compiled code is compiled again, because {folder} could be written by other users")
        shutil.rmtree(folder, ignore_errors=True)
    return folder


def _danger_of(found: os.stat_result) -> str:
    """Who else can write a file or folder. A group that is the user's own does not count."""
    if found.st_uid not in (os.getuid(), 0):
        return "belongs to another user"
    others = stat.S_IWOTH if found.st_gid == os.getuid() else stat.S_IWOTH | stat.S_IWGRP
    return "can be written by other users" if found.st_mode & others else ""


@functools.cache
def say_once(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def use_cache(dispatcher: Any, folder: Path) -> None:
    """Keep the binaries of a function of Numba in the folder, and load them from there."""
    dispatcher._cache = BinaryCache(dispatcher.py_func, folder)


class _CacheLocator(UserProvidedCacheLocator):
    """Files of one function, in a folder named after its module."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._py_file = function.__code__.co_filename
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = str(folder / self.get_suitable_cache_subpath(self._py_file))

    def ensure_cache_path(self) -> None:
        home = Path(self._cache_path)
        home.parent.mkdir(mode=0o755, exist_ok=True)
        home.mkdir(mode=0o755, exist_ok=True)


class _BinaryImpl(CompileResultCacheImpl):
    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _CacheLocator(function, folder)
        name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))


class BinaryCache(Cache):
    """Numba's cache of one function, without trust in its files."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._name, self._py_func = repr(function), function
        self._impl = _BinaryImpl(function, folder)
        self._cache_path = self._impl.locator.get_cache_path()
        self._files = _CheckedFiles(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())
        self._cache_file = self._files
        self.enable()

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(sig, target_context)
        except Exception:  # of an unpickler or of LLVM: anything may be in a file
            self._files.discard()
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            say_once(f"compiled code is not kept, because {self._cache_path} cannot be written: {error.strerror}")


class _CheckedFiles(IndexDataCacheFile):
    """An index (function and types -> name of a binary) and binaries, each with a digest."""

    def save(self, key: Any, data: Any) -> None:
        content = self._dump(data)
        name = f"{self._index_name.removesuffix('.nbi')}.{hashlib.sha256(content).hexdigest()}.nbc"
        try:
            known = self._load_index()
        except _DamagedError:
            self.discard()
            known = {}
        self._write(self._data_path(name), content)
        self._save_index({**known, key: name})

    def _load_data(self, name: str) -> Any:
        content = self._read(self._data_path(name))
        if hashlib.sha256(content).hexdigest() not in name:
            raise _DamagedError(name)
        return pickle.loads(content)

    def _load_index(self) -> dict[Any, str]:
        try:
            content = self._read(self._index_path)
        except FileNotFoundError:
            return {}
        if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
            raise _DamagedError(self._index_name)
        version, stamp, names = pickle.loads(content[DIGEST_BYTES:])
        return dict(names) if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        content = self._dump((self._version, self._source_stamp, overloads))
        self._write(self._index_path, hashlib.sha256(content).digest() + content)

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            if _danger_of(os.fstat(file.fileno())):
                raise _DamagedError(path)
            return file.read()

    def _write(self, path: str, content: bytes) -> None:
        with self._open_for_write(path) as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask is, others must not write it
            file.write(content)

    def discard(self) -> None:
        """Remove the files of this function."""
        base = self._index_name.removesuffix(".nbi")
        for path in Path(self._cache_path).glob(f"{base}.*"):
            with suppress(OSError):
                path.unlink()
        say_once(f"the cache of compiled code was damaged and is compiled again: {self._cache_path}")


class _DamagedError(Exception):
    """A file is not what was written."""
