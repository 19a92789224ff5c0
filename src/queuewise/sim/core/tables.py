"""Tables: columns of numbers, declared once. Python sees them as NumPy arrays, kernels as addresses.

A `Table` subclass declares its columns: name, type, length, initial value, unit and meaning, all in one place. Python
holds the columns as NumPy arrays. A kernel receives one pointer to a list of the arrays' addresses, and
`w.node_gpus[n]` takes two loads. There are no reference counts, no bounds checks, and no unpacking of a hundred array
structures at every call. Kernels therefore compile quickly, and a batch of simulations is a matrix of addresses with
one row per simulation.

A kernel can read and write the elements of a column by non-negative index, and call `view(column, length)` to get a
NumPy array of its first elements. Columns do not know their length: lengths are data (`World.sizes`). `Scalars` are
columns whose elements have names: `s.clock.now` instead of `s.clock[0]`.

With NUMBA_DISABLE_JIT=1, kernels receive the table itself and everything is plain NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numba import from_dtype
from numpy.typing import NDArray

from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.table_types import ColumnType, KnownValues, ScalarsType, TableType, table_at

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
F64 = NDArray[np.float64]
F32 = NDArray[np.float32]

_DTYPES: dict[str, Any] = {"I64": np.int64, "I32": np.int32, "I8": np.int8, "F64": np.float64, "F32": np.float32}


class Scalars(np.ndarray[tuple[int], np.dtype[Any]]):
    """Named numbers of one type.

    A subclass annotates the names in order. The initial value is given in the class body, or 0.
    """

    slots: ClassVar[dict[str, int]] = {}
    initial: ClassVar[tuple[Any, ...]] = ()
    element: ClassVar[np.dtype[Any]]

    def __init_subclass__(cls, *, dtype: Any) -> None:
        names = list(cls.__annotations__)
        taken = [name for name in names if hasattr(np.ndarray, name)]
        if taken:
            raise TypeError(f"{cls.__name__}: {', '.join(taken)} is an attribute of every NumPy array")
        cls.element = np.dtype(dtype)
        cls.initial = tuple(cls.__dict__.get(name, 0) for name in names)
        cls.slots = {name: slot for slot, name in enumerate(names)}
        for name, slot in cls.slots.items():
            setattr(cls, name, _scalar_property(slot))

    def __new__(cls, **values: Any) -> Self:
        array = np.ndarray.__new__(cls, (len(cls.slots),), cls.element)
        array[:] = cls.initial
        for name, value in values.items():
            array[cls.slots[name]] = value
        return array


def _scalar_property(slot: int) -> property:
    def write(scalars: Scalars, value: Any) -> None:
        scalars[slot] = value

    return property(lambda scalars: scalars[slot], write)


class _Unset:
    """The type of UNSET, the initial value of columns whose memory is not initialised."""


UNSET = _Unset()


@dataclass(frozen=True)
class Column:
    """The declaration of a column."""

    length: tuple[str, ...]  # names of lengths that are multiplied; empty: as long as the given array
    meaning: str
    unit: str
    initial: Any
    row: str  # columns with the same row name are interleaved in memory, job by job
    dtype: Any  # a NumPy type, or a subclass of Scalars

    @cached_property
    def is_scalars(self) -> bool:
        return isinstance(self.dtype, type) and issubclass(self.dtype, Scalars)

    @cached_property
    def element(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.dtype.element if self.is_scalars else self.dtype
        return dtype


def column(*length: str, meaning: str = "", unit: str = "", initial: Any = UNSET, row: str = "", dtype: Any = None) -> Any:
    """Declare a column in the body of a `Table`.

    The annotation defines its type: I64, I32, I8, F64, F32 or a subclass of Scalars.
    """
    return Column(length, meaning, unit, initial, row, dtype)


class Table:
    """A set of columns.

    Subclasses declare columns, or combine the columns of several tables by inheriting from them.
    """

    columns: ClassVar[dict[str, Column]] = {}
    rows: ClassVar[dict[str, np.dtype[np.void]]] = {}  # rows of interleaved columns by name
    strides: ClassVar[dict[str, int]] = {}  # bytes from one element of a column to the next
    elements: ClassVar[list[tuple[str, np.dtype[Any], tuple[int]]]] = []  # name, type and stride of each column

    def __init_subclass__(cls) -> None:
        joined: dict[str, Column] = {}
        for base in cls.__bases__:
            joined |= getattr(base, "columns", {})
        own = [name for name, declared in vars(cls).items() if isinstance(declared, Column)]
        scope = vars(sys.modules[cls.__module__])
        for name in own:
            declared = vars(cls)[name]
            if name in joined:
                raise TypeError(f"{cls.__name__}.{name} is declared twice")
            annotation = cls.__annotations__[name]
            dtype = declared.dtype if declared.dtype is not None else _DTYPES.get(annotation) or scope[annotation]
            joined[name] = replace(declared, dtype=dtype if isinstance(dtype, type) and issubclass(dtype, Scalars) else np.dtype(dtype))
            delattr(cls, name)
        cls.columns = joined
        cls.rows = _row_dtypes(joined)
        in_rows = {name: row.itemsize for row in cls.rows.values() for name in row.names or ()}
        cls.strides = {name: in_rows.get(name, declared.element.itemsize) for name, declared in joined.items()}
        cls.elements = [(name, declared.element, (cls.strides[name],)) for name, declared in joined.items()]

    def __init__(self, *arrays: NDArray[Any], **named: NDArray[Any]) -> None:
        given = dict(zip(self.columns, arrays, strict=False)) | named
        if given.keys() != self.columns.keys():
            odd = sorted(given.keys() ^ self.columns.keys())
            raise TypeError(f"{type(self).__name__}: missing or unknown columns {', '.join(odd)}")
        vars(self).update({name: given[name] for name in self.columns})

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(self.columns)

    @classmethod
    def allocate(cls, lengths: Mapping[str, int], **given: Any) -> Self:
        """A table with initial values.

        Columns that are `given` are used instead, if their type and length are as declared.
        """
        arrays = _allocate_rows(cls, lengths, given)
        for name, declared in cls.columns.items():
            if name in arrays:
                continue
            if name in given:
                arrays[name] = _checked(cls, name, given[name], _length(declared, lengths))
            elif declared.is_scalars:
                arrays[name] = declared.dtype()
            else:
                arrays[name] = _initial_array(cls, name, declared, _length(declared, lengths))
        return cls(**arrays)

    @classmethod
    def checked(cls, **given: Any) -> dict[str, NDArray[Any]]:
        """Columns as kernels need them."""
        return {name: _checked(cls, name, array, -1) for name, array in given.items()}

    def replace(self, **changed: NDArray[Any]) -> Self:
        """A table with some arrays replaced."""
        return type(self)(**{name: changed.get(name, getattr(self, name)) for name in self.columns})

    def clone(self) -> Self:
        """A deep copy that keeps interleaved columns interleaved."""
        rows = {id(array.base): array.base.copy() for array in self if array.base is not None and array.base.dtype.names}

        def copy(name: str, array: NDArray[Any]) -> NDArray[Any]:
            return rows[id(array.base)][name] if id(array.base) in rows else array.copy()

        return type(self)(**{name: copy(name, getattr(self, name)) for name in self.columns})


def _length(declared: Column, lengths: Mapping[str, int]) -> int:
    """The length of the column, -1 if its declaration does not define it."""
    if declared.is_scalars:
        return len(declared.dtype.slots)
    if not declared.length:
        return -1
    total = 1
    for name in declared.length:
        total *= lengths[name]
    return total


def _initial_array(table: type[Table], name: str, declared: Column, length: int) -> NDArray[Any]:
    """A column with its initial value. A simulation has two hundred columns: zeros are several times faster than `np.full`."""
    if length < 0:
        raise TypeError(f"{table.__name__}.{name} declares no length and must be given")
    if declared.initial is UNSET:
        return np.empty(length, declared.dtype)
    array = np.zeros(length, declared.dtype)
    if declared.initial != 0:
        array.fill(declared.initial)
    return array


def _checked(table: type[Table], name: str, array: Any, length: int) -> NDArray[Any]:
    declared = table.columns[name]
    if declared.is_scalars and not isinstance(array, declared.dtype):
        raise TypeError(f"{table.__name__}.{name} is not a {declared.dtype.__name__}")
    checked: NDArray[Any] = array if declared.is_scalars else np.asanyarray(array, declared.dtype, order="C")
    if length >= 0 and len(checked) != length:
        wanted = " × ".join(declared.length)
        raise TypeError(f"{table.__name__}.{name} has {len(checked)} elements instead of {length} ({wanted})")
    return checked


def row_names(table: type[Table], row: str) -> tuple[str, ...]:
    """The columns of a row."""
    return tuple(name for name, declared in table.columns.items() if declared.row == row)


def _row_dtypes(columns: Mapping[str, Column]) -> dict[str, np.dtype[np.void]]:
    """Rows of interleaved columns.

    Columns that are read together share a row, so that reading them costs one cache miss.
    """
    rows: dict[str, list[tuple[str, Any]]] = {}
    for name, declared in columns.items():
        if declared.row:
            rows.setdefault(declared.row, []).append((name, declared.dtype))
    return {row: np.dtype(fields, align=True) for row, fields in rows.items()}


def _allocate_rows(table: type[Table], lengths: Mapping[str, int], given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for dtype in table.rows.values():
        names = dtype.names or ()
        rows = np.zeros(_length(table.columns[names[0]], lengths), dtype)
        for name in names:
            initial = table.columns[name].initial
            rows[name] = given.get(name, 0 if initial is UNSET else initial)
            arrays[name] = rows[name]
    return arrays


def table_reader(table: type[Table], variant: str = "", known: KnownValues = MappingProxyType({})) -> Callable[[Any], Any]:
    """A function that kernels call to turn the result of `addresses_of` into the table.

    A variant has its own name, and its scalars have only the values that are `known`: kernels that are called with it are
    compiled without the code for others. The caller checks with `has_known` that they do.
    """
    if JIT_DISABLED:
        return lambda value: value
    columns: dict[str, ColumnType | ScalarsType] = {}
    for name, declared in table.columns.items():
        if declared.is_scalars:
            columns[name] = ScalarsType(
                f"{declared.dtype.__module__}.{declared.dtype.__qualname__}", declared.dtype.slots, declared.dtype.element
            )
        else:
            columns[name] = ColumnType(from_dtype(declared.dtype), table.strides[name])
    return table_at(TableType(f"{table.__name__}{variant}", columns, known))


def has_known(table: Table, known: KnownValues) -> bool:
    """Whether the scalars of the table have only known values."""
    return all(int(getattr(getattr(table, column), name)) in values for (column, name), values in known.items())


def check_types(table: Table) -> None:
    """Raise if kernels expect other types than the arrays have."""
    for (name, element, stride), array in zip(table.elements, table, strict=True):
        if array.dtype != element or (len(array) > 1 and array.strides != stride):
            found, wanted = f"{array.dtype} at {array.strides}", f"{element} at {stride[0]} bytes"
            raise TypeError(f"{type(table).__name__}.{name} is {found}, but kernels expect {wanted}")


def addresses_of(table: Table) -> Any:
    """The addresses of a table's arrays.

    The caller must keep the arrays alive. Raises if kernels expect other types.
    """
    if JIT_DISABLED:
        return table
    check_types(table)
    return np.array([array.ctypes.data for array in table], np.int64)
