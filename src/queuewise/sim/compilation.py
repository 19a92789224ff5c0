"""Everything that touches Numba's experimental corners, in one place.

`kernel` compiles a helper, `inline` one that must vanish into its caller, and `entry` a function that Python calls and that is kept in
the on-disk cache. Numba's cache does not notice edits in other modules, so the cache folder is named after a hash of the
package's sources: a changed engine never meets a stale binary.

`struct` makes one name serve twice: Python sees a NamedTuple of arrays, kernels see a structref of the same fields (passing a pointer
instead of dozens of reference-counted arrays made replay four times faster). With NUMBA_DISABLE_JIT=1 kernels run
as plain Python on the NamedTuple itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.experimental import structref

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parent.parent
_COMPILED = ("sim", "policies", "envs")  # packages that hold kernels


def _source_hash() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for package in _COMPILED:
        for path in sorted((_PACKAGE / package).glob("**/*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    base = os.environ.get("QUEUEWISE_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "queuewise")
    return Path(base) / f"kernels-{_source_hash()}"


CACHE_FOLDER = _cache_folder()
JIT_DISABLED = bool(numba.config.DISABLE_JIT)
numba.config.CACHE_DIR = str(CACHE_FOLDER)


def cache_is_warm(entry_name: str = "replay") -> bool:
    """Whether the compiled entry is on disk for exactly these sources."""
    return JIT_DISABLED or any(CACHE_FOLDER.glob(f"**/*.{entry_name}-*.nbc"))


def kernel(function: F) -> F:
    """Compile a helper that only other kernels call."""
    return numba.njit(error_model="numpy", nogil=True)(function)  # type: ignore[no-any-return]


def inline(function: F) -> F:
    """Compile a helper that is always inlined into its caller."""
    return numba.njit(error_model="numpy", nogil=True, forceinline=True)(function)  # type: ignore[no-any-return]


def entry(function: F) -> F:
    """Compile a function that Python calls; the binary is kept on disk."""
    return numba.njit(error_model="numpy", nogil=True, cache=True)(function)  # type: ignore[no-any-return]


def struct(name: str, fields: type[NamedTuple]) -> Callable[[Any], Any]:
    """A function that turns a `fields` NamedTuple of arrays into a structref inside a kernel."""
    names: tuple[str, ...] = fields._fields  # type: ignore[attr-defined]
    if JIT_DISABLED:
        return lambda value: value
    struct_type = structref.register(type(f"{name}Type", (types.StructRef,), {}))
    proxy = type(name, (structref.StructRefProxy,), {})
    structref.define_proxy(proxy, struct_type, list(names))
    source = f"def lift(value):\n    return proxy({', '.join(f'value.{field}' for field in names)})\n"
    scope: dict[str, Any] = {"proxy": proxy}
    exec(source, scope)
    return inline(scope["lift"])


def _lowest_bit_in_python(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


def _lowest_bit_compiled(word: int) -> int:
    return trailing_zeros(word)  # type: ignore[no-any-return]


lowest_bit = _lowest_bit_in_python if JIT_DISABLED else inline(_lowest_bit_compiled)
"""Index of the lowest set bit of a non-zero word."""
