"""Downloading files, with progress, resumption and verification.

A file gets its final name only when it is complete and its checksum, if known, is correct.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queuewise.errors import InputError
from queuewise.runs import create_folder
from queuewise.workload.catalog import TraceFile

CHUNK_BYTES = 1 << 18
TIMEOUT_S = 60
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416

Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if known


def fetch(file: TraceFile, folder: Path, progress: Progress = lambda done, total: None) -> Path:
    """The file in `folder`; downloaded if it is not there yet."""
    target = folder / file.name
    if target.exists():
        _verify(target, file)
        return target
    create_folder(folder)
    partial = target.with_name(target.name + ".part")
    try:
        _receive(file, partial, progress)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        kept = partial.stat().st_size if partial.exists() else 0
        hint = (
            f"{kept} bytes were kept; run the command again to continue" if kept else "check the connection, or download the file manually"
        )
        raise InputError(f"download failed: {error}", where=file.address, hint=hint) from None
    _verify(partial, file)
    partial.replace(target)
    return target


def _receive(file: TraceFile, partial: Path, progress: Progress) -> None:
    """Append to a partial file, or start again if the server does not support it."""
    done = partial.stat().st_size if partial.exists() else 0
    if done and (done == file.size_bytes or (file.sha256 and _sha256(partial) == file.sha256)):
        return  # already complete, only not renamed yet
    with _open(file.address, done) as response, partial.open("ab" if response.status == _PARTIAL_CONTENT else "wb") as stream:
        done = stream.tell()
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdecimal() else file.size_bytes
        while chunk := response.read(CHUNK_BYTES):
            stream.write(chunk)
            done += len(chunk)
            progress(done, total)
        if total is not None and done < total:
            raise http.client.IncompleteRead(b"", total - done)


def _open(address: str, start: int) -> Any:
    """The response from byte `start` on, or the whole file if the server has no more bytes than that."""
    try:
        return urllib.request.urlopen(
            urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {}), timeout=TIMEOUT_S
        )
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == _RANGE_NOT_SATISFIABLE:
            return urllib.request.urlopen(address, timeout=TIMEOUT_S)
        raise


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(path: Path, file: TraceFile) -> None:
    if file.sha256 is None:
        return
    found = _sha256(path)
    if found != file.sha256:
        path.unlink()
        raise InputError(
            f"the checksum is {found[:12]}…, expected {file.sha256[:12]}…; the file was removed",
            where=str(path),
            hint="run the command again",
        )
