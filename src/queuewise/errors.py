"""Errors a user can act on.

Every error that reaches a user is a `QueuewiseError`: one line that says what was found and where, and a hint
that says what to do next. The command line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

EXTRA_OF = {  # top-level module of an optional package -> the extra of pyproject.toml that installs it
    "torch": "train",
    "tensorboard": "train",
    "matplotlib": "report",
    "plotly": "report",
    "onnx": "export",
    "onnxruntime": "export",
    "sklearn": "learn",
    "threadpoolctl": "learn",
}


class QueuewiseError(Exception):
    """Base of all errors that carry a hint."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        self.message = message
        self.hint = hint
        self.where = where
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} (hint: {self.hint})" if self.hint else text


class InputError(QueuewiseError):
    """A file, name or value given by the user cannot be used."""

    exit_code = 2


class MissingPackageError(QueuewiseError):
    """An optional package is needed and not installed."""

    exit_code = 2

    def __init__(self, package: str) -> None:
        extra = EXTRA_OF.get(package)
        install = f"pip install 'queuewise[{extra}]'" if extra else f"pip install {package}"
        super().__init__(f"this needs {package}, which is not installed", hint=install)


@contextmanager
def optional_imports(*more: str) -> Iterator[None]:
    """Around imports of optional packages: a missing one raises an error with the command that installs it.

    `more` names packages that no extra installs. Any other module that is missing is a defect and keeps its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in (*EXTRA_OF, *more):
            raise
        raise MissingPackageError(package) from None


def nearest(name: str, valid: Iterable[str], *, least: float = 0.5) -> str | None:
    """The valid name most like `name`, if any is at least `least` (0 nothing, 1 the same) like it."""
    likeness = {candidate: _likeness(name.lower(), candidate.lower()) for candidate in valid}
    best = max(likeness, key=lambda candidate: likeness[candidate], default=None)
    return best if best is not None and likeness[best] >= least else None


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A question to put in front of a hint, or nothing."""
    near = nearest(name, valid)
    return "" if near is None else f"did you mean {near!r}? "


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """An InputError for a name that is not registered, suggesting the nearest one."""
    names = sorted(valid)
    return InputError(f"unknown {kind} {name!r}", hint=f"{did_you_mean(name, names)}known: {', '.join(names)}")


def _likeness(a: str, b: str) -> float:
    """Typing slips change few characters, abbreviations share many, and a common beginning counts for more (as in Jaro-Winkler)."""
    slips = 1 - _edits(a, b) / max(len(a), len(b), 1)
    like = (slips + difflib.SequenceMatcher(None, a, b).ratio()) / 2
    beginning = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a[:4], b[:4], strict=False)))
    return like + 0.1 * beginning * (1 - like)


def _edits(a: str, b: str) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y)))
            if before and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], before[j - 2] + 1)
        before = last
    return row[-1]
