"""How kernels see tables: Numba types for tables, columns and scalars, and the machine code that reads and writes them.

A table is the address of a list of addresses. A column or a group of scalars is one address. `tables` creates these
types from the declaration of a table. Kernels use `view`, `column_of`, `fetch` and `words_at`; other code can ignore this module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import lower_builtin, lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from queuewise.sim.core.compilation import JIT_DISABLED, inline

KnownValues = Mapping[tuple[str, str], frozenset[int]]  # by column and name

_POINTER = ir.IntType(8).as_pointer()


class ColumnType(types.Type):
    """The address of an array's first element, and the number of bytes to the next one.

    The memory of a column is read and written with one type only. A store of one type therefore does not change what
    was loaded with another type, and the generated code declares this to the compiler. `raw` columns make no such
    promise; they are for copying tables.
    """

    def __init__(self, dtype: types.Type, stride: int, raw: bool = False) -> None:
        self.dtype = dtype
        self.stride = stride
        self.raw = raw
        super().__init__(name=f"Column{dtype}_{stride}{'_raw' if raw else ''}")


class ScalarsType(types.Type):
    """The address of the first of several named numbers."""

    def __init__(self, name: str, slots: dict[str, int], dtype: np.dtype[Any]) -> None:
        self.slots = slots
        self.column = ColumnType(from_dtype(dtype), dtype.itemsize)
        super().__init__(name=f"Scalars{name}")


class TableType(types.Type):
    """The address of a list of column addresses.

    `known` says which values some scalars can have, by column and name. Code for other values is left out (`known_values`).
    """

    def __init__(self, name: str, columns: dict[str, ColumnType | ScalarsType], known: KnownValues = MappingProxyType({})) -> None:
        self.columns = columns
        self.known = known
        self.slots = {column: slot for slot, column in enumerate(columns)}
        super().__init__(name=f"Table{name}")


@register_model(ColumnType)
@register_model(ScalarsType)
@register_model(TableType)
class _AddressModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: types.Type) -> None:
        super().__init__(manager, fe_type, _POINTER)


@infer_getattr
class _TableAttributes(AttributeTemplate):
    key = TableType

    def generic_resolve(self, table: TableType, name: str) -> ColumnType | ScalarsType | None:  # type: ignore[override]
        return table.columns.get(name)


@infer_getattr
class _ScalarAttributes(AttributeTemplate):
    key = ScalarsType

    def generic_resolve(self, scalars: ScalarsType, name: str) -> types.Type | None:  # type: ignore[override]
        return scalars.column.dtype if name in scalars.slots else None


@lower_getattr_generic(TableType)
def _lower_column(context: Any, builder: Any, table: TableType, value: Any, name: str) -> Any:
    slots = builder.bitcast(value, _POINTER.as_pointer())
    address = builder.load(builder.gep(slots, [ir.Constant(ir.IntType(64), table.slots[name])], inbounds=True))
    # The list of addresses never changes, so a loaded address stays valid whatever is stored afterwards.
    address.set_metadata("invariant.load", builder.module.add_metadata([]))
    return address


def _as_read(dtype: types.Type) -> types.Type:
    """The type that an element has in a kernel.

    All integers are read as int64, because Numba compiles one version per type.
    """
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


def _annotate_type(builder: Any, column: ColumnType, access: Any) -> None:
    """Declare to the compiler which type of memory a load or store accesses."""
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
    _annotate_type(builder, column, value)
    return context.cast(builder, value, column.dtype, sig.return_type)


@lower_builtin(operator.setitem, ColumnType, types.intp, types.Any)
def _lower_write(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _annotate_type(builder, sig.args[0], builder.store(args[2], _element(context, builder, sig.args[0], args[0], args[1])))
    return context.get_dummy_value()


def _slot(scalars: ScalarsType, name: str) -> Any:
    return ir.Constant(ir.IntType(64), scalars.slots[name])


@lower_getattr_generic(ScalarsType)
def _lower_scalar_read(context: Any, builder: Any, scalars: ScalarsType, address: Any, name: str) -> Any:
    value = builder.load(_element(context, builder, scalars.column, address, _slot(scalars, name)))
    _annotate_type(builder, scalars.column, value)
    return value


@lower_setattr_generic(ScalarsType)
def _lower_scalar_write(context: Any, builder: Any, sig: Any, args: Any, name: str) -> None:
    scalars = sig.args[0]
    value = context.cast(builder, args[1], sig.args[1], scalars.column.dtype)
    _annotate_type(builder, scalars.column, builder.store(value, _element(context, builder, scalars.column, args[0], _slot(scalars, name))))


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
"""The first elements of a column as an array, for sorting, copying or passing on."""


@intrinsic
def _column_of(typingctx: Any, array: types.Array) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(make_array(array)(context, builder, value=args[0]).data, _POINTER)

    return ColumnType(array.dtype, np.dtype(str(array.dtype)).itemsize)(array), codegen


def _column_in_python(array: NDArray[Any]) -> NDArray[Any]:
    return array


def _column_compiled(array: Any) -> Any:
    return _column_of(array)  # type: ignore[call-arg]


column_of = _column_in_python if JIT_DISABLED else inline(_column_compiled)
"""A one-dimensional contiguous array that a kernel has made, as a column.

Columns are cheaper to pass on than arrays. The kernel must use the array once more afterwards, or its memory is released too early.
"""


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
    """Do nothing: plain Python has no prefetching."""


def _fetch_compiled(column: Any, index: int) -> None:
    _fetch(column, index)  # type: ignore[call-arg, arg-type]


fetch = _fetch_in_python if JIT_DISABLED else inline(_fetch_compiled)
"""Prefetch the cache line of an element that will be needed soon.

The index may be any number; invalid ones are ignored.
"""


@intrinsic
def _words_at(typingctx: Any, address: types.Integer) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _POINTER)

    return ColumnType(types.int64, 8, raw=True)(types.intp), codegen


def _words_in_python(address: Any) -> Any:
    """Return a dummy: plain Python has no addresses, and its `fetch` reads nothing."""
    return ()


def _words_compiled(address: int) -> Any:
    return _words_at(address)  # type: ignore[call-arg]


words_at = _words_in_python if JIT_DISABLED else inline(_words_compiled)
"""The memory at an address as a column of int64."""


def table_at(table_type: TableType) -> Callable[..., Any]:
    @intrinsic
    def as_table(typingctx: Any, addresses: types.Array | types.Integer) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if isinstance(sig.args[0], types.Integer):  # the address of the list of addresses
                return builder.inttoptr(args[0], _POINTER)
            array = make_array(sig.args[0])(context, builder, value=args[0])
            return builder.bitcast(array.data, _POINTER)

        return table_type(addresses), codegen

    return as_table


@intrinsic
def _address_of_table(typingctx: Any, table: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(table), codegen


def _table_in_python(table: Any) -> Any:
    return table


def _table_compiled(table: Any) -> int:
    return _address_of_table(table)  # type: ignore[call-arg]


address_of_table = _table_in_python if JIT_DISABLED else inline(_table_compiled)
"""The address of a table's list of addresses, from which an entry that is called meanwhile reads the same table."""
