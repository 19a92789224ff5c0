"""Numbers in names: written with ASCII digits alone, as everybody reads them. Python's own rules also allow 1_0, 1e3, ١, inf and blanks."""

from __future__ import annotations

import re

WHOLE = re.compile("[0-9]{1,9}")  # fits every integer of the engine
DECIMAL = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")


def whole_number(text: str) -> int | None:
    """A whole number of 0 or more, None if the text is none or is too large."""
    return int(text) if WHOLE.fullmatch(text) else None


def decimal_number(text: str) -> float | None:
    """A number of 0 or more, which may be inf if it has hundreds of digits; None if the text is none."""
    return float(text) if DECIMAL.fullmatch(text) else None
