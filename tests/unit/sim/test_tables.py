"""Tables and scalars: declared once, checked when they are made, and the same to kernels as to Python."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.tables import F64, I8, I32, I64, Scalars, Table, addresses_of, column, row_names, table_reader


class Totals(Scalars, dtype=np.float64):
    first: float
    second: float = 7.0


class Left(Table):
    a: I64 = column("long", initial=3, meaning="some number")
    totals: Totals = column()


class Right(Table):
    b: F64 = column("long", "wide", unit="s")
    x: F64 = column("long", row="pair", initial=np.inf)
    y: I32 = column("long", row="pair")


class Joined(Left, Right):
    c: I8 = column(meaning="as long as what it is given")


LENGTHS = {"long": 4, "wide": 2}


def test_scalars_have_names_initial_values_and_survive_copies() -> None:
    totals = Totals(first=1.5)
    assert (totals.first, totals.second) == (1.5, 7.0)
    totals.first += 1
    copy = totals.copy()
    copy.second = 0.0
    assert totals.tolist() == [2.5, 7.0]
    assert (copy.first, copy.second) == (2.5, 0.0)


def test_names_of_array_attributes_are_refused() -> None:
    with pytest.raises(TypeError, match="view is an attribute of every NumPy array"):

        class Unlucky(Scalars, dtype=np.int64):
            view: int  # type: ignore[assignment]


def test_a_table_joins_the_columns_of_its_bases() -> None:
    assert list(Joined.columns) == ["a", "totals", "b", "x", "y", "c"]
    assert row_names(Joined, "pair") == ("x", "y")


def test_a_column_declared_twice_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Again\.a is declared twice"):

        class Again(Left):
            a: I64 = column("long")


def test_allocated_columns_have_the_declared_type_length_and_value() -> None:
    made = Joined.allocate(LENGTHS, c=np.array([1, 2, 3]))
    assert made.a.tolist() == [3, 3, 3, 3]
    assert made.b.shape == (8,)
    assert made.x.tolist() == [np.inf] * 4
    assert made.y.tolist() == [0] * 4
    assert made.x.base is made.y.base  # one row
    assert made.c.dtype == np.dtype(np.int8)
    assert made.c.tolist() == [1, 2, 3]
    assert made.totals.second == 7.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"c": np.zeros(1), "a": np.zeros(3)}, r"Joined\.a has 3 elements instead of 4 \(long\)"),
        ({"c": np.zeros(1), "b": np.zeros(4)}, r"Joined\.b has 4 elements instead of 8 \(long × wide\)"),
        ({"c": np.zeros(1), "totals": np.zeros(2)}, r"Joined\.totals is not a Totals"),
        ({}, r"Joined\.c declares no length and must be given"),
    ],
)
def test_wrong_columns_are_refused(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Joined.allocate(LENGTHS, **given)


def test_unknown_columns_are_refused() -> None:
    made = Joined.allocate(LENGTHS, c=np.zeros(1))
    with pytest.raises(TypeError, match="missing or unknown columns d"):
        Joined(*made, d=np.zeros(1))


def test_clones_share_nothing() -> None:
    made = Joined.allocate(LENGTHS, c=np.zeros(1))
    copy = made.clone()
    copy.x[0], copy.y[1], copy.totals.first = 1.0, 2, 3.0
    assert (made.x[0], made.y[1], made.totals.first) == (np.inf, 0, 0.0)
    assert copy.x.base is copy.y.base


@pytest.mark.skipif(JIT_DISABLED, reason="kernels are plain Python")
def test_kernels_read_and_write_what_python_sees() -> None:
    as_joined = table_reader(Joined)

    @njit
    def change(addresses):  # type: ignore[no-untyped-def]
        table = as_joined(addresses)
        table.totals.first += table.a[1] + table.totals.second
        table.y[2] = int(table.totals.first)
        table.x[2] = 0.5
        totals = table.totals
        totals.second = -1
        return table.y[2]

    made = Joined.allocate(LENGTHS, c=np.zeros(1))
    assert change(addresses_of(made)) == 10
    assert (made.totals.tolist(), made.y.tolist(), made.x.tolist()) == ([10.0, -1.0], [0, 0, 10, 0], [np.inf, np.inf, 0.5, np.inf])


@pytest.mark.skipif(JIT_DISABLED, reason="plain Python needs no addresses")
def test_addresses_of_other_types_are_refused() -> None:
    made = Joined.allocate(LENGTHS, c=np.zeros(1))
    with pytest.raises(TypeError, match=r"Joined\.a is float64 .* kernels expect int64"):
        addresses_of(made.replace(a=np.zeros(4)))


def test_no_column_of_the_engine_belongs_to_two_tables() -> None:
    assert not World.columns.keys() & State.columns.keys()
    assert not Machine.columns.keys() & (World.columns.keys() | State.columns.keys())
