"""Errors suggest what the user most likely meant."""

from __future__ import annotations

import pytest

from queuewise.errors import InputError, nearest, unknown_name

ORDERS = ("fcfs", "lcfs", "sjf", "ljf", "srf", "lrf", "smallest", "largest", "wfp3", "unicep", "f1", "f2", "conservative", "none", "easy")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sfj", "sjf"),  # a swap is one slip, not two
        ("fcsf", "fcfs"),
        ("SJF", "sjf"),
        ("cons", "conservative"),
        ("conservativ", "conservative"),
        ("wfp", "wfp3"),
        ("unicef", "unicep"),
        ("larges", "largest"),
        ("esay", "easy"),
    ],
)
def test_the_nearest_name_is_what_was_meant(typed: str, meant: str) -> None:
    assert nearest(typed, ORDERS) == meant


@pytest.mark.parametrize("typed", ["", "qqqq", "tiresias", "xyz"])
def test_nothing_is_suggested_for_what_resembles_nothing(typed: str) -> None:
    assert nearest(typed, ORDERS) is None
    assert nearest(typed, ()) is None


def test_unknown_names_are_answered_with_all_known_ones() -> None:
    error = unknown_name("order", "sfj", ("srf", "sjf"))
    assert isinstance(error, InputError)
    assert str(error) == "unknown order 'sfj' (hint: did you mean 'sjf'? known: sjf, srf)"
    assert "did you mean" not in str(unknown_name("order", "qqqq", ORDERS))
