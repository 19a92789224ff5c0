"""The files of a training run: `config.toml`, and the metrics of every iteration.

Metrics go to `metrics.jsonl` (one line per iteration) and `metrics.csv`, and on request to TensorBoard and others. A
resumed run first drops the lines written after its checkpoint, so the files read as if it had never stopped.
"""

from __future__ import annotations

import csv
import io
import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import ConfigDict, Field

from queuewise.agents.train_settings import renamed
from queuewise.config import Config, parse_toml, validate
from queuewise.errors import InputError, optional_imports
from queuewise.plain_text import printable
from queuewise.regular_files import check_regular
from queuewise.runs import append_text, unwritable, write_text

JSONL, CSV = "metrics.jsonl", "metrics.csv"
Row = Mapping[str, Any]


class MetricSink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class MetricFiles:
    """JSONL, and CSV with the columns of all rows so far: it is rewritten when a new column appears."""

    def __init__(self, home: Path, kept: list[dict[str, Any]]) -> None:
        self._home, self._rows = home, kept
        write_text(home / JSONL, "".join(_line(row) for row in kept))
        self._columns = _columns(kept)
        self._write_csv()

    def write(self, row: Row) -> None:
        plain = dict(row)
        self._rows.append(plain)
        append_text(self._home / JSONL, _line(plain))
        if set(plain) <= set(self._columns):
            append_text(self._home / CSV, self._csv([plain]))
        else:
            self._columns = _columns(self._rows)
            self._write_csv()

    def _write_csv(self) -> None:
        heading = dict(zip(self._columns, self._columns, strict=True))
        write_text(self._home / CSV, self._csv([heading, *self._rows]))

    def _csv(self, rows: Iterable[Row]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def close(self) -> None:
        pass


class TensorBoard:
    """Files are written by a thread of TensorBoard. What goes wrong there is raised here when something is written next."""

    def __init__(self, home: Path, settings: Mapping[str, Any], after: int) -> None:
        with optional_imports():
            from torch.utils.tensorboard import SummaryWriter
        self._home, self._hook = home / "tensorboard", threading.excepthook
        threading.excepthook = self._without_traceback
        with self._one_line():
            self._writer: Any = SummaryWriter(self._home, purge_step=after or None)

    def write(self, row: Row) -> None:
        with self._one_line():
            for name, value in _figures(row):
                self._writer.add_scalar(name, value, row["frames"])

    def close(self) -> None:
        with self._one_line():
            try:
                self._writer.close()
            finally:
                threading.excepthook = self._hook

    def _without_traceback(self, args: threading.ExceptHookArgs) -> None:
        if not (issubclass(args.exc_type, OSError) and type(args.thread).__module__.startswith("tensorboard")):
            self._hook(args)

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self._home, error.errno or 0) from None


class WeightsAndBiases:
    def __init__(self, home: Path, settings: Mapping[str, Any], after: int) -> None:
        with optional_imports("wandb"):
            import wandb
        self._run: Any = wandb.init(project="queuewise", name=str(home), config=dict(settings), dir=str(home), resume="allow")

    def write(self, row: Row) -> None:
        self._run.log(dict(_figures(row)), step=row["frames"])

    def close(self) -> None:
        self._run.finish()


class MlFlow:
    def __init__(self, home: Path, settings: Mapping[str, Any], after: int) -> None:
        with optional_imports("mlflow"):
            import mlflow
        self._client: Any = mlflow
        mlflow.start_run(run_name=str(home))
        mlflow.log_dict(dict(settings), "settings.json")

    def write(self, row: Row) -> None:
        self._client.log_metrics(dict(_figures(row)), step=row["frames"])

    def close(self) -> None:
        self._client.end_run()


SINKS: dict[str, Callable[[Path, Mapping[str, Any], int], MetricSink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MlFlow,
}


class Recorder:
    """All sinks of one seed."""

    def __init__(self, home: Path, names: Iterable[str], settings: Mapping[str, Any], *, after: int) -> None:
        """Continue after iteration `after`; 0 starts from the beginning."""
        kept = [row for row in read_rows(home) if row["iteration"] <= after] if after else []
        frames = kept[-1]["frames"] + 1 if kept else 0
        self.rows = kept
        self._sinks: list[MetricSink] = [MetricFiles(home, kept), *(SINKS[name](home, settings, frames) for name in names)]

    def write(self, row: Row) -> None:
        for sink in self._sinks:
            sink.write(row)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def read_rows(home: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; an incomplete last line (the run was killed) is left out."""
    path = home / JSONL
    check_regular(path)
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = []
    for number, line in enumerate(lines, 1):
        if line.endswith(b"\n"):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise _damaged_line(path, number, str(error)) from None
            validate(MetricFields, row, source=f"{path}:{number}")
            rows.append(row)
    return rows


class MetricFields(Config):
    """A line of `metrics.jsonl`. Further fields are numbers or null."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, float | None]
    iteration: int
    frames: int


def _damaged_line(path: Path, number: int, why: str) -> InputError:
    hint = "remove the line; training writes the lines after the last checkpoint again"
    return InputError(f"is damaged: {printable(why)}", where=f"{path}:{number}", hint=hint)


def _figures(row: Row) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in row.items() if value is not None]


def _line(row: Row) -> str:
    plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


# --- the settings of a run

CONFIG = "config.toml"


def read_run_config(run: Path) -> tuple[dict[str, Any], list[int]]:
    """Settings and seeds of a run."""
    data = parse_toml(run / CONFIG)
    if data.get("command") != "train":
        raise InputError("was not written by queuewise train", where=str(run), hint="give the folder of a training run")
    fields = validate(TrainConfigFields, data, source=str(run / CONFIG))
    return renamed(fields.settings), fields.seeds


class TrainConfigFields(Config):
    """`config.toml` of `train`; the settings are checked where they are used."""

    model_config = ConfigDict(extra="allow", strict=True)
    settings: dict[str, Any]
    seeds: list[int] = Field(min_length=1)
    contents: dict[str, str] = Field(default_factory=dict)
    trained_on: list[dict[str, Any]] = Field(default_factory=list)


def check_contents(run: Path, contents: Mapping[str, str]) -> None:
    """Refuse to resume with other jobs, another cluster or another split than before; `contents` says what they are now."""
    before = parse_toml(run / CONFIG).get("contents", {})
    changed = [what for what, digest in contents.items() if before.get(what, digest) != digest]
    if changed:
        raise InputError(
            f"cannot be resumed: the {' and the '.join(changed)} changed since the run began",
            where=str(run),
            hint="restore the former contents, or start a new run with another --out (--init-from takes over the weights)",
        )
