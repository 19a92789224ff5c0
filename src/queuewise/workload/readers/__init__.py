"""The formats that can be read. Adding one is one file here and one line in `READERS`.

A reader module has `SUMMARY`, `sniff(head) -> bool` and `read(request) -> Loaded`, and is imported when it is needed. Formats
are tried in this order, so those with the most telling marks come first.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from queuewise.errors import InputError, unknown_name
from queuewise.workload.loaded import Loaded, Request
from queuewise.workload.readers.source import Head

READERS: tuple[str, ...] = (
    "parquet", "slurm", "lsf", "philly", "google2019", "supercloud", "eagle", "acme", "helios", "openb", "pai", "spot", "drl",
    "alibaba2018", "alibaba2017", "google2011", "rltune", "swf", "csv",
)  # fmt: skip


class Reader(Protocol):
    SUMMARY: str

    def sniff(self, head: Head) -> bool: ...
    def read(self, request: Request) -> Loaded: ...


def reader(name: str) -> Reader:
    if name not in READERS:
        raise unknown_name("format", name, READERS)
    return cast(Reader, importlib.import_module(f"{__name__}.{name}"))


def detect(head: Head) -> str:
    """The first format that recognises the beginning of the file."""
    if not head.start.strip():
        raise InputError("the file is empty", where=str(head.path), hint="is this the right file?")
    for name in READERS:
        if reader(name).sniff(head):
            return name
    raise InputError(
        f"no known format; it begins with {head.first[:60]!r}", where=f"{head.path}:1", hint=f"give --format; known: {', '.join(READERS)}"
    )
