"""Run compiled code in a thread, so that Ctrl-C or a time limit can end the wait for it.

Neither can interrupt a kernel.
"""

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
    """Call `work` and return its result or raise its exception.

    Raises TimeoutError if a user's function (see `Counts.user_calls`) does not return within the time limit. The
    abandoned thread ends if it runs Python code. A compiled function that loops for ever ends only with the process.
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
            _raise_exit_in(thread)
            raise TimeoutError
    if failures:
        raise failures[0]
    return results[0]


def _raise_exit_in(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
