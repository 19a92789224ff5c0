"""The audit log: every decision with its snapshot, one line of JSON each, from which it can be replayed exactly.

Only appended to, written through to the disk before anything is done, and rotated by size. A line that could not be written as a whole
is taken back, so that a full disk leaves a log that can be read; what a killed program has left of a line is ended before the next one.
Programs that share a log write one after another.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuewise.errors import InputError
from queuewise.policies.snapshot import Snapshot
from queuewise.regular_files import check_regular
from queuewise.runs import create_folder
from queuewise.serve.live_policy import load_policy

VERSION = 1
ROTATE_BYTES = 64 * 2**20
KEPT = 8  # older files
BEGINNING = b'{"version": '  # of every line


class AuditLog:
    """Appends lines to a file. `write` raises an OSError if a line cannot be kept, and then has left no part of it."""

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, kept: int = KEPT) -> None:
        self.path, self._rotate_bytes, self._kept = path, rotate_bytes, kept
        check_regular(path)
        create_folder(path.parent)

    def write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps({"version": VERSION, **entry}, allow_nan=False).encode() + b"\n"
        with self._locked():
            if self._size() + len(line) > self._rotate_bytes:
                self._rotate()
            self._append(line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        number = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def _append(self, line: bytes) -> None:
        number = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = os.fstat(number).st_size
            if before and os.pread(number, 1, before - 1) != b"\n":
                line = b"\n" + line
            try:
                written = 0
                while written < len(line):
                    written += os.write(number, line[written:])
                os.fsync(number)
            except OSError:
                os.ftruncate(number, before)
                raise
        finally:
            os.close(number)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _rotate(self) -> None:
        if not self._size():
            return
        for number in range(self._kept, 0, -1):
            older = self._numbered(number)
            if older.exists():
                if number == self._kept:
                    older.unlink()
                else:
                    older.rename(self._numbered(number + 1))
        self.path.rename(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log, the oldest first. Lines that a killed program has left unfinished are skipped."""
    check_regular(path)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    if line.startswith(BEGINNING) or BEGINNING.startswith(line.strip()):
                        continue
                    raise InputError("is not an entry of an audit log", where=f"{path}:{number}", hint="check the file") from None
                if not isinstance(entry, dict) or entry.get("version") != VERSION:
                    raise InputError("is no entry of an audit log of this version", where=f"{path}:{number}", hint="check the file")
                yield entry
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None


@dataclass(frozen=True)
class Replayed:
    """An entry, and what its policy decides now."""

    number: int  # from 1
    entry: dict[str, Any]
    again: dict[str, Any]

    @property
    def same(self) -> bool:
        return bool(self.entry["decision"] == self.again)


def replay_audit(path: Path, only: int | None = None) -> Iterator[Replayed]:
    """Decide all entries again (or one of them), each from its snapshot by the policy that answered."""
    policies: dict[tuple[str, str | None], Any] = {}
    for number, entry in enumerate(read_audit(path), 1):
        if "snapshot" not in entry or (only is not None and number != only):
            continue
        key = entry["policy"], entry.get("max_wait")
        if key not in policies:
            policies[key] = load_policy(key[0], max_wait=key[1])
        snapshot = Snapshot.from_json(json.dumps(entry["snapshot"]), where=f"{path}:{number}")
        yield Replayed(number, entry, policies[key].decide(snapshot).as_json())
