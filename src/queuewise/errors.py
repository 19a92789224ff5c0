"""Errors a user can act on.

Every error that reaches a user is a `QueuewiseError`: one line that says what was found and where, and a hint
that says what to do next. The command line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


class MissingExtraError(QueuewiseError):
    """An optional dependency is needed and not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed", hint=f'pip install "queuewise[{extra}]"')


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """An InputError for a name that is not registered, suggesting the nearest one."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    suggestion = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {kind} {name!r}", hint=f"{suggestion}known: {', '.join(names)}")
