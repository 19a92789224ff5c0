"""The settings that a training run left in its folder."""

from __future__ import annotations

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
