"""Run compiled code so that Ctrl-C and a time limit end the wait for it: neither can reach inside a kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from queuewise.sim.compilation import JIT_DISABLED
from queuewise.sim.state import I64, USER_CALLS

POLL_S = 0.2
T = TypeVar("T")


def run_watched(work: Callable[[], T], count: I64, time_limit_s: float = np.inf) -> T:
    """Do the work, raise what it raises, and TimeoutError once a policy's own function (`USER_CALLS` of `count`) has not returned in time.

    The thread that is given up runs on until the process ends: nothing can stop a function that loops for ever.
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
        if count[USER_CALLS] != calls:
            calls, since = int(count[USER_CALLS]), time.monotonic()
        elif calls % 2 and time.monotonic() - since > time_limit_s:
            raise TimeoutError
    if failures:
        raise failures[0]
    return results[0]
