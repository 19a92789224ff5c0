"""Threads that wait for their share of a batch. Handing a share over costs a few microseconds, which a pool of futures does not reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


class _Hand:
    """One thread. `go` lets it begin, `done` says that it has ended; both are locks because nothing in Python wakes a thread sooner."""

    def __init__(self) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._work: Callable[[], int] | None = None
        self._result = 0
        self._failure: BaseException | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self._work is None:
                return
            try:
                self._result = self._work()
            except BaseException as failure:
                self._failure = failure
            self._done.release()

    def begin(self, work: Callable[[], int] | None) -> None:
        """Do the work, or go home if there is none."""
        self._work = work
        self._go.release()

    def result(self) -> int:
        self._done.acquire()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._result


class Crew:
    """`size` threads, the caller's among them."""

    def __init__(self, size: int) -> None:
        self._hands = [_Hand() for _ in range(size - 1)]

    def total(self, function: Callable[..., int], shares: Sequence[Any], *arguments: Any) -> int:
        """The sum of function(share, *arguments) over all shares, one a thread."""
        for hand, share in zip(self._hands, shares[1:], strict=True):
            hand.begin(lambda share=share: function(share, *arguments))  # type: ignore[misc]
        total = function(shares[0], *arguments)
        return total + sum(hand.result() for hand in self._hands)

    def close(self) -> None:
        for hand in self._hands:
            hand.begin(None)
        self._hands = []
