"""Settings survive the way to TOML and back, and mistakes in them are named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from queuewise.config import Config, parse_toml, read_toml, to_toml, validate
from queuewise.errors import InputError


class Inner(Config):
    depth: int = 1
    label: str = ""


class Outer(Config):
    rate: float = 0.5
    names: tuple[str, ...] = ()
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    maybe: str | None = None


def test_settings_round_trip_through_a_file(tmp_path: Path) -> None:
    settings = Outer(
        rate=float("inf"), names=("a b", 'quote " and \\'), inner=Inner(depth=3), many=(Inner(label="ü\n\x00"), Inner(depth=2))
    )
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(settings), encoding="utf-8")
    assert read_toml(path, Outer) == settings


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"]))
keys = st.text(st.characters(exclude_categories=["Cs"]))
tables = st.recursive(
    st.dictionaries(keys, scalars | st.lists(scalars), max_size=4),
    lambda inner: st.dictionaries(keys, scalars | inner | st.lists(inner, min_size=1, max_size=3), max_size=4),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(tables)
def test_any_plain_table_round_trips(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_none_is_left_out() -> None:
    assert "maybe" not in tomllib.loads(to_toml(Outer()))


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Outer().rate = 1.0


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"rat": 1}, "unknown key rat", "did you mean 'rate'? known: inner, many, maybe, names, rate"),
        ({"inner": {"dept": 1}}, "unknown key inner.dept", "did you mean 'depth'? known: depth, label"),
        ({"many": [{}, {"lable": "x"}]}, "unknown key many[1].lable", "did you mean 'label'? known: depth, label"),
        (
            {"rate": "fast", "names": 3},
            "rate = 'fast': must be a number (and 1 more)",
            "correct this value",
        ),
    ],
)
def test_mistakes_are_named_by_key(data: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(Outer, data, source="here")
    assert (caught.value.message, caught.value.hint, caught.value.where) == (message, hint, "here")


@pytest.mark.parametrize(
    ("text", "message"),
    [(f"size = 0x{'f' * 20_000}", "too many digits"), (f"size = {'9' * 5_000}", "too many digits"), (f"a{'.b' * 3_000} = 1", "too deeply")],
    ids=["hexadecimal", "decimal", "dotted"],
)
def test_what_could_not_be_shown_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        parse_toml(path)
