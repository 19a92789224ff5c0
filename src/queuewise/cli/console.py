"""Output of the commands: tables on stdout, notes on stderr. rich uses colours only on a terminal and if NO_COLOR is not set."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from queuewise.errors import InputError
from queuewise.plain_text import columns_that_fit, printable, terminal_width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NO_VALUE = "–"
WIDEST_NAME = 48  # of a policy in a table
NARROWEST_TEXT = 24  # of a column of text that is broken into lines
GAP = 3  # between two columns of a table
COMPILE_S = {"engine": 40, "environments": 45}  # on one core of the development machine


def note(text: str) -> None:
    """Print a message for the user, separate from the data. If stderr cannot be written, as on a full disk, the command goes on."""
    try:
        print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Write what a stream still holds, and whatever follows, to nowhere. Python flushes it at the end, and would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    title: str = "",
    drop_first: Sequence[int] = (),
    bars: int | None = None,
) -> None:
    """Print a table to stdout. The first `left` columns are text, the others numbers; column `bars` has bars, which begin at its left.

    Columns without any value are left out. If the table is wider than the terminal, text is broken into lines, and whole columns are
    left out and named in a note: those of `drop_first`, in this order, then from the right, those with text last. Long names in the
    first column are broken.
    """
    rows = [list(map(printable, row)) for row in rows]
    console, widths = _console(), _widths(columns, rows, left)
    kept, dropped = columns_that_fit(widths, GAP, console.width, drop_first, texts=left)
    table = _table(columns, rows, kept, left, bars)
    if title:
        console.print(printable(title), soft_wrap=True)
    console.print(table)
    if dropped:
        note(f"a wider terminal also shows: {', '.join(columns[c] for c in dropped if columns[c])}")


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> bool:
    """Whether the terminal is wide enough for the whole table."""
    return sum(width + GAP for width in _widths(columns, rows, left).values()) <= terminal_width()


def _with_values(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[int]:
    return [c for c in range(len(columns)) if c < max(left, 1) or any(row[c] != NO_VALUE for row in rows) or not rows]


def _console() -> Console:
    from rich.console import Console

    return Console(width=terminal_width(), markup=False, highlight=False)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int], left: int, bars: int | None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    short = all(len(row[0]) <= WIDEST_NAME for row in rows)
    for index in kept:
        width = WIDEST_NAME if index == 0 and not short else None
        justify: Literal["left", "right"] = "left" if index < left or index == bars else "right"
        table.add_column(
            columns[index], justify=justify, overflow="fold", no_wrap=index >= max(left, 1) or (index == 0 and short), width=width
        )
    for row in rows:
        table.add_row(*(row[index] for index in kept))
    return table


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> dict[int, int]:
    """Width of each column that has a value. Text after the first column can be broken, down to NARROWEST_TEXT."""
    from rich.cells import cell_len

    widths = {}
    for index in _with_values(columns, rows, left):
        widest = max(map(cell_len, (columns[index], *(row[index] for row in rows))))
        widths[index] = min(widest, WIDEST_NAME if index == 0 else NARROWEST_TEXT if index < left else widest)
    return widths


def check_policies(policies: Sequence[str], max_wait: str | None = None, model_sha256: Sequence[str] = ()) -> None:
    """Report an invalid policy name before any work starts, and compile the user's own functions.

    If `model_sha256` is given, the file of every model must have one of these checksums. `max_wait` is the bound on waits for policies
    that have none: say which ones have.
    """
    from queuewise.policies import parse_policy
    from queuewise.policies.found_rules import read_rule
    from queuewise.policies.model_file import check_pinned, find_model
    from queuewise.policies.names import found_rule, plays_apart
    from queuewise.prefixes import has_prefix, policies_of
    from queuewise.report.readable import duration

    if model_sha256 and not any(map(has_prefix, policies)):
        raise InputError("--model-sha256 is given, but no policy is a model", hint="add --policy model:RUN, or leave it out")
    for policy in dict.fromkeys(policies):
        _refuse_list(policy)
        if max_wait is not None and (own := parse_policy(policy).max_wait_s) < math.inf:
            note(f"--max-wait {max_wait} does not apply to {policy}, which has a bound of its own: {duration(own)}")
        if model_sha256 and has_prefix(policy):
            check_pinned(found_rule(policy) or find_model(parse_policy(policy).model), model_sha256)
        if plays_apart(policy):
            note(f"{policy}: {policies_of(policy).describe(policy)}")
            continue
        parsed, rule = parse_policy(policy), found_rule(policy)
        if rule is not None:
            note(f"{policy}: {read_rule(rule).describe()}")
        if ".py" in policy:
            for score in parsed.compile():
                note(f"compiled {score.own.reference} in {score.compile_s:.1f} s")


def _refuse_list(policy: str) -> None:
    """Raise an error that says what to write for `sjf,fcfs`."""
    from queuewise.policies import parse_policy

    try:
        parse_policy(policy)
    except InputError:
        parts = [part.strip() for part in policy.split(",")]
        if len(parts) == 1 or not all(parts):
            raise
        flags = " ".join(f"--policy {part}" for part in parts)
        raise InputError(f"--policy {policy!r} is no policy, but it may be a list", hint=f"repeat --policy: {flags}") from None


LATER_PARTS = {"replay_preemptive": "preemption", "replay": "conditions, limits and plans"}  # entries of sim/core/loop.py


def announce_compilation(*, playing: bool = False) -> None:
    """Print a note if the engine (and for models, the environments) will be compiled. Later starts load it from the cache."""
    from queuewise.sim.core.compilation import cache_is_warm

    if not cache_is_warm():
        note(f"compiling the engine (once, about {COMPILE_S['engine']} s) …")
    if playing and not cache_is_warm("envs", "begin_or_step_plain"):
        note(f"compiling the environments (once, about {COMPILE_S['environments']} s) …")
    _announce_later_compilations()


@functools.cache
def _announce_later_compilations() -> None:
    """The same for the parts of the engine that only some replays need: which ones, they know when they begin."""
    from numba.core import event

    class Compilations(event.Listener):
        def on_start(self, started: Any) -> None:
            if (name := started.data["dispatcher"].py_func.__name__) in LATER_PARTS:
                note(f"compiling the engine's part for {LATER_PARTS[name]} (once, about {COMPILE_S['engine']} s) …")

        def on_end(self, ended: Any) -> None:
            pass

    event.register("numba:compile", Compilations())  # type: ignore[no-untyped-call]
