"""The supported log formats. To add one, add a file here and a line to `READERS`.

A reader module defines `SUMMARY`, `sniff(head) -> bool` and `read(request) -> Loaded`, and is imported when needed. It may also define
`HEADERS` (header lines that identify the format), `MACHINE_LISTS` (those of its machine lists) and `MORE_FILES` (how many additional files
of a log it supports, 0 by default). Formats are tried in this order, so those that are easiest to identify come first.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, cast

from queuewise.errors import InputError, unknown_name
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.source import FileHead

READERS: tuple[str, ...] = (
    "parquet", "slurm", "lsf", "philly", "google2019", "supercloud", "eagle", "acme", "helios", "openb", "pai", "spot", "drl", "drl_google",
    "alibaba2018", "alibaba2017", "google2011", "rltune", "swf", "csv",
)  # fmt: skip


class Reader(Protocol):
    SUMMARY: str

    def sniff(self, head: FileHead) -> bool: ...
    def read(self, request: ReadRequest) -> Loaded: ...


def reader(name: str) -> Reader:
    if name not in READERS:
        raise unknown_name("format", name, READERS)
    return cast(Reader, importlib.import_module(f"{__name__}.{name}"))


def more_files(name: str) -> int:
    """How many additional files of the same log a format supports."""
    number: int = getattr(reader(name), "MORE_FILES", 0)
    return number


def detect(head: FileHead) -> str:
    """The first format that recognises the start of the file."""
    if not head.start.strip():
        raise InputError("the file is empty", where=str(head.path), hint="is this the right file?")
    for name in READERS:
        if reader(name).sniff(head):
            return name
    from queuewise.workload.readers.unrecognised import explain

    raise explain(head, READERS, _declared("HEADERS"), _declared("MACHINE_LISTS"))


def _declared(what: str) -> dict[str, Sequence[Sequence[str]]]:
    return {name: found for name in READERS if (found := getattr(reader(name), what, None))}
