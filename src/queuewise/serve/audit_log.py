"""The audit log: every decision with its snapshot, one line of JSON each, from which it can be replayed exactly.

Only appended to, written through to the disk before anything is done, and rotated by size. A line that could not be written as a whole
is taken back, so that a full disk leaves a log that can be read; what a killed program has left of a line is ended before the next one.
Programs that share a log write one after another.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from queuewise.errors import InputError
from queuewise.policies.snapshot import Snapshot
from queuewise.regular_files import check_regular
from queuewise.runs import create_folder
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.live_guard import GuardLimits, LiveGuard
from queuewise.serve.live_policy import LivePolicy, load_policy
from queuewise.serve.policy_digest import digest_of

VERSION = 1
ROTATE_BYTES = 64 * 2**20
KEPT = 8  # older files
BEGINNING = b'{"version": '  # of every line
DECISION_FIELDS: dict[str, tuple[type, ...]] = {  # of entries with a snapshot
    "policy": (str,), "decision": (dict,), "max_wait": (str, NoneType), "fairness_floor": (int, float, NoneType),
    "forecast_policy": (str, NoneType),
}  # fmt: skip


class AuditLog:
    """Appends lines to a file. `write` raises an OSError if a line cannot be kept, and then has left no part of it."""

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, kept: int = KEPT) -> None:
        self.path, self._rotate_bytes, self._kept = path, rotate_bytes, kept
        check_regular(path)
        create_folder(path.parent)

    def check(self) -> None:
        """Raise an InputError if nothing can be written there."""
        try:
            with self._locked():
                os.close(os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._keep_names()
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(self.path), hint="check the folder") from None

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
        is_new = not self.path.exists()
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
                if is_new:
                    self._keep_names()
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
        self._keep_names()

    def _keep_names(self) -> None:
        """Write the names of new and renamed files through to the disk: they are the folder's."""
        number = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def decision_entry(answer: Answer, snapshot: Any, policy: GuardedPolicy, *, mode: str, **others: Any) -> dict[str, Any]:
    """What an entry says of a decision. `snapshot` is one, or what a JSON object holds."""
    plain = asdict(snapshot) if isinstance(snapshot, Snapshot) else snapshot
    return {
        "time": time.time(), "mode": mode, "policy": answer.policy, "digest": policy.digests[answer.policy],
        "max_wait": policy.max_wait,
        "outcome": answer.outcome, "problem": answer.problem, "decision": answer.decided.as_json(), **others, "snapshot": plain,
    }  # fmt: skip


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log, the oldest first, with those of the files that it was rotated to. Lines that a killed program has left
    unfinished are skipped."""
    older = [other for other in path.parent.glob(f"{path.name}.*") if other.name.removeprefix(f"{path.name}.").isdecimal()]
    for other in sorted(older, key=lambda other: -int(other.name.rpartition(".")[2])):
        yield from _read_file(other)
    if path.exists() or not older:
        yield from _read_file(path)


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
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
                if "snapshot" in entry:
                    _check_decision(entry, f"{path}:{number}")
                yield entry
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None


def _check_decision(entry: dict[str, Any], where: str) -> None:
    """Raise an InputError if an entry cannot be decided again, whatever its snapshot is."""
    for name, known in DECISION_FIELDS.items():
        if not isinstance(entry.get(name), known):
            found = f"{entry[name]!r:.60}" if name in entry else "missing"
            raise InputError(f"is no entry of an audit log: {name} is {found}", where=where, hint="check the file")
    floor = entry.get("fairness_floor")
    if floor is not None and not 0 <= floor < 1:
        raise InputError(f"is no entry of an audit log: fairness_floor is {floor!r:.60}", where=where, hint="check the file")


@dataclass(frozen=True)
class Replayed:
    """An entry, and what its policy decides now: the decision, and whatever else of it the entry has."""

    number: int  # from 1
    entry: dict[str, Any]
    again: dict[str, Any]

    @property
    def differs(self) -> list[str]:
        """The names of what is not the same."""
        return [name for name, value in self.again.items() if self.entry.get(name) != value]

    @property
    def same(self) -> bool:
        return not self.differs


def replay_audit(path: Path, only: int | None = None, *, run_files: bool = False) -> Iterator[Replayed]:
    """Decide all entries again (or one of them), each from its snapshot by the policy that answered.

    Python files that the log names are run only with `run_files`.
    """
    policies: dict[tuple[str, str | None], LivePolicy] = {}
    for number, entry in enumerate(read_audit(path), 1):
        if "snapshot" not in entry or (only is not None and number != only):
            continue
        snapshot = Snapshot.from_json(json.dumps(entry["snapshot"]), where=f"{path}:{number}")

        def policy(name: str, max_wait: str | None = entry.get("max_wait")) -> LivePolicy:
            if (name, max_wait) not in policies:
                if ".py" in name and not run_files:
                    raise InputError(f"the log names a program, {name}", where=str(path), hint="if it is yours, add --run-files")
                policies[name, max_wait] = load_policy(name, max_wait=max_wait)
            return policies[name, max_wait]

        yield Replayed(number, entry, _again(entry, snapshot, policy))


def _again(entry: dict[str, Any], snapshot: Snapshot, policy: Callable[[str], LivePolicy]) -> dict[str, Any]:
    decided = policy(entry["policy"]).decide(snapshot)
    again: dict[str, Any] = {"decision": json.loads(json.dumps(decided.as_json()))}
    if "digest" in entry:
        again["digest"] = digest_of(entry["policy"])
    limits = GuardLimits(fairness_floor=entry["fairness_floor"]) if entry.get("fairness_floor") is not None else None
    guard = None if limits is None else LiveGuard(entry["policy"], entry["policy"], limits)
    if "held_back" in entry:
        unfair = [] if guard is None else guard.fair_starts(decided.starts, snapshot)[1]
        again["held_back"] = [one.job_id for one in unfair]
    if entry.get("forecast_policy"):
        forecast = policy(entry["forecast_policy"]).forecast(snapshot)
        again["order"] = list(forecast.order if guard is None else guard.fair_order(forecast.order, snapshot))
        again["expected_starts"] = {str(job_id): at for job_id, at in forecast.starts.items()}
    return again
