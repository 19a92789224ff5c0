"""Reads delimited text into Polars tables block by block, so that memory use does not grow with the file.

Every batch has the columns of the file as text (or as numbers, if the reader requests it), `line` (the line in the file) and `skip` (the
reason to skip the row, or null). A malformed row does not affect other rows.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.loaded import Tally
from queuewise.workload.readers.source import FileHead, blocks, read_head, shown

_OVERFLOW = "__more__"  # an extra column that only rows with too many fields reach
_NOT_UTF8 = "not UTF-8 from line"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}

TOO_MANY = "too many fields"
REPEATED_HEADER = "repeated header line"


def batches(
    path: Path,
    tally: Tally,
    *,
    columns: Sequence[str] | None = None,
    required: Sequence[str] = (),
    separator: str = ",",
    comment: str = "",
    quoted: bool = True,
    fold_case: bool = False,
    numbers: Mapping[str, type[pl.DataType]] | None = None,
    prepare: Callable[[bytes], bytes] | None = None,
) -> Iterator[pl.DataFrame]:
    """The rows of `path` as tables. Without `columns`, the first line that is not a comment is the header.

    `required` columns must be in the header. `fold_case` converts its names to lower case. With `quoted`, fields may be in quotes.
    `numbers` are columns to parse as numbers; anything else in them becomes null. `prepare` rewrites each block before parsing and must
    keep its lines.
    """
    header = columns is None
    names = list(columns) if columns is not None else read_header(read_head(path), separator, comment, required, fold_case)
    for first_line, block in blocks(path):
        text = _readable(block, path, first_line, tally)
        frame = _parse(prepare(text) if prepare else text, names, separator, quoted, numbers or {})
        frame = frame.with_row_index("line", offset=first_line)
        rows = pl.any_horizontal(pl.col(*names, _OVERFLOW).is_not_null())
        if comment:
            rows &= ~pl.col(names[0]).cast(pl.String).str.starts_with(comment).fill_null(False)
        frame = frame.filter(rows)
        again = pl.all_horizontal(pl.col(name).cast(pl.String).str.to_lowercase() == name.lower() for name in (names[0], names[-1]))
        if header and first_line == 1:
            frame, header = frame.slice(1), False
        skip = pl.when(pl.col(_OVERFLOW).is_not_null()).then(pl.lit(TOO_MANY)).when(again).then(pl.lit(REPEATED_HEADER))
        yield frame.with_columns(skip.otherwise(None).alias("skip")).drop(_OVERFLOW)


def read_header(
    head: FileHead, separator: str = ",", comment: str = "", required: Sequence[str] = (), fold_case: bool = False
) -> list[str]:
    """The column names in the first line that is not a comment."""
    lines = [line for line in head.lines if not (comment and line.startswith(comment))]
    if not lines:
        raise InputError("the file is empty", where=str(head.path), hint="expected a header line and one row per job")
    names = [name.strip().lower() if fold_case else name.strip() for name in _split(lines[0], separator)]
    missing = [name for name in required if name not in names]
    if missing:
        found = shown(", ".join(names))
        hint = _other_separator(lines[0], separator, required) or "is this the right --format?"
        raise InputError(f"missing columns: {', '.join(missing)}; found: {found}", where=f"{head.path}:1", hint=hint)
    unnamed = [name or f"column_{index + 1}" for index, name in enumerate(names)]
    if len(set(unnamed)) < len(unnamed) or {"line", "skip", _OVERFLOW} & set(unnamed):
        raise InputError("two columns have the same name, or one is named line or skip", where=f"{head.path}:1", hint="rename them")
    return unnamed


def _other_separator(line: str, separator: str, required: Sequence[str]) -> str:
    for other, name in SEPARATORS.items():
        if other != separator and set(required) <= {field.strip() for field in line.split(other)}:
            return f"fields are separated by {name}, expected {SEPARATORS.get(separator, separator)}"
    return ""


def _readable(block: bytes, path: Path, first_line: int, tally: Tally) -> bytes:
    """The block as valid UTF-8. Raises an error for binary data; bytes of other encodings are replaced and noted."""
    if b"\0" in block:
        line = first_line + block[: block.index(b"\0")].count(b"\n")
        raise InputError("binary data, not text", where=f"{path}:{line}", hint="is this the right file?")
    if block.isascii():
        return block
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + block[: error.start].count(b"\n")
        if not any(note.startswith(_NOT_UTF8) for note in tally.notes):
            tally.note(f"{_NOT_UTF8} {line}: invalid characters were replaced")
        return block.decode("utf-8", errors="replace").encode()
    return block


def _split(line: str, separator: str, quoted: bool = True) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE), [])
    except csv.Error:
        return line.split(separator)


def _parse(text: bytes, names: list[str], separator: str, quoted: bool, numbers: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """One row per line. The first line passed to Polars is a dummy that sets the number of columns to len(names) + 1."""
    schema: dict[str, type[pl.DataType]] = {name: numbers.get(name, pl.String) for name in names} | {_OVERFLOW: pl.String}
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    dummy = separator.encode() * len(names) + b"\n"
    try:
        with warnings.catch_warnings():  # Polars warns about broken quotes, which the row count below detects as well
            warnings.simplefilter("ignore")
            frame = pl.read_csv(
                io.BytesIO(dummy + text), has_header=False, schema=schema, separator=separator, truncate_ragged_lines=True,
                quote_char='"' if quoted and b'"' in text else None, ignore_errors=bool(numbers),
            ).slice(1)  # fmt: skip
        if frame.height == lines:
            return frame
    except pl.exceptions.PolarsError:
        pass
    return _parse_slowly(text, lines, schema, separator, quoted)


def _parse_slowly(text: bytes, lines: int, schema: dict[str, type[pl.DataType]], separator: str, quoted: bool) -> pl.DataFrame:
    """Parse each line separately, for blocks with broken quotes, with which Polars fails or joins lines."""
    rows = []
    for line in text.decode("utf-8").split("\n")[:lines]:
        padded = [field or None for field in _split(line, separator, quoted)[: len(schema)]]
        rows.append(padded + [None] * (len(schema) - len(padded)))
    frame = pl.DataFrame(rows, schema=dict.fromkeys(schema, pl.String), orient="row")
    return frame.cast({name: kind for name, kind in schema.items() if kind != pl.String}, strict=False)
