"""Ctrl-C ends a command, and a second one ends it at once.

Python sees an interrupt only between two of its own instructions, and a compiled call or a step of torch can take many seconds. So a
thread watches for interrupts as well. At the second one, or GRACE_S after the first, it ends the process. Files are whole even then,
because they get their names only when they are complete, and whatever can be resumed is on disk.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

INTERRUPTED = 130  # exit code
GRACE_S = 2.0


@contextmanager
def ending_soon(grace_s: float = GRACE_S, *, alone: bool = True) -> Iterator[None]:
    """Watch for Ctrl-C in this block, which then has `grace_s` to end, or until the next Ctrl-C.

    `alone` says that the process has nothing else to do: it ends with the block, without taking the interpreter apart, which can take
    seconds. Does nothing outside of the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ours, grace_s), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not alone:
            raise
        atexit._run_exitfuncs()
        _end()
    finally:
        signal.set_wakeup_fd(before)
        theirs.close()  # ends the thread


def _watch(numbers: socket.socket, grace_s: float) -> None:
    """Read the numbers of the signals that arrive."""
    with numbers:
        while received := numbers.recv(1):
            if received[0] == signal.SIGINT:
                break
        else:
            return
        numbers.settimeout(grace_s)
        with suppress(TimeoutError):
            while received := numbers.recv(1):
                if received[0] == signal.SIGINT:
                    break
            else:
                return
    _end()


def _end() -> NoReturn:
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
