"""Atomic access to memory that several threads write. Each function is one atomic operation on `words[i]`, an int64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

ORDER = "seq_cst"
WORD_BYTES = 8


def _atomic(function: Callable[..., Any]) -> Any:
    """Declare an intrinsic. Kernels call it without the typing context, the first argument that Numba passes."""
    return intrinsic(function)


def _word(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return cgutils.gep(builder, make_array(array_type)(context, builder, array).data, index)


@_atomic
def load_word(typingctx: Any, words: Any, index: Any) -> Any:
    """Read the word. The fence makes this slow enough that a thread can poll without slowing down the others."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.fence(ORDER)
        return builder.load_atomic(_word(context, builder, sig.args[0], *args), ORDER, WORD_BYTES)

    return types.int64(words, types.intp), codegen


@_atomic
def swap_word(typingctx: Any, words: Any, index: Any, value: Any) -> Any:
    """Set the word and return its old value."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _word(context, builder, sig.args[0], *args[:2]), args[2], ORDER)

    return types.int64(words, types.intp, types.int64), codegen


@_atomic
def compare_and_swap(typingctx: Any, words: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set the word if it equals `expected`, and return whether it did."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_word(context, builder, sig.args[0], *args[:2]), args[2], args[3], ORDER, ORDER)
        return builder.zext(builder.extract_value(pair, 1), ir.IntType(1))

    return types.boolean(words, types.intp, types.int64, types.int64), codegen
