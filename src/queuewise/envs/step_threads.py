"""Threads that share the envs of a batch. Compiled code passes work between threads in less than a microsecond.

Waking a sleeping thread costs more than a batch of steps. A thread that has finished its work therefore polls for more
for a short time before it goes to sleep. Each thread steps the same envs every time, because they are in the caches of
its core. The caller does not wait for a thread that has not begun. It does that thread's work itself, so late threads,
or threads lost in a fork, make a step slower but never wrong.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numba import types

from queuewise.envs.actions import first_refused
from queuewise.envs.atomics import compare_and_swap, load_word, swap_word
from queuewise.envs.columns import as_frame
from queuewise.sim.core.compilation import address_of, caller_by_address, entry, kernel

# Status of a thread: it sleeps, polls for work, has been given work, or does it
ASLEEP, READY, CALLED, BUSY = range(4)
# The array `shared` has one cache line per thread, so that no thread slows down another. The caller's line is the last.
LINE = 8  # words of a cache line
# Words of a line. The first is the status. Then: whether observations are written in full, how many episodes ended, and
# whether the thread slept when it was called and must be woken.
FRESH, ENDED, SLEPT = 1, 2, 3
POLLS = 50_000  # before a thread goes to sleep: about half a millisecond
UNFINISHED, WAKE, REFUSED = -1, -2, -3  # see step_together

ADDRESSES = types.int64[::1]
STEP_SIGNATURE = types.int64(ADDRESSES, ADDRESSES, types.boolean, types.boolean, types.int64)
PUBLISH_SIGNATURE = types.none(ADDRESSES, ADDRESSES)
_begin_or_step = caller_by_address(STEP_SIGNATURE)
_publish = caller_by_address(PUBLISH_SIGNATURE)


@kernel
def _step_share(functions, frame, envs, workers, worker, fresh) -> int:  # type: ignore[no-untyped-def]
    """Step the envs of one thread (the caller is the last) and return how many episodes ended."""
    first, last = len(envs) * worker // (workers + 1), len(envs) * (worker + 1) // (workers + 1)
    ended = _begin_or_step(functions[0], frame, envs[first:last], False, fresh, len(envs))
    if functions[1] != 0:
        _publish(functions[1], frame, envs[first:last])
    return ended


@kernel
def _call_workers(shared, workers, fresh) -> bool:  # type: ignore[no-untyped-def]
    """Give work to all threads. Returns whether some of them sleep."""
    some = False
    for worker in range(workers):
        at = worker * LINE
        shared[at + FRESH] = fresh
        shared[at + ENDED] = 0
        asleep = swap_word(shared, at, CALLED) == ASLEEP
        shared[at + SLEPT] = asleep
        some = some or asleep
    return some


@entry
def count_ended(shared, workers) -> int:  # type: ignore[no-untyped-def]
    """Wait until no thread is busy and return how many episodes ended, or UNFINISHED if that takes long."""
    ended = shared[workers * LINE + ENDED]
    for worker in range(workers):
        polls = 0
        while load_word(shared, worker * LINE) == BUSY:
            polls += 1
            if polls == POLLS:
                return UNFINISHED
        ended += shared[worker * LINE + ENDED]
    return ended


@entry
def step_together(shared, workers, functions, frame, envs, fresh, called) -> int:  # type: ignore[no-untyped-def]
    """Give work to all threads, then do the caller's share and every share that no thread has begun by then.

    Returns how many episodes ended, or a negative number:
    - UNFINISHED: some thread is still busy; call `count_ended`.
    - WAKE: wake the threads marked SLEPT, then call this function again with `called`.
    - REFUSED − e: the action of env e is refused, and nothing was done.
    """
    if not called:
        refused = first_refused(as_frame(frame), len(envs))
        if refused >= 0:
            return REFUSED - refused
        if _call_workers(shared, workers, fresh):
            return WAKE
    ended = _step_share(functions, frame, envs, workers, workers, fresh)
    for worker in range(workers):
        if compare_and_swap(shared, worker * LINE, CALLED, READY):
            ended += _step_share(functions, frame, envs, workers, worker, fresh)
    shared[workers * LINE + ENDED] = ended
    return count_ended(shared, workers)


@entry
def serve(shared, workers, worker, functions, frame, envs) -> None:  # type: ignore[no-untyped-def]
    """Do the work of a thread other than the caller's, until there has been none for a while."""
    at = worker * LINE
    polls = 0
    while True:
        if compare_and_swap(shared, at, CALLED, BUSY):
            shared[at + ENDED] = _step_share(functions, frame, envs, workers, worker, shared[at + FRESH] != 0)
            swap_word(shared, at, READY)
            polls = 0
        elif polls == POLLS:
            if compare_and_swap(shared, at, READY, ASLEEP):
                return
        else:
            while polls < POLLS and load_word(shared, at) != CALLED:
                polls += 1


class StepThreads:
    """`size` threads that step the envs of one frame. The caller's thread is one of them."""

    def __init__(self, size: int, frame: Any, envs: Any, begin_or_step: Any, publish: Any | None) -> None:
        self._workers = size - 1
        self._shared = np.zeros(size * LINE, np.int64)
        self._work = (np.array([address_of(begin_or_step), 0 if publish is None else address_of(publish)]), frame, envs)
        self._wake_up = [threading.Semaphore(0) for _ in range(self._workers)]
        self._closed = False
        for worker in range(self._workers):
            threading.Thread(target=self._serve, args=(worker,), daemon=True).start()

    def _serve(self, worker: int) -> None:
        while True:
            self._wake_up[worker].acquire()
            if self._closed:
                return
            serve(self._shared, self._workers, worker, *self._work)

    def step(self, fresh: bool) -> int:
        """Step all envs. Returns how many episodes ended, or REFUSED − e if the action of env e is refused."""
        ended: int = step_together(self._shared, self._workers, *self._work, fresh, False)
        if ended == WAKE:
            for worker, wake_up in enumerate(self._wake_up):
                if self._shared[worker * LINE + SLEPT]:
                    wake_up.release()
            ended = step_together(self._shared, self._workers, *self._work, fresh, True)
        while ended == UNFINISHED:
            time.sleep(0)  # there are probably more threads than cores: yield to the others
            ended = count_ended(self._shared, self._workers)
        return ended

    def close(self) -> None:
        self._closed = True
        for wake_up in self._wake_up:
            wake_up.release()
