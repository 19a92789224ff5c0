"""Threads that share the envs of a batch. Compiled code hands work from one to the other in less than a microsecond.

Waking a thread that sleeps costs more than a batch of steps, so a thread that has done its work looks out for more for a moment before
it goes to sleep. Each thread steps the same envs every time, because they lie in the caches of its core. The caller does not wait
for a thread that has not begun, but does its work: a crew whose threads are late, or were lost in a fork, is slower and still right.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numba import types

from queuewise.envs.actions import first_refused
from queuewise.envs.atomics import look, put, put_if
from queuewise.envs.columns import as_frame
from queuewise.sim.core.compilation import address_of, caller_by_address, entry, kernel

ASLEEP, READY, CALLED, BUSY = range(4)  # a thread's word. It sleeps, looks out for work, has been given some, does it
LINE = 8  # words of a cache line: each thread has one on the board, the caller the last, so that none slows another down
FRESH, ENDED, SLEPT = 1, 2, 3  # words of its line after the first: what is asked, how many episodes ended, whether it has to be woken
LOOKS = 50_000  # before going to sleep: about half a millisecond
UNFINISHED, WAKE, REFUSED = -1, -2, -3  # see step_together

ADDRESSES = types.int64[::1]
PLAY_SIGNATURE = types.int64(ADDRESSES, ADDRESSES, types.boolean, types.boolean, types.int64)
PUBLISH_SIGNATURE = types.none(ADDRESSES, ADDRESSES)
_play = caller_by_address(PLAY_SIGNATURE)
_publish = caller_by_address(PUBLISH_SIGNATURE)


@kernel
def _step_share(functions, frame, envs, hands, hand, fresh) -> int:  # type: ignore[no-untyped-def]
    """Step the envs of one thread (the caller's is the last); how many episodes have ended."""
    first, last = len(envs) * hand // (hands + 1), len(envs) * (hand + 1) // (hands + 1)
    ended = _play(functions[0], frame, envs[first:last], False, fresh, len(envs))
    if functions[1] != 0:
        _publish(functions[1], frame, envs[first:last])
    return ended


@kernel
def _call_hands(board, hands, fresh) -> bool:  # type: ignore[no-untyped-def]
    """Give all threads work. Returns whether some sleep."""
    some = False
    for hand in range(hands):
        at = hand * LINE
        board[at + FRESH] = fresh
        board[at + ENDED] = 0
        asleep = put(board, at, CALLED) == ASLEEP
        board[at + SLEPT] = asleep
        some = some or asleep
    return some


@entry
def count_ended(board, hands) -> int:  # type: ignore[no-untyped-def]
    """How many episodes have ended, once nobody is at work any more; UNFINISHED if that takes long."""
    ended = board[hands * LINE + ENDED]
    for hand in range(hands):
        looks = 0
        while look(board, hand * LINE) == BUSY:
            looks += 1
            if looks == LOOKS:
                return UNFINISHED
        ended += board[hand * LINE + ENDED]
    return ended


@entry
def step_together(board, hands, functions, frame, envs, fresh, called) -> int:  # type: ignore[no-untyped-def]
    """Give all threads work, and do the caller's share and those that nobody has begun by then.

    Returns how many episodes have ended, or a number below zero: UNFINISHED; WAKE if those that have SLEPT must be woken before this is
    called again, with `called`; or, if an action is refused, REFUSED less the number of its env, and nothing was done.
    """
    if not called:
        refused = first_refused(as_frame(frame), len(envs))
        if refused >= 0:
            return REFUSED - refused
        if _call_hands(board, hands, fresh):
            return WAKE
    ended = _step_share(functions, frame, envs, hands, hands, fresh)
    for hand in range(hands):
        if put_if(board, hand * LINE, CALLED, READY):
            ended += _step_share(functions, frame, envs, hands, hand, fresh)
    board[hands * LINE + ENDED] = ended
    return count_ended(board, hands)


@entry
def serve(board, hands, hand, functions, frame, envs) -> None:  # type: ignore[no-untyped-def]
    """What a thread other than the caller's does, until there has been no work for a while."""
    at = hand * LINE
    looks = 0
    while True:
        if put_if(board, at, CALLED, BUSY):
            board[at + ENDED] = _step_share(functions, frame, envs, hands, hand, board[at + FRESH] != 0)
            put(board, at, READY)
            looks = 0
        elif looks == LOOKS:
            if put_if(board, at, READY, ASLEEP):
                return
        else:
            while looks < LOOKS and look(board, at) != CALLED:
                looks += 1


class StepThreads:
    """`size` threads, the caller's among them, that step the envs of one frame."""

    def __init__(self, size: int, frame: Any, envs: Any, play: Any, publish: Any | None) -> None:
        self._hands = size - 1
        self._board = np.zeros(size * LINE, np.int64)
        self._work = (np.array([address_of(play), 0 if publish is None else address_of(publish)]), frame, envs)
        self._alarms = [threading.Semaphore(0) for _ in range(self._hands)]
        self._closed = False
        for hand in range(self._hands):
            threading.Thread(target=self._serve, args=(hand,), daemon=True).start()

    def _serve(self, hand: int) -> None:
        while True:
            self._alarms[hand].acquire()
            if self._closed:
                return
            serve(self._board, self._hands, hand, *self._work)

    def step(self, fresh: bool) -> int:
        """Step all envs; how many episodes have ended, or REFUSED less the number of the env whose action is."""
        ended: int = step_together(self._board, self._hands, *self._work, fresh, False)
        if ended == WAKE:
            for hand, alarm in enumerate(self._alarms):
                if self._board[hand * LINE + SLEPT]:
                    alarm.release()
            ended = step_together(self._board, self._hands, *self._work, fresh, True)
        while ended == UNFINISHED:
            time.sleep(0)  # there seem to be more threads than cores: let them go on
            ended = count_ended(self._board, self._hands)
        return ended

    def close(self) -> None:
        self._closed = True
        for alarm in self._alarms:
            alarm.release()
