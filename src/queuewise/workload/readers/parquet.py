"""Generic Parquet: columns with our field names, or any names with `--map column=field`. See `generic`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.pipes import as_file
from queuewise.workload.readers import generic
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.source import FileHead, one_line, read_head

SUMMARY = "generic Parquet with our field names, or with --map column=field"

_MAGIC = b"PAR1"
_SLICE_ROWS = 1_000_000


def sniff(head: FileHead) -> bool:
    return head.start.startswith(_MAGIC)


def read(request: ReadRequest) -> Loaded:
    if not sniff(read_head(request.path)):
        raise InputError("not a Parquet file", where=str(request.path), hint="Parquet files start with PAR1; is this the right --format?")
    collect = Collector(request, "parquet", partitions=True)
    dated = False
    try:
        with _without_panic_messages():
            scan = pl.scan_parquet(as_file(request.path))
            names = scan.collect_schema().names()
            fields = generic.mapping(names, request)
            stored = generic.stored(pl.read_parquet_metadata(as_file(request.path)).get(generic.METADATA, ""))
            total = scan.select(pl.len()).collect().item()
            for offset in range(0, total, _SLICE_ROWS):
                batch = scan.select(*fields.values()).slice(offset, _SLICE_ROWS).collect()
                dated |= generic.add(batch, fields, collect)
    except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as error:
        raise InputError(f"damaged Parquet: {one_line(error)}", where=str(request.path), hint="create the file again") from None
    return generic.finish(collect, stored, dated)


@contextmanager
def _without_panic_messages() -> Iterator[None]:
    """Hide the messages that Polars prints to file descriptor 2 before it raises an exception for a damaged file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
