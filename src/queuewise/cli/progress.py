"""Progress on stderr: a bar on a terminal, elsewhere a line now and then. Nothing is shown of what takes less than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
LINES_EVERY_S = 30.0


@contextmanager
def progress_of(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yields a function that is called with a label whenever one of `total` parts is done."""
    began, done, label, lock = time.monotonic(), 0, "", threading.Lock()
    said = began - LINES_EVERY_S + PATIENCE_S  # elsewhere than on a terminal: the first line after PATIENCE_S
    bar = _Bar(what, total) if sys.stderr.isatty() else None

    def advance(name: str) -> None:
        nonlocal done, label, said
        with lock:
            done, label = done + 1, name
            if bar is not None:
                bar.update(done, label)
            elif time.monotonic() - said >= LINES_EVERY_S and done < total:
                from queuewise.cli.console import note

                said = time.monotonic()
                note(f"{what}: {done} of {total} ({label}), {said - began:.0f} s")

    timer = threading.Timer(PATIENCE_S, bar.show) if bar is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield advance
    finally:
        if timer is not None:
            timer.cancel()
        if bar is not None:
            bar.close()


class _Bar:
    """rich's bar, which is shown only when asked to."""

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(what, total=total)
        self._lock = threading.Lock()
        self._closed = False

    def show(self) -> None:
        with self._lock:
            if not self._closed:
                self._bar.start()

    def update(self, done: int, label: str) -> None:
        self._bar.update(self._task, completed=done, description=label)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._bar.stop()
