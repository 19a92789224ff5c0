"""Tables: how kernels see a NamedTuple of arrays.

Python holds a NamedTuple of NumPy arrays. A kernel gets one pointer, to a list of the arrays' addresses, and reads `w.node_gpus[n]` as two
loads: no reference counts, no bounds, no unpacking of a hundred array structures at every call. That makes kernels
quick to compile and lets a batch of simulations be a matrix of addresses, one row each.

What a kernel may do with a column: read and write elements by non-negative index, and `view(column, length)` to get a NumPy array
of its first elements. Columns have no length: sizes are data (`World.sizes`).

With NUMBA_DISABLE_JIT=1 the NamedTuple itself is passed and everything is plain NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import lower_builtin, lower_getattr_generic
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import DTypeLike, NDArray

from queuewise.sim.compilation import JIT_DISABLED, inline

Arrays = TypeVar("Arrays", bound=tuple[NDArray[Any], ...])

_POINTER = ir.IntType(8).as_pointer()


class ColumnType(types.Type):
    """The address of an array's first element, and how many bytes it is to the next.

    Memory that belongs to columns is read and written with one type only, so that a store of one type leaves what was loaded
    with another as it was, and the compiler is told so. `raw` memory is what tables are copied with.
    """

    def __init__(self, dtype: types.Type, stride: int, raw: bool = False) -> None:
        self.dtype = dtype
        self.stride = stride
        self.raw = raw
        super().__init__(name=f"Column{dtype}_{stride}{'_raw' if raw else ''}")


class TableType(types.Type):
    """The address of a list of column addresses."""

    def __init__(self, name: str, columns: dict[str, ColumnType]) -> None:
        self.columns = columns
        self.slots = {column: slot for slot, column in enumerate(columns)}
        super().__init__(name=f"Table{name}")


@register_model(ColumnType)
@register_model(TableType)
class _AddressModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: types.Type) -> None:
        super().__init__(manager, fe_type, _POINTER)


@infer_getattr
class _TableAttributes(AttributeTemplate):
    key = TableType

    def generic_resolve(self, table: TableType, name: str) -> ColumnType | None:  # type: ignore[override]
        return table.columns.get(name)


@lower_getattr_generic(TableType)
def _lower_column(context: Any, builder: Any, table: TableType, value: Any, name: str) -> Any:
    slots = builder.bitcast(value, _POINTER.as_pointer())
    address = builder.load(builder.gep(slots, [ir.Constant(ir.IntType(64), table.slots[name])], inbounds=True))
    # The list of addresses never changes, so a loaded address stays good whatever is stored in between.
    address.set_metadata("invariant.load", builder.module.add_metadata([]))
    return address


def _as_read(dtype: types.Type) -> types.Type:
    """Integers of any width are read as int64: a kernel is compiled anew for every combination of types that it is called with."""
    return types.int64 if isinstance(dtype, types.Integer) else dtype


@infer_global(operator.getitem)
class _ReadElement(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], ColumnType) and isinstance(args[1], types.Integer):
            return signature(_as_read(args[0].dtype), args[0], types.intp)
        return None


@infer_global(operator.setitem)
class _WriteElement(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], ColumnType) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.intp, args[0].dtype)
        return None


def _element(context: Any, builder: Any, column: ColumnType, address: Any, index: Any) -> Any:
    offset = builder.mul(index, ir.Constant(ir.IntType(64), column.stride))
    return builder.bitcast(builder.gep(address, [offset], inbounds=True), context.get_data_type(column.dtype).as_pointer())


def _say_type(builder: Any, column: ColumnType, access: Any) -> None:
    """Let the compiler know which type of memory a load or store touches."""
    if column.raw or not isinstance(column.dtype, types.Number):
        return
    module = builder.module
    no_offset = ir.Constant(ir.IntType(64), 0)
    kind = module.add_metadata([str(column.dtype), module.add_metadata(["queuewise columns"]), no_offset])
    access.set_metadata("tbaa", module.add_metadata([kind, kind, no_offset]))


@lower_builtin(operator.getitem, ColumnType, types.intp)
def _lower_read(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    column = sig.args[0]
    value = builder.load(_element(context, builder, column, *args))
    _say_type(builder, column, value)
    return context.cast(builder, value, column.dtype, sig.return_type)


@lower_builtin(operator.setitem, ColumnType, types.intp, types.Any)
def _lower_write(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _say_type(builder, sig.args[0], builder.store(args[2], _element(context, builder, sig.args[0], args[0], args[1])))
    return context.get_dummy_value()


@intrinsic
def _view(typingctx: Any, column: ColumnType, length: types.Integer) -> Any:
    array_type = types.Array(column.dtype, 1, "C")
    if isinstance(column.dtype, types.Integer | types.Float) and column.stride != np.dtype(str(column.dtype)).itemsize:
        raise TypingError("a column that lies in rows cannot be viewed as an array")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(column.dtype))
        array = make_array(array_type)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(args[0], context.get_data_type(column.dtype).as_pointer()),
            shape=cgutils.pack_array(builder, [args[1]]),
            strides=cgutils.pack_array(builder, [context.get_constant(types.intp, size)]),
            itemsize=context.get_constant(types.intp, size),
            meminfo=None,
        )
        return array._getvalue()

    return array_type(column, types.intp), codegen


def _view_in_python(column: NDArray[Any], length: int) -> NDArray[Any]:
    return column[:length]


def _view_compiled(column: Any, length: int) -> Any:
    return _view(column, length)  # type: ignore[call-arg, arg-type]


view = _view_in_python if JIT_DISABLED else inline(_view_compiled)
"""The first elements of a column as an array, for sorting, copying or handing on."""


@intrinsic
def _fetch(typingctx: Any, column: ColumnType, index: types.Integer) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [_POINTER], ir.FunctionType(ir.VoidType(), [_POINTER, word, word, word])
        )
        element = builder.bitcast(_element(context, builder, column, *args), _POINTER)
        builder.call(function, [element, *(ir.Constant(word, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.none(column, types.intp), codegen


def _fetch_in_python(column: Any, index: int) -> None:
    """Plain Python has no use for it."""


def _fetch_compiled(column: Any, index: int) -> None:
    _fetch(column, index)  # type: ignore[call-arg, arg-type]


fetch = _fetch_in_python if JIT_DISABLED else inline(_fetch_compiled)
"""Ask for the cache line of an element that will be needed soon. The index may be any number: what is not there is not fetched."""


@intrinsic
def _words_at(typingctx: Any, address: types.Integer) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _POINTER)

    return ColumnType(types.int64, 8, raw=True)(types.intp), codegen


def _words_in_python(address: Any) -> Any:
    """Plain Python has no addresses, so there is nothing to read; `fetch` does not look."""
    return ()


def _words_compiled(address: int) -> Any:
    return _words_at(address)  # type: ignore[call-arg]


words_at = _words_in_python if JIT_DISABLED else inline(_words_compiled)
"""Memory at an address as a column of int64."""


def _as_table(table_type: TableType) -> Callable[..., Any]:
    @intrinsic
    def as_table(typingctx: Any, addresses: types.Array | types.Integer) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if isinstance(sig.args[0], types.Integer):  # the address of the list of addresses
                return builder.inttoptr(args[0], _POINTER)
            array = make_array(sig.args[0])(context, builder, value=args[0])
            return builder.bitcast(array.data, _POINTER)

        return table_type(addresses), codegen

    return as_table


def _strides(dtypes: dict[str, DTypeLike], rows: Sequence[np.dtype[np.void]]) -> dict[str, int]:
    """Bytes from one element of a column to the next: of a row if it is a field of one, otherwise of an element."""
    in_rows = {name: row.itemsize for row in rows for name in row.names or ()}
    return {name: in_rows.get(name, np.dtype(dtype).itemsize) for name, dtype in dtypes.items()}


def table(fields: type[NamedTuple], dtypes: dict[str, DTypeLike], rows: Sequence[np.dtype[np.void]] = ()) -> Callable[[Any], Any]:
    """A function that turns what `addresses_of` returned into the table, inside a kernel.

    Elements of column `name` are of type dtypes[name]. Columns that are fields of one of `rows` lie together, job by job: what is read
    together then comes with one cache miss instead of one a column.
    """
    if JIT_DISABLED:
        return lambda value: value
    strides = _strides(dtypes, rows)
    names: tuple[str, ...] = fields._fields
    return _as_table(TableType(fields.__name__, {name: ColumnType(from_dtype(np.dtype(dtypes[name])), strides[name]) for name in names}))


def addresses_of(arrays: Any, dtypes: dict[str, DTypeLike], rows: Sequence[np.dtype[np.void]] = ()) -> Any:
    """The addresses of a NamedTuple's arrays, which the caller must keep alive. Checks that they are what kernels expect."""
    if JIT_DISABLED:
        return arrays
    strides = _strides(dtypes, rows)
    for name, array in zip(arrays._fields, arrays, strict=True):
        if array.dtype != dtypes[name] or (len(array) > 1 and array.strides != (strides[name],)):
            found, wanted = f"{array.dtype} at {array.strides}", f"{np.dtype(dtypes[name])} at {strides[name]} bytes"
            raise TypeError(f"{type(arrays).__name__}.{name} is {found}, kernels expect {wanted}")
    return np.array([array.ctypes.data for array in arrays], np.int64)


def clone(arrays: Arrays) -> Arrays:
    """A deep copy that keeps columns of one row together."""
    rows = {id(array.base): array.base.copy() for array in arrays if array.base is not None and array.base.dtype.names}

    def copy(name: str, array: NDArray[Any]) -> NDArray[Any]:
        return rows[id(array.base)][name] if id(array.base) in rows else array.copy()

    return type(arrays)(**{name: copy(name, array) for name, array in zip(arrays._fields, arrays, strict=True)})  # type: ignore[attr-defined]
