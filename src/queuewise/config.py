"""Typed settings: frozen pydantic models, read from TOML and written back resolved.

Every settings class derives from `Config`. An unknown key is rejected with a suggestion, and an invalid value is reported with its file
and key. `to_toml` writes what `read_toml` reads.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from queuewise.errors import InputError, did_you_mean
from queuewise.regular_files import check_regular


class Config(BaseModel):
    """Base class of all settings: immutable, and unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=False)


_HEADING = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")

Settings = TypeVar("Settings", bound=Config)


def read_toml(path: Path, model: type[Settings], prepare: Callable[..., dict[str, Any]] | None = None) -> Settings:
    """The settings in a TOML file. `prepare(tables, path=…, text=…)` may change what is read before it is checked."""
    text = _read(path)
    tables = _parse(text, path)
    return validate(model, tables if prepare is None else prepare(tables, path=path, text=text), source=str(path), text=text)


def parse_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data. Raises an InputError with file and line."""
    return _parse(_read(path), path)


def line_of(text: str, location: Sequence[int | str]) -> int:
    """The line of a location such as ("nodes", 1, "kind") in TOML text, or of the innermost table around it if it is not written out."""
    wanted, line, depth = tuple(location), 1, 0
    table: tuple[int | str, ...] = ()
    entries: dict[str, int] = {}  # [[name]] tables seen so far
    for number, written in enumerate(text.splitlines(), 1):
        if heading := _HEADING.match(written):
            name = heading[2].strip()
            table = tuple(part.strip().strip("\"'") for part in name.split("."))
            if heading[1] == "[[":
                entries[name] = entries.get(name, -1) + 1
                table = (*table, entries[name])
            here = table
        elif key := _KEY.match(written):
            here = (*table, *(part.strip().strip("\"'") for part in key[1].split(".")))
        else:
            continue
        if here == wanted[: len(here)] and len(here) > depth:
            line, depth = number, len(here)
    return line


def _read(path: Path) -> str:
    try:
        check_regular(path)
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), hint="check the path") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path and its permissions") from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start})", where=str(path), hint="save the file as UTF-8") from None
    except ValueError as error:  # a null character in the name
        raise InputError(f"cannot be read: {error}", where=str(path), hint="check the path") from None


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
        repr(data)  # a hexadecimal number, or a table by a dotted name, may be more than Python can show when it is refused
        return data
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else len(text.splitlines())  # without a number the parser means the end of the document
        raise InputError(f"is not valid TOML: {error}", where=f"{path}:{line}", hint="check the syntax of this line") from None
    except RecursionError:
        raise InputError("lists or tables are nested too deeply", where=str(path), hint="this is not a file of settings") from None
    except ValueError:  # Python reads and shows no number of more than 4300 digits
        raise InputError("a number has too many digits", where=str(path), hint="shorten it") from None


def validate(model: type[Settings], data: Mapping[str, Any], *, source: str, text: str | None = None) -> Settings:
    """Validate plain data. Errors name `source`, and the line if the TOML `text` is given."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        where = source if text is None else f"{source}:{line_of(text, error.errors(include_url=False)[0]['loc'])}"
        raise _explain(error, model, where) from None


def to_toml(data: Config | Mapping[str, Any]) -> str:
    """Settings or plain data as TOML: scalars and lists first, then tables, then arrays of tables. None values are omitted."""
    plain = data.model_dump(mode="python") if isinstance(data, Config) else data
    return "\n".join(_table_lines(plain, ())).strip() + "\n"


KINDS_OF_VALUES = ("constrained-int", "constrained-str", "int", "str")  # which pydantic puts into places where there is a choice of types


def _explain(error: ValidationError, model: type[BaseModel], source: str) -> InputError:
    """The first problem, with its file and key."""
    first, more = error.errors(include_url=False)[0], error.error_count() - 1
    location = tuple(part for part in first["loc"] if part not in KINDS_OF_VALUES)
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".") or "file"
    rest = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden":
        valid = _keys_at(model, location[:-1])
        return InputError(
            f"unknown key {key}{rest}", where=source, hint=f"{did_you_mean(str(location[-1]), valid)}known: {', '.join(valid)}"
        )
    if first["type"] == "missing":
        return InputError(f"{key} is missing{rest}", where=source, hint=f"add {location[-1]} = …")
    value = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"  # of a table, the key says enough
    return InputError(f"{key}{value}: {in_plain_words(first['msg'])}{rest}", where=source, hint="correct this value")


_PLAIN_WORDS = (  # what pydantic says -> what we say
    (r"^Value error, ", ""),
    (r"^Assertion failed, ", ""),
    (r"^Input should be ", "must be "),
    (r"greater than or equal to", "at least"),
    (r"greater than", "above"),
    (r"less than or equal to", "at most"),
    (r"less than", "below"),
    (r"a valid integer.*", "a whole number"),
    (r"a valid number.*", "a number"),
    (r"a valid string.*", "text"),
    (r"a valid boolean.*", "true or false"),
    (r"a valid (dictionary|mapping).*", "a table"),
    (r"a valid (tuple|list|array|set).*", "a list"),
    (r"^Tuple should have at least (\d+) items? .*", r"must have at least \1 entries"),
    (r"^String should have at least \d+ characters?.*", "must not be empty"),
    (r"^Field required.*", "missing"),
    (r"^Unexpected keyword argument.*", "no known field"),
    (r"a dictionary or an instance of \w+", "a table"),
)


def in_plain_words(text: str) -> str:
    """What is wrong with a value, in the words of this project."""
    for pattern, words in _PLAIN_WORDS:
        text = re.sub(pattern, words, text)
    return text[:1].lower() + text[1:]


def _keys_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The valid keys of the (nested) model at a location in the data."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            nested = _model_in(model.model_fields[part].annotation)
            if nested is None:
                return []
            model = nested
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model class in an annotation such as tuple[Model, ...] or Model | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in getattr(annotation, "__args__", ()) if (found := _model_in(inner))), None)


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        if value is not None and not isinstance(value, Mapping) and not _is_table_list(value):
            lines.append(f"{_key(key)} = {_literal(value)}")
    for key, value in table.items():
        heading = ".".join(_key(part) for part in (*path, key))
        if isinstance(value, Mapping):
            lines += ["", f"[{heading}]", *_table_lines(value, (*path, key))]
        elif _is_table_list(value):
            for entry in value:
                lines += ["", f"[[{heading}]]", *_table_lines(entry, (*path, key))]
    return lines


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # inf and nan are valid TOML, too
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(entry) for entry in value) + "]"
    return '"' + "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in str(value)) + '"'


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
