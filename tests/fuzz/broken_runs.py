"""Run folders and models with one damaged file: cut, emptied, removed, replaced by a pipe, or with one damaged field."""

from __future__ import annotations

import json
import os
import random
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.cases import DAMAGED_VALUES, change_bytes, change_value, in_words, locations, remove_value
from queuewise.config import to_toml

CARD = "queuewise"  # key of a model's card in the header of its file
LENGTH_BYTES = 8  # of the length of that header


@dataclass(frozen=True)
class DamagedRun:
    """A command on a copy of a sound run with one damaged file."""

    run: str  # simulated, evaluated or trained: which sound run
    number: int
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.run}-{self.number}-{self.arguments[0]}"


READ_WITH: dict[str, tuple[tuple[str, ...], ...]] = {
    "simulated": (("report", "run", "--no-figures", "--exports", "none"),),
    "evaluated": (("report", "run", "--no-figures", "--exports", "none"), ("compare", "run")),
    "trained": (
        ("simulate", "--workload", "bursty", "--jobs", "20", "--cluster", "2x2:V100-16", "--policy", "model:run"),
        ("plot", "run", "--out", "curves.svg"),
    ),
}
DAMAGES = {"simulated": 40, "evaluated": 60, "trained": 60}

RUN_CASES = [
    DamagedRun(run, number, READ_WITH[run][number % len(READ_WITH[run])]) for run, times in DAMAGES.items() for number in range(times)
]


def damage_run(sound: Path, case: DamagedRun, seed: int, home: Path) -> str:
    """Copy the sound run to `home/run` and damage it. Returns what was done."""
    rng = random.Random(f"{seed} {case.name}")
    shutil.copytree(sound, home / "run")
    files = sorted(path for path in (home / "run").rglob("*") if path.is_file())
    readable = [path for path in files if path.suffix in DAMAGED_FIELD]
    path = rng.choice(readable if rng.random() < 0.75 else files)
    what = rng.choice(("field",) * 6 + ("cut", "changed", "empty", "gone", "folder", "pipe"))
    done = f"{path.relative_to(home)}: {what}"
    if what == "field" and path.suffix in DAMAGED_FIELD:
        return f"{done} {DAMAGED_FIELD[path.suffix](rng, path)}"
    content = path.read_bytes()
    path.unlink()
    if what == "cut":
        path.write_bytes(content[: rng.randint(0, len(content))])
    elif what in ("changed", "field"):
        path.write_bytes(change_bytes(rng, content, 3))
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    return done


def _damage(rng: random.Random, data: Any) -> tuple[Any, str]:
    """The data with another value in one place, or without it."""
    if not (places := list(locations(data))):
        return rng.choice(DAMAGED_VALUES), "whole file"
    depth = rng.choice(sorted({len(place) for place in places}))  # there are many more values deep down
    place = rng.choice([place for place in places if len(place) == depth])
    if rng.random() < 0.25:
        return remove_value(data, place), f"without {'.'.join(map(str, place))}"
    value = rng.choice((*DAMAGED_VALUES, None))
    return change_value(data, place, value), in_words(place, value)


def _damage_json(rng: random.Random, path: Path) -> str:
    changed, done = _damage(rng, json.loads(path.read_text()))
    path.write_text(json.dumps(changed))
    return done


def _damage_lines(rng: random.Random, path: Path) -> str:
    lines = path.read_text().splitlines()
    row = rng.randrange(len(lines))
    changed, done = _damage(rng, json.loads(lines[row]))
    lines[row] = json.dumps(changed)
    path.write_text("\n".join(lines) + "\n")
    return f"line {row + 1} {done}"


def _damage_toml(rng: random.Random, path: Path) -> str:
    changed, done = _damage(rng, tomllib.loads(path.read_text()))
    path.write_text(to_toml(changed if isinstance(changed, dict) else {"x": changed}))
    return done


def _damage_card(rng: random.Random, path: Path) -> str:
    content = path.read_bytes()
    end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:end])
    card, done = _damage(rng, json.loads(header["__metadata__"][CARD]))
    header["__metadata__"][CARD] = json.dumps(card)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(LENGTH_BYTES, "little") + text + content[end:])
    return f"card {done}"


DAMAGED_FIELD: dict[str, Callable[[random.Random, Path], str]] = {
    ".json": _damage_json,
    ".jsonl": _damage_lines,
    ".toml": _damage_toml,
    ".safetensors": _damage_card,
}
