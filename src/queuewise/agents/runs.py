"""The settings that a training run left in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queuewise.config import parse_toml
from queuewise.errors import InputError

CONFIG = "config.toml"


def read_config(run: Path) -> tuple[dict[str, Any], list[int]]:
    """Settings and seeds of a run that was begun before."""
    data = parse_toml(run / CONFIG)
    if data.get("command") != "train":
        raise InputError("was not written by queuewise train", where=str(run), hint="give the folder of a training run")
    return data["settings"], data["seeds"]


def check_contents(run: Path, contents: Mapping[str, str]) -> None:
    """Refuse to go on with other jobs or another cluster than the run began with; `contents` are their fingerprints now."""
    before = parse_toml(run / CONFIG).get("contents", {})
    changed = [what for what, digest in contents.items() if before.get(what, digest) != digest]
    if changed:
        raise InputError(
            f"cannot go on: the {' and the '.join(changed)} changed since the run began",
            where=str(run),
            hint="bring the former back, or begin a new run with another --out (--init-from takes over the weights)",
        )
