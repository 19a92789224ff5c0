"""Compilation with Numba. All use of its experimental features is here and in `table_types`.

`kernel` compiles a helper, `inline` a helper that is always inlined into its caller, and `entry` a function that Python
calls and whose binary is cached on disk (`compiled_cache`). Numba's cache does not notice edits in other modules. The cache folder is
therefore named after a hash of all sources that can be part of a binary, so a changed engine never loads a stale
binary.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numba

from queuewise.numba_version import check_numba, incompatible_numba

check_numba(numba.__version__)
try:
    from llvmlite import ir
    from llvmlite.binding import Linkage
    from numba import config, types
    from numba.core import cgutils
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.typed_passes import NativeLowering
    from numba.core.untyped_passes import IRProcessing
    from numba.cpython.unsafe.numbers import trailing_zeros
    from numba.extending import intrinsic

    from queuewise.cache_folder import cache_folder
    from queuewise.sim.core.compiled_cache import use_cache
    from queuewise.sim.core.known_values import KnownValuesPass
except ImportError:
    raise incompatible_numba(numba.__version__) from None

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parents[2]  # src/queuewise
_CONTENTS = {  # package of an entry -> packages whose kernels can be part of its binary
    "sim": ("sim",),
    "policies": ("sim", "policies"),
    "evaluation": ("sim", "evaluation"),
    "envs": ("sim", "policies", "envs"),
    "agents": ("sim", "policies", "agents"),
}


def _source_hash(package: str) -> str:
    """Hash of all sources whose kernels can be part of an entry of the package."""
    digest = hashlib.sha256(numba.__version__.encode())
    for content in _CONTENTS[package]:
        for path in sorted((_PACKAGE / content).glob("**/*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _cache_folder(package: str) -> Path:
    return cache_folder(f"{package}-{_source_hash(package)}")


JIT_DISABLED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]


def cache_is_warm(package: str = "sim", entry_name: str = "replay_plain") -> bool:
    """Whether the binary of the entry is cached on disk for exactly these sources."""
    return JIT_DISABLED or any(_cache_folder(package).glob(f"**/*.{entry_name}-*.nbc"))


def keep_binaries(dispatcher: Any) -> None:
    """Keep the binaries of a function of this package on disk."""
    use_cache(dispatcher, _cache_folder(dispatcher.py_func.__module__.split(".")[1]))


class _HelperLibrary(JITCodeLibrary):
    """The code of a helper. It is passed to callers as it is, neither optimised nor made executable by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _EntryLibrary(JITCodeLibrary):
    """The code of an entry with its own copies of all helpers.

    Nothing else calls these copies, so the optimiser may change them.
    """

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
    """Lower a helper that only other kernels call."""

    _name = "helper_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.flags.no_cpython_wrapper = True
        state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        key = object().__sizeof__  # callers find a helper by its entry point; it has none, so use any unique built-in method
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _NoInlineLowering(_HelperLowering):
    """The same for a helper that must not be inlined, so that there is one copy of it."""

    _name = "noinline_lowering"

    def run_pass(self, state: Any) -> bool:
        super().run_pass(state)
        state.library.get_function(state.cr.fndesc.llvm_func_name).add_function_attribute("noinline")
        return True


