"""Slurm's lists of nodes: `n[01-03,7],gpu1` stands for n01, n02, n03, n7 and gpu1."""

from __future__ import annotations

import re

from queuewise.errors import InputError

MAX_NODES = 1_000_000  # in one list; more is a mistake in the list
MOST_DIGITS, MOST_BRACKETS = 18, 8
_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"\[([^\[\]]*)\]")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The names in a list, in its order. Names may have several brackets: r[1-2]n[1-2] are four nodes."""
    if not text or _ENTRY.sub("", text).strip(",") or ",," in text:
        raise InputError(f"{text[:60]!r} is not a list of nodes", hint="for example n[01-16],gpu1")
    names: list[str] = []
    for entry in _ENTRY.findall(text):
        names += _expand_entry(entry)
        if len(names) > MAX_NODES:
            raise _too_many(text)
    return tuple(names)


def _expand_entry(entry: str) -> list[str]:
    if entry.count("[") > MOST_BRACKETS:
        raise _too_many(entry)
    bracket = _RANGE.search(entry)
    if bracket is None:
        return [entry]
    before, after = entry[: bracket.start()], _expand_entry(entry[bracket.end() :])
    numbers = _numbers(bracket[1], entry)
    if len(numbers) * len(after) > MAX_NODES:
        raise _too_many(entry)
    return [f"{before}{number}{rest}" for number in numbers for rest in after]


def _numbers(ranges: str, entry: str) -> list[str]:
    """`08-10,12` as 08, 09, 10 and 12: leading zeros are kept."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        begin, end = (_digits(number) for number in (first, last if dash else first))
        if begin is None or end is None or not begin <= end < begin + MAX_NODES:
            raise InputError(f"[{ranges[:60]}] in {entry[:60]!r} is not a list of numbers", hint="for example n[01-16,20]")
        if len(numbers) > MAX_NODES:
            raise _too_many(entry)
        numbers += [str(number).zfill(len(first)) for number in range(begin, end + 1)]
    return numbers


def _digits(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _too_many(text: str) -> InputError:
    return InputError(f"{text[:60]!r} stands for more than {MAX_NODES:,} nodes", hint="for example n[01-16],gpu1")
