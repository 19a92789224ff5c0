"""Everything that touches Numba's experimental corners, in one place.

`kernel` compiles a helper, `inline` one that must vanish into its caller, and `entry` a function that Python calls and that is kept in
the on-disk cache. Numba's cache does not notice edits in other modules, so the cache folder is named after a hash of the
sources that can be in a binary: a changed engine never meets a stale one.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numba

from queuewise.numba_version import check_numba, incompatible_numba

check_numba(numba.__version__)
try:
    from llvmlite.binding import Linkage
    from numba import config, types
    from numba.core import cgutils
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.typed_passes import NativeLowering
    from numba.cpython.unsafe.numbers import trailing_zeros
    from numba.extending import intrinsic
except ImportError:
    raise incompatible_numba(numba.__version__) from None

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parents[2]  # src/queuewise
_CONTENTS = {  # of the entries of each package: the packages whose kernels can be in them
    "sim": ("sim",),
    "policies": ("sim", "policies"),
    "evaluation": ("evaluation",),
    "envs": ("sim", "policies", "envs"),
    "agents": ("agents",),
}


def _source_hash(package: str) -> str:
    """Of all sources whose kernels an entry of the package can contain."""
    digest = hashlib.sha256(numba.__version__.encode())
    for content in _CONTENTS[package]:
        for path in sorted((_PACKAGE / content).glob("**/*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _cache_folder(package: str) -> Path:
    base = os.environ.get("QUEUEWISE_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "queuewise")
    return Path(base) / f"{package}-{_source_hash(package)}"


JIT_DISABLED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]


def cache_is_warm(package: str = "sim", entry_name: str = "replay") -> bool:
    """Whether the compiled entry is on disk for exactly these sources."""
    return JIT_DISABLED or any(_cache_folder(package).glob(f"**/*.{entry_name}-*.nbc"))


def keep_binary_of(function: Callable[..., Any]) -> None:
    """Let the binary of a function that is about to be declared, with `cache=True`, go to the folder of its package's sources."""
    config.CACHE_DIR = str(_cache_folder(function.__module__.split(".")[1]))  # type: ignore[attr-defined]


class _HelperLibrary(JITCodeLibrary):
    """The code of a helper: handed to its callers as it is, neither optimised nor made executable on its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _EntryLibrary(JITCodeLibrary):
    """The code of an entry with its own copies of all helpers: as nobody else calls these, the optimiser may change them at will."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(NativeLowering):
    """Lower a function that Python calls."""

    _name = "entry_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _EntryLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        super().run_pass(state)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _HelperLowering(NativeLowering):
    """Lower a helper for the use of other kernels only."""

    _name = "helper_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.flags.no_cpython_wrapper = True
        state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        key = object().__sizeof__  # callers find the helper by its entry point, of which it has none: any unique built-in method serves
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _NoInlineLowering(_HelperLowering):
    """The same for a helper of which there shall be one copy."""

    _name = "noinline_lowering"

    def run_pass(self, state: Any) -> bool:
        super().run_pass(state)
        state.library.get_function(state.cr.fndesc.llvm_func_name).add_function_attribute("noinline")
        return True


class _EntryCompiler(CompilerBase):
    lowering: type[NativeLowering] = _EntryLowering

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [(self.lowering, text) if step is NativeLowering else (step, text) for step, text in pipeline.passes]
        return [pipeline]


class _HelperCompiler(_EntryCompiler):
    """Numba optimises every function together with all it calls, again at each level of calls; a helper leaves that to the entry.

    With some sixty helpers, ten deep, this is the difference between seconds and minutes of compilation.
    """

    lowering = _HelperLowering


class _NoInlineCompiler(_HelperCompiler):
    lowering = _NoInlineLowering


def _helper(function: F, compiler: type[CompilerBase] = _HelperCompiler, **options: Any) -> F:
    helper: Any = numba.njit(error_model="numpy", nogil=True, pipeline_class=compiler, **options)(function)
    if not JIT_DISABLED:
        by_types = helper.get_call_template
        # Numba would compile it once for every constant that it is called with.
        helper.get_call_template = lambda args, kws: by_types(tuple(types.unliteral(argument) for argument in args), kws)
    return helper


def kernel(function: F) -> F:
    """Compile a helper that only other kernels call."""
    return _helper(function, forceinline=False)  # said, because Numba hands a caller's options down


def noinline(function: F) -> F:
    """Compile a large helper that few policies need: a call of it costs more, and its code is there once instead of at every call."""
    return _helper(function, _NoInlineCompiler, forceinline=False)


def inline(function: F) -> F:
    """Compile a helper that is always inlined into its caller."""
    return _helper(function, forceinline=True)


def entry(function: F) -> F:
    """Compile a function that Python calls; the binary is kept on disk."""
    keep_binary_of(function)
    return numba.njit(error_model="numpy", nogil=True, cache=True, pipeline_class=_EntryCompiler)(function)  # type: ignore[return-value]


_PYTHON_FUNCTIONS: WeakValueDictionary[int, Callable[..., Any]] = WeakValueDictionary()  # without the compiler: by their "addresses"


def address_of(function: Callable[..., Any]) -> int:
    """Where kernels find a function compiled with one signature, which must outlive its use."""
    if JIT_DISABLED:
        _PYTHON_FUNCTIONS[id(function)] = function
        return id(function)
    (compiled,) = function.overloads.values()  # type: ignore[attr-defined]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def caller_by_address(signature: Any) -> Callable[..., Any]:
    """A kernel `call(address, *arguments)` for functions of one signature. What they raise goes up through the kernels that call it."""
    if JIT_DISABLED:
        return lambda address, *arguments: _PYTHON_FUNCTIONS[int(address)](*arguments)

    @intrinsic
    def call(typingctx: Any, address: Any, *arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            convention = context.call_conv
            pointer = builder.inttoptr(args[0], convention.get_function_type(signature.return_type, signature.args).as_pointer())
            values = cgutils.unpack_tuple(builder, args[1])
            status, result = convention.call_function(builder, pointer, signature.return_type, signature.args, values)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        return signature.return_type(types.int64, types.Tuple(signature.args)), codegen

    return call


def _lowest_bit_in_python(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


def _lowest_bit_compiled(word: int) -> int:
    return trailing_zeros(word)  # type: ignore[call-arg]


lowest_bit = _lowest_bit_in_python if JIT_DISABLED else inline(_lowest_bit_compiled)
"""Index of the lowest set bit of a non-zero word."""


def _extreme(comparison: str) -> Callable[..., Any]:
    @intrinsic
    def pick(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.select(builder.fcmp_ordered(comparison, *args, flags=_NUMBERS), *args, flags=_NUMBERS)

        return types.float64(types.float64, types.float64), codegen

    return pick


_NUMBERS = ("nnan", "nsz")  # no NaN is among them, and zeros are alike
lesser = min if JIT_DISABLED else _extreme("<")
greater = max if JIT_DISABLED else _extreme(">")
"""The lesser and the greater of two numbers, neither of them NaN. Said so, the compiler finds the least of many several at a time."""
