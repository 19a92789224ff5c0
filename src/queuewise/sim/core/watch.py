"""Run compiled code in threads, so that Ctrl-C or a time limit can end the wait for it.

Neither can interrupt a kernel.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.state import Counts

POLL_S = 0.2
PACKAGE = str(Path(__file__).parents[2])
T = TypeVar("T")


@dataclass(eq=False)
class Watch:
    """What is known of the user's functions that a thread calls. The thread changes it when it turns to other functions."""

    count: Counts = field(default_factory=Counts)  # user_calls is odd while a function runs
    time_limit_s: float = np.inf  # of one call
    policy: str = ""  # that the functions belong to


def run_watched(work: Callable[[], T], count: Counts, time_limit_s: float = np.inf) -> T:
    """Call `work` and return its result or raise its exception.

    Raises TimeoutError if a user's function (see `Counts.user_calls`) does not return within the time limit. The
    abandoned thread ends if it runs Python code. A compiled function that loops for ever ends only with the process.
    In a thread of `run_together`, which is watched already, `work` is called there.
    """
    thread = threading.current_thread()
    if isinstance(thread, _WatchedThread):
        return thread.turn_to(work, count, time_limit_s)
    if time_limit_s == np.inf and (JIT_DISABLED or thread is not threading.main_thread()):
        return work()
    results: list[T] = []
    run_together([(lambda: results.append(work()), Watch(count, time_limit_s))])
    return results[0]


def run_together(works: Sequence[tuple[Callable[[], Any], Watch]]) -> None:
    """Call all functions at the same time, each in a thread, and wait for them.

    Raises the first exception of one of them, or TimeoutError(policy) as `run_watched` does, without waiting for the
    others.
    """
    failures: list[BaseException] = []
    threads = [_WatchedThread(work, watch, failures) for work, watch in works]
    for thread in threads:
        thread.start()
    while not failures and (alive := [thread for thread in threads if thread.is_alive()]):
        alive[0].join(POLL_S)
        for thread in alive:
            thread.check()
    if failures:
        raise failures[0]


class _WatchedThread(threading.Thread):
    def __init__(self, work: Callable[[], Any], watch: Watch, failures: list[BaseException]) -> None:
        super().__init__(daemon=True)
        self._work, self._watch, self._failures = work, watch, failures
        self._seen, self._calls, self._since = watch.count, -1, time.monotonic()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self._failures.append(failure)

    def turn_to(self, work: Callable[[], T], count: Counts, time_limit_s: float) -> T:
        """Call `work`, in this thread, with other functions to watch."""
        watch, before = self._watch, (self._watch.count, self._watch.time_limit_s)
        watch.count, watch.time_limit_s = count, time_limit_s
        try:
            return work()
        finally:
            watch.count, watch.time_limit_s = before

    def check(self) -> None:
        """Raise TimeoutError if one call of a user's function has taken too long."""
        count = self._watch.count
        calls = int(count.user_calls)
        if count is not self._seen or calls != self._calls:
            self._seen, self._calls, self._since = count, calls, time.monotonic()
        elif calls % 2 and time.monotonic() - self._since > self._watch.time_limit_s:
            if self._runs_python():  # in compiled code an exception would stay pending, and a traced process hang
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(SystemExit))
            raise TimeoutError(self._watch.policy)

    def _runs_python(self) -> bool:
        """Whether the thread runs Python code of somebody else, which an exception can end."""
        frame = sys._current_frames().get(self.ident or 0)
        while frame is not None:
            if not frame.f_code.co_filename.startswith((PACKAGE, threading.__file__)):
                return True
            frame = frame.f_back
        return False
