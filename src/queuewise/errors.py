"""Errors a user can act on.

Every error that reaches a user is a `QueuewiseError`: one line with what was found and where, and a hint with the next step.
The command line prints it without a traceback and exits with `exit_code`.
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
    "onnx": "export",
    "onnxruntime": "export",
    "starlette": "serve",
    "uvicorn": "serve",
    "orjson": "serve",
    "prometheus_client": "serve",
    "highspy": "milp",
}


class QueuewiseError(Exception):
    """Base class of all errors with a hint."""

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
    """A file, name or value from the user is invalid."""

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
    """The valid name most similar to `name`, or None if no similarity (0 to 1) reaches `least`."""
    similarity = {candidate: _similarity(name.lower(), candidate.lower()) for candidate in valid}
    best = max(similarity, key=lambda candidate: similarity[candidate], default=None)
    return best if best is not None and similarity[best] >= least else None


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A suggestion to put in front of a hint, or an empty string."""
    near = nearest(name, valid)
    return "" if near is None else f"did you mean {near!r}? "


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """An InputError for an unknown name, with the most similar known one."""
    names = sorted(valid)
    return InputError(f"unknown {kind} {name!r}", hint=f"{did_you_mean(name, names)}known: {', '.join(names)}")


def _similarity(a: str, b: str) -> float:
    """The mean of an edit similarity (typing errors) and a match ratio (abbreviations), raised for a common prefix as in Jaro-Winkler."""
    edit_similarity = 1 - _edits(a, b) / max(len(a), len(b), 1)
    ratio = (edit_similarity + difflib.SequenceMatcher(None, a, b).ratio()) / 2
    prefix = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a[:4], b[:4], strict=False)))
    return ratio + 0.1 * prefix * (1 - ratio)


def _edits(a: str, b: str) -> int:
    """Number of insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment)."""
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
