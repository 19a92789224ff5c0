"""The cache of compiled code on disk.

The files are pickles, and loading one can run any code. `cache_folder` says which folders and files are trusted. Every file is checked
before it is loaded: the name of a binary is the digest of its content, and an index begins with its own. Whatever is cut, changed or
cannot be read is removed and compiled again. Processes may share a cache: files are renamed into place, and a binary that two of them
write has the same name only if it has the same content. If nothing can be written, compiled code is used and not kept.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import Cache, CompileResultCacheImpl, IndexDataCacheFile, UserProvidedCacheLocator

from queuewise.cache_folder import UntrustedFileError, read_own, read_sealed, say_once, write_own, write_sealed


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
        except UntrustedFileError:
            self.discard()
            known = {}
        write_own(Path(self._data_path(name)), content)
        self._save_index({**known, key: name})

    def _load_data(self, name: str) -> Any:
        content = read_own(Path(self._data_path(name)))
        if hashlib.sha256(content).hexdigest() not in name:
            raise UntrustedFileError(name)
        return pickle.loads(content)

    def _load_index(self) -> dict[Any, str]:
        try:
            content = read_sealed(Path(self._index_path))
        except FileNotFoundError:
            return {}
        version, stamp, names = pickle.loads(content)
        return dict(names) if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        write_sealed(Path(self._index_path), self._dump((self._version, self._source_stamp, overloads)))

    def discard(self) -> None:
        """Remove the files of this function."""
        base = self._index_name.removesuffix(".nbi")
        for path in Path(self._cache_path).glob(f"{base}.*"):
            with suppress(OSError):
                path.unlink()
        say_once(f"the cache of compiled code was damaged and is compiled again: {self._cache_path}")
