"""What outlives an agent: a process that gives back the places and the order that the agent has left, however it ended.

The agent holds the other end of its input. When that ends, the agent has ended, also by kill -9. Jobs that were just told to start get
the usual time to do so; then, if no other agent has come, what still waits on nodes of ours is Slurm's again. If slurmctld does not
answer, it is asked again until it does.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PATIENCE_S = 10.0  # how long a job may take to start where it was put
AGAIN_S = 5.0
LOCK = "agents.lock"


class Watchdog:
    """The agent's end. It also tells watchdogs of earlier agents that there is an agent again."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home, self._env = home, {**os.environ, **env}
        self._lock = _opened(home)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Let there be a process that watches. Call it before anything is placed."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "queuewise.serve.slurm_watchdog", str(self._home)]
            quiet = subprocess.DEVNULL  # a program that reads what the agent says must see its end
            self._process = subprocess.Popen(
                command, env=self._env, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
            )


def _opened(home: Path) -> int:
    return os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def has_agent(home: Path) -> bool:
    """Whether an agent with this home runs."""
    number = _opened(home)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False


def take_back(home: Path) -> bool:
    """Give back places and order. False: Slurm did not answer, or not do all of it."""
    from queuewise.errors import InputError
    from queuewise.serve.slurm_control import PLACED, ServerClock, SlurmCommands, forget_place
    from queuewise.serve.slurm_order import MadeOrder

    slurm, made = SlurmCommands(), MadeOrder(home)
    try:
        jobs = slurm.jobs()
        now = ServerClock().now(jobs)
        placed = [forget_place(job, now) for job in jobs if job.state == "PENDING" and job.comment == PLACED]
        complaints = slurm.update([*placed, *made.undone(jobs)])
    except InputError:
        return False
    if not complaints:
        made.forget()
    return not complaints


def watch(home: Path) -> None:
    """Wait for the end of the agent, and tidy up after it."""
    while os.read(0, 4096):
        pass
    time.sleep(PATIENCE_S)
    while not has_agent(home) and not take_back(home):
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
