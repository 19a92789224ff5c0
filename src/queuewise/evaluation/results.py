"""Result files of an evaluation: written by `evaluate`, read by `compare` and by reports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, read_cell
from queuewise.evaluation.judging import Result
from queuewise.evaluation.replay_files import check_run, conditions_of, find_replays, to_json
from queuewise.plain_text import table_cell
from queuewise.runs import LAST_FILE, locked, write_text

SAME = ("workload_digest", "cluster_digest", "protocol", "windows", "warmup", "cooldown")  # must be equal for runs to be comparable
MAY_DIFFER = ("dispatch", "estimates", "kill_at_limit", "max_wait", "seed")  # settings under study, which become part of the policy's label


def write_results(folder: Path, cells: Sequence[Cell], result: Result) -> None:
    """Write metrics.jsonl (one line per cell), summary.csv (one row per policy) and, last, summary.json."""
    lines = [json.dumps({"policy": c.policy, "window": c.window, **flatten(c.metrics)}, allow_nan=False) for c in cells]
    rows = [row | _beside_columns(result, row["policy"]) for row in mean_metrics(cells)]
    with locked(folder):
        write_text(folder / "metrics.jsonl", "\n".join(lines) + "\n")
        write_text(folder / "summary.csv", to_csv(rows))
        write_text(folder / LAST_FILE, to_json(result.as_json()))


def _beside_columns(result: Result, policy: str) -> dict[str, Any]:
    beside = result.beside[policy]
    return {"makespan_by_span": beside.makespan_by_span, "waits_longer": beside.waits_longer_than is not None, "seen": beside.seen}


def mean_metrics(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One row per policy: the mean of every metric over the windows, of maxima the maximum, or None if it is undefined in a window."""
    rows = []
    for policy in dict.fromkeys(cell.policy for cell in cells):
        mine = [flatten(cell.metrics) for cell in cells if cell.policy == policy]
        columns: dict[str, list[Any]] = {name: [figures.get(name) for figures in mine] for name in mine[0]}
        rows.append({"policy": policy, **{name: None if None in values else _joined(name, values) for name, values in columns.items()}})
    return rows


def _joined(name: str, values: Sequence[float]) -> float:
    return float(max(values) if name.endswith(".max") else np.mean(values))


def flatten(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Nested keys joined by a dot: wait_s.mean."""
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        flat |= {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: table_cell(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows)
    return text.getvalue()


def read_cells(run: Path) -> list[Cell]:
    """All cells of a finished evaluation."""
    if conditions_of(run) is None:
        raise InputError(
            f"was written by {check_run(run).get('command', 'another command')}, not by evaluate",
            where=str(run),
            hint="use queuewise evaluate --protocol replay",
        )
    return [read_cell(replay) for replay in find_replays(run)]


def join_runs(runs: Sequence[Path]) -> list[Cell]:
    """The cells of several runs in one list. Raises an error unless all use the same windows of the same jobs on the same cluster.

    A policy that occurs in several runs is labelled with what differs between them: dispatch, estimates, seed, or the folder.
    """
    conditions = {run: conditions_of(run) or {} for run in runs}
    cells = {run: read_cells(run) for run in runs}
    first = runs[0]
    for run in runs[1:]:
        differing = [key for key in SAME if conditions[run].get(key) != conditions[first].get(key)]
        if differing:
            raise InputError(
                f"was not measured on the same windows as {first}: {', '.join(differing)} differ",
                where=str(run),
                hint="evaluate both with the same workload, cluster, protocol, windows, --warmup and --cooldown",
            )
    varying = [key for key in MAY_DIFFER if len({json.dumps(conditions[run].get(key)) for run in runs}) > 1]
    joined: dict[tuple[str, int], Cell] = {}
    for run in runs:
        suffix = ", ".join(f"{key}={conditions[run].get(key)}" for key in varying)
        for cell in cells[run]:
            label = f"{cell.policy} [{suffix}]" if suffix else cell.policy
            label = label if (label, cell.window) not in joined else f"{label} ({run.name})"
            joined[label, cell.window] = cell.renamed(label)
    return list(joined.values())
