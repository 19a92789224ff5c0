"""Progress of training on stderr: on a terminal a live bar with a sparkline of VAL, elsewhere plain lines."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from queuewise.agents.train_settings import TrainSettings
from queuewise.evaluation.scores import parse_score
from queuewise.plain_text import printable

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 24  # evaluations shown, the last ones
NARROW = 120  # columns of a terminal below which the bar is short and the elapsed time is left out
BESIDE_VAL = 33  # columns of the seed, the speed and the remaining time


class Display:
    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._live = sys.stderr.isatty()
        self._console = Console(stderr=True, highlight=False, markup=False)
        narrow = self._console.width < NARROW
        bar = 10 if narrow else 40
        self._room = self._console.width - BESIDE_VAL - bar - (0 if narrow else 8)
        columns = (
            TextColumn("seed {task.fields[seed]}"), BarColumn(bar), TextColumn("{task.fields[speed]}"),
            *(() if narrow else (TimeElapsedColumn(),)), TimeRemainingColumn(), TextColumn("{task.fields[val]}"),
        )  # fmt: skip
        self._bar = Progress(*columns, console=self._console, disable=not self._live)
        self._task: TaskID | None = None
        self._scores: list[float] = []
        self._seed = 0

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, seed: int, settings: TrainSettings, frames: int) -> None:
        self._seed, self._scores = seed, []
        self._task = self._bar.add_task("", total=settings.frames, completed=frames, seed=seed, speed="", val="")

    def iteration(self, row: dict[str, Any]) -> None:
        val = {name.removeprefix("val/"): score for name, score in row.items() if name.startswith("val/")}
        if val:
            self._scores.append(val["agent"])
            if not self._live:
                self.note(f"seed {self._seed}: {row['frames']:,} frames, {row['frames_per_s']:,.0f}/s, VAL {self._compare(val)}")
        if self._task is not None:
            fields: dict[str, Any] = {"speed": f"{row['frames_per_s']:,.0f} frames/s"}
            if val:
                fields["val"] = val_beside_bar(self._scores, self._comparisons(val), self._room)
            self._bar.update(self._task, completed=row["frames"], **fields)

    def _compare(self, val: dict[str, float]) -> str:
        return self._comparisons(val)[0]

    def _comparisons(self, val: dict[str, float]) -> list[str]:
        """The score on VAL beside those of all others, of the best other, and alone."""
        higher = parse_score(self._settings.objective).higher_is_better
        others = sorted(((score, name) for name, score in val.items() if name != "agent"), reverse=higher)
        listed = [f"{name} {score:,.4g}" for score, name in others]
        alone = f"{self._settings.objective} {val['agent']:,.4g}"
        return [f"{alone} ({', '.join(listed)})", *(f"{alone} ({one})" for one in listed[:1]), alone]

    def note(self, text: str) -> None:
        self._console.print(printable(text), soft_wrap=True)


def val_beside_bar(scores: list[float], texts: list[str], room: int) -> str:
    """The first of the texts that fits into the room, or the last, behind as many bars as fit."""
    text = next((text for text in texts if len(text) <= room), texts[-1])
    bars = max(0, min(SPARKS, room - len(text) - 1, len(scores)))
    return f"{sparkline(scores[len(scores) - bars :])} {text}" if bars else text


def sparkline(values: list[float]) -> str:
    """One bar per value, scaled from the least to the greatest."""
    if not values:
        return ""
    least, span = min(values), max(values) - min(values)
    return "".join(BARS[int((value - least) / span * (len(BARS) - 1)) if span else 0] for value in values)
