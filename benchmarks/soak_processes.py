"""Commands that the soak starts, stops and limits, and processes that outlive them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MARK = "QUEUEWISE_SOAK"  # in the environment of every process that a round starts
LONGEST_S = 600.0  # of a command: then it hangs; compiling takes minutes on a busy machine
ORPHANS_END_WITHIN_S = 10.0
LOOKED_AFTER_S, LONGEST_STEP_S = 0.1, 2.0  # between two looks at a process: asked for, and counted at most


class RunningTime:
    """Seconds for which this process ran. While it is paused (SIGSTOP, or a machine that sleeps), so are its commands, and none hangs."""

    def __init__(self) -> None:
        self._last, self._spent = time.monotonic(), 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        self._spent, self._last = self._spent + min(now - self._last, LONGEST_STEP_S), now
        return self._spent


running_time = RunningTime()


def start(
    folder: Path, arguments: Sequence[str], *, stop: tuple[signal.Signals, float] | None = None, file_bytes: int | None = None
) -> tuple[int | None, str, float]:
    """Run a command, send it a signal after some seconds. Returns the exit code (None: ended by a signal), stderr and seconds."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

    environment = os.environ | {MARK: "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "NO_COLOR": "1"}
    begin = running_time()
    process = subprocess.Popen(
        [sys.executable, "-m", "queuewise", *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace",
        preexec_fn=limit,  # noqa: PLW1509 (this process has no threads)
    )  # fmt: skip
    signals = [(stop[1], stop[0])] if stop else []  # in turn: seconds, signal
    signals.append((LONGEST_S + (stop[1] if stop else 0.0), signal.SIGKILL))
    while True:
        try:
            _, err = process.communicate(timeout=LOOKED_AFTER_S)
            break
        except subprocess.TimeoutExpired:
            if signals and running_time() - begin > signals[0][0]:
                process.send_signal(signals.pop(0)[1])
    code = process.returncode if process.returncode >= 0 else None
    if not signals or (code is None and not stop):
        code = 1  # it hung, or crashed
    return code, err, running_time() - begin


def is_of_start(err: str) -> bool:
    """Whether Python was interrupted while it was starting, before any code of the command line ran."""
    return err.rstrip().endswith("KeyboardInterrupt") and "queuewise/cli" not in err


def orphans() -> list[str]:
    """Processes that a command started and that outlive it."""
    until = running_time() + ORPHANS_END_WITHIN_S
    while (left := list(_marked())) and running_time() < until:
        time.sleep(LOOKED_AFTER_S)
    return left


def _marked() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and f"{MARK}=1".encode() in (entry / "environ").read_bytes():
                yield f"{entry.name} {(entry / 'cmdline').read_bytes().decode(errors='replace')[:200]}"
        except OSError:  # it has ended, or belongs to somebody else
            continue
