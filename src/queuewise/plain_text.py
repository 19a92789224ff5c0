"""Text from logs and users, made safe for other programs that would read it as more than text."""

from __future__ import annotations

WIDEST_LABEL = 40  # characters


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
