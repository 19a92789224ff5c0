"""Downloading files, with progress, resumption and verification.

A file gets its final name only when it is complete and its checksum, if known, is correct. Only https is spoken, also after a redirect;
no more bytes are taken than the catalogue states, or MAX_BYTES; and a file that is already there is never overwritten or removed.
"""

from __future__ import annotations

import fcntl
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
MAX_BYTES = 8 << 30  # of a file whose size the catalogue does not state
SCHEMES = ("https",)
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416

Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if known


def fetch(file: TraceFile, folder: Path, progress: Progress = lambda done, total: None) -> Path:
    """The file in `folder`; downloaded if it is not there yet."""
    target = folder / file.name
    if file.address.partition(":")[0] not in SCHEMES:
        raise InputError("is not an https address", where=file.address, hint="download the file manually")
    if target.exists():
        if not _is_correct(target, file):
            raise InputError("is another file than the published one", where=str(target), hint="move it away and run the command again")
        return target
    create_folder(folder)
    partial = target.with_name(target.name + ".part")
    try:
        _receive(file, partial, progress)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        kept = partial.stat().st_size if partial.exists() else 0
        hint = (
            f"{kept} bytes were kept; run the command again to continue" if kept else "check the connection, or download the file manually"
        )
        raise InputError(f"download failed: {error}", where=file.address, hint=hint) from None
    if not _is_correct(partial, file):
        found = _sha256(partial)
        partial.unlink()
        raise InputError(
            f"the checksum is {found[:12]}…, expected {str(file.sha256)[:12]}…; the file was removed",
            where=str(partial),
            hint="run the command again",
        )
    partial.replace(target)
    return target


def _receive(file: TraceFile, partial: Path, progress: Progress) -> None:
    """Append to a partial file, or start again if the server does not support it."""
    done = partial.stat().st_size if partial.exists() else 0
    if done and (done == file.size_bytes or (file.sha256 and _sha256(partial) == file.sha256)):
        return  # already complete, only not renamed yet
    with _open(file.address, done) as response, partial.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if response.status != _PARTIAL_CONTENT:
            stream.truncate(0)
        done = partial.stat().st_size
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdecimal() else file.size_bytes
        while chunk := response.read(CHUNK_BYTES):
            stream.write(chunk)
            done += len(chunk)
            if done > (file.size_bytes or MAX_BYTES):
                stream.truncate(0)
                raise ValueError(f"the server sends more than {file.size_bytes or MAX_BYTES:,} bytes")
            progress(done, total)
        if total is not None and done < total:
            raise http.client.IncompleteRead(b"", total - done)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if newurl.partition(":")[0].lower() not in SCHEMES:
            raise ValueError(f"the server redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(address: str, start: int) -> Any:
    """The response from byte `start` on, or the whole file if the server has no more bytes than that."""
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        return opener.open(urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {}), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == _RANGE_NOT_SATISFIABLE:
            return opener.open(address, timeout=TIMEOUT_S)
        raise


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_correct(path: Path, file: TraceFile) -> bool:
    return file.sha256 is None or _sha256(path) == file.sha256
