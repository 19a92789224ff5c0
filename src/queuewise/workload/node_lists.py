"""Slurm's lists of nodes: `n[01-03,7],gpu1` stands for n01, n02, n03, n7 and gpu1."""

from __future__ import annotations

import re

from queuewise.errors import InputError

MAX_NODES = 1_000_000  # in one list; more is a mistake in the list
_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"\[([^\[\]]*)\]")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The names in a list, in its order. Names may have several brackets: r[1-2]n[1-2] are four nodes."""
    if not text or _ENTRY.sub("", text).strip(",") or ",," in text:
        raise InputError(f"{text[:60]!r} is not a list of nodes", hint="for example n[01-16],gpu1")
    return tuple(name for entry in _ENTRY.findall(text) for name in _expand_entry(entry))


def _expand_entry(entry: str) -> list[str]:
    bracket = _RANGE.search(entry)
    if bracket is None:
        return [entry]
    before, after = entry[: bracket.start()], _expand_entry(entry[bracket.end() :])
    return [f"{before}{number}{rest}" for number in _numbers(bracket[1], entry) for rest in after]


def _numbers(ranges: str, entry: str) -> list[str]:
    """`08-10,12` as 08, 09, 10 and 12: leading zeros are kept."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not (last.isdecimal() and int(first) <= int(last) < int(first) + MAX_NODES)):
            raise InputError(f"[{ranges[:60]}] in {entry[:60]!r} is not a list of numbers", hint="for example n[01-16,20]")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return numbers
