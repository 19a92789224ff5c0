"""Dates in files of conditions, as seconds on the clock of a log. One without a zone is on the log's own calendar, which counts as UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from queuewise.config import line_of
from queuewise.errors import InputError

TIMES = ("start", "end")  # keys whose values may be dates


def dates_on_clock(tables: Mapping[str, Any], epoch: float, path: Path, text: str) -> dict[str, Any]:
    """The tables of a file with seconds in place of dates. `epoch` is the Unix time of the log's second 0, 0 if it is unknown."""
    result = dict(tables)
    for key, entries in tables.items():
        if isinstance(entries, list):
            result[key] = [_entry(entry, epoch, path, text, (key, number)) for number, entry in enumerate(entries)]
    return result


def _entry(entry: Any, epoch: float, path: Path, text: str, location: tuple[str, int]) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    changed = dict(entry)
    for key in TIMES:
        moment = _moment(entry.get(key))
        if moment is None:
            continue
        if not epoch:
            raise InputError(
                f"{key} is a date, but the dates of the log are unknown",
                where=f"{path}:{line_of(text, (*location, key))}",
                hint="write seconds on the log's clock, or use a log with dates",
            )
        changed[key] = moment.timestamp() - epoch
    return changed


def _moment(value: Any) -> datetime | None:
    """A date of TOML or a text that is one; None for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
