"""Figures as people read them, the same on the terminal and in reports."""

from __future__ import annotations

import math


def duration(seconds: float | None) -> str:
    """Seconds in a readable unit: 12.3 s, 4.5 min, 6.7 h, 8.9 d, or a dash for no value."""
    if seconds is None or math.isnan(seconds):
        return "–"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def figure(value: float | None, digits: int = 0) -> str:
    """A number with thousands separators, or a dash for no value."""
    return "–" if value is None or math.isnan(value) else f"{value:,.{digits}f}"
