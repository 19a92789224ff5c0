"""The switch that turns everything off at once: a file, which agents and services look for before they act."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from queuewise.runs import create_folder, write_text

HOME = "QUEUEWISE_LIVE_HOME"  # environment variable
NAME = "off"
GLANCE_S = 0.2  # how often it is looked at between two cycles


def live_home() -> Path:
    """Where live programs keep what they share."""
    named = os.environ.get(HOME)
    state = os.environ.get("XDG_STATE_HOME")
    return Path(named) if named else (Path(state) if state else Path.home() / ".local" / "state") / "queuewise"


def switch_off(home: Path, reason: str = "") -> Path:
    """Turn everything off. Returns the file that says so."""
    create_folder(home)
    write_text(home / NAME, reason + "\n")
    return home / NAME


def switch_on(home: Path) -> bool:
    """Undo `switch_off`; returns whether it was off."""
    try:
        (home / NAME).unlink()
    except FileNotFoundError:
        return False
    return True


def is_off(home: Path) -> bool:
    """Whether it is off. A folder that cannot be read counts as off."""
    try:
        os.stat(home / NAME)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def sleep_until_switched(until: float, home: Path | None, stop: Callable[[], bool] = lambda: False) -> None:
    """Sleep until a time (monotonic), or until somebody turns the switch."""
    before = home is not None and is_off(home)
    while (left := until - time.monotonic()) > 0 and not stop() and (home is not None and is_off(home)) == before:
        time.sleep(min(GLANCE_S, left))
