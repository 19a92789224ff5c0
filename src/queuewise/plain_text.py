"""Text from logs and users, made safe for other programs that would read it as more than text, and tables that fit a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

WIDEST_LABEL = 40  # characters
WIDTH_WITHOUT_TERMINAL = 160


def printable(text: str) -> str:
    """The text without line ends and control characters, which terminals obey and XML forbids."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def figure_text(text: str) -> str:
    """Text for matplotlib, which reads what is between two dollar signs as a formula."""
    return printable(text).replace("$", r"\$")


def figure_label(text: str) -> str:
    """A label of a figure. Long ones are cut in the middle, because they would leave no room for the figure."""
    half = WIDEST_LABEL // 2
    return figure_text(text if len(text) <= WIDEST_LABEL else f"{text[:half]}…{text[-half:]}")


def table_cell(text: str) -> str:
    """A cell of a CSV file. A spreadsheet would compute what begins with one of these characters."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(text) else text


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def terminal_width() -> int:
    """Columns of the terminal, or of $COLUMNS; wide where nobody looks at it."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and len(stated) < 6 and int(stated) > 0:
        return int(stated)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL


def columns_that_fit(
    widths: Mapping[int, int], gap: int, room: int, drop_first: Sequence[int] = (), *, texts: int = 1
) -> tuple[list[int], list[int]]:
    """Columns of a table that fit into `room` with a gap after each, and those that are left out.

    Left out are `drop_first`, then columns of numbers from the right, then of texts, which are the first ones. Column 0 stays.
    """
    order = [*drop_first, *(c for c in sorted(widths, key=lambda c: (c >= texts, c), reverse=True) if c not in drop_first)]
    kept = list(widths)
    while sum(widths[c] + gap for c in kept) > room and (out := next((c for c in order if c in kept and c), None)) is not None:
        kept.remove(out)
    return kept, [c for c in widths if c not in kept]
