"""Advice for the plugin of LSF's scheduler: the latest order and hosts, ready to be sent at once over a unix socket.

What takes time, reading LSF's state and deciding, happens between the cycles of mbschd. Advice that is too old is withdrawn: then the
answer names no job, and LSF's own order stands.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from queuewise.policies.snapshot import JobId
from queuewise.serve.kill_switch import is_off
from queuewise.serve.live_policy import Decided
from queuewise.serve.lsf_records import job_number
from queuewise.serve.unix_sockets import bind_unix_socket, remove_own_socket

QUESTION, END = b"CYCLE\n", b"END\n"
OLDEST_S = 60.0
POLL_S = 0.2


def advice_text(decided: Decided, waiting: Sequence[JobId]) -> bytes:
    """The lines for the plugin: jobs to start with their hosts, the most urgent first, then those that are to wait."""
    started = {start.job_id for start in decided}
    lines = [
        f"{job_number(start.job_id)} {','.join(str(n) for n in dict.fromkeys(place.node for place in start.places))}\n" for start in decided
    ]
    lines += [f"{job_number(job_id)} \n" for job_id in waiting if job_id not in started]
    return "".join(lines).encode() + END


class AdviceServer:
    """Answers every question with the latest advice. Use as a context manager."""

    def __init__(self, path: Path, *, delay_s: float = 0.0, oldest_s: float = OLDEST_S, home: Path | None = None) -> None:
        """`home` is that of the switch: once it is turned off, there is no advice, even while the next one is awaited."""
        self._path, self.delay_s, self._oldest_s, self._home = path, delay_s, oldest_s, home
        self._advice, self._given_at = END, -oldest_s
        self._stopped = threading.Event()
        self._open: set[socket.socket] = set()

    def give(self, text: bytes) -> None:
        """Replace the advice."""
        self._advice, self._given_at = text, time.monotonic()

    def _present(self) -> bytes:
        """The advice, if it may be followed."""
        off = self._home is not None and is_off(self._home)
        return END if off or time.monotonic() >= self._given_at + self._oldest_s else self._advice

    def __enter__(self) -> AdviceServer:
        self._listener = bind_unix_socket(self._path, 0o600)
        self._number = self._path.stat().st_ino
        self._listener.listen(8)
        self._listener.settimeout(POLL_S)
        self._thread = threading.Thread(target=self._accept, daemon=True, name="advice")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        remove_own_socket(self._path, self._number)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # no file is left for it; there may be one later
                time.sleep(POLL_S)
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True, name="advice-answers").start()

    def _answer(self, connection: socket.socket) -> None:
        self._open.add(connection)
        with connection, suppress(OSError):
            connection.settimeout(None)
            asked = b""
            while part := connection.recv(4096):
                asked += part
                while asked.startswith(QUESTION):
                    asked = asked[len(QUESTION) :]
                    if self.delay_s:
                        time.sleep(self.delay_s)
                    connection.sendall(self._present())
                if not QUESTION.startswith(asked):
                    break  # not the plugin
        self._open.discard(connection)
