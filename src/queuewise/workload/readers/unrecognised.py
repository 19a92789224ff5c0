"""The error for a file that no reader recognises, with the most similar format and what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from queuewise.errors import InputError
from queuewise.workload.readers.delimited import SEPARATORS
from queuewise.workload.readers.source import FileHead, shown

Headers = Mapping[str, Sequence[Sequence[str]]]  # format -> headers that identify it

SACCT_FIELDS = "JobID,User,Account,Partition,State,Submit,Eligible,Start,End,Timelimit,NNodes,AllocTRES,NodeList"
SACCT_TIMES = ("Submit", "Start", "End")  # without them, a list cannot be read
_LEAST_SHARE = 0.5  # of a format's columns, for a header to resemble it
_COLUMN_NAME = re.compile(r"[^\W\d][\w .()/%-]*")


def explain(head: FileHead, formats: Sequence[str], headers: Headers, machine_lists: Headers) -> InputError:
    where = f"{head.path}:1"
    if b"\0" in head.start:
        return InputError("binary data, not text", where=where, hint="is this the right file?")
    found, separator = _columns(head.first)
    for name, lists in machine_lists.items():
        if any(set(columns) <= set(found) for columns in lists):
            hint = "use the log of jobs as the workload, and add this file with --tables"
            return InputError(f"this is a machine list of {name}, not a list of jobs", where=where, hint=hint)
    return (
        _incomplete_sacct(found, separator, where)
        or _resembling(found, separator, headers, where)
        or _table(found, where)
        or InputError(f"unknown format; the file starts with {shown(head.first[:60])!r}", where=where, hint=f"known: {', '.join(formats)}")
    )


def _columns(line: str) -> tuple[list[str], str]:
    separator = max(SEPARATORS, key=line.count)
    return [name.strip().strip('"') for name in line.split(separator)], separator


def _incomplete_sacct(found: Sequence[str], separator: str, where: str) -> InputError | None:
    if separator != "|" or not found[0].lower().startswith("jobid"):
        return None
    known = {column.lower() for column in found}
    missing = " and ".join(name for name in SACCT_TIMES if name.lower() not in known) or "a column"
    text = f"this looks like the output of sacct without {missing}; found: {shown(', '.join(found))}"
    return InputError(text, where=where, hint=f"run sacct --allusers --parsable2 --format {SACCT_FIELDS}")


def _resembling(found: Sequence[str], separator: str, headers: Headers, where: str) -> InputError | None:
    folded = {name.lower() for name in found}
    share, name, missing = max(
        (1 - len(missing) / len(columns), name, missing)
        for name, known in headers.items()
        for columns in known
        for missing in [[column for column in columns if column.lower() not in folded]]
    )
    if share < _LEAST_SHARE or len(folded) < 2:
        return None
    if not missing:
        hint = f"fields are separated by {SEPARATORS[separator]}; change the separator to that of {name}"
        return InputError(f"this looks like {name} with another separator", where=where, hint=hint)
    text = f"this looks like {name}, but columns are missing: {', '.join(missing)}; found: {shown(', '.join(found))}"
    return InputError(text, where=where, hint=_MAP_HINT)


def _table(found: Sequence[str], where: str) -> InputError | None:
    """The error for a table with unknown column names."""
    if len(found) < 2 or not all(_COLUMN_NAME.fullmatch(name) for name in found):
        return None
    text = f"unknown format; columns submit, runtime (or end) and num_tasks, gpus or cores are needed; found: {shown(', '.join(found))}"
    return InputError(text, where=where, hint=_MAP_HINT)


_MAP_HINT = "map the columns: --map COLUMN=submit COLUMN=runtime COLUMN=gpus"
