"""Ctrl-C ends a command, and a second one ends it at once.

Python sees an interrupt only between two of its own instructions, and a compiled call or a step of torch can take many seconds. So a
thread watches for interrupts as well. At the second one, or GRACE_S after the first, it ends the process. Files are whole even then,
because they get their names only when they are complete, and whatever can be resumed is on disk.

An interrupt in a function that C code has called, as LLVM does while it loads code, would be printed and forgotten: it is raised again.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

INTERRUPTED = 130  # exit code
GRACE_S = 2.0
AGAIN_AFTER_S = 0.02


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
    sys.unraisablehook, hook_before = _raise_again, sys.unraisablehook
    threading.Thread(target=_watch, args=(ours, grace_s), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not alone:
            raise
        atexit._run_exitfuncs()
        _end()
    finally:
        sys.unraisablehook = hook_before
        signal.set_wakeup_fd(before)
        theirs.close()  # ends the thread


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt that could not be raised where it happened, in the main thread, once it has left that place."""
    if lost.exc_type is KeyboardInterrupt:
        threading.Timer(AGAIN_AFTER_S, _interrupt_main_thread).start()
    else:
        sys.__unraisablehook__(lost)


def _interrupt_main_thread() -> None:
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(KeyboardInterrupt))


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
