"""Figures of training on disk: `metrics.jsonl` (a line an iteration) and `metrics.csv` always, TensorBoard and others where asked for.

A run that is resumed drops the lines written after its checkpoint, so that the files read as if nothing had happened.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from queuewise.errors import optional_imports
from queuewise.runs import replacing, write_text

JSONL, CSV = "metrics.jsonl", "metrics.csv"
Row = Mapping[str, Any]


class Sink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class Files:
    """JSONL as it comes; CSV with the columns of all rows so far, written anew when a new one appears."""

    def __init__(self, home: Path, kept: list[dict[str, Any]]) -> None:
        self._home, self._rows = home, kept
        write_text(home / JSONL, "".join(_line(row) for row in kept))
        self._columns = _columns(kept)
        self._write_csv()

    def write(self, row: Row) -> None:
        plain = dict(row)
        self._rows.append(plain)
        with (self._home / JSONL).open("a", encoding="utf-8") as file:
            file.write(_line(plain))
        if set(plain) <= set(self._columns):
            with (self._home / CSV).open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns, lineterminator="\n").writerow(plain)
        else:
            self._columns = _columns(self._rows)
            self._write_csv()

    def _write_csv(self) -> None:
        with replacing(self._home / CSV) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self._columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows)

    def close(self) -> None:
        pass


class TensorBoard:
    def __init__(self, home: Path, settings: Mapping[str, Any], after: int) -> None:
        with optional_imports():
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(home / "tensorboard", purge_step=after or None)

    def write(self, row: Row) -> None:
        for name, value in _figures(row):
            self._writer.add_scalar(name, value, row["frames"])

    def close(self) -> None:
        self._writer.close()


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


SINKS: dict[str, Callable[[Path, Mapping[str, Any], int], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MlFlow,
}


class Recorder:
    """All sinks of one seed's run."""

    def __init__(self, home: Path, names: Iterable[str], settings: Mapping[str, Any], *, after: int) -> None:
        """Goes on after iteration `after`; 0 starts anew."""
        kept = [row for row in read_rows(home) if row["iteration"] <= after] if after else []
        frames = kept[-1]["frames"] + 1 if kept else 0
        self.rows = kept
        self._sinks: list[Sink] = [Files(home, kept), *(SINKS[name](home, settings, frames) for name in names)]

    def write(self, row: Row) -> None:
        for sink in self._sinks:
            sink.write(row)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def read_rows(home: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl`; a last line that a kill cut short is left out."""
    path = home / JSONL
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _figures(row: Row) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in row.items() if value is not None]


def _line(row: Row) -> str:
    plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))
