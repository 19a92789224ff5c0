"""Reads files: decompression by content, the head for format detection, and blocks of whole lines.

Problems with the file itself (missing, a folder, truncated, not text) raise an `InputError` here.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from queuewise.errors import InputError, nearest
from queuewise.memory import check_memory
from queuewise.plain_text import printable
from queuewise.workload.pipes import as_file
from queuewise.workload.readers.zstandard_frames import unpacked_size

BLOCK_BYTES = 1 << 25
STEP_BYTES = 1 << 17
HEAD_BYTES = 1 << 16
LONGEST_LINE = 1 << 26  # bytes
DOCUMENT_FACTOR = 8  # memory that a document needs, relative to its size
ZSTD_FACTOR = 20  # the same, of a file that Polars unpacks: 16 bytes per line, which may be empty, and copies
LINES_AT_ONCE = 1 << 20
_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError, OSError)


@dataclass(frozen=True)
class FileHead:
    """The start of a file, decompressed, for format detection."""

    path: Path
    start: bytes

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Complete lines that are not blank. The last line, which may be truncated, is omitted unless it is the only one."""
        pieces = self.start.decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")
        whole = pieces[:-1] if len(self.start) >= HEAD_BYTES and len(pieces) > 1 else pieces
        return tuple(line for line in whole if line.strip())

    @property
    def first(self) -> str:
        return self.lines[0] if self.lines else ""

    def has_columns(self, *names: str, separator: str = ",") -> bool:
        """Whether the first line is a header with all these columns."""
        return set(names) <= {field.strip().strip('"') for field in self.first.split(separator)}


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The decompressed content. The compression is detected by the first bytes, not by the file name."""
    with ExitStack() as stack:
        raw: BinaryIO = stack.enter_context(_open_raw(path))
        magic = raw.read(6)
        raw.seek(0)
        stream = raw
        if magic.startswith(_ZSTD):
            stream = _open_zstd(path)
        elif magic.startswith(_GZIP):
            stream = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=raw)))
        elif magic.startswith(_BZIP2):
            stream = cast(BinaryIO, stack.enter_context(bz2.BZ2File(raw)))
        elif magic.startswith(_XZ):
            stream = cast(BinaryIO, stack.enter_context(lzma.LZMAFile(raw)))
        yield _first_of_archive(path, stream)


def _open_raw(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise InputError("is a folder", where=str(path), hint="use the file of jobs in it, and add other tables with --tables")
        return as_file(path).open("rb")
    except FileNotFoundError:
        beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, beside, least=0.75)
        raise InputError("no such file", where=str(path), hint=f"did you mean {near!r}?" if near else "check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be opened: {one_line(error)}", where=str(path), hint="check the path and its permissions") from None


def _first_of_archive(path: Path, stream: BinaryIO) -> BinaryIO:
    """The first file in a tar archive, because some published tables are packed one by one. Anything else is unchanged."""
    try:
        start = stream.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
        stream.seek(0)
        if start[_TAR_MAGIC_AT:] != _TAR_MAGIC:
            return stream
        archive = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 - uses only the stream, which the caller closes
        for member in archive:
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None:
                return cast(BinaryIO, opened)
    except _DAMAGED as error:
        raise _damaged(path, 1, error) from None
    raise InputError("the archive contains no file", where=str(path), hint="unpack it and use the table in it")


def _open_zstd(path: Path) -> BinaryIO:
    """Python 3.11 cannot decompress Zstandard, but Polars can. Reads the whole file into memory as a table with one column."""
    import polars as pl

    size = unpacked_size(as_file(path))
    check_memory(f"a file of up to {size >> 20:,} MiB", size * ZSTD_FACTOR, where=str(path), hint="unpack it with zstd -d, or split it")
    try:
        lines = pl.read_csv(
            as_file(path), has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String}, truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )  # fmt: skip
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"the Zstandard stream cannot be read: {one_line(error)}", where=str(path), hint="download the file again"
        ) from None
    pieces = (part["line"].fill_null("").str.join("\n").item().encode() for part in lines.iter_slices(LINES_AT_ONCE))
    return io.BytesIO(b"\n".join([*pieces, b""]))


def read_head(path: Path) -> FileHead:
    """The first bytes. Damage further down is detected later."""
    pieces: list[bytes] = []
    with open_bytes(path) as stream:
        try:
            while sum(len(piece) for piece in pieces) < HEAD_BYTES and (piece := stream.read(4096)):
                pieces.append(piece)
        except _DAMAGED as error:
            if not pieces:
                raise _damaged(path, 1, error) from None
    start = b"".join(pieces)
    if start.startswith(_UTF16_BOMS):
        raise InputError("this is UTF-16 text", where=f"{path}:1", hint="convert it with iconv -f UTF-16 -t UTF-8")
    return FileHead(path, start.removeprefix(_UTF8_BOM))


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of about BLOCK_BYTES as (number of the first line, whole lines), with \\n as line ends and no byte-order mark."""
    line, carry = 1, b""
    with open_bytes(path) as stream:
        while True:
            piece = _read_block(stream, path, line + carry.count(b"\n"))
            if line == 1 and not carry:
                piece = piece.removeprefix(_UTF8_BOM)
            text = carry + piece
            cut = len(text) if not piece else text.rfind(b"\n") + 1
            block, carry = text[:cut], text[cut:]
            if block:
                yield line, block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
                line += block.count(b"\n")
            if not piece:
                return
            if len(carry) > LONGEST_LINE:
                limit = f"{LONGEST_LINE >> 20} MiB, the limit"
                raise InputError(f"this line is longer than {limit}", where=f"{path}:{line}", hint="is this the right file?")


def _read_block(stream: BinaryIO, path: Path, line: int) -> bytes:
    """About BLOCK_BYTES, read in small steps, so that an error names a line close to the damage."""
    steps: list[bytes] = []
    try:
        while len(steps) * STEP_BYTES < BLOCK_BYTES and (step := stream.read(STEP_BYTES)):
            steps.append(step)
    except _DAMAGED as error:
        raise _damaged(path, line + sum(step.count(b"\n") for step in steps), error) from None
    return b"".join(steps)


def read_all(path: Path) -> bytes:
    """The whole content, for formats that consist of one document."""
    pieces: list[bytes] = []
    size, line = 0, 1
    with open_bytes(path) as stream:
        while piece := _read_block(stream, path, line):
            pieces.append(piece)
            size, line = size + len(piece), line + piece.count(b"\n")
            need = size * DOCUMENT_FACTOR
            check_memory(f"a document of more than {size >> 20:,} MiB", need, where=str(path), hint="split it, or use a format with lines")
    return b"".join(pieces).removeprefix(_UTF8_BOM).replace(b"\r\n", b"\n")


def shown(text: str, limit: int = 300) -> str:
    """A part of the input for a one-line message."""
    return printable(text[:limit])


def _damaged(path: Path, line: int, error: Exception) -> InputError:
    return InputError(f"the file is truncated or damaged: {one_line(error)}", where=f"{path}:{line}", hint="download or compress it again")


def one_line(error: Exception) -> str:
    return shown((str(error).splitlines() or [type(error).__name__])[0])
