"""Generic CSV: a header with our field names, or any names with `--map column=field`.

See `generic` for the fields. The separator (comma, semicolon, tab or |) is detected from the header. Files written by
`queuewise workload convert` start with a comment line that stores the name and the epoch.
"""

from __future__ import annotations

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers import generic
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import SEPARATORS, batches, read_header
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "generic CSV with our field names, or with --map column=field"

COMMENT = "#"


def sniff(head: FileHead) -> bool:
    lines = [line for line in head.lines if not line.startswith(COMMENT)]
    return bool(lines) and any(generic.enough(_names(lines[0], separator)) for separator in SEPARATORS)


def read(request: ReadRequest) -> Loaded:
    head = read_head(request.path)
    lines = [line for line in head.lines if not line.startswith(COMMENT)]
    separator = max(SEPARATORS, key=(lines or [""])[0].count)
    names = read_header(head, separator, COMMENT)
    fields = generic.mapping(names, request)
    collect = Collector(request, "csv", partitions=True)
    dated = False
    for batch in batches(request.path, collect.tally, separator=separator, comment=COMMENT):
        dated |= generic.add(batch, fields, collect)
    stored = generic.stored(next((line for line in head.lines if line.startswith(COMMENT)), ""))
    return generic.finish(collect, stored, dated)


def _names(line: str, separator: str) -> set[str]:
    return {name.strip().strip('"') for name in line.split(separator)}
