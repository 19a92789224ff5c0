"""Run compiled code so that Ctrl-C and a time limit end the wait for it: neither can reach inside a kernel."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.state import Counts

POLL_S = 0.2
T = TypeVar("T")


def run_watched(work: Callable[[], T], count: Counts, time_limit_s: float = np.inf) -> T:
    """Do the work, raise what it raises, and TimeoutError once a policy's own function (`USER_CALLS` of `count`) has not returned in time.

    A thread that is given up ends if it is in Python; nothing can stop a compiled function that loops for ever but the process's end.
    """
    limited = time_limit_s < np.inf
    if not limited and (JIT_DISABLED or threading.current_thread() is not threading.main_thread()):
        return work()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    calls, since = -1, time.monotonic()
    while thread.is_alive():
        thread.join(POLL_S)
        if count.user_calls != calls:
            calls, since = int(count.user_calls), time.monotonic()
        elif calls % 2 and time.monotonic() - since > time_limit_s:
            _ask_to_end(thread)
            raise TimeoutError
    if failures:
        raise failures[0]
    return results[0]


def _ask_to_end(thread: threading.Thread) -> None:
    """Let the thread's next step in Python raise SystemExit."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