class _EntryCompiler(CompilerBase):
    lowering: type[NativeLowering] = _EntryLowering

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(KnownValuesPass, IRProcessing)
        pipeline.passes = [(self.lowering, text) if step is NativeLowering else (step, text) for step, text in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


class _HelperCompiler(_EntryCompiler):
    """Compiles a helper without optimising it.

    Numba optimises every function together with everything it calls, again at each level of calls. Here only the entry
    is optimised. With about sixty helpers in ten levels, compilation takes seconds instead of minutes.
    """

    lowering = _HelperLowering


class _NoInlineCompiler(_HelperCompiler):
    lowering = _NoInlineLowering


def _helper(function: F, compiler: type[CompilerBase] = _HelperCompiler, **options: Any) -> F:
    helper: Any = numba.njit(error_model="numpy", nogil=True, pipeline_class=compiler, **options)(function)
    if not JIT_DISABLED:
        by_types = helper.get_call_template
        # Otherwise, Numba compiles the helper once for every constant that it is called with.
        helper.get_call_template = lambda args, kws: by_types(tuple(types.unliteral(argument) for argument in args), kws)
    return helper


def kernel(function: F) -> F:
    """Compile a helper that only other kernels call."""
    return _helper(function, forceinline=False)  # explicit, because otherwise Numba passes the caller's options down


def noinline(function: F) -> F:
    """Compile a large helper that few policies need.

    A call costs more, but its code exists once instead of at every call.
    """
    return _helper(function, _NoInlineCompiler, forceinline=False)


def inline(function: F) -> F:
    """Compile a helper that is always inlined into its caller."""
    return _helper(function, forceinline=True)


def entry(function: F) -> F:
    """Compile a function that Python calls. Its binary is cached on disk."""
    compiled = numba.njit(error_model="numpy", nogil=True, pipeline_class=_EntryCompiler)(function)
    if not JIT_DISABLED:
        keep_binaries(compiled)
    return compiled  # type: ignore[return-value]


_PYTHON_FUNCTIONS: WeakValueDictionary[int, Callable[..., Any]] = WeakValueDictionary()  # by id, for use without the compiler


def address_of(function: Callable[..., Any]) -> int:
    """The address of a function that is compiled with one signature.

    The function must outlive the use of the address.
    """
    if JIT_DISABLED:
        _PYTHON_FUNCTIONS[id(function)] = function
        return id(function)
    (compiled,) = function.overloads.values()  # type: ignore[attr-defined]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def address_in_c(function: Callable[..., int], number: int) -> tuple[int, Any]:
    """The address of a Python function of so many int64 for `caller_of_c`, and what must be kept for as long as it is used.

    Exceptions do not propagate: the function must catch them.
    """
    if JIT_DISABLED:
        _PYTHON_FUNCTIONS[id(function)] = function
        return id(function), function
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * number)(function)
    return int(ctypes.cast(callback, ctypes.c_void_p).value or 0), callback


def caller_by_address(signature: Any) -> Callable[..., Any]:
    """A kernel `call(address, *arguments)` for functions of one signature.

    Exceptions propagate through the calling kernels.
    """
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


def caller_of_c(number: int) -> Callable[..., Any]:
    """A kernel `call(address, *arguments)` for C functions of so many int64 that return an int64, such as `ctypes` makes of Python's."""
    if JIT_DISABLED:
        return lambda address, *arguments: _PYTHON_FUNCTIONS[int(address)](*arguments)

    @intrinsic
    def call(typingctx: Any, address: Any, *arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            word = context.get_value_type(types.int64)
            pointer = builder.inttoptr(args[0], ir.FunctionType(word, [word] * number).as_pointer())
            return builder.call(pointer, cgutils.unpack_tuple(builder, args[1]))

        return types.int64(types.int64, types.UniTuple(types.int64, number)), codegen

    return call


def _lowest_bit_in_python(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


def _lowest_bit_compiled(word: int) -> int:
    return trailing_zeros(word)  # type: ignore[call-arg]


lowest_bit = _lowest_bit_in_python if JIT_DISABLED else inline(_lowest_bit_compiled)
"""Index of the lowest set bit of a non-zero word."""


def _bits_in_python(word: int) -> int:
    return (int(word) & 0xFFFFFFFFFFFFFFFF).bit_count()


@intrinsic
def _population(typingctx: Any, word: Any) -> Any:
    return types.int64(types.int64), lambda context, builder, sig, args: builder.ctpop(args[0])


def _bits_in_compiled(word: int) -> int:
    return _population(word)  # type: ignore[call-arg]


bits_in = _bits_in_python if JIT_DISABLED else inline(_bits_in_compiled)
"""How many bits of a word are set."""


def _extreme(comparison: str) -> Callable[..., Any]:
    @intrinsic
    def pick(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.select(builder.fcmp_ordered(comparison, *args, flags=_NUMBERS), *args, flags=_NUMBERS)

        return types.float64(types.float64, types.float64), codegen

    return pick


_NUMBERS = ("nnan", "nsz")  # the operands are not NaN, and the sign of zero does not matter
lesser = min if JIT_DISABLED else _extreme("<")
greater = max if JIT_DISABLED else _extreme(">")
"""The lesser and the greater of two numbers, neither of them NaN.

Knowing this, the compiler can use vector instructions.
"""
